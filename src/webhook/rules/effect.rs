//! Changes of a ProxmoxMachine that could not take effect any more are refused, with the reason.
//!
//! Refused is only what is certainly without effect, by what the object itself says: a field of the
//! clone once `spec.providerID` tells that there is a VM, a field of the VM's configuration and seed
//! once the status tells that it has got both, a check of the guest once the machine is ready. Before
//! that a mistake can be mended while the machine waits. Compared is what the fields mean: what a
//! client leaves out, because it is empty, says as much as nothing.

use kube::core::DynamicObject;
use serde_json::Value;

use super::Denial;

/// Fields that are read when node, VMID and template are chosen and the VM is cloned.
const AT_CLONE: [&str; 11] = [
    "allowedNodes",
    "format",
    "full",
    "pool",
    "snapName",
    "sourceNode",
    "storage",
    "target",
    "templateID",
    "templateSelector",
    "vmIDRange",
];

/// Fields that are read until the VM has its seed: its hardware, and what the guest is told.
const AT_SEED: [&str; 7] =
    ["description", "disks", "memoryMiB", "metadataSettings", "network", "numCores", "numSockets"];

/// Fields that are read until the machine is ready.
const AT_BOOT: [&str; 1] = ["checks"];

pub(super) fn judge(new: &DynamicObject, old: &DynamicObject) -> Result<(), Denial> {
    // The status cannot change together with the spec, so that the old one counts.
    let says = |path| old.data.pointer(path).and_then(Value::as_bool) == Some(true);
    let ready = says("/status/ready");
    let seeded = ready || says("/status/bootstrapDataProvided");
    // Whoever takes the VM's identity out of the spec wants another VM.
    let cloned = [old, new].iter().all(|object| has_vm(object));
    for (fields, settled, why) in [
        (&AT_CLONE[..], cloned, "the VM was cloned"),
        (&AT_SEED[..], seeded, "the VM was configured and has its bootstrap data"),
        (&AT_BOOT[..], ready, "the machine is ready, and its guest is not asked again"),
    ] {
        let change = fields
            .iter()
            .filter(|_| settled)
            .find_map(|field| first_change(field, &value(old, field), &value(new, field)));
        if let Some((path, value)) = change {
            let message = format!(
                "cannot take effect any more: {why}. Let the machine be replaced: give its owner \
                 (MachineDeployment, control plane) a new ProxmoxMachineTemplate, or delete its \
                 Machine"
            );
            return Err(Denial::invalid(format!("spec.{path}"), value, message));
        }
    }
    Ok(())
}

fn has_vm(object: &DynamicObject) -> bool {
    let id = object.data.pointer("/spec/providerID").and_then(Value::as_str);
    id.is_some_and(|id| !id.is_empty())
}

fn value(object: &DynamicObject, field: &str) -> Value {
    let value = object.data.get("spec").and_then(|spec| spec.get(field));
    if field == "full" {
        // The one field of which "false" says more than nothing.
        return Value::Bool(value.and_then(Value::as_bool).unwrap_or(true));
    }
    value.map(said).unwrap_or_default()
}

/// A value without what says nothing; null when nothing is left.
fn said(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let map = map.iter().map(|(key, value)| (key.clone(), said(value)));
            let map: serde_json::Map<_, _> = map.filter(|(_, value)| !value.is_null()).collect();
            if map.is_empty() { Value::Null } else { Value::Object(map) }
        }
        Value::Array(list) if !list.is_empty() => Value::Array(list.iter().map(said).collect()),
        Value::Array(_) | Value::Null | Value::Bool(false) => Value::Null,
        Value::String(text) if text.is_empty() => Value::Null,
        Value::Number(number) if number.as_f64() == Some(0.0) => Value::Null,
        other => other.clone(),
    }
}

/// The first difference, with its path and new value.
fn first_change(path: &str, old: &Value, new: &Value) -> Option<(String, Value)> {
    match (old, new) {
        _ if old == new => None,
        (Value::Object(before), Value::Object(after)) => {
            let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
            keys.sort();
            let side = |map: &serde_json::Map<_, _>, key| map.get(key).cloned().unwrap_or_default();
            keys.into_iter().find_map(|key| {
                first_change(&format!("{path}.{key}"), &side(before, key), &side(after, key))
            })
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let mut pairs = before.iter().zip(after).enumerate();
            pairs.find_map(|(index, (old, new))| first_change(&format!("{path}.{index}"), old, new))
        }
        _ => Some((path.to_owned(), new.clone())),
    }
}

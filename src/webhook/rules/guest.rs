//! Network settings that neither Proxmox nor a guest could apply. A machine with such waits for ever,
//! and says so in a condition; here it is refused when it is made.
//!
//! capmox stores them, so what an object has had stays: only what a write brings in is refused.

use kube::core::DynamicObject;
use serde_json::Value;

use super::{Denial, machine};
use crate::api::{MACHINE_FINALIZER, NetworkSpec, ProxmoxMachineSpec};
use crate::bootstrap::network::asked::{Misfit, Part, misfits};
use crate::ids::{is_bridge, network_device};

pub(super) fn judge(
    object: &DynamicObject,
    spec: &ProxmoxMachineSpec,
    old: Option<&DynamicObject>,
) -> Result<(), Denial> {
    let known = match old {
        None if is_copy(object) => return Ok(()),
        None => vec![],
        Some(old) => super::spec(old).map_or_else(|_| vec![], |spec| in_spec(old, &spec)),
    };
    let is_new = |fault: &Fault| !known.iter().any(|old| old.is_same(fault));
    match in_spec(object, spec).into_iter().find(is_new) {
        Some(fault) => Err(fault.denial()),
        None => Ok(()),
    }
}

/// A field with a value that nobody could apply.
#[derive(Debug)]
struct Fault {
    /// Below `spec.network`.
    path: String,
    value: Value,
    reason: String,
}

impl Fault {
    fn denial(&self) -> Denial {
        Denial::invalid(format!("spec.network.{}", self.path), &self.value, &self.reason)
    }

    /// Whether it is the same fault, though other devices came or went: they move it to another place
    /// of its list, and the reason may name them.
    fn is_same(&self, other: &Self) -> bool {
        let field = |path: &str| path.replace(|c: char| c.is_ascii_digit(), "");
        self.value == other.value && field(&self.path) == field(&other.path)
    }
}

/// Whether a new object is one that existed before: moved by clusterctl, or restored.
fn is_copy(object: &DynamicObject) -> bool {
    let finalizers = object.metadata.finalizers.iter().flatten();
    finalizers.into_iter().any(|finalizer| finalizer == MACHINE_FINALIZER)
        || object.data.pointer("/spec/providerID").is_some_and(Value::is_string)
}

fn in_spec(object: &DynamicObject, spec: &ProxmoxMachineSpec) -> Vec<Fault> {
    let value = object.data.pointer("/spec/network").unwrap_or(&Value::Null);
    spec.network.as_ref().map_or_else(Vec::new, |network| faults(network, value))
}

/// All that a new machine with this network is refused for; `value` has it as it was written.
pub(super) fn refusals(network: &NetworkSpec, value: &Value) -> Vec<Denial> {
    let first = machine::network(network).err().into_iter();
    first.chain(faults(network, value).iter().map(Fault::denial)).collect()
}

/// All faults of a network, which `value` has as it was written.
fn faults(network: &NetworkSpec, value: &Value) -> Vec<Fault> {
    let mut found = Vec::new();
    let mut refuse = |path: String, reason: &str| {
        let pointer = path.replace("].", "/").replace(['[', '.'], "/").replace(']', "");
        let value = value.pointer(&format!("/{pointer}")).cloned().unwrap_or_default();
        found.push(Fault { path, value, reason: reason.to_owned() });
    };
    let default = network.default.iter().map(|device| ("default".to_owned(), &device.bridge));
    let additional = network.additional_devices.iter().flatten().enumerate();
    let additional = additional.map(|(index, device)| {
        let path = format!("additionalDevices.{index}");
        (path, &device.bridge, device.name.as_str())
    });
    let additional: Vec<_> = additional.collect();
    for (path, _, name) in &additional {
        if network_device(name).is_none_or(|number| number == 0) {
            let reason = "no network device of Proxmox: expected net1 to net31";
            refuse(format!("{path}.name"), reason);
        }
    }
    for (path, bridge) in default.chain(additional.into_iter().map(|(path, it, _)| (path, it))) {
        if !is_bridge(bridge) {
            let reason = "no name of a bridge of Proxmox: expected letters, digits, '-', '_' and \
                          '.'";
            refuse(format!("{path}.bridge"), reason);
        }
    }
    for Misfit { part, field, reason } in misfits(network) {
        let part = match part {
            Part::Device(index) => format!("additionalDevices.{index}"),
            Part::Vrf(index) => format!("vrfs.{index}"),
        };
        refuse(format!("{part}.{field}"), &reason);
    }
    found
}

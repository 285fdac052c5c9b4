//! Machines whose object cannot be read as a whole, such as one with a number that no field of ours can
//! hold. They are left alone until they are mended. Deleting asks little of an object: what else cannot
//! be read is left out.

use kube::core::{ApiResource, DynamicObject};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tracing::{debug, warn};

use super::decision::Wake;
use super::pass::{Interrupted, Shared};
use super::stores::Stored;
use crate::api::{ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineStatus, reasons};

/// What tells that there is a VM, and which. Without these it would be left behind.
const OF_VM: &[&str] = &["providerID", "virtualMachineID"];
/// What tells whose the VM is where the spec does not, and on which storage the seed is.
const OF_STATUS: &[&str] = &["bootstrapISO", "bootstrapISONode", "templateRef"];

impl Shared {
    /// Deletes the machine if it is to be, and says what is wrong with its object otherwise.
    pub(super) async fn serve_unreadable(
        &self,
        object: &Stored,
        invalid: &str,
    ) -> Result<Wake, Interrupted> {
        let meta = object.meta();
        let mut why = invalid.to_owned();
        if meta.deletion_timestamp.is_some() {
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            match read(self.client.clone(), namespace, &object.name_any()).await? {
                None => return Ok(Wake::OnChange),
                Some(Ok(machine)) => return self.serve(machine).await,
                Some(Err(field)) => why = field,
            }
        }
        warn!(error = why, "the object cannot be read; correct it");
        let text = format!("the object cannot be read: {why}. Nothing is done for it until it can");
        let event = Event {
            type_: EventType::Warning,
            reason: reasons::VM_PROVISION_FAILED.to_owned(),
            action: "Reconcile".to_owned(),
            note: Some(text.chars().take(1000).collect()),
            secondary: None,
        };
        let named = ProxmoxMachine {
            metadata: meta.clone(),
            spec: ProxmoxMachineSpec::default(),
            status: None,
        };
        if let Err(error) = self.recorder.publish(&event, &named.object_ref(&())).await {
            debug!(%error, "event not written");
        }
        Ok(Wake::OnChange)
    }
}

/// The machine as the API server has it, as far as [`for_deletion`] can read it.
pub(super) async fn read(
    client: Client,
    namespace: &str,
    name: &str,
) -> kube::Result<Option<Result<ProxmoxMachine, String>>> {
    let kind = ApiResource::erase::<ProxmoxMachine>(&());
    let api = Api::<DynamicObject>::namespaced_with(client, namespace, &kind);
    Ok(api.get_opt(name).await?.map(for_deletion))
}

/// The machine as far as it can be read.
///
/// # Errors
/// A text that names a field without which its deletion could leave something behind.
fn for_deletion(object: DynamicObject) -> Result<ProxmoxMachine, String> {
    let spec: ProxmoxMachineSpec = readable(object.data.get("spec"), "spec", OF_VM)?;
    let status: ProxmoxMachineStatus = readable(object.data.get("status"), "status", OF_STATUS)?;
    Ok(ProxmoxMachine { metadata: object.metadata, spec, status: Some(status) })
}

fn readable<T: DeserializeOwned>(
    value: Option<&Value>,
    part: &str,
    needed: &[&str],
) -> Result<T, String> {
    let mut kept = Map::new();
    for (key, value) in value.and_then(Value::as_object).into_iter().flatten() {
        let alone = Map::from_iter([(key.clone(), value.clone())]);
        match serde_json::from_value::<T>(Value::Object(alone)) {
            Ok(_) => drop(kept.insert(key.clone(), value.clone())),
            Err(why) if needed.contains(&key.as_str()) => {
                return Err(format!("{part}.{key} cannot be read: {why}"));
            }
            Err(_) => {}
        }
    }
    serde_json::from_value(Value::Object(kept)).map_err(|why| format!("{part}: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn read(spec: &Value, status: &Value) -> Result<ProxmoxMachine, String> {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxMachine",
            "metadata": {"name": "m", "uid": "u"}, "spec": spec, "status": status,
        });
        for_deletion(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn what_a_deletion_needs_is_read_whatever_else_cannot_be() {
        let spec = json!({
            "virtualMachineID": 105, "providerID": "proxmox://u", "sourceNode": "pve1",
            "numCores": 1_u64 << 33, "network": {"default": {"bridge": 7}},
        });
        let status = json!({
            "ready": true, "proxmoxNode": "pve2", "bootstrapISO": "local:iso/user-data-105.iso",
            "cloneAttempts": "many", "taskRef": "UPID",
        });
        let machine = read(&spec, &status).unwrap();
        assert_eq!(machine.metadata.uid.as_deref(), Some("u"));
        assert_eq!(machine.spec.virtual_machine_id, Some(105));
        assert_eq!(machine.spec.provider_id.as_deref(), Some("proxmox://u"));
        assert_eq!((machine.spec.num_cores, &machine.spec.network), (None, &None));
        let status = machine.status.unwrap();
        assert!(status.ready);
        assert_eq!(status.proxmox_node.as_deref(), Some("pve2"));
        assert_eq!(status.bootstrap_iso.as_deref(), Some("local:iso/user-data-105.iso"));
        assert_eq!((status.task_ref.as_deref(), status.clone_attempts), (Some("UPID"), None));
        assert!(read(&json!(null), &json!(null)).is_ok());
    }

    #[test]
    fn without_what_tells_of_vm_and_seed_nothing_is_deleted() {
        let seeded = json!({"bootstrapISO": 7});
        for (spec, status, field) in [
            (json!({"virtualMachineID": 1e19}), json!({}), "spec.virtualMachineID"),
            (json!({"virtualMachineID": "105"}), json!({}), "spec.virtualMachineID"),
            (json!({"providerID": 7}), json!({}), "spec.providerID"),
            (json!({}), seeded, "status.bootstrapISO"),
            (json!({}), json!({"templateRef": 7}), "status.templateRef"),
        ] {
            let why = read(&spec, &status).unwrap_err();
            assert!(why.contains(field), "{why}");
        }
    }
}

//! A machine that went by other hands: its finalizer was taken off, so that nothing was done about its
//! VM. Whoever did it may have wanted just that, so the VM is left alone, and told of.

use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};

use super::observe::key_of;
use super::traces::Traces;
use crate::api::{MACHINE_FINALIZER, ProxmoxMachine};

/// The reason of the event.
const REASON: &str = "VMLeft";

impl Traces {
    /// Tells of what a machine left behind that is gone, or about to go, without this provider.
    pub(super) fn tell_departed(&self, machine: &ProxmoxMachine) {
        if !self.misses(machine) {
            return;
        }
        let key = key_of(machine);
        let Some(text) = left_behind(machine) else { return };
        tracing::warn!(namespace = key.namespace, name = key.name, "{text}");
        let recorder = self.recorder.clone();
        let about = kube::Resource::object_ref(machine, &());
        tokio::spawn(async move {
            let event = Event {
                type_: EventType::Warning,
                reason: REASON.to_owned(),
                note: Some(text),
                action: "Reconcile".to_owned(),
                secondary: None,
            };
            if let Err(error) = recorder.publish(&event, &about).await {
                tracing::debug!(%error, "event not written");
            }
        });
    }

    /// Whether a machine had the finalizer of this provider, and this process did not take it off.
    pub(super) fn misses(&self, machine: &ProxmoxMachine) -> bool {
        let (held, released) =
            self.memory.with(&key_of(machine), |remembered| (remembered.held, remembered.released));
        // Without a sign of it, a process before this one may have taken it off by rights.
        (held || is_held(machine))
            && !released
            && !self.memory.is_gone(machine.metadata.uid.as_deref())
    }
}

/// Whether the finalizer of this provider is on a machine.
pub(super) fn is_held(machine: &ProxmoxMachine) -> bool {
    machine.finalizers().iter().any(|finalizer| finalizer == MACHINE_FINALIZER)
}

/// What is left of a machine that went, and whose finalizer this provider did not remove. One that is
/// not being deleted only left what is watched. The last state that the API server tells is that before
/// the finalizer was removed.
fn left_behind(machine: &ProxmoxMachine) -> Option<String> {
    machine.metadata.deletion_timestamp.as_ref()?;
    let vmid = machine.spec.virtual_machine_id?;
    let status = machine.status.as_ref();
    let node = status.and_then(|status| status.proxmox_node.as_deref());
    let node = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let iso = status.and_then(|status| status.bootstrap_iso.as_deref());
    let iso = iso.map(|iso| format!(", and the ISO {iso}")).unwrap_or_default();
    Some(format!(
        "the finalizer {MACHINE_FINALIZER} was removed by other hands, so VM {vmid}{node} was not looked \
         at: if it is still there, nobody looks after it. Destroy it in Proxmox{iso}; the addresses of \
         its claims may be given to others while it runs"
    ))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::fixture::*;
    use super::*;

    #[test]
    fn only_of_a_machine_that_was_deleted_without_us_something_is_left() {
        let mut machine = ready().machine;
        assert_eq!(left_behind(&machine), None, "it left what is watched");
        machine.metadata.deletion_timestamp = Some(Time(now()));
        let text = left_behind(&machine).unwrap_or_default();
        assert!(text.contains("VM 105 on node pve2"), "{text}");
        machine.spec.virtual_machine_id = None;
        assert_eq!(left_behind(&machine), None, "nothing was made");
    }
}

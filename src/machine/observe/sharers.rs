//! Other machines that record the VMID of this one.
//!
//! Those of another Proxmox cluster have nothing to do with it. That it is another is proven by what both
//! list under the number, not by the addresses, of which one Proxmox cluster has many.

use std::sync::Arc;

use kube::ResourceExt;

use super::super::pass::Pass;
use super::super::stores::Stores;
use crate::api::ProxmoxMachine;
use crate::hypervisor::{Endpoint, View};
use crate::ids::VmId;

/// Other machines that record the VMID of this one, in whichever Proxmox cluster.
pub(super) fn all(stores: &Stores, machine: &ProxmoxMachine) -> Vec<ProxmoxMachine> {
    let Some(number) = machine.spec.virtual_machine_id else { return Vec::new() };
    let machines = stores.machines.state();
    let others = machines.iter().filter_map(|other| other.0.as_ref().ok()).filter(|other| {
        other.metadata.uid != machine.metadata.uid && other.spec.virtual_machine_id == Some(number)
    });
    others.cloned().collect()
}

impl Pass<'_> {
    /// Counts only machines that may have their VM here, once the endpoint is known. Asks nobody.
    pub(super) async fn leave_out_other_clusters(&mut self, endpoint: &Arc<Endpoint>) {
        let going = self.facts.machine.metadata.deletion_timestamp.is_some();
        let (true, true, Some(vmid)) = (going, self.facts.vmid_shared, self.facts.vmid()) else {
            return;
        };
        let here = endpoint.held_view().await;
        let mut shared = false;
        for other in all(&self.shared.stores, &self.facts.machine) {
            let name = other.name_any();
            let infra = super::gather(&self.shared.stores, other).infra;
            let known = infra.and_then(|infra| self.shared.connections.known(&infra));
            let there = match known {
                Some(known) if !known.is_same_proxmox(&endpoint.shared_ledger()) => {
                    known.held_view().await
                }
                _ => None,
            };
            shared |= match (&here, there) {
                (Some(here), Some(there)) => !is_elsewhere(vmid, &name, here, &there),
                _ => true,
            };
        }
        self.facts.vmid_shared = shared;
    }
}

/// Whether the VM of another machine is certainly one of another Proxmox cluster: listed there under
/// the machine's name, while here something of another name has the number.
fn is_elsewhere(vmid: VmId, machine: &str, here: &View, there: &View) -> bool {
    let name = |view: &View| view.guests.get(&vmid).and_then(|guest| guest.name.clone());
    match (name(here), name(there)) {
        (Some(here), Some(there)) => there == machine && here != machine,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    fn lists(name: Option<&str>) -> View {
        let vm =
            json!({"type": "qemu", "id": "qemu/105", "vmid": 105, "node": "pve1", "name": name});
        View::new(Instant::now(), serde_json::from_value(json!([vm])).unwrap())
    }

    #[test]
    fn a_number_that_a_machine_of_another_proxmox_has_too_does_not_keep_a_seed() {
        let vmid = VmId::try_from(105).unwrap();
        let nothing = View::new(Instant::now(), vec![]);
        for (what, here, there, expected) in [
            ("two VMs", lists(Some("else")), lists(Some("w-9")), true),
            ("one VM by two addresses", lists(Some("w-9")), lists(Some("w-9")), false),
            ("its VM was renamed", lists(Some("else")), lists(Some("else")), false),
            ("no name yet there", lists(Some("else")), lists(None), false),
            ("no name yet here", lists(None), lists(Some("w-9")), false),
            ("not listed there", lists(Some("else")), nothing.clone(), false),
            ("not listed here", nothing, lists(Some("w-9")), false),
        ] {
            assert_eq!(is_elsewhere(vmid, "w-9", &here, &there), expected, "{what}");
        }
    }
}

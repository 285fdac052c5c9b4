//! Other machines that record the VMID of this one.
//!
//! Those of another Proxmox cluster have nothing to do with it. That it is another is proven by what both
//! have under the number, not by the addresses, of which one Proxmox cluster has many.

use kube::ResourceExt;

use super::super::double::Double;
use super::super::pass::Pass;
use super::super::stores::Stores;
use crate::api::ProxmoxMachine;
use crate::hypervisor::View;
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

/// The one among them that records the same VM, rather one that stays.
pub(super) fn double(machine: &ProxmoxMachine, sharers: &[ProxmoxMachine]) -> Option<Double> {
    let own = machine.spec.provider_id.as_ref()?;
    let doubles = sharers.iter().filter(|other| other.spec.provider_id.as_ref() == Some(own));
    let doubles = doubles.map(|other| Double {
        namespace: other.namespace().unwrap_or_default(),
        name: other.name_any(),
        is_deleted: other.metadata.deletion_timestamp.is_some(),
    });
    doubles.min_by_key(|double| double.is_deleted)
}

impl Pass<'_> {
    /// Counts only machines that may have their VM here, once it is known what has the number here. Asks
    /// nobody.
    pub(super) fn leave_out_other_clusters(&mut self) {
        let going = self.facts.machine.metadata.deletion_timestamp.is_some();
        let (true, Some(endpoint), Some(vmid)) =
            (going && self.facts.vmid_shared, &self.endpoint, self.facts.vmid())
        else {
            return;
        };
        let here = self.facts.vm().and_then(|vm| vm.config.name()).map(str::to_owned);
        let mut shared = false;
        for other in all(&self.shared.stores, &self.facts.machine) {
            let name = other.name_any();
            let infra = super::gather(&self.shared.stores, other).infra;
            let known = infra.and_then(|infra| self.shared.connections.known(&infra));
            let known = known.filter(|known| !known.is_same_proxmox(&endpoint.shared_ledger()));
            let there = known.and_then(|known| known.held_view());
            shared |= match (&here, there) {
                (Some(here), Some(there)) => !is_elsewhere(vmid, &name, here, &there),
                _ => true,
            };
        }
        self.facts.vmid_shared = shared;
    }
}

/// Whether the VM of another machine is certainly one of another Proxmox cluster: listed there under
/// the machine's name, while the VM that has the number here has another.
fn is_elsewhere(vmid: VmId, machine: &str, here: &str, there: &View) -> bool {
    let listed = there.guests.get(&vmid).and_then(|guest| guest.name.as_deref());
    listed == Some(machine) && here != machine
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
    fn a_machine_is_elsewhere_when_its_vm_is_listed_there_and_another_has_the_number_here() {
        let vmid = VmId::try_from(105).unwrap();
        let nothing = View::new(Instant::now(), vec![]);
        for (what, here, there, expected) in [
            ("two VMs", "else", lists(Some("w-9")), true),
            ("one VM by two addresses", "w-9", lists(Some("w-9")), false),
            ("its VM was renamed", "else", lists(Some("else")), false),
            ("no name yet there", "else", lists(None), false),
            ("not listed there", "else", nothing, false),
        ] {
            assert_eq!(is_elsewhere(vmid, "w-9", here, &there), expected, "{what}");
        }
    }
}

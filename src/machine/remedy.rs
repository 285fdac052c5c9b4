//! What people can do about a refusal or a failed task, by the cause that Proxmox's words name.
//! Pure.

use super::facts::Facts;
use super::seed;
use crate::hypervisor::Operation;
use crate::pve::Cause;

/// A sentence that begins in the middle; `None` where Proxmox's own words are all there is to say.
pub(super) fn remedy(cause: Option<Cause>, operation: Operation, facts: &Facts) -> Option<String> {
    let text = match (cause?, operation) {
        (Cause::NoSpace, Operation::Upload) => {
            let storage = facts.recorded_seed().and_then(seed::storage_of);
            let storage = storage.map_or_else(|| "the storage".to_owned(), |s| s.to_string());
            let node = facts.recorded_node().map(|node| format!(" of node {node}"));
            let node = node.unwrap_or_default();
            return Some(format!(
                "free space on storage {storage}{node}, which takes the bootstrap ISO"
            ));
        }
        (Cause::NoSpace, Operation::Clone) => {
            "free space on the storage of the clone, or name another by spec.storage"
        }
        (Cause::NoSpace, _) => "free space on the storage of the VM's disks",
        (Cause::StorageMissing, Operation::Clone) => {
            "check spec.storage, and that the storage is active on the node of the VM"
        }
        (Cause::StorageInactive, _) => "switch the storage on again, or bring its server back",
        (Cause::VolumeMissing, Operation::Start) => {
            "bring the volume back; if it is the ISO with the bootstrap data, delete the Machine to \
             have it replaced"
        }
        (Cause::SnapshotMissing, _) => {
            "name a snapshot of the template by spec.snapName, or leave it out"
        }
        (Cause::PoolMissing, _) => "create the pool in Proxmox, or change spec.pool",
        (Cause::DiskRefused, _) => {
            "set spec.disks.bootVolume to a disk of the template and a size not below its own"
        }
        (Cause::NodeMissing, _) => "name a node of the Proxmox cluster",
        (Cause::NoQuorum, _) => "the Proxmox cluster has no quorum, bring its nodes back",
        (Cause::Protected, _) => "clear the protection option of the VM in Proxmox",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{cloned, reserved};
    use super::*;

    #[test]
    fn a_full_storage_is_named_where_it_is_known() {
        let mut facts = cloned();
        facts.status().bootstrap_iso = Some("local:iso/user-data-105.iso".to_owned());
        let said = remedy(Some(Cause::NoSpace), Operation::Upload, &facts);
        let wanted = "free space on storage local of node pve2, which takes the bootstrap ISO";
        assert_eq!(said.as_deref(), Some(wanted));
        let said = remedy(Some(Cause::NoSpace), Operation::Clone, &reserved()).unwrap_or_default();
        assert!(said.contains("spec.storage"), "{said}");
    }

    #[test]
    fn a_machine_whose_seed_was_taken_away_is_to_be_replaced() {
        let said = remedy(Some(Cause::VolumeMissing), Operation::Start, &cloned());
        assert!(said.is_some_and(|said| said.contains("delete the Machine")));
        assert_eq!(remedy(Some(Cause::VolumeMissing), Operation::Configure, &cloned()), None);
    }

    #[test]
    fn what_settles_itself_needs_no_remedy() {
        for cause in [None, Some(Cause::VmLocked), Some(Cause::StorageBusy)] {
            assert_eq!(remedy(cause, Operation::Clone, &reserved()), None);
        }
    }
}

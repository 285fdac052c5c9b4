//! The VM as Proxmox shows it.

use std::time::Duration;

use tokio::time::Instant;

use super::super::facts::{Halt, Power, VmFact, VmSeen};
use super::super::pass::Pass;
use super::super::{act, seed};
use crate::fault::Class;
use crate::hypervisor::{Ended, Exit, GuestKind, Operation, TaskState, View, for_seeds};
use crate::ids::{NodeName, StorageName};
use crate::pve::{Cause, ErrorKind, VmStatus};
use crate::seen::Seen;

/// Between two looks that both find a VM absent, before its addresses are given back.
const ABSENT_TWICE: Duration = Duration::from_secs(4);
/// The same where a clone may have been asked for a moment before.
const CLONE_ON_ITS_WAY: Duration = Duration::from_secs(9);

/// One reading serves all whose end was learnt together. Later the number may be another's.
const TOGETHER: Duration = Duration::from_secs(2);

/// When the list has to have been asked for that shows a VM gone whose end was noticed at `noticed`.
fn new_enough(noticed: Instant, now: Instant) -> Instant {
    now.checked_sub(TOGETHER).map_or(noticed, |lately| noticed.max(lately))
}

const NO_ENDPOINT: &str = "no Proxmox endpoint was looked up";

impl Pass<'_> {
    /// Keeps what was read for the passes that follow closely.
    pub(super) fn keep(&self, seen: &VmSeen, asked: Instant) {
        let kept = match seen {
            VmSeen::Present(vm) if vm.config.lock().is_none() => Some((vm.clone(), asked)),
            _ => None,
        };
        self.shared.memory.with(&self.key, |remembered| remembered.vm = kept);
    }

    /// When Proxmox said that it has destroyed the VM.
    fn destroyed(&self) -> Option<Instant> {
        match &self.facts.task {
            Some(TaskState::Ended(Ended {
                operation: Operation::Destroy,
                exit: Exit::Success,
                noticed,
                ..
            })) => Some(*noticed),
            _ => None,
        }
    }

    /// Looks for the VM at the recorded node, then in the whole cluster. That it is absent takes
    /// the word of the cluster: a node may be down, and a VM may be hidden from the credentials.
    pub(super) async fn find_vm(&self) -> VmSeen {
        let (Some(endpoint), Some(vmid)) = (&self.endpoint, self.facts.vmid()) else {
            return VmSeen::Unknown(NO_ENDPOINT.to_owned());
        };
        if let Some(noticed) = self.destroyed()
            && let Ok(view) = endpoint.view(new_enough(noticed, Instant::now())).await
            && !view.guests.contains_key(&vmid)
        {
            return VmSeen::Absent;
        }
        // A number that this process chose, and under which nothing was made yet.
        let untouched = self.shared.memory.with(&self.key, |remembered| remembered.untouched);
        if untouched && !self.facts.is_deleted() && self.facts.machine.spec.provider_id.is_none() {
            return VmSeen::Absent;
        }
        let recorded = self.facts.recorded_node();
        let mut at_node = None;
        if let Some(node) = &recorded {
            match endpoint.client().vm_config(node, vmid).await {
                Ok(config) => return VmSeen::Present(VmFact { node: node.clone(), config }),
                Err(error) => at_node = Some(error),
            }
        }
        let view = match endpoint.view(Instant::now()).await {
            Ok(view) => view,
            Err(error) => return VmSeen::Unknown(self.unanswered(&error)),
        };
        match view.guests.get(&vmid) {
            Some(guest) if guest.kind == GuestKind::Container => {
                VmSeen::Foreign(format!("VMID {vmid} is a container on {}", guest.node))
            }
            Some(guest) if recorded.as_ref() == Some(&guest.node) => {
                VmSeen::Unknown(at_node.map(|error| self.unanswered(&error)).unwrap_or_default())
            }
            Some(guest) => match endpoint.client().vm_config(&guest.node, vmid).await {
                Ok(config) => VmSeen::Present(VmFact { node: guest.node.clone(), config }),
                Err(error) => VmSeen::Unknown(self.unanswered(&error)),
            },
            None if self.left_the_cluster(&view) => {
                let why = format!(
                    "VM {vmid} was on node {}, and the Proxmox cluster has no such node: check that \
                     the credentials lead to the cluster that holds the VM. If the node was removed \
                     for good with its VMs, delete the Machine and then remove the finalizer of this \
                     object",
                    recorded.as_ref().map(NodeName::as_str).unwrap_or_default()
                );
                // Nothing is given back for it; of one that stays people are to hear.
                if self.facts.is_deleted() { VmSeen::Unknown(why) } else { VmSeen::Foreign(why) }
            }
            None => match endpoint.client().vmid_is_free(vmid).await {
                Ok(true) => self.absent_with_quorum().await,
                Ok(false) => VmSeen::Hidden(format!(
                    "VMID {vmid} is taken, but the credentials do not show by what: they need the \
                     privilege VM.Audit on /vms/{vmid}, or on a pool that holds it"
                )),
                Err(error) => VmSeen::Unknown(self.unanswered(&error)),
            },
        }
    }

    /// A node without quorum may show a state of long ago. Only a deletion, or a VM that was there
    /// once, rests on this; a credential that may not ask leaves it open.
    async fn absent_with_quorum(&self) -> VmSeen {
        let Some(endpoint) = &self.endpoint else {
            return VmSeen::Unknown(NO_ENDPOINT.to_owned());
        };
        if !self.facts.is_deleted() && self.facts.machine.spec.provider_id.is_none() {
            return VmSeen::Absent;
        }
        match endpoint.client().cluster_status().await {
            Ok(entries) if entries.iter().any(|entry| entry.quorate == Some(false)) => {
                VmSeen::Unknown(
                    "the Proxmox cluster has no quorum, so what it shows may be out of date"
                        .to_owned(),
                )
            }
            Err(error) if error.class() == Class::Transient => {
                VmSeen::Unknown(self.unanswered(&error))
            }
            Ok(_) | Err(_) => VmSeen::Absent,
        }
    }

    /// Takes note of how long the VM has been absent.
    pub(super) fn confirm_absence(&mut self, seen: &VmSeen) {
        // A clone may still be on its way when its answer was lost.
        let settled = self.facts.machine.spec.provider_id.is_some();
        let wait = if settled { ABSENT_TWICE } else { CLONE_ON_ITS_WAY };
        let absent = matches!(seen, VmSeen::Absent);
        self.facts.absence_confirmed = self.shared.memory.with(&self.key, |remembered| {
            if !absent {
                remembered.absent_since = None;
                return false;
            }
            // No clone was ever asked for.
            if remembered.untouched {
                return true;
            }
            let now = Instant::now();
            now.duration_since(*remembered.absent_since.get_or_insert(now)) >= wait
        });
    }

    /// Whether the node that held a provisioned VM is none of this cluster: then this may be another
    /// cluster, and that the VMID is free here says nothing.
    fn left_the_cluster(&self, view: &View) -> bool {
        let recorded = self.facts.machine.status.as_ref().and_then(|s| s.proxmox_node.as_deref());
        let recorded = recorded.and_then(|node| node.parse::<NodeName>().ok());
        self.facts.machine.spec.provider_id.is_some()
            && !view.nodes.is_empty()
            && recorded.is_some_and(|node| !view.nodes.contains_key(&node))
    }

    pub(super) async fn read_power(&mut self) -> Seen<Power> {
        let (Some(endpoint), Some(vmid)) = (self.endpoint.clone(), self.facts.vmid()) else {
            return Seen::Unknown(NO_ENDPOINT.to_owned());
        };
        let Some(node) = self.vm_node() else {
            return Seen::Unknown(format!("the node of VM {vmid} is not known"));
        };
        match endpoint.client().vm_status(&node, vmid).await {
            Ok(status) => {
                self.facts.in_ha = status.is_in_ha;
                power_of(&status).map_or_else(
                    || {
                        Seen::Unknown(format!(
                            "Proxmox GET /nodes/{node}/qemu/{vmid}/status/current: the field \
                             status is {:?}, expected running or stopped",
                            status.status.as_deref().unwrap_or_default()
                        ))
                    },
                    Seen::Present,
                )
            }
            Err(error) if error.is_vm_missing() => Seen::Absent,
            Err(error) => Seen::Unknown(self.unanswered(&error)),
        }
    }

    /// Storages of the VM's node that take ISO images: as the manager was told, else as Proxmox lists
    /// them.
    pub(super) async fn list_iso_storages(&self) -> Seen<Vec<StorageName>> {
        let (Some(endpoint), Some(node)) = (&self.endpoint, self.vm_node()) else {
            return Seen::Unknown(NO_ENDPOINT.to_owned());
        };
        match endpoint.storages(&node).await {
            Ok(storages) => {
                let chosen = for_seeds(&storages, &self.shared.iso_storages);
                Seen::Present(chosen.into_iter().map(|one| one.storage.clone()).collect())
            }
            Err(error) => Seen::Unknown(self.unanswered(&error)),
        }
    }

    /// The storage of the VM's node that holds its seed, where nothing tells which: capmox stored it on
    /// the first one that Proxmox listed then.
    pub(super) async fn find_stray_seed(&self) -> Seen<String> {
        let (Some(endpoint), Some(node), Some(vmid)) =
            (&self.endpoint, self.vm_node(), self.facts.vmid())
        else {
            return Seen::Unknown(NO_ENDPOINT.to_owned());
        };
        let storages = match endpoint.storages(&node).await {
            Ok(storages) => storages,
            Err(error) => return Seen::Unknown(self.unanswered(&error)),
        };
        let mut lists = Vec::new();
        for storage in storages.into_iter().filter(|storage| storage.takes("iso")) {
            let volume = seed::volume(&storage.storage, vmid);
            let list =
                endpoint.client().storage_content(&node, &storage.storage, Some("iso")).await;
            let is_here = match list {
                Ok(volumes) => Listed::Known(volumes.iter().any(|found| found.volid == volume)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotImplemented | ErrorKind::Forbidden) =>
                {
                    Listed::Untold
                }
                Err(error) => Listed::Unanswered(self.unanswered(&error)),
            };
            lists.push((volume, is_here));
        }
        stray(lists)
    }

    /// Whether a seed is whole on its storage.
    pub(super) async fn find_seed(&self, volume: &str) -> Seen<()> {
        let storage = seed::storage_of(volume);
        let (Some(endpoint), Some(node), Some(storage)) = (&self.endpoint, self.vm_node(), storage)
        else {
            return Seen::Unknown(NO_ENDPOINT.to_owned());
        };
        let node = self.node_of_seed(endpoint, &storage, &node);
        let size = act::image(&self.facts).ok().and_then(|image| u64::try_from(image.len()).ok());
        match endpoint.client().storage_content(&node, &storage, Some("iso")).await {
            Ok(volumes) => {
                let found = volumes.iter().find(|found| found.volid == volume);
                // Fewer bytes are a part; servers that do not count them say 0, or count otherwise.
                let whole = |found: u64| found == 0 || size.is_none_or(|size| found >= size);
                found.filter(|found| found.size.is_none_or(whole)).map(|_| ()).into()
            }
            // With its storage it is gone, and is stored elsewhere.
            Err(error) if error.cause() == Some(Cause::StorageMissing) => Seen::Absent,
            // A server that cannot list answered the call itself with success.
            Err(error) if *error.kind() == ErrorKind::NotImplemented => match &self.facts.task {
                Some(TaskState::Ended(ended)) if ended.operation == Operation::DeleteSeed => {
                    Seen::Absent
                }
                _ => Seen::Present(()),
            },
            Err(error) => Seen::Unknown(self.unanswered(&error)),
        }
    }

    /// Whether the recorded seed is on a storage that is the same one on all nodes, that of the VM among
    /// them. After a restart that has to be read first.
    pub(super) async fn find_seed_shared(&self) -> Seen<()> {
        let storage = self.facts.recorded_seed().and_then(seed::storage_of);
        let (Some(endpoint), Some(storage), Some(node)) = (&self.endpoint, storage, self.vm_node())
        else {
            return Seen::Absent;
        };
        let view = match endpoint.held_view() {
            Some(view) => Ok(view),
            None => endpoint.recent_view().await,
        };
        match view {
            Ok(view) => view.is_shared(&storage, &node).then_some(()).into(),
            Err(error) => Seen::Unknown(self.unanswered(&error)),
        }
    }

    /// Where the VM is: as just seen, else as recorded.
    pub(in super::super) fn vm_node(&self) -> Option<NodeName> {
        self.facts.vm().map(|vm| vm.node.clone()).or_else(|| self.facts.recorded_node())
    }
}

/// What a status says; `None` when it says nothing that is known.
fn power_of(status: &VmStatus) -> Option<Power> {
    let halted = status.qmpstatus.as_deref().and_then(Halt::of);
    match halted {
        _ if status.is_paused() => Some(Power::Paused),
        Some(halt) if !status.is_stopped() => Some(Power::Halted(halt)),
        _ if status.is_running() => Some(Power::Running),
        _ if status.is_stopped() => Some(Power::Stopped),
        _ => None,
    }
}

/// What a storage says of a file.
enum Listed {
    /// Whether it holds it.
    Known(bool),
    /// It does not tell the credentials what it holds.
    Untold,
    /// There was no answer.
    Unanswered(String),
}

/// The volume that is there, of one on each storage in Proxmox's order. Where the first storage does
/// not tell, and no other has it, it is taken for the one: to delete what is not there does no harm.
fn stray(lists: Vec<(String, Listed)>) -> Seen<String> {
    let mut instead = Seen::Absent;
    for (index, (volume, listed)) in lists.into_iter().enumerate() {
        match listed {
            Listed::Known(true) => return Seen::Present(volume),
            Listed::Untold if index == 0 => instead = Seen::Present(volume),
            Listed::Unanswered(why) if instead.is_absent() => instead = Seen::Unknown(why),
            Listed::Known(false) | Listed::Untold | Listed::Unanswered(_) => {}
        }
    }
    instead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_seed_is_on_the_storage_that_lists_it() {
        let volume = |storage: u32| format!("s{storage}:iso/user-data-105.iso");
        let found = |lists: &[Option<bool>]| {
            let listed = |list: &Option<bool>| list.map_or(Listed::Untold, Listed::Known);
            let lists = (0..).map(volume).zip(lists.iter().map(listed));
            stray(lists.collect())
        };
        for (lists, storage) in [
            (&[Some(true), Some(true)][..], Some(0)),
            (&[Some(false), Some(true)], Some(1)),
            (&[None, Some(true)], Some(1)),
            (&[None, Some(false)], Some(0)),
            (&[Some(false), None], None),
            (&[Some(false)], None),
            (&[], None),
        ] {
            assert_eq!(found(lists), storage.map(volume).into(), "{lists:?}");
        }
        let silent = || (volume(0), Listed::Unanswered("no route".to_owned()));
        let unknown = Seen::Unknown("no route".to_owned());
        assert_eq!(stray(vec![silent(), (volume(1), Listed::Known(false))]), unknown);
        let there = (volume(1), Listed::Known(true));
        assert_eq!(stray(vec![silent(), there]), Seen::Present(volume(1)));
    }

    #[test]
    fn a_list_shows_a_vm_gone_that_is_newer_than_its_end_and_new() {
        let noticed = Instant::now() + Duration::from_hours(1);
        let at = |seconds| noticed + Duration::from_secs(seconds);
        assert_eq!(new_enough(noticed, at(0)), noticed);
        assert_eq!(new_enough(noticed, at(1)), noticed, "one serves all who end together");
        assert_eq!(new_enough(noticed, at(30)), at(28), "another may have the number by now");
    }
}

//! The VM as Proxmox shows it.

use std::time::Duration;

use tokio::time::Instant;

use super::super::facts::{Power, VmFact, VmSeen};
use super::super::pass::Pass;
use crate::fault::Class;
use crate::hypervisor::{Ended, Exit, GuestKind, Operation, TaskState, View};
use crate::ids::{NodeName, StorageName};
use crate::seen::Seen;

/// Between two looks that both find a VM absent, before its addresses are given back.
const ABSENT_TWICE: Duration = Duration::from_secs(4);
/// The same where a clone may have been asked for a moment before.
const CLONE_ON_ITS_WAY: Duration = Duration::from_secs(9);

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
        // One reading serves all whose end was learnt together.
        if let Some(noticed) = self.destroyed()
            && let Ok(view) = endpoint.view(noticed).await
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
            None if self.left_the_cluster(&view) => VmSeen::Unknown(format!(
                "VM {vmid} was on node {}, and the Proxmox cluster has no such node: check that \
                 the credentials lead to the cluster that holds the VM. If the node was removed \
                 for good with its VMs, delete the Machine and then remove the finalizer of this \
                 object",
                recorded.as_ref().map(NodeName::as_str).unwrap_or_default()
            )),
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

    pub(super) async fn read_power(&self) -> Seen<Power> {
        let (Some(endpoint), Some(vmid)) = (&self.endpoint, self.facts.vmid()) else {
            return Seen::Unknown(NO_ENDPOINT.to_owned());
        };
        let Some(node) = self.vm_node() else {
            return Seen::Unknown(format!("the node of VM {vmid} is not known"));
        };
        match endpoint.client().vm_status(&node, vmid).await {
            Ok(status) if status.is_paused() => Seen::Present(Power::Paused),
            Ok(status) if status.is_running() => Seen::Present(Power::Running),
            Ok(status) => match status.status.as_deref() {
                Some("stopped") => Seen::Present(Power::Stopped),
                other => Seen::Unknown(format!("Proxmox says that VM {vmid} is {other:?}")),
            },
            Err(error) if error.is_vm_missing() => Seen::Absent,
            Err(error) => Seen::Unknown(self.unanswered(&error)),
        }
    }

    /// Storages of the VM's node that take ISO images, as Proxmox lists them.
    pub(super) async fn list_iso_storages(&self) -> Seen<Vec<StorageName>> {
        let (Some(endpoint), Some(node)) = (&self.endpoint, self.vm_node()) else {
            return Seen::Unknown(NO_ENDPOINT.to_owned());
        };
        match endpoint.storages(&node).await {
            Ok(storages) => Seen::Present(
                storages
                    .into_iter()
                    .filter(|storage| storage.takes("iso"))
                    .map(|storage| storage.storage)
                    .collect(),
            ),
            Err(error) => Seen::Unknown(self.unanswered(&error)),
        }
    }

    /// Where the VM is: as just seen, else as recorded.
    pub(in super::super) fn vm_node(&self) -> Option<NodeName> {
        self.facts.vm().map(|vm| vm.node.clone()).or_else(|| self.facts.recorded_node())
    }
}

//! The VM as Proxmox shows it.

use tokio::time::Instant;

use super::super::facts::{Power, VmFact, VmSeen};
use super::super::pass::Pass;
use crate::hypervisor::GuestKind;
use crate::ids::{NodeName, StorageName};
use crate::seen::Seen;

const NO_ENDPOINT: &str = "no Proxmox endpoint was looked up";

impl Pass<'_> {
    /// Looks for the VM at the recorded node, then in the whole cluster. That it is absent takes
    /// the word of the cluster: a node may be down, and a VM may be hidden from the credentials.
    pub(super) async fn find_vm(&self) -> VmSeen {
        let (Some(endpoint), Some(vmid)) = (&self.endpoint, self.facts.vmid()) else {
            return VmSeen::Unknown(NO_ENDPOINT.to_owned());
        };
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
                VmSeen::Hidden(format!("VMID {vmid} is a container on {}", guest.node))
            }
            Some(guest) if recorded.as_ref() == Some(&guest.node) => {
                VmSeen::Unknown(at_node.map(|error| self.unanswered(&error)).unwrap_or_default())
            }
            Some(guest) => match endpoint.client().vm_config(&guest.node, vmid).await {
                Ok(config) => VmSeen::Present(VmFact { node: guest.node.clone(), config }),
                Err(error) => VmSeen::Unknown(self.unanswered(&error)),
            },
            None => match endpoint.client().vmid_is_free(vmid).await {
                Ok(true) => VmSeen::Absent,
                Ok(false) => VmSeen::Hidden(format!(
                    "VMID {vmid} is taken, but the credentials do not show by what: they need the \
                     privilege VM.Audit on /vms/{vmid}, or on a pool that holds it"
                )),
                Err(error) => VmSeen::Unknown(self.unanswered(&error)),
            },
        }
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

    /// Storages of the VM's node that take ISO images and have room, as Proxmox lists them.
    pub(super) async fn list_iso_storages(&self) -> Seen<Vec<StorageName>> {
        let (Some(endpoint), Some(node)) = (&self.endpoint, self.vm_node()) else {
            return Seen::Unknown(NO_ENDPOINT.to_owned());
        };
        match endpoint.client().storages(&node).await {
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

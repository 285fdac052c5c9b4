//! The steps by which a VM and its seed go.

use std::time::Duration;

use super::super::pass::{Pass, Setback};
use super::super::seed;
use crate::hypervisor::{Endpoint, NodeState, Operation};
use crate::ids::{NodeName, StorageName};
use crate::pve::{Cause, DestroyOptions, ErrorKind};

impl Pass<'_> {
    /// Without the right to change HA the VM goes all the same: it is stopped, and destroyed with
    /// its entry there.
    pub(super) async fn leave_ha(&mut self) -> Result<(), Setback> {
        let (endpoint, _, vmid) = self.vm(Operation::LeaveHa)?;
        match endpoint.client().leave_ha(vmid).await {
            Ok(()) => tracing::info!(%vmid, "took the VM out of HA"),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Forbidden
                        | ErrorKind::NotImplemented
                        | ErrorKind::BadRequest { .. }
                        | ErrorKind::Server
                ) =>
            {
                tracing::warn!(%vmid, %error, "the VM is not taken out of HA before it is deleted");
            }
            Err(error) => return Err(self.refused(Operation::LeaveHa, &error)),
        }
        self.remember(|past| past.outside_ha = true);
        self.facts.power = None;
        Ok(())
    }

    /// Proxmox itself pulls the plug after `timeout`.
    pub(super) async fn shut_down(&mut self, timeout: Duration) -> Result<(), Setback> {
        let (endpoint, node, vmid) = self.vm(Operation::Shutdown)?;
        let asked = endpoint.client().shutdown_vm(&node, vmid, timeout).await;
        self.remember(|past| past.shutdown_asked = true);
        match asked {
            Ok(upid) => self.started(&endpoint, Operation::Shutdown, upid),
            Err(error) if error.outcome_unknown() => {
                return Err(self.refused(Operation::Shutdown, &error));
            }
            // It is stopped instead.
            Err(error) => tracing::warn!(%vmid, %error, "the guest cannot be asked to shut down"),
        }
        Ok(())
    }

    pub(super) async fn delete_seed(&mut self, volume: &str) -> Result<(), Setback> {
        let (endpoint, vm_node, _) = self.vm(Operation::DeleteSeed)?;
        let Some(storage) = seed::storage_of(volume) else {
            // Nothing that could be deleted: a text that names no storage.
            self.facts.seed_deleted = true;
            return Ok(());
        };
        let node = self.node_of_seed(&endpoint, &storage, &vm_node);
        let asked = endpoint.client().delete_volume(&node, &storage, volume).await;
        let unreachable =
            matches!(&asked, Err(error) if *error.kind() == ErrorKind::NodeUnreachable);
        match asked {
            Ok(Some(upid)) => {
                let seen = self.facts.vm.clone();
                self.started(&endpoint, Operation::DeleteSeed, Some(upid));
                self.facts.vm = seen;
                Ok(())
            }
            Ok(None) => {
                self.facts.seed_deleted = true;
                Ok(())
            }
            Err(error) if error.is_volume_missing() => {
                self.facts.seed_deleted = true;
                Ok(())
            }
            // With its storage or its node the file is out of everybody's reach.
            Err(error) if is_out_of_reach(&endpoint, &node, error.cause()) => {
                tracing::warn!(volume, %error, "the bootstrap ISO is out of reach for good");
                self.facts.seed_deleted = true;
                Ok(())
            }
            // The VM left that node; what it took along is gone, and nobody waits for the rest.
            Err(_)
                if unreachable
                    && node != vm_node
                    && (self.facts.is_deleted() || self.is_held_up(&endpoint, &node).await) =>
            {
                let text = format!(
                    "the bootstrap ISO {volume} stays on node {node}, which does not answer: \
                     delete it there when the node is back"
                );
                self.publish_warning("BootstrapISOLeft", &text).await;
                self.facts.seed_deleted = true;
                Ok(())
            }
            Err(error) => Err(self.refused(Operation::DeleteSeed, &error)),
        }
    }

    /// Whether a VM cannot get its seed before one is deleted of a node that the cluster calls offline.
    async fn is_held_up(&self, endpoint: &Endpoint, node: &NodeName) -> bool {
        if self.facts.is_seeded() {
            return false;
        }
        let view = endpoint.recent_view().await.ok();
        view.and_then(|view| view.nodes.get(node).map(|node| node.state))
            == Some(NodeState::Offline)
    }

    /// The node to ask for the seed: on a storage that is not shared it is where it was put, though
    /// the VM may have moved since.
    pub(in super::super) fn node_of_seed(
        &self,
        endpoint: &Endpoint,
        storage: &StorageName,
        vm_node: &NodeName,
    ) -> NodeName {
        let Some(put) = self.facts.seed_node().filter(|put| put != vm_node) else {
            return vm_node.clone();
        };
        // Unknown is not shared: what lies there is found by way of the node that it was put on.
        let view = endpoint.held_view();
        if view.is_some_and(|view| view.is_shared(storage, vm_node)) {
            vm_node.clone()
        } else {
            put
        }
    }

    pub(super) async fn stop(&mut self) -> Result<(), Setback> {
        let (endpoint, node, vmid) = self.vm(Operation::Stop)?;
        match endpoint.client().stop_vm(&node, vmid).await {
            Ok(upid) => {
                self.started(&endpoint, Operation::Stop, upid);
                Ok(())
            }
            Err(error) => Err(self.refused(Operation::Stop, &error)),
        }
    }

    pub(super) async fn destroy(&mut self) -> Result<(), Setback> {
        let (endpoint, node, vmid) = self.vm(Operation::Destroy)?;
        // Purge takes the VM out of backup jobs, replication and HA, where it would be a stray
        // entry; disks that only share the VMID in their name are not ours to delete.
        let options = DestroyOptions { purge: true, ..DestroyOptions::default() };
        let client = endpoint.client();
        let asked = match client.destroy_vm(&node, vmid, options).await {
            // A server that does not know the parameter has none of these either.
            Err(error) if matches!(error.kind(), ErrorKind::BadRequest { .. }) => {
                client.destroy_vm(&node, vmid, DestroyOptions::default()).await
            }
            asked => asked,
        };
        match asked {
            Ok(upid) => {
                self.started(&endpoint, Operation::Destroy, upid);
                Ok(())
            }
            Err(error) if error.is_vm_missing() => {
                self.facts.vm = None;
                Ok(())
            }
            Err(error) => {
                // What ended before says nothing of it any more.
                endpoint.forget_task(&self.key);
                Err(self.refused(Operation::Destroy, &error))
            }
        }
    }
}

/// Whether what a call was about is gone for good. A node that the cluster lists is not, though its
/// name may not be found for a moment.
fn is_out_of_reach(endpoint: &Endpoint, node: &NodeName, cause: Option<Cause>) -> bool {
    let is_listed = || endpoint.held_view().is_some_and(|view| view.nodes.contains_key(node));
    match cause {
        Some(Cause::StorageMissing) => true,
        Some(Cause::NodeMissing) => !is_listed(),
        _ => false,
    }
}

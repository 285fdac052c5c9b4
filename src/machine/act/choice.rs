//! The choice of node and VMID: recorded, and given up when it turns out to be somebody else's.

use super::super::decision::Waiting;
use super::super::pass::{Pass, Setback};
use crate::hypervisor::{Operation, Promise, Refused};
use crate::ids::{NodeName, VmId};
use crate::placement::TemplateRef;

impl Pass<'_> {
    pub(super) async fn reserve(
        &mut self,
        vmid: VmId,
        node: NodeName,
        memory: u64,
        template: TemplateRef,
        ledger_version: u64,
    ) -> Result<(), Setback> {
        let endpoint = self.endpoint(Operation::Clone)?;
        let promise = Promise {
            owner: self.facts.uid().to_owned(),
            node: Some(node.clone()),
            memory,
            group: super::super::observe::group(&self.facts),
        };
        let promised = endpoint.ledger().promise(ledger_version, vmid, promise);
        if let Err(refused) = promised {
            // Another machine was faster: choose again from what is there now.
            self.facts.placement = None;
            let is_recorded = self.facts.vmid() == Some(vmid);
            return if is_recorded && refused == Refused::Promised {
                self.leave_to_another(vmid)
            } else {
                Ok(())
            };
        }
        // Under a VMID that was recorded before, a clone may have been asked for already.
        let is_new = self.facts.vmid() != Some(vmid);
        let written = self.record_choice(vmid, &node, &template).await;
        match &written {
            Ok(()) => {
                self.shared.memory.with(&self.key, |remembered| remembered.untouched = is_new);
                if is_new {
                    self.remember(|past| past.cloned = false);
                }
                endpoint.watch(vmid, self.key.clone());
                tracing::info!(%vmid, %node, %template, "chose where the VM goes");
            }
            Err(_) => endpoint.ledger().release(vmid, self.facts.uid()),
        }
        self.facts.vm = Some(super::super::facts::VmSeen::Absent);
        // Those of another node, perhaps.
        self.facts.iso_storages = None;
        written
    }

    pub(super) async fn give_up(&mut self, vmid: VmId) -> Result<(), Setback> {
        let endpoint = self.endpoint(Operation::Clone)?;
        self.forget_choice().await?;
        endpoint.ledger().mark_taken(vmid, tokio::time::Instant::now());
        endpoint.ledger().release(vmid, self.facts.uid());
        tracing::warn!(%vmid, "gave up a VMID that somebody else uses");
        self.remember(|past| (past.cloned, past.sole_clone) = (false, false));
        endpoint.forget_task(&self.key);
        self.facts.task = None;
        self.facts.vm = None;
        self.facts.placement = None;
        self.facts.clone_refused = false;
        self.facts.vmid_foreign = false;
        Ok(())
    }

    /// A recorded VMID that another machine holds. One that was not chosen here, but came with the
    /// object, is given up; of two that were, one finds the VM of the other sooner or later.
    fn leave_to_another(&mut self, vmid: VmId) -> Result<(), Setback> {
        if self.facts.recorded_template().is_none() {
            self.facts.vmid_foreign = true;
            return Ok(());
        }
        let text = format!(
            "VMID {vmid} (spec.virtualMachineID) is recorded by another machine too, whose VM is not \
             there yet; this machine chooses another number once it is. If that one is not wanted, \
             delete its Machine"
        );
        Err(Setback::Wait(Waiting::Unknown(text)))
    }
}

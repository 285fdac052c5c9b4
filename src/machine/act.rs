//! Does what was decided: one step, one or two calls. Each step is safe to do twice.

mod choice;
mod ending;
mod kubernetes;

use std::collections::BTreeMap;

use super::decide::just_ended;
use super::decide::{mark, without_mark};
use super::decision::{Step, Waiting};
use super::facts::{Facts, Power};
use super::pass::{Pass, Setback};
use super::remedy::remedy;
use super::seed;
use crate::bootstrap::seed::file_name;
use crate::fault::{Class, Fault};
use crate::hypervisor::{Endpoint, Exit, Operation, Place, TaskState};
use crate::ids::{NodeName, StorageName, VmId};
use crate::placement::TemplateRef;
use crate::pve::{self, Cause, CloneOptions, ConfigUpdate, Upid, VmConfig};
use crate::seen::Seen;

impl Pass<'_> {
    /// Does one step.
    pub(super) async fn perform(&mut self, step: Step) -> Result<(), Setback> {
        tracing::debug!(?step, "acting");
        match step {
            Step::AddFinalizer => self.add_finalizer().await,
            Step::Claim(slots) => self.claim(&slots).await,
            Step::Reserve { vmid, node, memory, template, ledger_version } => {
                self.reserve(vmid, node, memory, template, ledger_version).await
            }
            Step::GiveUpVmId(vmid) => self.give_up(vmid).await,
            Step::Clone { vmid, node, template } => self.clone_vm(vmid, node, template).await,
            Step::SetProviderId(id) => self.set_provider_id(id).await,
            Step::Configure(options) | Step::AttachSeed(options) => {
                self.configure(options, Operation::Configure).await
            }
            Step::Eject(options) => self.configure(options, Operation::Eject).await,
            Step::Resize { disk, gib } => self.resize(&disk, gib).await,
            Step::RecordSeed(volume) => self.record_seed(volume).await,
            Step::StoreSeed(storage) => self.store_seed(&storage).await,
            Step::RecordSeeded => {
                self.facts.status().bootstrap_data_provided = Some(true);
                Ok(())
            }
            Step::Reseed => {
                self.facts.status().bootstrap_data_provided = Some(false);
                // Else a VM without it would be started after the drive is emptied.
                Ok(self.write_status().await?)
            }
            Step::ForgetSeed => {
                self.forget_seed();
                Ok(())
            }
            Step::Untag(options) => {
                self.forget_seed();
                self.configure(options, Operation::Eject).await
            }
            Step::Start(power) => self.start(power).await,
            Step::DeleteSeed(volume) => self.delete_seed(&volume).await,
            Step::LeaveHa => self.leave_ha().await,
            Step::Shutdown(timeout) => self.shut_down(timeout).await,
            Step::Stop => self.stop().await,
            Step::Destroy => self.destroy().await,
            Step::ReleaseClaims => self.release_claims().await,
            Step::RemoveFinalizer => self.remove_finalizer().await,
            Step::ForgetTask => Err(self.failed_task()),
        }
    }

    fn endpoint(&self, operation: Operation) -> Result<std::sync::Arc<Endpoint>, Setback> {
        self.endpoint.clone().ok_or_else(|| {
            Setback::Fault(operation, Fault::new(Class::Bug, "no Proxmox endpoint was looked up"))
        })
    }

    /// Endpoint, VM and the node that holds it.
    fn vm(
        &self,
        operation: Operation,
    ) -> Result<(std::sync::Arc<Endpoint>, NodeName, VmId), Setback> {
        let endpoint = self.endpoint(operation)?;
        match (self.vm_node(), self.facts.vmid()) {
            (Some(node), Some(vmid)) => Ok((endpoint, node, vmid)),
            _ => Err(Setback::Fault(
                operation,
                Fault::new(Class::Bug, "neither node nor VMID of the VM are known"),
            )),
        }
    }

    /// Follows a task that was started; without one the step is done, and what it changed is to be
    /// looked at anew.
    fn started(&mut self, endpoint: &Endpoint, operation: Operation, upid: Option<Upid>) {
        let runs = upid.is_some();
        self.note_accepted((!runs).then_some(operation));
        if let Some(upid) = upid {
            tracing::info!(%upid, "asked Proxmox to {}", operation.verb());
            endpoint.follow(&self.key, upid, operation);
        } else {
            tracing::info!("asked Proxmox to {}, which names no task", operation.verb());
            endpoint.forget_task(&self.key);
        }
        self.facts.task = endpoint.task(&self.key);
        self.facts.power = None;
        self.facts.stored = None;
        // These change nothing that later steps read in the configuration.
        let spares = matches!(
            operation,
            Operation::Upload
                | Operation::Resize
                | Operation::Start
                | Operation::Stop
                | Operation::DeleteSeed
        );
        if !(runs && spares) {
            self.shared.memory.with(&self.key, |remembered| remembered.vm = None);
            self.facts.vm = None;
        }
    }

    /// A lock that somebody holds is waited for; anything else is told.
    fn refused(&mut self, operation: Operation, error: &pve::Error) -> Setback {
        let leaves_something = matches!(operation, Operation::Clone | Operation::Upload);
        if error.outcome_unknown() && leaves_something {
            self.note_lost(operation);
        }
        self.note_refusing(operation, error.cause(), error.class());
        let mut message = error.to_string();
        if let Some(remedy) = remedy(error.cause(), operation, &self.facts) {
            message = format!("{message}: {remedy}");
        }
        if error.outcome_unknown() {
            message.push_str("; whether it took effect is going to be looked at");
        }
        Setback::Fault(operation, Fault::new(error.class(), message))
    }

    /// A storage that has no room for the seed, is away, or may not be written to, is left for
    /// another one.
    fn note_refusing(&mut self, operation: Operation, cause: Option<Cause>, class: Class) {
        // What lies on a storage that is switched off cannot be deleted, and is not forgotten.
        let is_off = cause == Some(Cause::StorageInactive) && self.facts.past.unsent_seed;
        let refuses = matches!(cause, Some(Cause::NoSpace | Cause::StorageMissing))
            || class == Class::Denied
            || is_off;
        if operation == Operation::Upload && refuses {
            let storage = self.facts.recorded_seed().and_then(seed::storage_of);
            self.remember(|past| past.refusing.clone_from(&storage));
        }
    }

    fn failed_task(&mut self) -> Setback {
        let ended = match self.facts.task.take() {
            Some(TaskState::Ended(ended)) => Some(ended),
            _ => None,
        };
        if let Some(endpoint) = &self.endpoint {
            endpoint.forget_task(&self.key);
        }
        let (operation, message) = ended.map_or_else(
            || (Operation::Recorded, "the task is not known any more".to_owned()),
            |ended| {
                let said = match ended.exit {
                    Exit::Failure(text) => text,
                    Exit::Unknown(text) => {
                        format!("how it ended is not known: {text}")
                    }
                    Exit::Success => "OK".to_owned(),
                };
                let cause = Cause::of(&said);
                self.note_refusing(ended.operation, cause, Class::TaskFailed);
                let remedy = remedy(cause, ended.operation, &self.facts);
                let remedy = remedy.map(|remedy| format!(": {remedy}")).unwrap_or_default();
                (ended.operation, format!("{said} (task {}){remedy}", ended.upid))
            },
        );
        if operation == Operation::Resize {
            self.note_growth(None);
        }
        Setback::Fault(operation, Fault::new(Class::TaskFailed, message))
    }

    async fn clone_vm(
        &mut self,
        vmid: VmId,
        node: NodeName,
        template: TemplateRef,
    ) -> Result<(), Setback> {
        let endpoint = self.endpoint(Operation::Clone)?;
        let place = self.place(&endpoint, &template).await;
        if let Err(position) = endpoint.clone_turn(&self.key, &place) {
            return Err(Setback::Wait(Waiting::Turn(position)));
        }
        let asked = self.ask_for_clone(&endpoint, vmid, node, template).await;
        if !matches!(self.facts.task, Some(TaskState::Running { .. })) {
            endpoint.leave_clones(&self.key);
        }
        asked
    }

    /// What the clone takes up.
    async fn place(&mut self, endpoint: &Endpoint, template: &TemplateRef) -> Place {
        let mut storage = self.facts.machine.spec.storage.clone();
        if storage.is_none() {
            let config = self.template_config(endpoint, template).await.ok();
            storage = config.as_ref().and_then(storage_of_disks);
        }
        Place { node: template.node.clone(), storage }
    }

    async fn ask_for_clone(
        &mut self,
        endpoint: &Endpoint,
        vmid: VmId,
        node: NodeName,
        template: TemplateRef,
    ) -> Result<(), Setback> {
        let options = self.clone_options(endpoint, vmid, &node, &template).await?;
        let untouched = self
            .shared
            .memory
            .with(&self.key, |remembered| std::mem::take(&mut remembered.untouched));
        match endpoint.client().clone_vm(&template.node, template.vmid, &options).await {
            Ok(upid) => {
                self.note_growth(None);
                self.remember(|past| (past.cloned, past.sole_clone) = (true, untouched));
                self.started(endpoint, Operation::Clone, upid);
                Ok(())
            }
            Err(error) if error.is_vmid_taken() => {
                // Before the first clone nobody but somebody else can have made it.
                self.facts.vmid_foreign = untouched;
                self.facts.clone_refused = true;
                self.facts.vm = None;
                Ok(())
            }
            Err(error) if error.is_not_connected() => {
                self.shared.memory.with(&self.key, |remembered| remembered.untouched = untouched);
                Err(self.unsent(endpoint, &error))
            }
            Err(error) => {
                if error.outcome_unknown() {
                    self.remember(|past| past.cloned = true);
                }
                Err(self.refused(Operation::Clone, &error))
            }
        }
    }

    async fn clone_options(
        &mut self,
        endpoint: &Endpoint,
        vmid: VmId,
        node: &NodeName,
        template: &TemplateRef,
    ) -> Result<CloneOptions, Setback> {
        let spec = self.facts.machine.spec.clone();
        let own = spec.description.clone().filter(|text| !text.trim().is_empty());
        let described = match own {
            Some(text) => Some(text),
            // The mark takes the place of the template's description, which is to come back.
            None => self.template_config(endpoint, template).await?.description(),
        };
        let described = described.as_deref().and_then(without_mark);
        let mark = mark(&self.key.namespace, &self.key.name, self.facts.uid());
        let full = spec.is_full_clone();
        let storage = spec.storage.as_deref().map(str::parse::<StorageName>).transpose();
        let storage = storage.map_err(|why| {
            let fault = Fault::new(Class::Invalid, format!("spec.storage: {why}"));
            Setback::Fault(Operation::Clone, fault)
        })?;
        Ok(CloneOptions {
            name: Some(self.facts.name().to_owned()),
            description: Some(
                described
                    .map_or_else(|| mark.clone(), |text| format!("{}\n{mark}", text.trim_end())),
            ),
            full,
            pool: spec.pool.clone(),
            snapname: spec.snap_name.clone(),
            storage,
            format: spec.format.map(|format| format.as_str().to_owned()),
            target: (*node != template.node).then(|| node.clone()),
            ..CloneOptions::new(vmid)
        })
    }

    /// As read for the choice, else read now.
    async fn template_config(
        &mut self,
        endpoint: &Endpoint,
        template: &TemplateRef,
    ) -> Result<VmConfig, Setback> {
        if let Some((read, Seen::Present(config))) = &self.facts.template
            && read == template
        {
            return Ok(config.clone());
        }
        let read = endpoint.template(&template.node, template.vmid).await;
        // No clone was asked for where no answer could be.
        read.map_err(|error| match error {
            error if error.is_not_connected() => self.unsent(endpoint, &error),
            error => self.refused(Operation::Clone, &error),
        })
    }

    async fn record_seed(&mut self, volume: String) -> Result<(), Setback> {
        let node = self.vm_node().map(|node| node.to_string());
        let unsent = !self.facts.is_deleted() && self.facts.attached_seed().is_none();
        self.facts.status().bootstrap_iso = Some(volume.clone());
        self.facts.status().bootstrap_iso_node = node;
        self.write_status().await?;
        let kept = self.stored.status.as_ref().and_then(|status| status.bootstrap_iso.as_ref());
        if kept != Some(&volume) {
            tracing::warn!(
                "the API server does not keep status.bootstrapISO of ProxmoxMachines: the \
                 installed CRDs are not those of this version; apply them"
            );
            self.facts.records_lost = true;
        }
        self.remember(|past| past.unsent_seed = unsent);
        Ok(())
    }

    fn forget_seed(&mut self) {
        let status = self.facts.status();
        status.bootstrap_iso = None;
        status.bootstrap_iso_node = None;
    }

    async fn configure(
        &mut self,
        options: BTreeMap<String, String>,
        operation: Operation,
    ) -> Result<(), Setback> {
        let (endpoint, node, vmid) = self.vm(operation)?;
        let (empty, set): (BTreeMap<_, _>, BTreeMap<_, _>) =
            options.into_iter().partition(|(_, value)| value.is_empty());
        let update = ConfigUpdate {
            set,
            delete: empty.into_keys().collect(),
            digest: self.facts.vm().and_then(|vm| vm.config.digest()).map(str::to_owned),
        };
        match endpoint.client().update_vm_config(&node, vmid, &update).await {
            Ok(upid) => {
                self.started(&endpoint, operation, upid);
                Ok(())
            }
            Err(error) => {
                if error.is_volume_missing() {
                    // The seed is not where its upload put it: it has to be stored once more.
                    endpoint.forget_task(&self.key);
                    self.facts.task = None;
                } else if just_ended(&self.facts, Operation::Upload)
                    && !error.outcome_unknown()
                    && !matches!(error.cause(), Some(Cause::DigestMismatch | Cause::VmLocked))
                {
                    // Perhaps for that, in words that are not known: its storage is asked.
                    endpoint.doubt_task(&self.key, error.to_string());
                    self.facts.task = endpoint.task(&self.key);
                }
                Err(self.refused(operation, &error))
            }
        }
    }

    async fn resize(&mut self, disk: &str, gib: u32) -> Result<(), Setback> {
        let (endpoint, node, vmid) = self.vm(Operation::Resize)?;
        match endpoint.client().resize_disk(&node, vmid, disk, &format!("{gib}G")).await {
            Ok(upid) => {
                self.note_growth(Some(gib));
                self.started(&endpoint, Operation::Resize, upid);
                Ok(())
            }
            Err(error) => Err(self.refused(Operation::Resize, &error)),
        }
    }

    fn note_growth(&mut self, gib: Option<u32>) {
        self.shared.memory.with(&self.key, |remembered| remembered.grown = gib);
        self.facts.grown = gib;
    }

    async fn store_seed(&mut self, storage: &StorageName) -> Result<(), Setback> {
        let (endpoint, node, vmid) = self.vm(Operation::Upload)?;
        let image = match image(&self.facts) {
            Ok(image) => image,
            Err(why) => {
                return Err(Setback::Fault(Operation::Upload, Fault::new(Class::Invalid, why)));
            }
        };
        let asked =
            endpoint.client().upload_iso(&node, storage, &file_name(vmid), image.into()).await;
        let was_sent = asked.as_ref().err().is_none_or(pve::Error::outcome_unknown);
        if was_sent {
            self.remember(|past| past.unsent_seed = false);
        }
        match asked {
            Ok(upid) => {
                self.started(&endpoint, Operation::Upload, upid);
                Ok(())
            }
            Err(error) => Err(self.refused(Operation::Upload, &error)),
        }
    }

    async fn start(&mut self, power: Power) -> Result<(), Setback> {
        let (endpoint, node, vmid) = self.vm(Operation::Start)?;
        let asked = match power {
            Power::Paused => endpoint.client().resume_vm(&node, vmid).await,
            Power::Running | Power::Stopped | Power::Halted(_) => {
                endpoint.client().start_vm(&node, vmid).await
            }
        };
        match asked {
            Ok(upid) => {
                self.started(&endpoint, Operation::Start, upid);
                Ok(())
            }
            Err(error) => {
                // That the VM does not run was concluded from what ended before.
                endpoint.forget_task(&self.key);
                Err(self.refused(Operation::Start, &error))
            }
        }
    }
}

/// The storage of a template's disks.
fn storage_of_disks(config: &VmConfig) -> Option<String> {
    let mut disks = config.options().values().filter(|value| value.contains(":base-"));
    disks.next()?.split(':').next().map(str::to_owned)
}

/// The seed's disc image.
pub(super) fn image(facts: &Facts) -> Result<Vec<u8>, String> {
    let (Some(vm), Some(Seen::Present(data))) = (facts.vm(), &facts.bootstrap) else {
        return Err("the bootstrap data was not read".to_owned());
    };
    seed::files(facts, &vm.config, data)?.image().map_err(|why| why.to_string())
}

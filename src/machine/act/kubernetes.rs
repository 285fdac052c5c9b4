//! Writes to the management cluster.
//!
//! Every write of the object itself carries the version that it was decided from, so that a stale
//! copy never overwrites what a newer one records.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::super::decision::Waiting;
use super::super::pass::{Interrupted, Pass, Setback};
use super::super::unreadable;
use crate::api::ipam::IPAddressClaim;
use crate::api::{MACHINE_FINALIZER, ProxmoxMachine, ProxmoxMachineStatus, TemplateRef};
use crate::ids::{NodeName, VmId};
use crate::ipam::{self, Slot};
use crate::placement;

impl Pass<'_> {
    fn api(&self) -> Api<ProxmoxMachine> {
        Api::namespaced(self.shared.client.clone(), &self.key.namespace)
    }

    /// Writes spec or metadata.
    async fn write(&mut self, mut patch: Value) -> Result<(), Interrupted> {
        patch["metadata"]["resourceVersion"] = json!(self.stored.metadata.resource_version);
        let patch = Patch::Merge(&patch);
        let answer = self.api().patch(&self.key.name, &PatchParams::default(), &patch).await;
        let written = self.written(answer).await?;
        self.took(written);
        Ok(())
    }

    /// What was written. An object that cannot be read as a whole is written all the same, when it is
    /// deleted.
    async fn written(
        &self,
        answer: kube::Result<ProxmoxMachine>,
    ) -> Result<ProxmoxMachine, Interrupted> {
        match answer {
            Err(kube::Error::SerdeError(error)) if self.facts.is_deleted() => {
                let client = self.shared.client.clone();
                let read = unreadable::read(client, &self.key.namespace, &self.key.name).await?;
                match read {
                    Some(Ok(machine)) if machine.uid() == self.stored.uid() => Ok(machine),
                    Some(Err(_)) => Err(kube::Error::SerdeError(error).into()),
                    // The last finalizer went with the write, and there may be another by its name.
                    _ => Ok(ProxmoxMachine {
                        metadata: ObjectMeta { finalizers: None, ..self.stored.metadata.clone() },
                        ..self.stored.clone()
                    }),
                }
            }
            answer => Ok(answer?),
        }
    }

    /// Writes what differs in the status.
    pub(in super::super) async fn write_status(&mut self) -> Result<(), Interrupted> {
        let wanted = to_value(self.facts.machine.status.as_ref());
        let Some(mut patch) =
            crate::api::merge_patch(&to_value(self.stored.status.as_ref()), &wanted)
        else {
            return Ok(());
        };
        if patch.get("ready").is_none() && self.stored.status.is_none() {
            patch["ready"] = json!(false);
        }
        let patch = json!({
            "metadata": {"resourceVersion": self.stored.metadata.resource_version},
            "status": patch,
        });
        let patch = Patch::Merge(&patch);
        let answer = self.api().patch_status(&self.key.name, &PatchParams::default(), &patch).await;
        let written = self.written(answer).await?;
        self.took(written);
        Ok(())
    }

    /// Goes on from what the API server answered, keeping what is not written yet of the status.
    fn took(&mut self, mut written: ProxmoxMachine) {
        // As in the copies: nothing here reads them, and they are the greater part of an object.
        written.metadata.managed_fields = None;
        let before = self.stored.metadata.resource_version.clone();
        self.shared.memory.with(&self.key, |remembered| remembered.wrote(before, &written));
        let status = self.facts.machine.status.take();
        self.stored = written.clone();
        self.facts.machine = written;
        self.facts.machine.status = status;
    }

    pub(super) async fn add_finalizer(&mut self) -> Result<(), Setback> {
        let finalizers = self.with_ours();
        Ok(self.write(json!({"metadata": {"finalizers": finalizers}})).await?)
    }

    /// The object's finalizers and ours.
    fn with_ours(&self) -> Vec<String> {
        let mut finalizers = self.stored.finalizers().to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == MACHINE_FINALIZER) {
            finalizers.push(MACHINE_FINALIZER.to_owned());
        }
        finalizers
    }

    pub(super) async fn remove_finalizer(&mut self) -> Result<(), Setback> {
        let mut finalizers = self.stored.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != MACHINE_FINALIZER);
        self.shared.memory.with(&self.key, |remembered| remembered.released = true);
        match self.write(json!({"metadata": {"finalizers": finalizers}})).await {
            Ok(()) => Ok(()),
            // The last finalizer's removal deletes the object; it may be gone already.
            Err(Interrupted::Api(error)) if is_not_found(&error) => {
                self.facts.machine.metadata.finalizers = None;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn set_provider_id(&mut self, id: String) -> Result<(), Setback> {
        Ok(self.write(json!({"spec": {"providerID": id}})).await?)
    }

    /// Node and template first, then the VMID that says that there is something to look for, and with
    /// it the finalizer.
    pub(super) async fn record_choice(
        &mut self,
        vmid: VmId,
        node: &NodeName,
        template: &placement::TemplateRef,
    ) -> Result<(), Setback> {
        let status = self.facts.status();
        status.proxmox_node = Some(node.to_string());
        status.template_ref =
            Some(TemplateRef { node: template.node.to_string(), vmid: template.vmid.into() });
        // Of a clone that failed, perhaps on another node; nothing was stored for it.
        status.bootstrap_iso = None;
        status.bootstrap_iso_node = None;
        self.write_status().await?;
        let patch = json!({
            "metadata": {"finalizers": self.with_ours()},
            "spec": {"virtualMachineID": i64::from(vmid)},
        });
        Ok(self.write(patch).await?)
    }

    pub(super) async fn forget_choice(&mut self) -> Result<(), Setback> {
        let attempts = self.facts.status().clone_attempts.unwrap_or(0);
        self.write(json!({"spec": {"virtualMachineID": null}})).await?;
        let status = self.facts.status();
        status.proxmox_node = None;
        status.template_ref = None;
        status.bootstrap_iso = None;
        status.bootstrap_iso_node = None;
        status.task_ref = None;
        status.clone_attempts = Some(attempts.saturating_add(1));
        Ok(self.write_status().await?)
    }

    pub(super) async fn claim(&mut self, slots: &[Slot]) -> Result<(), Setback> {
        let cluster = self.facts.cluster_name().unwrap_or_default().to_owned();
        let api: Api<IPAddressClaim> =
            Api::namespaced(self.shared.client.clone(), &self.key.namespace);
        for slot in slots {
            let claim = ipam::desired_claim(&self.facts.machine, &cluster, slot);
            let made = match api.create(&PostParams::default(), &claim).await {
                Ok(made) => made,
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    api.get(&claim.name_any()).await?
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    return Err(Setback::Wait(Waiting::Addresses(format!(
                        "IPAddressClaim {} cannot be made ({}): the API server does not \
                                 serve ipam.cluster.x-k8s.io/v1beta1, which comes with Cluster API \
                                 core; install it",
                        claim.name_any(),
                        status.message
                    ))));
                }
                Err(error) => return Err(error.into()),
            };
            let uid = self.facts.machine.metadata.uid.clone();
            let ours = made.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref());
            let deleted = made.metadata.deletion_timestamp.is_some();
            if let Some(fact) = self.facts.addresses.iter_mut().find(|fact| fact.slot == *slot) {
                fact.claim = Some(super::super::facts::ClaimFact {
                    ours: ours && !deleted,
                    message: deleted.then(|| "it is being deleted".to_owned()),
                });
            }
        }
        Ok(())
    }

    pub(super) async fn release_claims(&mut self) -> Result<(), Setback> {
        let api: Api<IPAddressClaim> =
            Api::namespaced(self.shared.client.clone(), &self.key.namespace);
        for name in std::mem::take(&mut self.facts.claims) {
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What events are about.
    pub(in super::super) fn object_reference(&self) -> ObjectReference {
        use kube::Resource as _;
        self.stored.object_ref(&())
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

fn to_value(status: Option<&ProxmoxMachineStatus>) -> Value {
    status.and_then(|status| serde_json::to_value(status).ok()).unwrap_or_else(|| json!({}))
}

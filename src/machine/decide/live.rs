//! The way of a machine that is wanted: placed, cloned, configured, seeded, started, ready.

use k8s_openapi::jiff::Timestamp;

use super::super::decision::{Decision, Failure, Look, Step, Waiting, Wake};
use super::super::desired;
use super::super::facts::{Facts, GuestFact, Power, VmFact};
use super::identity::{Identity, identity, provider_id};
use super::{has_finalizer, task_in_flight};
use crate::api::reasons;
use crate::hypervisor::{Ended, Exit, Operation, TaskState};
use crate::ids::VmId;
use crate::seen::Seen;

pub(super) fn decide(facts: &Facts, now: Timestamp) -> Decision {
    if let Some(decision) = gates(facts) {
        return decision;
    }
    if !has_finalizer(facts) {
        return Decision::Do(Step::AddFinalizer);
    }
    let unclaimed: Vec<_> = facts
        .addresses
        .iter()
        .filter(|fact| fact.claim.is_none() && fact.address.is_none())
        .map(|fact| fact.slot.clone())
        .collect();
    if !unclaimed.is_empty() && !facts.is_seeded() {
        return Decision::Do(Step::Claim(unclaimed));
    }
    if let Some(decision) = task_in_flight(facts) {
        return decision;
    }
    if let Some(decision) = failed_task(facts, now) {
        return decision;
    }
    match facts.vmid() {
        None => super::super::placing::decide(facts),
        Some(vmid) => with_vmid(facts, vmid),
    }
}

/// What Cluster API has to provide before anything is made.
fn gates(facts: &Facts) -> Option<Decision> {
    let wait = |waiting| Some(Decision::Wait(waiting, Wake::OnChange));
    let failed = facts
        .machine
        .status
        .as_ref()
        .is_some_and(|s| s.failure_reason.is_some() || s.failure_message.is_some());
    if failed {
        return wait(Waiting::Failed);
    }
    let Some(owner) = &facts.owner else { return wait(Waiting::Owner) };
    let Some(cluster) = &facts.cluster else { return wait(Waiting::Cluster) };
    if facts.infra.is_none() {
        return wait(Waiting::InfraCluster);
    }
    if !facts.is_seeded() {
        let ready = cluster.status.as_ref().and_then(|s| s.infrastructure_ready) == Some(true);
        if !ready {
            return wait(Waiting::ClusterInfrastructure);
        }
        if owner.spec.bootstrap.data_secret_name.is_none() {
            return wait(Waiting::BootstrapDataName);
        }
    }
    match &facts.connection {
        Ok(()) => None,
        Err(fault) => {
            Some(Decision::Wait(Waiting::Connection(fault.clone()), Wake::seconds(30)))
        }
    }
}

/// A task that failed is told, and tried again after `status.retryAfter`. Whether it failed in
/// effect is read from the world later: a start may be reported failed while the VM runs.
fn failed_task(facts: &Facts, now: Timestamp) -> Option<Decision> {
    if let Some(TaskState::Ended(ended)) = &facts.task {
        let failed = !matches!(ended.exit, Exit::Success);
        let judged_by_the_world = matches!(ended.operation, Operation::Start);
        if failed && !judged_by_the_world {
            return Some(Decision::Do(Step::ForgetTask));
        }
    }
    let retry_after = facts.machine.status.as_ref().and_then(|s| s.retry_after.as_ref())?;
    let wait = retry_after.0.duration_since(now);
    if wait.is_positive() {
        let condition = facts
            .machine
            .status
            .as_ref()
            .and_then(|s| s.conditions.iter().find(|c| c.type_ == reasons::VM_PROVISIONED));
        let message = condition.and_then(|c| c.message.clone()).unwrap_or_default();
        return Some(Decision::Wait(
            Waiting::Retry { operation: Operation::Recorded, message },
            Wake::After(wait.unsigned_abs()),
        ));
    }
    None
}

fn with_vmid(facts: &Facts, vmid: VmId) -> Decision {
    let was_ready = facts.machine.status.as_ref().is_some_and(|s| s.ready);
    if was_ready && facts.machine.spec.provider_id.is_some() {
        return settled(facts, vmid);
    }
    match &facts.vm {
        None => Decision::Look(Look::Vm),
        Some(Seen::Unknown(_)) if facts.vmid_taken => Decision::Do(Step::GiveUpVmId(vmid)),
        Some(Seen::Unknown(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
        }
        Some(Seen::Absent) => absent(facts, vmid),
        Some(Seen::Present(vm)) => present(facts, vmid, vm),
    }
}

/// The whole cluster says that there is no VM at the recorded VMID.
fn absent(facts: &Facts, vmid: VmId) -> Decision {
    if facts.machine.spec.provider_id.is_some() {
        return Decision::Wait(Waiting::Lost(vmid), Wake::seconds(60));
    }
    if facts.vmid_taken {
        // Refused as taken, yet nowhere to be seen: look again rather than guess.
        let why = format!("Proxmox says that VMID {vmid} is taken, but does not list it");
        return Decision::Wait(Waiting::Unknown(why), Wake::seconds(5));
    }
    let recorded = facts.machine.status.as_ref().and_then(|s| s.template_ref.as_ref());
    let template = recorded.and_then(|r| crate::placement::TemplateRef::try_from(r).ok());
    match (facts.recorded_node(), template) {
        (Some(node), Some(template)) => Decision::Do(Step::Clone { vmid, node, template }),
        // Status is gone, or capmox recorded the VMID: place it anew under a VMID of its own.
        _ => Decision::Do(Step::GiveUpVmId(vmid)),
    }
}

fn present(facts: &Facts, vmid: VmId, vm: &VmFact) -> Decision {
    match identity(facts, vm) {
        Identity::Ours => {}
        Identity::Nascent => {
            let waiting = Waiting::Locked { vmid, lock: "clone".to_owned() };
            return Decision::Wait(waiting, Wake::seconds(5));
        }
        Identity::Foreign(why) if facts.machine.spec.provider_id.is_some() => {
            let text = format!("VM {vmid} on {} is not this machine's: {why}", vm.node);
            return Decision::Wait(Waiting::Foreign(text), Wake::seconds(60));
        }
        Identity::Foreign(_) => return Decision::Do(Step::GiveUpVmId(vmid)),
    }
    if let Some(lock) = vm.config.lock() {
        let waiting = Waiting::Locked { vmid, lock: lock.to_owned() };
        return Decision::Wait(waiting, Wake::seconds(5));
    }
    if facts.machine.spec.provider_id.is_none() {
        return match vm.config.uuid() {
            Some(uuid) => Decision::Do(Step::SetProviderId(provider_id(&uuid))),
            None => Decision::Wait(
                Waiting::Invalid(format!(
                    "VM {vmid} has no uuid in its smbios1 option; the template needs one"
                )),
                Wake::seconds(60),
            ),
        };
    }
    if facts.is_seeded() { boot(facts, vmid) } else { prepare(facts, vm) }
}

/// Addresses, boot volume, options and seed: all before the first start.
fn prepare(facts: &Facts, vm: &VmFact) -> Decision {
    let spec = &facts.machine.spec;
    if let Some(volume) = spec.disks.as_ref().and_then(|disks| disks.boot_volume.as_ref()) {
        match desired::growth(volume, &vm.config) {
            Ok(Some(gib)) => {
                return Decision::Do(Step::Resize { disk: volume.disk.clone(), gib });
            }
            Ok(None) => {}
            Err(why) => return Decision::Wait(Waiting::Invalid(why), Wake::seconds(60)),
        }
    }
    let options = match desired::options(facts, &vm.config) {
        Ok(options) => options,
        Err(why) => return Decision::Wait(Waiting::Invalid(why), Wake::seconds(60)),
    };
    if desired::lacks_mac(facts, &vm.config) {
        // The server gives a new device its MAC, which the seed has to name.
        return Decision::Do(Step::Configure(options));
    }
    if let Some(missing) = desired::missing_addresses(facts) {
        return Decision::Wait(Waiting::Addresses(missing), Wake::seconds(60));
    }
    seed(facts, vm, options)
}

fn seed(
    facts: &Facts,
    vm: &VmFact,
    mut options: std::collections::BTreeMap<String, String>,
) -> Decision {
    match &facts.bootstrap {
        None => return Decision::Look(Look::Bootstrap),
        Some(Seen::Absent) => {
            let why = "the Secret does not exist".to_owned();
            return Decision::Wait(Waiting::BootstrapData(why), Wake::seconds(10));
        }
        Some(Seen::Unknown(why)) => {
            return Decision::Wait(Waiting::BootstrapData(why.clone()), Wake::seconds(10));
        }
        Some(Seen::Present(data)) => {
            if let Err(why) = desired::seed(facts, &vm.config, data) {
                return Decision::Wait(Waiting::Invalid(why), Wake::seconds(60));
            }
        }
    }
    let Some(vmid) = facts.vmid() else { return Decision::Look(Look::Vm) };
    let recorded = facts.machine.status.as_ref().and_then(|s| s.bootstrap_iso.clone());
    let Some(volume) = recorded.filter(|volume| desired::is_seed_volume(volume, vmid)) else {
        return match &facts.iso_storages {
            None => Decision::Look(Look::IsoStorages),
            Some(Seen::Unknown(why)) => {
                Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
            }
            Some(Seen::Absent) => {
                Decision::Wait(Waiting::SeedStorage(vm.node.clone()), Wake::seconds(30))
            }
            Some(Seen::Present(storages)) => match storages.first() {
                Some(storage) => {
                    Decision::Do(Step::RecordSeed(desired::seed_volume(storage, vmid)))
                }
                None => Decision::Wait(Waiting::SeedStorage(vm.node.clone()), Wake::seconds(30)),
            },
        };
    };
    let uploaded = facts.seed_stored || just_ended(facts, Operation::Upload);
    if !uploaded {
        return match desired::storage_of(&volume) {
            Some(storage) => Decision::Do(Step::StoreSeed(storage)),
            None => Decision::Wait(
                Waiting::Invalid(format!("status.bootstrapISO {volume:?} names no storage")),
                Wake::seconds(60),
            ),
        };
    }
    options.extend(desired::attach(&volume, &vm.config));
    Decision::Do(Step::AttachSeed(options))
}

/// From the seeded VM to the running guest.
fn boot(facts: &Facts, vmid: VmId) -> Decision {
    let started = just_ended(facts, Operation::Start);
    let power = match (&facts.power, started) {
        (Some(Seen::Present(power)), _) => *power,
        (None, true) => Power::Running,
        (None, false) => return Decision::Look(Look::Power),
        (Some(Seen::Unknown(why)), _) => {
            return Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10));
        }
        (Some(Seen::Absent), _) => {
            return Decision::Wait(Waiting::Lost(vmid), Wake::seconds(60));
        }
    };
    if power != Power::Running {
        if let Some(ended) = failed_start(facts) {
            return match ended {
                Decision::Do(Step::ForgetTask) => Decision::Do(Step::ForgetTask),
                other => other,
            };
        }
        return Decision::Do(Step::Start(power));
    }
    guest(facts)
}

/// A start that failed, and the VM does not run: the failure is told and tried again later.
fn failed_start(facts: &Facts) -> Option<Decision> {
    match &facts.task {
        Some(TaskState::Ended(Ended { operation: Operation::Start, exit, .. }))
            if !matches!(exit, Exit::Success) =>
        {
            Some(Decision::Do(Step::ForgetTask))
        }
        _ => None,
    }
}

fn guest(facts: &Facts) -> Decision {
    let checks = facts.machine.spec.checks.clone().unwrap_or_default();
    if checks.skip_qemu_guest_agent == Some(true) {
        return Decision::Ready(None);
    }
    match &facts.guest {
        None => Decision::Look(Look::Guest),
        Some(GuestFact::AgentDown(text)) => {
            Decision::Wait(Waiting::Agent(text.clone()), Wake::seconds(2))
        }
        Some(GuestFact::NotRunning) => {
            let why = "the VM stopped while its guest was booting".to_owned();
            Decision::Wait(Waiting::Unknown(why), Wake::seconds(2))
        }
        Some(GuestFact::AgentUp) => Decision::Ready(None),
        Some(GuestFact::CloudInitRunning) => {
            Decision::Wait(Waiting::CloudInit, Wake::seconds(2))
        }
        Some(GuestFact::CloudInitDone(attention)) => Decision::Ready(attention.clone()),
        Some(GuestFact::CloudInitFailed(text)) => Decision::Fail(Failure {
            reason: reasons::FAILURE_BOOTSTRAP_FAILED,
            message: format!("cloud-init failed in the guest: {text}"),
        }),
        Some(GuestFact::Unknown(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(5))
        }
    }
}

/// A machine that was ready once: it stays so while its VM is there, is started again when it was
/// stopped, and loses its seed when the node has joined.
fn settled(facts: &Facts, vmid: VmId) -> Decision {
    let missing = matches!(facts.listed, Some(None));
    let recorded_seed =
        facts.machine.status.as_ref().is_some_and(|status| status.bootstrap_iso.is_some());
    let tagged = facts
        .listed
        .as_ref()
        .and_then(Option::as_ref)
        .is_some_and(|entry| entry.tags.iter().any(|tag| tag == desired::SEED_TAG));
    let unseed = facts.is_joined() && (recorded_seed || tagged);
    if (missing || unseed) && facts.vm.is_none() {
        return Decision::Look(Look::Vm);
    }
    match &facts.vm {
        None | Some(Seen::Unknown(_)) if !unseed => {}
        None => {}
        Some(Seen::Unknown(why)) => {
            return Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(30));
        }
        Some(Seen::Absent) => return Decision::Wait(Waiting::Lost(vmid), Wake::seconds(60)),
        Some(Seen::Present(vm)) => {
            if let Identity::Foreign(why) = identity(facts, vm) {
                let text = format!("VM {vmid} on {} is not this machine's: {why}", vm.node);
                return Decision::Wait(Waiting::Foreign(text), Wake::seconds(60));
            }
            if unseed {
                return eject(facts, vmid, vm);
            }
        }
    }
    let stopped = facts
        .listed
        .as_ref()
        .and_then(Option::as_ref)
        .is_some_and(|entry| entry.status.as_deref() == Some("stopped"));
    if !stopped {
        return Decision::Ready(None);
    }
    match &facts.power {
        None => Decision::Look(Look::Power),
        Some(Seen::Present(Power::Running)) => Decision::Ready(None),
        Some(Seen::Present(power)) => Decision::Do(Step::Start(*power)),
        Some(Seen::Absent) => Decision::Wait(Waiting::Lost(vmid), Wake::seconds(60)),
        Some(Seen::Unknown(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(30))
        }
    }
}

/// Takes the seed, which carries join secrets, out of the drive and off the storage.
fn eject(facts: &Facts, vmid: VmId, vm: &VmFact) -> Decision {
    if let Some(lock) = vm.config.lock() {
        let waiting = Waiting::Locked { vmid, lock: lock.to_owned() };
        return Decision::Wait(waiting, Wake::seconds(10));
    }
    let recorded = facts.machine.status.as_ref().and_then(|s| s.bootstrap_iso.clone());
    match facts.attached_seed() {
        // Recorded before the drive is emptied, so that the file is found after a crash.
        Some(volume) if recorded.as_ref() != Some(&volume) => {
            Decision::Do(Step::RecordSeed(volume))
        }
        Some(_) => Decision::Do(Step::Eject(desired::detach(&vm.config))),
        None => match recorded {
            Some(volume) => Decision::Do(Step::DeleteSeed(volume)),
            None => Decision::Do(Step::Eject(desired::detach(&vm.config))),
        },
    }
}

fn just_ended(facts: &Facts, wanted: Operation) -> bool {
    matches!(
        &facts.task,
        Some(TaskState::Ended(Ended { operation, exit: Exit::Success, .. })) if *operation == wanted
    )
}

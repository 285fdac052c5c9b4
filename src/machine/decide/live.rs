//! The way of a machine that is wanted: placed, cloned, configured, seeded, started, ready.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::super::decision::{Decision, Failure, Look, Step, Waiting, Wake};
use super::super::facts::{Facts, GuestFact, Power, VmFact, VmSeen};
use super::super::{desired, placing, seed as seeds};
use super::identity::{Identity, identity, is_made_in_spite, provider_id};
use super::moved;
use super::settled::settled;
use super::{
    connected, has_finalizer, is_seed_deleted, just_ended, retry_pause, stray_seed, task_in_flight,
};
use crate::api::reasons;
use crate::bootstrap::Format;
use crate::hypervisor::{Ended, Exit, Operation, TaskState};
use crate::ids::{StorageName, VmId};
use crate::seen::Seen;

pub(super) fn decide(facts: &Facts, now: Timestamp) -> Decision {
    if let Some(decision) = gates(facts) {
        return decision;
    }
    let is_held = has_finalizer(facts);
    let has_vm = facts.vmid().is_some() || facts.machine.spec.provider_id.is_some();
    if !is_held && has_vm {
        return Decision::Do(Step::AddFinalizer);
    }
    match wanted(facts, now, is_held) {
        // It comes with the VMID, in one write; who has to wait for that gets it at once.
        Decision::Wait(..) if !is_held => Decision::Do(Step::AddFinalizer),
        decision => decision,
    }
}

/// Nothing is claimed and nothing cloned for an object that could go without a word.
fn wanted(facts: &Facts, now: Timestamp, is_held: bool) -> Decision {
    let unclaimed: Vec<_> = facts
        .addresses
        .iter()
        .filter(|fact| fact.claim.is_none() && fact.address.is_none())
        .map(|fact| fact.slot.clone())
        .collect();
    if is_held && !unclaimed.is_empty() && !facts.is_seeded() {
        return Decision::Do(Step::Claim(unclaimed));
    }
    if let Some(decision) = connected(facts).or_else(|| task_in_flight(facts)) {
        return decision;
    }
    if let Some(decision) = failed_task(facts, now) {
        return decision;
    }
    match facts.vmid() {
        None if facts.machine.spec.provider_id.is_some() => {
            let text = "spec.providerID tells of a VM, and spec.virtualMachineID does not say \
                        which: set it again, or delete the Machine"
                .to_owned();
            Decision::Wait(Waiting::Foreign(text), Wake::OnChange)
        }
        None => placing::decide(facts),
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
    None
}

/// A task that failed is told, and tried again after `status.retryAfter`. Whether it failed in
/// effect is read from the world later: a start may be reported failed while the VM runs.
fn failed_task(facts: &Facts, now: Timestamp) -> Option<Decision> {
    if let Some(TaskState::Ended(ended)) = &facts.task {
        let failed = !matches!(ended.exit, Exit::Success);
        let judged_by_the_world = match ended.operation {
            Operation::Start => true,
            Operation::Upload | Operation::DeleteSeed => matches!(ended.exit, Exit::Unknown(_)),
            _ => false,
        };
        if failed && !judged_by_the_world && !facts.is_vmid_anothers() {
            return Some(Decision::Do(Step::ForgetTask));
        }
    }
    retry_pause(facts, now)
}

fn with_vmid(facts: &Facts, vmid: VmId) -> Decision {
    let was_ready = facts.machine.status.as_ref().is_some_and(|s| s.ready);
    if was_ready && facts.machine.spec.provider_id.is_some() {
        return settled(facts, vmid);
    }
    if facts.is_vmid_anothers() {
        return match &facts.vm {
            None => Decision::Look(Look::Vm),
            Some(VmSeen::Unknown(why)) => {
                Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
            }
            // Made in spite of what was said: a proxy may have asked twice.
            Some(VmSeen::Present(vm)) if is_made_in_spite(facts, vm) => present(facts, vmid, vm),
            Some(_) => Decision::Do(Step::GiveUpVmId(vmid)),
        };
    }
    match &facts.vm {
        None => Decision::Look(Look::Vm),
        Some(VmSeen::Unknown(why) | VmSeen::Hidden(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
        }
        Some(VmSeen::Foreign(why)) if facts.machine.spec.provider_id.is_some() => {
            Decision::Wait(Waiting::Foreign(why.clone()), Wake::seconds(60))
        }
        Some(VmSeen::Foreign(_)) => Decision::Do(Step::GiveUpVmId(vmid)),
        Some(VmSeen::Absent) => absent(facts, vmid),
        Some(VmSeen::Present(vm)) => present(facts, vmid, vm),
    }
}

/// A clone starts by itself when its node reboots and the template is started with its node. Without
/// its seed the guest would be set up for good with nothing.
fn running_too_early(facts: &Facts) -> Option<Decision> {
    let listed = facts.listed.present().and_then(|entry| entry.status.as_deref());
    if listed != Some("running") || facts.attached_seed().is_some() {
        return None;
    }
    match &facts.power {
        None => Some(Decision::Look(Look::Power)),
        Some(Seen::Present(Power::Running | Power::Paused | Power::Halted(_))) => {
            Some(Decision::Do(Step::Stop))
        }
        Some(_) => None,
    }
}

/// The whole cluster says that there is no VM at the recorded VMID.
fn absent(facts: &Facts, vmid: VmId) -> Decision {
    if facts.machine.spec.provider_id.is_some() {
        return Decision::Wait(Waiting::Lost(vmid), Wake::seconds(60));
    }
    if facts.clone_refused {
        // Refused as taken, yet nowhere to be seen: look again rather than guess.
        let why = format!("Proxmox says that VMID {vmid} is taken, but does not list it");
        return Decision::Wait(Waiting::Unknown(why), Wake::seconds(5));
    }
    let failed = facts.machine.status.as_ref().is_some_and(|s| s.clone_attempts > Some(0));
    let decision = match (facts.recorded_node(), facts.recorded_template()) {
        (Some(node), Some(template)) if !failed => {
            Decision::Do(Step::Clone { vmid, node, template })
        }
        // Node or template may be what failed, or the status was lost; the VMID is free as it was.
        _ => placing::again(facts, vmid),
    };
    match decision {
        // Where the seed is going to be is recorded together with the clone's task, if it is known.
        Decision::Do(Step::Clone { .. }) if facts.iso_storages.is_none() => {
            Decision::Look(Look::IsoStorages)
        }
        decision => decision,
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
    if let Some(lock) = vm.config.lock().filter(|lock| *lock != "suspended") {
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
    if facts.is_seeded() {
        return boot(facts, vmid);
    }
    unrecorded(facts).unwrap_or_else(|| prepare(facts, vm))
}

/// A status that does not say which template was chosen was lost in a move to another management
/// cluster, or written by capmox. A VM that runs by then has had its seed.
fn unrecorded(facts: &Facts) -> Option<Decision> {
    let status = facts.machine.status.as_ref();
    if status.is_some_and(|status| status.template_ref.is_some()) {
        return None;
    }
    let unknown = |why: &str| Some(Decision::Wait(Waiting::Unknown(why.into()), Wake::seconds(10)));
    match &facts.power {
        None => Some(Decision::Look(Look::Power)),
        Some(Seen::Present(Power::Stopped)) => None,
        Some(Seen::Present(Power::Running | Power::Paused | Power::Halted(_))) => {
            Some(Decision::Do(Step::RecordSeeded))
        }
        Some(Seen::Absent) => unknown("the VM vanished while it was being looked at"),
        Some(Seen::Unknown(why)) => unknown(why),
    }
}

/// Addresses, boot volume, options and seed: all before the first start.
fn prepare(facts: &Facts, vm: &VmFact) -> Decision {
    if let Some(decision) = running_too_early(facts) {
        return decision;
    }
    let growth = match growth(facts, vm) {
        Ok(growth) => growth,
        Err(why) => return invalid(why),
    };
    let mut options = match desired::options(facts, &vm.config) {
        Ok(options) => options,
        Err(why) => return invalid(why),
    };
    if vm.config.is_protected() {
        // Before the seed, which takes the place of a drive that could not be taken out.
        options.extend(desired::unprotected());
        return Decision::Do(Step::Configure(options));
    }
    if let Some(device) = desired::lacks_mac(facts, &vm.config) {
        if options.is_empty() {
            return invalid(format!(
                "the VM has no network device {device} with a MAC address, and spec.network does \
                 not ask for one: set spec.network.default, or give the template {device}"
            ));
        }
        // The server gives a new device its MAC, which the seed has to name.
        return Decision::Do(Step::Configure(options));
    }
    if desired::has_silent_claims(facts) {
        return Decision::Look(Look::Pools);
    }
    if let Some(missing) = desired::missing_addresses(facts) {
        // The metadata of pools are not watched.
        let pause = if facts.ipam_trouble.is_some() { 10 } else { 60 };
        return Decision::Wait(Waiting::Addresses(missing), Wake::seconds(pause));
    }
    seed(facts, vm, options, growth)
}

/// How the boot volume has to grow, which is asked for once.
fn growth(facts: &Facts, vm: &VmFact) -> Result<Option<Step>, String> {
    let disks = facts.machine.spec.disks.as_ref();
    let Some(volume) = disks.and_then(|disks| disks.boot_volume.as_ref()) else { return Ok(None) };
    let gib = desired::growth(volume, &vm.config)?.filter(|gib| facts.grown != Some(*gib));
    Ok(gib.map(|gib| Step::Resize { disk: volume.disk.clone(), gib }))
}

/// The seed, and last the growth: it changes the configuration that the other steps were made from.
fn seed(
    facts: &Facts,
    vm: &VmFact,
    mut options: BTreeMap<String, String>,
    growth: Option<Step>,
) -> Decision {
    let Some(vmid) = facts.vmid() else { return Decision::Look(Look::Vm) };
    // In the drive it can be only after it was stored whole.
    if let Some(decision) = moved::eject(facts) {
        return decision;
    }
    if let Some(volume) = facts.attached_seed() {
        if facts.recorded_seed() != Some(&volume) {
            return Decision::Do(Step::RecordSeed(volume));
        }
        return Decision::Do(if options.is_empty() {
            growth.unwrap_or(Step::RecordSeeded)
        } else {
            Step::Configure(options)
        });
    }
    if seeds::is_drive_taken(&vm.config) {
        return invalid(
            "drive ide0 of the template holds a disk, and the bootstrap ISO needs that drive: move \
             the disk to another bus in the template"
                .to_owned(),
        );
    }
    if let Some(decision) = bootstrap_data(facts, vm) {
        return decision;
    }
    let Some(volume) = facts.recorded_seed().filter(|volume| seeds::is_for(volume, vmid)) else {
        return without_second(facts, vm).unwrap_or_else(|| seed_storage(facts, vm, vmid));
    };
    match moved::is_given_up(facts, vm, volume) {
        Ok(false) => {}
        Ok(true) => return seed_storage(facts, vm, vmid),
        Err(first) => return first,
    }
    match stored(facts) {
        Some(Seen::Present(())) => {
            let tags = options.get("tags").map(String::as_str);
            options.extend(seeds::attach(volume, &vm.config, tags));
            return Decision::Do(Step::AttachSeed(options));
        }
        None => return Decision::Look(Look::Stored(volume.to_owned())),
        Some(Seen::Unknown(why)) => return Decision::Wait(Waiting::Unknown(why), Wake::seconds(5)),
        Some(Seen::Absent) => {}
    }
    if matches!(facts.task, Some(TaskState::Ended(Ended { operation: Operation::Upload, .. }))) {
        return Decision::Do(Step::ForgetTask);
    }
    let Some(storage) = seeds::storage_of(volume) else {
        return invalid(format!("status.bootstrapISO {volume:?} names no storage"));
    };
    elsewhere(facts, &storage, volume, vmid).unwrap_or(Decision::Do(Step::StoreSeed(storage)))
}

/// Whether the seed is on its storage; `None` where that has to be looked up, since no task tells.
fn stored(facts: &Facts) -> Option<Seen<()>> {
    if just_ended(facts, Operation::Upload) {
        return Some(Seen::Present(()));
    }
    let is_upload = |operation| operation == Operation::Upload;
    let is_unclear = facts.past.accepted.is_some_and(|call| is_upload(call.operation))
        || matches!(&facts.task, Some(TaskState::Ended(ended)) if is_upload(ended.operation));
    if is_unclear { facts.stored.clone() } else { Some(Seen::Absent) }
}

/// Another storage for the seed, after the recorded one would not take it: the next in Proxmox's
/// order. What may lie on the first is deleted before it is forgotten.
fn elsewhere(facts: &Facts, storage: &StorageName, volume: &str, vmid: VmId) -> Option<Decision> {
    facts.past.refusing.as_ref().filter(|refusing| *refusing == storage)?;
    let all = match &facts.iso_storages {
        None => return Some(Decision::Look(Look::IsoStorages)),
        Some(seen) => seen.present()?,
    };
    let after = all.iter().position(|one| one == storage).map_or(0, |index| index + 1);
    let next = all.iter().cycle().skip(after).take(all.len()).find(|one| *one != storage)?;
    let deleted = if facts.past.unsent_seed { Ok(true) } else { is_seed_deleted(facts, volume) };
    Some(match deleted {
        Ok(true) => Decision::Do(Step::RecordSeed(seeds::volume(next, vmid))),
        Ok(false) => Decision::Do(Step::DeleteSeed(volume.to_owned())),
        Err(first) => first,
    })
}

/// Whether the bootstrap data can be made into a seed, or what is missing.
fn bootstrap_data(facts: &Facts, vm: &VmFact) -> Option<Decision> {
    let waiting = |why| Some(Decision::Wait(Waiting::BootstrapData(why), Wake::seconds(10)));
    match &facts.bootstrap {
        None => Some(Decision::Look(Look::Bootstrap)),
        Some(Seen::Absent) => waiting("the Secret does not exist".to_owned()),
        Some(Seen::Unknown(why)) => waiting(why.clone()),
        Some(Seen::Present(data)) => match Format::from_secret(data.format.as_deref()) {
            Err(why) => waiting(why.to_string()),
            Ok(_) => seeds::files(facts, &vm.config, data).err().map(invalid),
        },
    }
}

/// What the VM's tag alone tells of was stored and never recorded, or the record was lost: it is made
/// anew where it is, since a second one elsewhere would be the only one to be deleted.
fn without_second(facts: &Facts, vm: &VmFact) -> Option<Decision> {
    if facts.recorded_seed().is_some() || !vm.config.tags().contains(seeds::TAG) {
        return None;
    }
    match stray_seed(facts) {
        Err(first) => Some(first),
        Ok(found) => found.map(|volume| Decision::Do(Step::RecordSeed(volume))),
    }
}

/// Chooses where the seed is going to be, and records that first.
fn seed_storage(facts: &Facts, vm: &VmFact, vmid: VmId) -> Decision {
    let none = || Decision::Wait(Waiting::SeedStorage(vm.node.clone()), Wake::seconds(30));
    match &facts.iso_storages {
        None => Decision::Look(Look::IsoStorages),
        Some(Seen::Unknown(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
        }
        Some(Seen::Absent) => none(),
        Some(Seen::Present(storages)) => match storages.first() {
            Some(storage) => Decision::Do(Step::RecordSeed(seeds::volume(storage, vmid))),
            None => none(),
        },
    }
}

fn invalid(why: String) -> Decision {
    Decision::Wait(Waiting::Invalid(why), Wake::seconds(60))
}

/// From the seeded VM to the running guest.
fn boot(facts: &Facts, vmid: VmId) -> Decision {
    let checks = facts.machine.spec.checks.clone().unwrap_or_default();
    let unasked = checks.skip_qemu_guest_agent == Some(true);
    // The agent's answer proves it as well; without one the VM itself is asked.
    let started = !unasked && just_ended(facts, Operation::Start);
    // It was just made ready to start. Should somebody have been faster, the start says so.
    let prepared =
        [Operation::Configure, Operation::Resize].iter().any(|it| just_ended(facts, *it));
    let power = match (&facts.power, started) {
        (Some(Seen::Present(power)), _) => *power,
        (None, false) if prepared => Power::Stopped,
        (None, true) => Power::Running,
        (None, false) => return Decision::Look(Look::Power),
        (Some(Seen::Unknown(why)), _) => {
            return Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10));
        }
        (Some(Seen::Absent), _) => {
            let why = format!("VM {vmid} vanished while it was being looked at");
            return Decision::Wait(Waiting::Unknown(why), Wake::seconds(2));
        }
    };
    if let Power::Halted(halt) = power {
        let waiting = Waiting::Halted { vmid, word: halt.word().to_owned() };
        return Decision::Wait(waiting, Wake::seconds(30));
    }
    if power == Power::Running {
        return if unasked { Decision::Ready(None) } else { guest(facts) };
    }
    if power == Power::Stopped {
        match moved::holds_it_up(facts) {
            Ok(false) => {}
            // Of a node that joined nothing more is asked.
            Ok(true) if facts.is_joined() => {
                return Decision::Do(Step::Eject(seeds::empty_drive()));
            }
            Ok(true) => return Decision::Do(Step::Reseed),
            Err(first) => return first,
        }
    }
    match &facts.task {
        // The start failed, and the VM does not run: that is told, and tried again later.
        Some(TaskState::Ended(Ended { operation: Operation::Start, exit, .. }))
            if !matches!(exit, Exit::Success) =>
        {
            Decision::Do(Step::ForgetTask)
        }
        _ => Decision::Do(Step::Start(power)),
    }
}

fn guest(facts: &Facts) -> Decision {
    match &facts.guest {
        None if facts.guest_wait.is_some() => {
            Decision::Wait(Waiting::Boot, Wake::after(facts.guest_wait))
        }
        None => Decision::Look(Look::Guest),
        // A VM that does not run is told apart from an agent that is not up yet.
        Some(GuestFact::AgentDown(_))
            if facts.power.is_none() && facts.guest_looks.is_multiple_of(5) =>
        {
            Decision::Look(Look::Power)
        }
        Some(GuestFact::AgentDown(text)) => {
            Decision::Wait(Waiting::Agent(text.clone()), Wake::after(facts.guest_wait))
        }
        Some(GuestFact::AgentUp) => Decision::Ready(None),
        Some(GuestFact::Asked) => Decision::Wait(Waiting::Answer, Wake::after(facts.guest_wait)),
        Some(GuestFact::CloudInitRunning) => {
            Decision::Wait(Waiting::CloudInit, Wake::after(facts.guest_wait))
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

//! The way of a machine that is deleted: stopped, destroyed, its seed deleted, its claims released.
//!
//! Neither Machine nor Cluster nor a valid spec is needed. A VM that is not ours is never touched.

use k8s_openapi::jiff::Timestamp;

use super::super::decision::{Decision, Look, Step, Waiting, Wake};
use super::super::facts::{Facts, Power, VmFact, VmSeen};
use super::super::{desired, seed};
use super::identity::{Identity, identity, is_marked, is_marked_as_ours, shared_with, traces};
use super::{
    connected, has_finalizer, is_seed_deleted, just_ended, late, retry_pause, stray_seed,
    task_in_flight,
};
use crate::hypervisor::{Exit, Operation, TaskState};
use crate::ids::VmId;
use crate::seen::Seen;

pub(super) fn decide(facts: &Facts, now: Timestamp) -> Decision {
    if !has_finalizer(facts) {
        return Decision::Gone;
    }
    let Some(vmid) = facts.vmid() else { return without_vmid(facts) };
    if let Some(decision) = connected(facts).or_else(|| task_in_flight(facts)) {
        return decision;
    }
    if let Some(TaskState::Ended(ended)) = &facts.task {
        let is_told = match ended.operation {
            Operation::Stop | Operation::Destroy | Operation::Configure => {
                !matches!(ended.exit, Exit::Success)
            }
            Operation::DeleteSeed => matches!(ended.exit, Exit::Failure(_)),
            _ => false,
        };
        if is_told {
            return Decision::Do(Step::ForgetTask);
        }
    }
    if let Some(waiting) = retry_pause(facts, now) {
        return waiting;
    }
    match &facts.vm {
        None => Decision::Look(Look::Vm),
        Some(VmSeen::Hidden(_)) if facts.is_vmid_anothers() => release(facts),
        Some(VmSeen::Unknown(why) | VmSeen::Hidden(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
        }
        Some(VmSeen::Absent)
            if facts.absence_confirmed || just_ended(facts, Operation::Destroy) =>
        {
            without_vm(facts)
        }
        // One look may have met a node that lags, or a clone that is just being asked for.
        Some(VmSeen::Absent) => {
            let why = format!("VMID {vmid} is free; it is looked at once more before addresses go");
            Decision::Wait(Waiting::Unknown(why), Wake::seconds(5))
        }
        Some(VmSeen::Foreign(_)) => release(facts),
        Some(VmSeen::Present(vm)) => with_vm(facts, vmid, vm),
    }
}

fn with_vm(facts: &Facts, vmid: VmId, vm: &VmFact) -> Decision {
    match identity(facts, vm) {
        Identity::Ours => {
            if let Some(why) = shared_with(facts, vm) {
                return Decision::Wait(Waiting::Unknown(why), Wake::seconds(30));
            }
        }
        Identity::Nascent => {
            let waiting = Waiting::Locked { vmid, lock: "clone".to_owned() };
            return Decision::Wait(waiting, Wake::seconds(5));
        }
        Identity::Foreign(_) if is_late_clone(facts, vm) => {}
        Identity::Foreign(why) => {
            if let Some(doubt) = doubtful(facts, vmid, vm, &why) {
                return doubt;
            }
            // Ours is gone and the VMID was given to another, whose seed has the same name.
            let marked = vm.config.description().as_deref().is_some_and(is_marked);
            let uses = marked || facts.vmid_shared || seed::attached(&vm.config, vmid).is_some();
            return if uses { release(facts) } else { without_vm(facts) };
        }
    }
    if let Some(lock) = vm.config.lock().filter(|lock| *lock != "suspended") {
        let waiting = Waiting::Locked { vmid, lock: lock.to_owned() };
        return Decision::Wait(waiting, Wake::seconds(5));
    }
    if vm.config.is_protected() {
        // The mark goes with the first change of the configuration, so this is the template's.
        return if is_marked_as_ours(facts, vm) {
            Decision::Do(Step::Configure(desired::unprotected()))
        } else {
            Decision::Wait(Waiting::Protected(vmid), Wake::seconds(30))
        };
    }
    // Recorded first, so that the file is found when the VM that names it is gone.
    let seed = match seed_of(facts, vm) {
        Ok(seed) => seed,
        Err(first) => return first,
    };
    if let Some(volume) = seed.as_ref().filter(|volume| facts.recorded_seed() != Some(volume)) {
        return Decision::Do(Step::RecordSeed(volume.clone()));
    }
    let Some(Seen::Present(power)) = &facts.power else { return without_power(facts, vmid) };
    // The HA manager would start it again, or on another node.
    if facts.in_ha && !facts.past.outside_ha {
        return Decision::Do(Step::LeaveHa);
    }
    match (power, facts.shutdown_timeout()) {
        (Power::Running, Some(timeout)) if !facts.past.shutdown_asked => {
            Decision::Do(Step::Shutdown(timeout))
        }
        (Power::Running | Power::Paused | Power::Halted(_), _) => Decision::Do(Step::Stop),
        // Where nothing can be recorded the VM itself is the only record of the file.
        (Power::Stopped, _) => match seed.filter(|_| facts.records_lost) {
            None => Decision::Do(Step::Destroy),
            Some(volume) => match is_seed_deleted(facts, &volume) {
                Ok(true) => Decision::Do(Step::Destroy),
                Ok(false) => Decision::Do(Step::DeleteSeed(volume)),
                Err(first) => first,
            },
        },
    }
}

/// A second clone of this machine, asked for by a process that died and made when the first one was
/// gone: the mark, which goes with the configuration before the first start, shows that it was never
/// used. One that runs all the same is looked at by people.
fn is_late_clone(facts: &Facts, vm: &VmFact) -> bool {
    let power = facts.power.as_ref().and_then(|seen| seen.present());
    let is_unused = facts.attached_seed().is_none() && !vm.config.tags().contains(seed::TAG);
    is_unused
        && vm.config.name() == Some(facts.name())
        && is_marked_as_ours(facts, vm)
        && matches!(power, None | Some(Power::Stopped))
}

/// A VM that has another uuid than the recorded one, or none, and looks like this machine's all the
/// same. It may be either's, so it is neither destroyed nor given up: with the claims its addresses
/// would go to others, while it runs.
fn doubtful(facts: &Facts, vmid: VmId, vm: &VmFact, why: &str) -> Option<Decision> {
    let recorded = facts.machine.spec.provider_id.as_deref()?;
    let trace = traces(facts, vm)?;
    let uuid = recorded.strip_prefix("proxmox://").unwrap_or(recorded);
    let text = format!(
        "VM {vmid} on {} is this machine's by {trace}, but {why}. If it is this machine's, destroy it \
         in Proxmox, or give it its uuid again with: qm set {vmid} --smbios1 uuid={uuid}. If it is \
         not, remove the finalizer of this ProxmoxMachine",
        vm.node
    );
    Some(Decision::Wait(Waiting::Unknown(text), Wake::seconds(30)))
}

/// The seed in the VM's drive, the one on record, or one that only the tag tells of.
///
/// # Errors
/// What to do first.
fn seed_of(facts: &Facts, vm: &VmFact) -> Result<Option<String>, Decision> {
    if let Some(volume) = facts.attached_seed() {
        return Ok(Some(volume));
    }
    if let Some(recorded) = facts.left_seed() {
        return Ok(Some(recorded.to_owned()));
    }
    if vm.config.tags().contains(seed::TAG) { stray_seed(facts) } else { Ok(None) }
}

fn without_power(facts: &Facts, vmid: VmId) -> Decision {
    match &facts.power {
        // It has just been stopped. Should it run all the same, it is not destroyed but refused.
        None if just_ended(facts, Operation::Stop) && facts.attached_seed().is_none() => {
            Decision::Do(Step::Destroy)
        }
        None | Some(Seen::Present(_)) => Decision::Look(Look::Power),
        Some(Seen::Unknown(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
        }
        // It vanished between two calls: look again.
        Some(Seen::Absent) => {
            let why = format!("VM {vmid} vanished while it was being looked at");
            Decision::Wait(Waiting::Unknown(why), Wake::seconds(2))
        }
    }
}

fn without_vm(facts: &Facts) -> Decision {
    if let Some(waiting) = late(facts) {
        return waiting;
    }
    match facts.left_seed() {
        Some(volume) => match is_seed_deleted(facts, volume) {
            Ok(true) => Decision::Do(Step::ForgetSeed),
            Ok(false) => Decision::Do(Step::DeleteSeed(volume.to_owned())),
            Err(first) => first,
        },
        None => release(facts),
    }
}

/// No VMID was ever recorded, so nothing was made; unless the record was taken away.
fn without_vmid(facts: &Facts) -> Decision {
    match &facts.machine.spec.provider_id {
        None => release(facts),
        Some(id) => {
            let why = format!(
                "spec.providerID {id} tells of a VM, and spec.virtualMachineID does not say which: \
                 set it again, or remove the finalizer after that VM is gone"
            );
            Decision::Wait(Waiting::Unknown(why), Wake::OnChange)
        }
    }
}

/// The addresses go back only when no VM can use them any more.
fn release(facts: &Facts) -> Decision {
    if facts.claims.is_empty() {
        Decision::Do(Step::RemoveFinalizer)
    } else {
        Decision::Do(Step::ReleaseClaims)
    }
}

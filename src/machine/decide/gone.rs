//! The way of a machine that is deleted: stopped, its seed deleted, destroyed, its claims released.
//!
//! Neither Machine nor Cluster nor a valid spec is needed. A VM that is not ours is never touched.

use k8s_openapi::jiff::Timestamp;

use super::super::decision::{Decision, Look, Step, Waiting, Wake};
use super::super::facts::{Facts, Power, VmFact};
use super::identity::{Identity, identity};
use super::{has_finalizer, task_in_flight};
use crate::hypervisor::{Exit, Operation, TaskState};
use crate::ids::VmId;
use crate::seen::Seen;

pub(super) fn decide(facts: &Facts, now: Timestamp) -> Decision {
    if !has_finalizer(facts) {
        return Decision::Gone;
    }
    // No VMID was ever recorded, so nothing was made.
    let Some(vmid) = facts.vmid() else { return release(facts) };
    if let Err(fault) = &facts.connection {
        return Decision::Wait(Waiting::Connection(fault.clone()), Wake::seconds(30));
    }
    if let Some(decision) = task_in_flight(facts) {
        return decision;
    }
    if let Some(TaskState::Ended(ended)) = &facts.task {
        let failed = !matches!(ended.exit, Exit::Success);
        if failed && matches!(ended.operation, Operation::Destroy | Operation::DeleteSeed) {
            return Decision::Do(Step::ForgetTask);
        }
    }
    let retry_after = facts.machine.status.as_ref().and_then(|s| s.retry_after.as_ref());
    if let Some(wait) = retry_after.map(|at| at.0.duration_since(now)).filter(|w| w.is_positive()) {
        let text = "the last attempt failed, see the message before".to_owned();
        return Decision::Wait(Waiting::Deleting(text), Wake::After(wait.unsigned_abs()));
    }
    match &facts.vm {
        None => Decision::Look(Look::Vm),
        Some(Seen::Unknown(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10))
        }
        Some(Seen::Absent) => without_vm(facts),
        Some(Seen::Present(vm)) => with_vm(facts, vmid, vm),
    }
}

fn with_vm(facts: &Facts, vmid: VmId, vm: &VmFact) -> Decision {
    match identity(facts, vm) {
        Identity::Ours => {}
        Identity::Nascent => {
            let waiting = Waiting::Locked { vmid, lock: "clone".to_owned() };
            return Decision::Wait(waiting, Wake::seconds(5));
        }
        // Ours is gone and the VMID was given to another.
        Identity::Foreign(_) => return without_vm(facts),
    }
    if let Some(lock) = vm.config.lock() {
        let waiting = Waiting::Locked { vmid, lock: lock.to_owned() };
        return Decision::Wait(waiting, Wake::seconds(5));
    }
    if vm.config.is_protected() {
        return Decision::Wait(Waiting::Protected(vmid), Wake::seconds(30));
    }
    match &facts.power {
        None => return Decision::Look(Look::Power),
        Some(Seen::Unknown(why)) => {
            return Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10));
        }
        // It vanished between two calls: look again.
        Some(Seen::Absent) => {
            let why = format!("VM {vmid} vanished while it was being looked at");
            return Decision::Wait(Waiting::Unknown(why), Wake::seconds(2));
        }
        Some(Seen::Present(Power::Running | Power::Paused)) => {
            return Decision::Do(Step::Stop);
        }
        Some(Seen::Present(Power::Stopped)) => {}
    }
    match facts.seed_volume() {
        Some(volume) => Decision::Do(Step::DeleteSeed(volume)),
        None => Decision::Do(Step::Destroy),
    }
}

fn without_vm(facts: &Facts) -> Decision {
    let recorded = facts.machine.status.as_ref().and_then(|s| s.bootstrap_iso.clone());
    match recorded {
        Some(volume) => Decision::Do(Step::DeleteSeed(volume)),
        None => release(facts),
    }
}

/// The addresses go back only when no VM can use them any more.
fn release(facts: &Facts) -> Decision {
    if facts.addresses.iter().any(|fact| fact.claim.as_ref().is_some_and(|claim| claim.ours)) {
        Decision::Do(Step::ReleaseClaims)
    } else {
        Decision::Do(Step::RemoveFinalizer)
    }
}

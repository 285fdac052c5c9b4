//! From facts to the next step. Pure: no waiting, no reading, no clock.
//!
//! [`decide`] is called again and again with more facts until it waits or is done. It never acts
//! on a fact that is unknown: creating and destroying need an answer of the Proxmox cluster.

mod gone;
mod identity;
mod live;
mod moved;
mod settled;

#[cfg(test)]
mod tests;

pub(super) use identity::{mark, provider_id, without_mark};

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::decision::{Decision, Look, Step, Waiting, Wake};
use super::facts::{Call, Facts};
use crate::hypervisor::{Ended, Exit, Operation, TaskState};
use crate::seen::Seen;

/// What to do next.
pub(super) fn decide(facts: &Facts, now: Timestamp) -> Decision {
    if facts.is_paused() {
        return Decision::Wait(Waiting::Paused, Wake::OnChange);
    }
    let decision =
        if facts.is_deleted() { gone::decide(facts, now) } else { live::decide(facts, now) };
    hold_back(facts, decision)
}

/// How long the effect of a call may take to show, when Proxmox accepted it and named no task.
const EFFECT: Duration = Duration::from_secs(30);

/// What was accepted a moment ago without a task to follow is not asked for again at once: its
/// effect shows at the VM, and until then nothing tells whether it is done.
fn hold_back(facts: &Facts, decision: Decision) -> Decision {
    let (Decision::Do(step), Some(call)) = (&decision, &facts.past.accepted) else {
        return decision;
    };
    let is_same = step.operation() == Some(call.operation)
        && matches!(
            call.operation,
            Operation::Clone
                | Operation::Upload
                | Operation::Start
                | Operation::Shutdown
                | Operation::Stop
                | Operation::Destroy
        );
    if is_same && call.age < EFFECT {
        return Decision::Wait(Waiting::Effect(call.operation), Wake::seconds(2));
    }
    decision
}

/// Whether Proxmox can be talked to has to be known before anything of it is.
fn connected(facts: &Facts) -> Option<Decision> {
    match &facts.connection {
        None => Some(Decision::Look(Look::Connection)),
        Some(Ok(())) => None,
        Some(Err(fault)) => {
            Some(Decision::Wait(Waiting::Connection(fault.clone()), Wake::seconds(30)))
        }
    }
}

/// A running task is waited for; one that ended is no reason to wait.
fn task_in_flight(facts: &Facts) -> Option<Decision> {
    let Some(TaskState::Running { upid, operation, trouble }) = &facts.task else { return None };
    let waiting =
        Waiting::Task { operation: *operation, upid: upid.to_string(), trouble: trouble.clone() };
    // The end of the task wakes the machine; the time is a safety net.
    Some(Decision::Wait(waiting, Wake::seconds(30)))
}

/// After a fault the next try waits for `status.retryAfter`; the condition keeps telling why.
fn retry_pause(facts: &Facts, now: Timestamp) -> Option<Decision> {
    let retry_after = facts.machine.status.as_ref()?.retry_after.as_ref()?;
    let wait = retry_after.0.duration_since(now);
    // Nothing of ours or capmox's waits longer than a minute; more is a clock that was wrong.
    (wait.is_positive() && wait < SignedDuration::from_mins(2))
        .then(|| Decision::Wait(Waiting::Retry, Wake::After(wait.unsigned_abs())))
}

/// Whether the task that ended last did `wanted`, with success.
pub(super) fn just_ended(facts: &Facts, wanted: Operation) -> bool {
    matches!(
        &facts.task,
        Some(TaskState::Ended(Ended { operation, exit: Exit::Success, .. })) if *operation == wanted
    )
}

/// Whether a seed is deleted. Where nobody can tell how the task for it ended, its storage is asked.
///
/// # Errors
/// What to do first.
fn is_seed_deleted(facts: &Facts, volume: &str) -> Result<bool, Decision> {
    if facts.seed_deleted || just_ended(facts, Operation::DeleteSeed) {
        return Ok(true);
    }
    let Some(TaskState::Ended(Ended {
        operation: Operation::DeleteSeed,
        exit: Exit::Unknown(_),
        ..
    })) = &facts.task
    else {
        return Ok(false);
    };
    match &facts.stored {
        None => Err(Decision::Look(Look::Stored(volume.to_owned()))),
        Some(Seen::Absent) => Ok(true),
        Some(Seen::Present(())) => Err(Decision::Do(Step::ForgetTask)),
        Some(Seen::Unknown(why)) => {
            Err(Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10)))
        }
    }
}

/// The seed of a VM with the tag, an empty drive and no record of the file: capmox, or an interrupted
/// pass, stored it and did not come to the drive. `None` when it is on no storage.
///
/// # Errors
/// What to do first.
fn stray_seed(facts: &Facts) -> Result<Option<String>, Decision> {
    match &facts.stray {
        None => Err(Decision::Look(Look::Stray)),
        Some(Seen::Absent) => Ok(None),
        Some(Seen::Present(volume)) => Ok(Some(volume.clone())),
        Some(Seen::Unknown(why)) => {
            Err(Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(30)))
        }
    }
}

/// How long a call can still take effect after its answer was lost: Proxmox gives up on a call
/// between nodes after thirty seconds.
const LATE: Duration = Duration::from_secs(40);

/// A clone or an upload whose answer was lost may be on its way. What it made after the finalizer
/// is gone would be nobody's.
fn late(facts: &Facts) -> Option<Decision> {
    let calls = facts.past.lost.into_iter().chain(of_a_predecessor(facts));
    let lost = calls.min_by_key(|call| call.age)?;
    let left = LATE.checked_sub(lost.age).filter(|left| !left.is_zero())?;
    let waiting = Waiting::Late { operation: lost.operation, left };
    Some(Decision::Wait(waiting, Wake::After(left.min(Duration::from_secs(5)))))
}

/// What another process may have asked for just before it ended, whose answer nobody heard.
fn of_a_predecessor(facts: &Facts) -> Option<Call> {
    let age = facts.past.inherited?;
    let is_known = facts.machine.spec.provider_id.is_some();
    let operation = if is_known { Operation::Upload } else { Operation::Clone };
    Some(Call { operation, age })
}

fn has_finalizer(facts: &Facts) -> bool {
    super::departed::is_held(&facts.machine)
}

//! From facts to the next step. Pure: no waiting, no reading, no clock.
//!
//! [`decide`] is called again and again with more facts until it waits or is done. It never acts
//! on a fact that is unknown: creating and destroying need an answer of the Proxmox cluster.

mod gone;
mod identity;
mod live;

#[cfg(test)]
mod tests;

pub use identity::mark;

use k8s_openapi::jiff::Timestamp;

use super::decision::{Decision, Waiting, Wake};
use super::facts::Facts;
use crate::hypervisor::TaskState;

/// Name of our finalizer, shared with capmox.
pub const FINALIZER: &str = "proxmoxmachine.infrastructure.cluster.x-k8s.io";

/// What to do next.
pub fn decide(facts: &Facts, now: Timestamp) -> Decision {
    if facts.is_paused() {
        return Decision::Wait(Waiting::Paused, Wake::OnChange);
    }
    if facts.is_deleted() { gone::decide(facts, now) } else { live::decide(facts, now) }
}

/// A running task is waited for; one that ended is no reason to wait.
fn task_in_flight(facts: &Facts) -> Option<Decision> {
    let Some(TaskState::Running { upid, operation, trouble }) = &facts.task else { return None };
    let waiting = Waiting::Task {
        operation: *operation,
        upid: upid.to_string(),
        trouble: trouble.clone(),
    };
    // The end of the task wakes the machine; the time is a safety net.
    Some(Decision::Wait(waiting, Wake::seconds(30)))
}

fn has_finalizer(facts: &Facts) -> bool {
    facts.machine.metadata.finalizers.as_ref().is_some_and(|all| all.iter().any(|f| f == FINALIZER))
}

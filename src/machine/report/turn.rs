//! What the condition says of a machine that waits to be cloned. Pure.

use super::AGAIN;
use crate::api::conditions::{self, Severity, State};
use crate::api::reasons;
use crate::hypervisor::Position;
use crate::machine::facts::Facts;

/// Behind whom a clone waits. One that failed before goes on telling why.
pub(super) fn turn(facts: &Facts, position: &Position) -> State {
    let Position { number, of, at, limit } = position;
    let turn = format!(
        "its turn: clone {number} of {of} on {at}, which takes {limit} at once (flags \
         --max-clones…)"
    );
    let status = facts.machine.status.as_ref();
    let failed = status.filter(|status| status.clone_attempts > Some(0));
    let told =
        failed.and_then(|status| conditions::find(&status.conditions, reasons::VM_PROVISIONED));
    let reason = told.and_then(|told| told.reason.as_deref());
    let why = told.and_then(|told| told.message.as_deref()?.split_once(AGAIN));
    match (reason, why) {
        (Some(reasons::TASK_FAILURE), Some((why, _))) => {
            State::waiting(reasons::TASK_FAILURE, format!("{why}{AGAIN}at {turn}"))
        }
        (Some(reasons::CLONING_FAILED), Some((why, _))) => {
            let text = format!("{why}{AGAIN}at {turn}");
            State::not(Severity::Warning, reasons::CLONING_FAILED, text)
        }
        _ => State::waiting(reasons::CLONING, format!("waiting for {turn}")),
    }
}

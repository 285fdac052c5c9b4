//! A VM that was moved, by hand or by HA, while its seed stayed on a storage of the node that it left.
//!
//! There it cannot be started with it, and a second copy elsewhere would be one too many: the seed is
//! taken out of the drive, deleted where it is, and made anew where the VM is now.

use super::super::decision::{Decision, Look, Step, Waiting, Wake};
use super::super::facts::{Facts, Power, VmFact};
use super::super::seed;
use super::{is_seed_deleted, late};
use crate::seen::Seen;

/// Whether the recorded seed is out of the VM's reach.
///
/// # Errors
/// What to do first.
pub(super) fn is_left_behind(facts: &Facts, vm: &VmFact) -> Result<bool, Decision> {
    let put = facts.seed_node().filter(|_| facts.recorded_seed().is_some());
    if put.is_none_or(|put| put == vm.node) {
        return Ok(false);
    }
    match &facts.seed_shared {
        None => Err(Decision::Look(Look::SeedShared)),
        Some(Seen::Present(())) => Ok(false),
        Some(Seen::Absent) => Ok(true),
        Some(Seen::Unknown(why)) => {
            Err(Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10)))
        }
    }
}

/// Whether a VM that is to be started has a drive that it cannot be started with.
///
/// # Errors
/// What to do first.
pub(super) fn holds_it_up(facts: &Facts) -> Result<bool, Decision> {
    match facts.vm().filter(|_| facts.attached_seed().is_some()) {
        Some(vm) => is_left_behind(facts, vm),
        None => Ok(false),
    }
}

/// Empties the drive. A VM that runs has had its seed, wherever it went since.
pub(super) fn eject(facts: &Facts) -> Option<Decision> {
    match holds_it_up(facts) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(first) => return Some(first),
    }
    let unknown = |why: &str| Some(Decision::Wait(Waiting::Unknown(why.into()), Wake::seconds(10)));
    match &facts.power {
        None => Some(Decision::Look(Look::Power)),
        Some(Seen::Present(Power::Stopped)) => Some(Decision::Do(Step::Eject(seed::empty_drive()))),
        Some(Seen::Present(Power::Running | Power::Paused | Power::Halted(_))) => None,
        Some(Seen::Absent) => unknown("the VM vanished while it was being looked at"),
        Some(Seen::Unknown(why)) => unknown(why),
    }
}

/// Whether a seed that is in no drive was out of reach, and another place can be recorded for it.
///
/// # Errors
/// What to do first.
pub(super) fn is_given_up(facts: &Facts, vm: &VmFact, volume: &str) -> Result<bool, Decision> {
    if !is_left_behind(facts, vm)? {
        return Ok(false);
    }
    if facts.past.unsent_seed {
        return Ok(true);
    }
    // An upload whose answer was lost may still come, to where nobody would look again.
    if let Some(waiting) = late(facts) {
        return Err(waiting);
    }
    if is_seed_deleted(facts, volume)? {
        return Ok(true);
    }
    Err(Decision::Do(Step::DeleteSeed(volume.to_owned())))
}

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
pub(super) fn is_left_behind(facts: &Facts, vm: &VmFact) -> bool {
    let put = facts.seed_node().filter(|_| facts.recorded_seed().is_some());
    put.is_some_and(|put| put != vm.node) && !facts.seed_is_shared
}

/// Whether a VM that is to be started has a drive that it cannot be started with.
pub(super) fn holds_it_up(facts: &Facts) -> bool {
    facts.attached_seed().is_some() && facts.vm().is_some_and(|vm| is_left_behind(facts, vm))
}

/// Empties the drive. A VM that runs has had its seed, wherever it went since.
pub(super) fn eject(facts: &Facts) -> Option<Decision> {
    if !holds_it_up(facts) {
        return None;
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

/// What has to be done before another place is recorded for a seed that is in no drive.
pub(super) fn give_up(facts: &Facts, vm: &VmFact, volume: &str) -> Option<Decision> {
    if !is_left_behind(facts, vm) || facts.past.unsent_seed {
        return None;
    }
    // An upload whose answer was lost may still come, to where nobody would look again.
    if let Some(waiting) = late(facts) {
        return Some(waiting);
    }
    match is_seed_deleted(facts, volume) {
        Ok(true) => None,
        Ok(false) => Some(Decision::Do(Step::DeleteSeed(volume.to_owned()))),
        Err(first) => Some(first),
    }
}

//! The way of a machine that was ready once: it stays so while its VM is there, is started again
//! when it was stopped, and loses its seed when the node has joined.

use super::super::decision::{Decision, Look, Step, Waiting, Wake};
use super::super::facts::{Facts, Power, VmFact, VmSeen};
use super::super::seed;
use super::identity::{Identity, identity};
use super::moved;
use super::{is_seed_deleted, just_ended, late, stray_seed};
use crate::hypervisor::{Ended, Exit, GuestEntry, Operation, TaskState};
use crate::ids::VmId;
use crate::seen::Seen;

pub(super) fn settled(facts: &Facts, vmid: VmId) -> Decision {
    let entry = facts.listed.present();
    let missing = facts.listed.is_absent();
    let tagged = entry.is_some_and(|entry| entry.tags.iter().any(|tag| tag == seed::TAG));
    let unseed = facts.is_joined() && (facts.recorded_seed().is_some() || tagged);
    // The list may be older than the end of the clone that brought the VM here, or the VM moved.
    let moved = entry.is_some_and(|entry| facts.recorded_node().as_ref() != Some(&entry.node));
    // The VMID may have been given to another since.
    let renamed = entry
        .and_then(|entry| entry.name.as_deref())
        .is_some_and(|name| !name.is_empty() && name != facts.name());
    if !missing && !unseed && !moved && !renamed {
        return powered(facts, vmid, entry);
    }
    match &facts.vm {
        None => Decision::Look(Look::Vm),
        Some(VmSeen::Unknown(why) | VmSeen::Hidden(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(30))
        }
        Some(VmSeen::Absent) => Decision::Wait(Waiting::Lost(vmid), Wake::seconds(60)),
        Some(VmSeen::Foreign(why)) => {
            Decision::Wait(Waiting::Foreign(why.clone()), Wake::seconds(60))
        }
        Some(VmSeen::Present(vm)) => match identity(facts, vm) {
            Identity::Foreign(why) => {
                let text = format!("VM {vmid} on {} is not this machine's: {why}", vm.node);
                Decision::Wait(Waiting::Foreign(text), Wake::seconds(60))
            }
            _ if unseed => eject(facts, vmid, vm),
            _ => powered(facts, vmid, entry),
        },
    }
}

/// Whether the list says that the VM runs, or does not say. It has QEMU's own words too, such as
/// `paused`.
fn seems_up(entry: Option<&GuestEntry>) -> bool {
    let status = entry.and_then(|entry| entry.status.as_deref());
    matches!(status, None | Some("running" | "unknown" | "prelaunch" | "inmigrate" | "postmigrate"))
}

/// The list lags by some seconds, so a VM that it calls stopped or paused is asked itself.
fn powered(facts: &Facts, vmid: VmId, entry: Option<&GuestEntry>) -> Decision {
    if seems_up(entry) {
        return Decision::Ready(None);
    }
    // Nothing is started by its number alone.
    match &facts.vm {
        None => return Decision::Look(Look::Vm),
        Some(VmSeen::Present(vm)) => {
            if let Identity::Foreign(why) = identity(facts, vm) {
                let text = format!("VM {vmid} on {} is not this machine's: {why}", vm.node);
                return Decision::Wait(Waiting::Foreign(text), Wake::seconds(60));
            }
            if let Some(lock) = vm.config.lock().filter(|lock| *lock != "suspended") {
                let waiting = Waiting::Locked { vmid, lock: lock.to_owned() };
                return Decision::Wait(waiting, Wake::seconds(10));
            }
        }
        Some(VmSeen::Absent) => return Decision::Wait(Waiting::Lost(vmid), Wake::seconds(60)),
        Some(VmSeen::Foreign(why)) => {
            return Decision::Wait(Waiting::Foreign(why.clone()), Wake::seconds(60));
        }
        Some(VmSeen::Unknown(why) | VmSeen::Hidden(why)) => {
            return Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(30));
        }
    }
    match &facts.power {
        None => Decision::Look(Look::Power),
        Some(Seen::Present(Power::Running)) => Decision::Ready(None),
        Some(Seen::Present(Power::Halted(halt))) => {
            let waiting = Waiting::Halted { vmid, word: halt.word().to_owned() };
            Decision::Wait(waiting, Wake::seconds(30))
        }
        Some(Seen::Present(power)) => start(facts, *power),
        Some(Seen::Absent) => {
            let why = format!("VM {vmid} vanished while it was being looked at");
            Decision::Wait(Waiting::Unknown(why), Wake::seconds(2))
        }
        Some(Seen::Unknown(why)) => {
            Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(30))
        }
    }
}

fn start(facts: &Facts, power: Power) -> Decision {
    if power == Power::Stopped {
        match moved::holds_it_up(facts) {
            Ok(false) => {}
            // What it was started with has been read.
            Ok(true) => return Decision::Do(Step::Eject(seed::empty_drive())),
            Err(first) => return first,
        }
    }
    match &facts.task {
        Some(TaskState::Ended(Ended { operation: Operation::Start, exit, .. }))
            if !matches!(exit, Exit::Success) =>
        {
            Decision::Do(Step::ForgetTask)
        }
        _ => Decision::Do(Step::Start(power)),
    }
}

/// Takes the seed, which carries join secrets, out of the drive and off the storage.
fn eject(facts: &Facts, vmid: VmId, vm: &VmFact) -> Decision {
    if let Some(lock) = vm.config.lock() {
        let waiting = Waiting::Locked { vmid, lock: lock.to_owned() };
        return Decision::Wait(waiting, Wake::seconds(10));
    }
    let tagged = vm.config.tags().contains(seed::TAG);
    let attached = facts.attached_seed().is_some();
    let deleted = match facts.recorded_seed().filter(|_| !attached) {
        Some(volume) => is_seed_deleted(facts, volume),
        None => Ok(facts.seed_deleted || just_ended(facts, Operation::DeleteSeed)),
    };
    let deleted = match deleted {
        Ok(deleted) => deleted,
        Err(first) => return first,
    };
    match (facts.attached_seed(), facts.recorded_seed()) {
        // Recorded before the drive is emptied, so that the file is found after a crash.
        (Some(volume), recorded) if recorded != Some(&volume) => {
            Decision::Do(Step::RecordSeed(volume))
        }
        // Where nothing can be recorded the tag tells until the end that a file is left.
        (Some(_), _) if facts.records_lost => Decision::Do(Step::Eject(seed::empty_drive())),
        (Some(_), _) => Decision::Do(Step::Eject(seed::detach(&vm.config))),
        // With neither tag nor record nothing is left to forget, while the list still shows the tag.
        (None, recorded) if (tagged || recorded.is_some()) && deleted => Decision::Do(if tagged {
            Step::Untag(seed::untag(&vm.config))
        } else {
            Step::ForgetSeed
        }),
        // One more that is on its way would be there again.
        (None, Some(volume)) => {
            late(facts).unwrap_or_else(|| Decision::Do(Step::DeleteSeed(volume.to_owned())))
        }
        (None, None) if tagged => match stray_seed(facts) {
            Err(first) => first,
            Ok(Some(volume)) => Decision::Do(Step::DeleteSeed(volume)),
            Ok(None) => Decision::Do(Step::Untag(seed::untag(&vm.config))),
        },
        // The list lags behind what the VM itself says.
        (None, None) => Decision::Ready(None),
    }
}

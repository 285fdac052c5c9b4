//! What is remembered of machines between passes.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::decision::Step;
use super::facts::{Past, VmFact, VmSeen};
use super::quiet::Rest;
use crate::api::conditions::Condition;
use crate::api::{ProxmoxMachine, ProxmoxMachineStatus, reasons};
use crate::hypervisor::ObjectKey;

/// What is remembered of machines between passes. All of it may be lost: it only makes things
/// quicker, and keeps a foreign VM from being waited for.
#[derive(Debug, Default)]
pub(super) struct Memory {
    machines: Mutex<HashMap<ObjectKey, Remembered>>,
    /// UIDs of machines that are gone, whose copies may still be there for a moment.
    gone: Mutex<HashMap<String, tokio::time::Instant>>,
}

/// How long a copy may be behind.
const BEHIND: Duration = Duration::from_secs(30);

/// What is remembered of one machine.
#[derive(Debug, Default, Clone)]
pub(super) struct Remembered {
    /// UID of the machine; another one may take its name.
    owner: Option<String>,
    /// The VMID that was seen or written last, and when it was seen first if another process wrote it.
    vmid: Option<i64>,
    inherited_at: Option<tokio::time::Instant>,
    /// It was seen with the finalizer of this provider.
    pub(super) held: bool,
    /// This process takes its finalizer off.
    pub(super) released: bool,
    /// The claims and addresses that a warning told of last.
    pub(super) astray: Option<String>,
    /// Conflicts in a row.
    pub(super) conflicts: u32,
    /// Faults in a row.
    pub(super) faults: u32,
    /// How it fares at an endpoint that is crowded.
    pub(super) crowd: super::observe::Crowd,
    /// Since when the VM is absent.
    pub(super) absent_since: Option<tokio::time::Instant>,
    /// How often the guest was asked since it was started.
    pub(super) guest_looks: u32,
    /// The step done last, and how often in a row.
    pub(super) repeated: Option<(Step, u32)>,
    /// A VMID was chosen by this process and no clone has been asked for under it yet.
    pub(super) untouched: bool,
    /// The size in GiB that the boot volume was grown to.
    pub(super) grown: Option<u32>,
    /// What decisions are to know of it.
    pub(super) past: Past,
    /// When the calls in it were made.
    pub(super) accepted_at: Option<tokio::time::Instant>,
    pub(super) lost_at: Option<tokio::time::Instant>,
    /// The object as the API server answered the last write, until the copy catches up.
    latest: Option<Box<ProxmoxMachine>>,
    /// Versions that came before it.
    outdated: Vec<String>,
    /// The VM as last read, while nothing was done to it since.
    pub(super) vm: Option<(VmFact, tokio::time::Instant)>,
    /// The condition that an event told of last.
    pub(super) told: Option<Headline>,
    /// When it was written last where in the queue for clones it is, if that was written last.
    pub(super) turn_told: Option<tokio::time::Instant>,
    /// What the last pass rests until.
    pub(super) rest: Option<Rest>,
}

/// How long a VM's configuration may serve later passes. What is written carries its digest, and
/// what is refused makes it be read again.
const VM_KEPT: Duration = Duration::from_secs(30);

/// What makes a condition worth an event: not its wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Headline {
    status: String,
    reason: Option<String>,
    severity: Option<String>,
}

impl Headline {
    pub(super) fn of(condition: &Condition) -> Self {
        let Condition { status, reason, severity, .. } = condition;
        Self { status: status.clone(), reason: reason.clone(), severity: severity.clone() }
    }
}

/// Whether people want to read of it afterwards: the steps of a life. What is waited for on the way
/// is in the condition for as long as it takes; that a machine that was up is started again is news.
pub(super) fn is_milestone(condition: &Condition, was_up: bool) -> bool {
    let is_step = match condition.reason.as_deref() {
        Some(reasons::CLONING | reasons::DELETING) => true,
        Some(reasons::POWERING_ON) => was_up,
        _ => false,
    };
    is_step || condition.status == "True"
}

impl Memory {
    /// Works on what is remembered of a machine.
    pub(super) fn with<T>(&self, key: &ObjectKey, work: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut all = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        work(all.entry(key.clone()).or_default())
    }

    /// From now on what is remembered is of the machine with this UID. Gives that of another one
    /// that it is of so far.
    pub(super) fn belongs_to(&self, key: &ObjectKey, uid: &str) -> Option<String> {
        self.with(key, |remembered| match &remembered.owner {
            Some(owner) if owner != uid => Some(owner.clone()),
            _ => {
                remembered.owner.get_or_insert_with(|| uid.to_owned());
                None
            }
        })
    }

    /// The machines of which something is remembered, with their UIDs.
    pub(super) fn owners(&self) -> Vec<(ObjectKey, String)> {
        let all = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = all.iter().map(|(key, remembered)| {
            let owner = remembered.owner.clone().unwrap_or_default();
            (key.clone(), owner)
        });
        owned.collect()
    }

    /// Forgets a machine, unless another one has its name by now.
    pub(super) fn forget(&self, key: &ObjectKey, uid: &str) {
        let mut all = self.machines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of =
            |remembered: &Remembered| remembered.owner.as_deref().is_none_or(|owner| owner == uid);
        if all.get(key).is_some_and(is_of) {
            all.remove(key);
        }
    }

    /// Forgets a machine that is gone.
    pub(super) fn bury(&self, key: &ObjectKey, uid: &str) {
        self.forget(key, uid);
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.retain(|_, since| since.elapsed() < BEHIND);
        gone.insert(uid.to_owned(), tokio::time::Instant::now());
    }

    /// Whether a machine is gone, although there is a copy of it.
    pub(super) fn is_gone(&self, uid: Option<&str>) -> bool {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        uid.is_some_and(|uid| gone.contains_key(uid))
    }
}

impl Remembered {
    /// Takes note of a write that replaced the version `before`.
    pub(super) fn wrote(&mut self, before: Option<String>, now: &ProxmoxMachine) {
        self.outdated.extend(before);
        self.vmid = now.spec.virtual_machine_id;
        self.latest = Some(Box::new(now.clone()));
    }

    /// What is rested for, if a copy of this version is no news. Once the copy is what was written
    /// last, that need not be kept as well.
    pub(super) fn rest_at(&mut self, version: Option<&str>) -> Option<Rest> {
        let version = version?;
        let written = self.latest.as_ref();
        if written.and_then(|latest| latest.metadata.resource_version.as_deref()) == Some(version) {
            self.latest = None;
        }
        let is_own = |known: &String| known == version;
        let known = |rest: &&Rest| rest.is_at(version) || self.outdated.iter().any(is_own);
        self.rest.as_ref().filter(known).cloned()
    }

    /// The VM of this machine, if it was read a moment ago. Of one that is up the list tells first,
    /// and whose VM it is that is destroyed is read after what came before.
    pub(super) fn vm(&self, machine: &ProxmoxMachine) -> Option<VmSeen> {
        let is_up = machine.status.as_ref().is_some_and(|status| status.ready);
        if is_up || machine.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let (vm, read) = self.vm.as_ref()?;
        (read.elapsed() < VM_KEPT).then(|| VmSeen::Present(vm.clone()))
    }

    /// What decisions are to know, with the time that has passed since.
    pub(super) fn past_now(&self) -> Past {
        let mut past = self.past.clone();
        for (call, at) in [(&mut past.accepted, self.accepted_at), (&mut past.lost, self.lost_at)] {
            if let (Some(call), Some(at)) = (call, at) {
                call.age = at.elapsed();
            }
        }
        past.inherited = self.inherited_at.map(|at| at.elapsed());
        past
    }

    /// When a VMID is seen that this process did not write: whoever did may have asked for something.
    pub(super) fn note_heritage(&mut self, machine: &ProxmoxMachine) {
        let vmid = machine.spec.virtual_machine_id;
        let is_others = vmid.is_some() && vmid != self.vmid;
        self.vmid = vmid;
        let status = machine.status.as_ref();
        let is_seeded =
            |it: &ProxmoxMachineStatus| it.ready || it.bootstrap_data_provided == Some(true);
        if is_others && !status.is_some_and(is_seeded) {
            self.inherited_at = Some(tokio::time::Instant::now());
        }
    }

    /// The newer of the copy and of what was written last.
    pub(super) fn newest(&mut self, copy: ProxmoxMachine) -> ProxmoxMachine {
        let version = copy.metadata.resource_version.as_ref();
        let behind = version.is_some_and(|version| self.outdated.contains(version));
        match &self.latest {
            Some(latest) if behind && latest.metadata.uid == copy.metadata.uid => {
                latest.as_ref().clone()
            }
            _ => {
                self.latest = None;
                self.outdated.clear();
                copy
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::fixture::*;
    use super::*;
    use crate::api::conditions::{self, State};

    #[test]
    fn the_way_up_is_told_by_its_condition_and_what_people_read_of_later_by_an_event() {
        let told = |state: State, was_up| {
            let all = conditions::v1beta1(&[], &[(reasons::VM_PROVISIONED, state)], now());
            is_milestone(&all[0], was_up)
        };
        let waiting = |reason| State::waiting(reason, String::new());
        assert!(told(State::True, false) && told(State::True, true));
        assert!(told(waiting(reasons::CLONING), false) && told(waiting(reasons::DELETING), true));
        assert!(!told(waiting(reasons::WAITING_FOR_BOOTSTRAP_DATA), false));
        assert!(!told(waiting(reasons::POWERING_ON), false));
        assert!(told(waiting(reasons::POWERING_ON), true), "it was stopped");
    }

    #[test]
    fn who_wrote_a_vmid_before_may_have_asked_for_something_unless_the_seed_is_there() {
        let inherited = |first: &ProxmoxMachine, written: Option<&ProxmoxMachine>, then| {
            let mut remembered = Remembered::default();
            remembered.note_heritage(first);
            if let Some(written) = written {
                remembered.wrote(None, written);
            }
            remembered.note_heritage(then);
            remembered.past_now().inherited.is_some()
        };
        let (fresh, reserved, ready) = (fresh().machine, reserved().machine, ready().machine);
        assert!(inherited(&reserved, None, &ready));
        assert!(!inherited(&fresh, Some(&reserved), &reserved), "it was chosen here");
        assert!(inherited(&fresh, None, &reserved), "another one chose it meanwhile");
        assert!(!inherited(&ready, None, &reserved));
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_have_been_asked_for_is_as_old_as_the_first_sight_of_it() {
        let mut remembered = Remembered::default();
        tokio::time::advance(Duration::from_mins(5)).await;
        remembered.note_heritage(&reserved().machine);
        tokio::time::advance(Duration::from_secs(7)).await;
        remembered.note_heritage(&reserved().machine);
        assert_eq!(remembered.past_now().inherited, Some(Duration::from_secs(7)));
    }

    #[test]
    fn what_was_written_last_is_kept_until_the_copy_has_it() {
        let version = |version: &str| {
            let mut machine = ready().machine;
            machine.metadata.resource_version = Some(version.to_owned());
            machine
        };
        let newest = |remembered: &mut Remembered, copy: &str| {
            remembered.newest(version(copy)).metadata.resource_version.unwrap()
        };
        let mut remembered = Remembered::default();
        remembered.wrote(Some("1".to_owned()), &version("2"));
        assert_eq!(newest(&mut remembered, "1"), "2", "the copy is behind");
        assert!(remembered.rest_at(Some("1")).is_none());
        assert!(remembered.latest.is_some());
        assert!(remembered.rest_at(Some("2")).is_none());
        assert!(remembered.latest.is_none(), "the copy has it");
        assert_eq!(newest(&mut remembered, "3"), "3");
    }

    #[test]
    fn what_was_read_of_a_vm_serves_later_passes_but_not_its_deletion() {
        let facts = cloned();
        let Some(VmSeen::Present(vm)) = facts.vm.clone() else { unreachable!("it is cloned") };
        let read = tokio::time::Instant::now();
        let remembered = Remembered { vm: Some((vm, read)), ..Remembered::default() };
        assert_eq!(remembered.vm(&facts.machine), facts.vm);
        assert_eq!(remembered.vm(&ready().machine), None);
        let mut deleted = facts.machine;
        deleted.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(remembered.vm(&deleted), None, "it may be another's VM by now");
    }
}

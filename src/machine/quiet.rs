//! What makes a pass needless: nothing has changed but by the pass before.
//!
//! Every write of the object comes back as a change of it. A pass that would only look at its own
//! work again costs calls to Proxmox, so it is left out; whatever else may have happened rings.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::decision::{Waiting, Wake};
use crate::api::{ProxmoxMachineStatus, conditions, reasons};
use crate::hypervisor::{ObjectKey, Operation};

/// Machines for which something happened besides their own writes.
#[derive(Debug, Clone, Default)]
pub(super) struct Bell(Arc<Mutex<HashSet<ObjectKey>>>);

impl Bell {
    /// Something happened.
    pub(super) fn ring(&self, key: ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
    }

    /// The machine is gone.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.rang(key);
    }

    /// Whether something happened since this was asked last.
    pub(super) fn rang(&self, key: &ObjectKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

/// What a pass ended with.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    /// Version of the object as the pass left it.
    version: String,
    /// When the next one is due; none when only a change helps.
    due: Option<Instant>,
}

impl Rest {
    pub(super) fn new(version: String, wake: Wake) -> Self {
        let due = match wake {
            Wake::OnChange => None,
            // Timers are a little coarse.
            Wake::After(time) => Some(Instant::now() + time.saturating_sub(TICK)),
        };
        Self { version, due }
    }

    /// Whether the object is as the pass left it.
    pub(super) fn is_at(&self, version: &str) -> bool {
        self.version == version
    }

    /// What to go on waiting for at this time; none when the next pass is due.
    pub(super) fn goes_on(&self, now: Instant) -> Option<Wake> {
        match self.due {
            None => Some(Wake::OnChange),
            Some(due) if due > now => Some(Wake::After(due.duration_since(now) + TICK)),
            Some(_) => None,
        }
    }
}

const TICK: Duration = Duration::from_millis(5);

/// From this time on, times are spread.
const LONG: Duration = Duration::from_secs(5);

/// Long times, and up to a fifth more by chance: machines that waited for the same do not come back
/// together.
pub(super) fn spread(wake: Wake, chance: u64) -> Wake {
    match wake {
        Wake::After(time) if time >= LONG => {
            let percent = u32::try_from(chance % 20).unwrap_or(0);
            Wake::After(time + time * percent / 100)
        }
        wake => wake,
    }
}

/// Some number.
pub(super) fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether a wait is so short as a rule that telling of it costs more than it tells. A clone is told
/// at once: its task is what a restart looks for.
fn is_brief(waiting: &Waiting) -> bool {
    matches!(
        waiting,
        Waiting::Task { operation, trouble: None, .. }
            if !matches!(operation, Operation::Clone | Operation::Recorded)
    )
}

/// The end of a task wakes its machine; this is the safety net.
const TOLD: Duration = Duration::from_secs(30);

/// How long a short task is waited for before the status tells of it.
const BRIEF: Duration = Duration::from_secs(3);

/// How long to wait for a task of this age without writing `new` over the `stored` status: most are
/// over before anybody could read of them, and what is told already need not be told again.
pub(super) fn unwritten(
    waiting: &Waiting,
    stored: Option<&ProxmoxMachineStatus>,
    new: &ProxmoxMachineStatus,
    age: Option<Duration>,
) -> Option<Duration> {
    if let Waiting::Task { upid, trouble: None, .. } = waiting
        && let Some(stored) = stored
        && stored.task_ref.as_ref() == Some(upid)
        // What an outage meanwhile made it say is true no more.
        && says(stored) == says(new)
    {
        return Some(TOLD);
    }
    if !is_brief(waiting) {
        return None;
    }
    BRIEF.checked_sub(age?).filter(|left| !left.is_zero())
}

/// How long to wait without writing where in the queue for clones a machine is, `pause` being how
/// often that is told: others who come and go would have it written again and again.
pub(super) fn unmoved(
    stored: Option<&ProxmoxMachineStatus>,
    new: &ProxmoxMachineStatus,
    pause: Duration,
    told: Duration,
) -> Option<Duration> {
    let headline = |status| says(status).map(|(status, reason, _)| (status, reason));
    if headline(stored?) != headline(new) {
        return None;
    }
    pause.checked_sub(told).filter(|left| !left.is_zero())
}

/// What its condition says: status, reason and message.
fn says(status: &ProxmoxMachineStatus) -> Option<(&str, Option<&str>, Option<&str>)> {
    let told = conditions::find(&status.conditions, reasons::VM_PROVISIONED)?;
    Some((&told.status, told.reason.as_deref(), told.message.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::super::decision::Decision;
    use super::super::fixture::*;
    use super::super::report::{Conclusion, status};
    use super::*;
    use crate::fault::{Class, Fault};
    use crate::hypervisor::Position;

    /// Stored while a machine waited for this, and what a pass that waits for its task does then.
    fn after(stored: Waiting, age: Duration) -> Option<Duration> {
        let operation = Operation::Clone;
        let task = Waiting::Task { operation, upid: UPID.to_owned(), trouble: None };
        let mut facts = reserved();
        facts.task = Some(running(operation));
        let told = |waiting| Conclusion::Decided(Decision::Wait(waiting, Wake::OnChange));
        let stored = status(&facts, &told(stored), None, now());
        facts.machine.status = Some(stored.clone());
        let new = status(&facts, &told(task.clone()), None, now());
        unwritten(&task, Some(&stored), &new, Some(age))
    }

    #[test]
    fn a_task_is_told_once_and_again_after_an_outage() {
        let task = |trouble: Option<&str>| Waiting::Task {
            operation: Operation::Clone,
            upid: UPID.to_owned(),
            trouble: trouble.map(str::to_owned),
        };
        let lost = Fault::new(Class::Transient, "no route to host");
        let age = Duration::from_mins(1);
        assert_eq!(after(task(None), age), Some(TOLD));
        assert_eq!(after(task(Some("no answer")), age), None, "the node answers again");
        assert_eq!(after(Waiting::Connection(lost), age), None, "so does the endpoint");
    }

    #[test]
    fn where_in_the_queue_a_machine_is_is_told_now_and_then_only() {
        let at = |number| {
            let position = Position { number, of: 9, at: "pve2".to_owned(), limit: 4 };
            let waits = Decision::Wait(Waiting::Turn(position), Wake::OnChange);
            status(&reserved(), &Conclusion::Decided(waits), None, now())
        };
        let (pause, second) = (Duration::from_secs(30), Duration::from_secs(1));
        assert_eq!(unmoved(Some(&at(7)), &at(3), pause, second), Some(Duration::from_secs(29)));
        assert_eq!(unmoved(Some(&at(7)), &at(3), pause, pause), None);
        assert_eq!(unmoved(None, &at(3), pause, second), None);
        let mut other = at(7);
        for condition in &mut other.conditions {
            condition.reason = Some(reasons::UNKNOWN.to_owned());
        }
        assert_eq!(unmoved(Some(&other), &at(3), pause, second), None, "it is news");
    }

    #[test]
    fn a_pass_is_left_out_for_its_own_write_until_its_time_comes() {
        let rest = Rest::new("7".to_owned(), Wake::seconds(10));
        let now = Instant::now();
        assert!(rest.is_at("7") && !rest.is_at("8"));
        assert!(matches!(rest.goes_on(now), Some(Wake::After(_))));
        assert_eq!(rest.goes_on(now + Duration::from_secs(10)), None);
        let rest = Rest::new("7".to_owned(), Wake::OnChange);
        assert_eq!(rest.goes_on(now), Some(Wake::OnChange));
    }

    #[test]
    fn a_bell_is_heard_once() {
        let (bell, key) =
            (Bell::default(), ObjectKey { namespace: "lab".to_owned(), name: "w-1".to_owned() });
        assert!(!bell.rang(&key));
        bell.ring(key.clone());
        assert!(bell.rang(&key));
        assert!(!bell.rang(&key));
    }
}

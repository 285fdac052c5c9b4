//! The Proxmox tasks that machines wait for, one a machine.
//!
//! Pure bookkeeping: [`super::Endpoint`] looks when a task is due and enters what it learnt. One
//! reading of `cluster/tasks`, which the endpoint answers from memory, tells of all tasks at once;
//! a task that is not in that list is asked for by itself, which is a proxied call on its node. A
//! task is looked at soon after its start and then less often, because most are short.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::ObjectKey;
use super::lists::Due;
use crate::pve::Upid;

/// What a task is for, as far as the machine that waits needs to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `qmclone`.
    Clone,
    /// `qmconfig`.
    Configure,
    /// `resize`.
    Resize,
    /// `imgcopy`: upload of the seed ISO.
    Upload,
    /// `qmstart` or `qmresume`.
    Start,
    /// `qmconfig` that takes the seed ISO out of the drive.
    Eject,
    /// `imgdel`: removal of the seed ISO.
    DeleteSeed,
    /// `qmshutdown`.
    Shutdown,
    /// `qmstop`.
    Stop,
    /// Taking the VM out of HA, which is no task.
    LeaveHa,
    /// `qmdestroy`.
    Destroy,
    /// Found in the status of a machine after a restart; its kind is in the UPID.
    Recorded,
}

impl Operation {
    /// What people read: "waiting for Proxmox to …".
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Clone => "clone the template",
            Self::Configure => "write the VM's configuration",
            Self::Resize => "grow the boot volume",
            Self::Upload => "store the bootstrap ISO",
            Self::Start => "start the VM",
            Self::Eject => "eject the bootstrap ISO",
            Self::DeleteSeed => "delete the bootstrap ISO",
            Self::Shutdown => "shut the guest down",
            Self::Stop => "stop the VM",
            Self::LeaveHa => "take the VM out of HA",
            Self::Destroy => "destroy the VM",
            Self::Recorded => "finish the task recorded in status.taskRef",
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    /// `OK`, or `WARNINGS: n`.
    Success,
    /// The exit status that Proxmox gave.
    Failure(String),
    /// Nobody can tell any more: the worker was killed, or the task is no longer listed.
    Unknown(String),
}

/// A task that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Which task.
    pub upid: Upid,
    /// What it was for.
    pub operation: Operation,
    /// How it ended.
    pub exit: Exit,
    /// When this process learnt of it; facts about the VM must be newer.
    pub noticed: Instant,
}

/// What is known of a machine's task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// Not ended when last looked at.
    Running {
        /// Which task.
        upid: Upid,
        /// What it is for.
        operation: Operation,
        /// Why the last look gave no answer, if it gave none.
        trouble: Option<String>,
    },
    /// Ended, and not yet taken note of by its machine.
    Ended(Ended),
}

#[derive(Debug)]
struct Tracked {
    state: TaskState,
    since: Instant,
    due: Instant,
    /// Since when looks give no answer.
    silent_since: Option<Instant>,
    /// When its own node was asked last.
    confirmed: Instant,
}

impl Tracked {
    /// Whether its own node is to be asked, though a list says that it runs.
    fn is_to_be_confirmed(&self, is_due: bool, now: Instant) -> bool {
        let known = self.confirmed.duration_since(self.since);
        let pause = known.clamp(FIRST_CONFIRMED, LONGEST_UNCONFIRMED);
        match self.silent_since {
            Some(_) => is_due,
            None => now.duration_since(self.confirmed) >= pause,
        }
    }
}

/// What came of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// Nothing new.
    Nothing,
    /// There was no answer, for the first time.
    Silence,
    /// The task has ended.
    End,
}

/// All tasks in flight at one endpoint.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    by_object: BTreeMap<ObjectKey, Tracked>,
    /// How long the last task for each operation took.
    usual: HashMap<Operation, Duration>,
}

/// Longer than any look takes; a look that never ends must not be the last.
const LONGEST_LOOK: Duration = Duration::from_mins(3);

/// How long a task may be without an answer before the VM is asked instead.
const PATIENCE: Duration = Duration::from_mins(5);

/// A task that is this young may not be in the list yet.
const LISTED: Duration = Duration::from_secs(1);

/// A list tells what each node said of itself last. One that does not answer any more may have its
/// tasks listed as running for ever, so it is asked for a long one, twice as long after each time.
const FIRST_CONFIRMED: Duration = Duration::from_secs(10);
const LONGEST_UNCONFIRMED: Duration = Duration::from_mins(2);

/// The first look at a task that takes next to no time, such as to write a configuration: sooner than
/// any other.
const QUICK: Duration = Duration::from_millis(40);

/// Shortest and longest pause between two looks.
const SHORTEST: Duration = Duration::from_millis(150);
const LONGEST: Duration = Duration::from_secs(5);

/// So many tasks beside make looks more frequent by as much again, at most by three times: one look
/// tells of all of them.
const MANY: usize = 8;

/// Pause before the next look at a task of this age, one of so `many`: a start or a configuration is
/// over in a second or two, a full clone takes minutes. The end is learnt at most a sixth late; before
/// the time that the operation took last there are few looks.
fn pause(age: Duration, usual: Option<Duration>, many: usize) -> Duration {
    if let Some(left) = usual.and_then(|usual| usual.checked_sub(age)) {
        return left.min(age.max(Duration::from_secs(1))).clamp(SHORTEST, LONGEST);
    }
    let hurry = u32::try_from((many / MANY).clamp(1, 3)).unwrap_or(1);
    (age / (6 * hurry)).clamp(SHORTEST, LONGEST)
}

/// The first look at a task of which it is not known how long it takes: no clone and no start of a
/// VM is over sooner.
const fn first(operation: Operation) -> Duration {
    match operation {
        Operation::Clone | Operation::Start => Duration::from_millis(500),
        Operation::Configure | Operation::Upload | Operation::Resize => QUICK,
        _ => SHORTEST,
    }
}

/// What a list says of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed<'a> {
    /// It runs.
    Running,
    /// It ended with this exit status.
    Ended(&'a Exit),
}

impl Tasks {
    /// Follows `upid` for `key`; a task followed before is replaced.
    pub(super) fn follow(
        &mut self,
        key: ObjectKey,
        upid: Upid,
        operation: Operation,
        now: Instant,
    ) {
        if let Some(tracked) = self.by_object.get(&key) {
            let known = match &tracked.state {
                TaskState::Running { upid, .. } => upid,
                TaskState::Ended(ended) => &ended.upid,
            };
            if *known == upid {
                return;
            }
        }
        let state = TaskState::Running { upid, operation, trouble: None };
        let usual = self.usual.get(&operation).copied();
        let wait = usual.map_or(first(operation), |usual| {
            if usual < SHORTEST { usual.max(QUICK) } else { pause(Duration::ZERO, Some(usual), 1) }
        });
        let due = now + wait;
        let tracked = Tracked { state, since: now, due, silent_since: None, confirmed: now };
        self.by_object.insert(key, tracked);
    }

    /// What is known of the task of `key`.
    pub(super) fn state(&self, key: &ObjectKey) -> Option<&TaskState> {
        self.by_object.get(key).map(|tracked| &tracked.state)
    }

    /// Since when the task of `key` is followed.
    pub(super) fn age(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        self.by_object.get(key).map(|tracked| now.duration_since(tracked.since))
    }

    /// Forgets the task of `key`.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.by_object.remove(key);
    }

    /// What the last task of `key` did does not show, though it ended well: how it ended is not known.
    pub(super) fn doubt(&mut self, key: &ObjectKey, why: String) {
        if let Some(Tracked { state: TaskState::Ended(ended), .. }) = self.by_object.get_mut(key) {
            ended.exit = Exit::Unknown(why);
        }
    }

    /// Tasks to look at now; they are not due again before the look has ended.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<(ObjectKey, Upid)> {
        self.by_object
            .iter_mut()
            .filter(|(_, tracked)| tracked.due <= now)
            .filter_map(|(key, tracked)| match &tracked.state {
                TaskState::Running { upid, .. } => {
                    tracked.due = now + LONGEST_LOOK;
                    Some((key.clone(), upid.clone()))
                }
                TaskState::Ended(_) => None,
            })
            .collect()
    }

    /// Enters what a list says that was asked for at `asked`; `look_up` finds a task in it. Gives
    /// the objects whose task has ended with it, and the tasks that only their own node can tell of.
    pub(super) fn listed<'a>(
        &mut self,
        due: &[(ObjectKey, Upid)],
        asked: Instant,
        look_up: impl Fn(&Upid) -> Option<Listed<'a>>,
    ) -> (Vec<ObjectKey>, Vec<(ObjectKey, Upid)>) {
        let running: Vec<(ObjectKey, Upid)> = self
            .by_object
            .iter()
            .filter_map(|(key, tracked)| match &tracked.state {
                TaskState::Running { upid, .. } => Some((key.clone(), upid.clone())),
                TaskState::Ended(_) => None,
            })
            .collect();
        let (mut ended, mut own) = (Vec::new(), Vec::new());
        for (key, upid) in running {
            let is_due = due.iter().any(|(one, _)| *one == key);
            let Some(tracked) = self.by_object.get_mut(&key) else { continue };
            let age = asked.duration_since(tracked.since);
            let result = match look_up(&upid) {
                None if is_due && age < LISTED => {
                    tracked.due = asked + pause(age, None, 1);
                    continue;
                }
                None if is_due => {
                    own.push((key, upid));
                    continue;
                }
                None => continue,
                Some(Listed::Running) if tracked.is_to_be_confirmed(is_due, asked) => {
                    tracked.confirmed = asked;
                    tracked.due = asked + LONGEST_LOOK;
                    own.push((key, upid));
                    continue;
                }
                // Its node is in trouble, whatever it said before.
                Some(Listed::Running) if tracked.silent_since.is_some() => continue,
                Some(Listed::Running) => Ok(None),
                Some(Listed::Ended(exit)) => Ok(Some(exit.clone())),
            };
            if self.looked(&key, &upid, result, asked) == Looked::End {
                ended.push(key);
            }
        }
        (ended, own)
    }

    /// When the next look is due, if a task runs.
    pub(super) fn next_due(&self) -> Option<Due> {
        let running = |one: &&Tracked| matches!(one.state, TaskState::Running { .. });
        let running = || self.by_object.values().filter(running);
        let at = running().map(|tracked| tracked.due).min()?;
        let quick = running().filter(|one| one.due.duration_since(one.since) < SHORTEST);
        Some(Due { at, quick_at: quick.map(|tracked| tracked.due).min() })
    }

    /// Enters the result of a look.
    pub(super) fn looked(
        &mut self,
        key: &ObjectKey,
        looked_at: &Upid,
        result: Result<Option<Exit>, String>,
        now: Instant,
    ) -> Looked {
        let running = |one: &&Tracked| matches!(one.state, TaskState::Running { .. });
        let many = self.by_object.values().filter(running).count();
        let Some(tracked) = self.by_object.get_mut(key) else { return Looked::Nothing };
        let TaskState::Running { upid, operation, trouble } = &mut tracked.state else {
            return Looked::Nothing;
        };
        if upid != looked_at {
            return Looked::Nothing;
        }
        match result {
            Ok(Some(exit)) => {
                let took = now.duration_since(tracked.since);
                if exit == Exit::Success {
                    // The next one may be a little faster, and is looked at no later for it.
                    self.usual.insert(*operation, took.mul_f32(0.97));
                }
                let ended = Ended { upid: upid.clone(), operation: *operation, exit, noticed: now };
                tracked.state = TaskState::Ended(ended);
                Looked::End
            }
            Ok(None) => {
                *trouble = None;
                tracked.silent_since = None;
                let usual = self.usual.get(operation).copied();
                tracked.due = now + pause(now.duration_since(tracked.since), usual, many);
                Looked::Nothing
            }
            Err(why) => {
                let since = *tracked.silent_since.get_or_insert(now);
                if now.duration_since(since) >= PATIENCE {
                    let exit = Exit::Unknown(why);
                    let ended =
                        Ended { upid: upid.clone(), operation: *operation, exit, noticed: now };
                    tracked.state = TaskState::Ended(ended);
                    return Looked::End;
                }
                let is_news = trouble.replace(why).is_none();
                // An endpoint in trouble is asked less often, however short the task.
                let age = now.duration_since(tracked.since);
                tracked.due = now + pause(age, None, 1).max(Duration::from_secs(2));
                if is_news { Looked::Silence } else { Looked::Nothing }
            }
        }
    }
}

#[cfg(test)]
mod tests;

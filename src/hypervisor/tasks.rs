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
        let wait = usual.map_or(first(operation), |usual| pause(Duration::ZERO, Some(usual), 1));
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
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_object
            .values()
            .filter(|tracked| matches!(tracked.state, TaskState::Running { .. }))
            .map(|tracked| tracked.due)
            .min()
    }

    /// Enters the result of a look.
    pub(super) fn looked(
        &mut self,
        key: &ObjectKey,
        looked_at: &Upid,
        result: Result<Option<Exit>, String>,
        now: Instant,
    ) -> Looked {
        let many = self.by_object.len();
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
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn upid(pid: &str) -> Upid {
        format!("UPID:pve1:{pid}:00BC614E:679A423B:qmstart:112:capmox@pve!capi:").parse().unwrap()
    }

    #[test]
    fn a_task_is_looked_at_until_it_ends_and_then_kept_until_forgotten() {
        let start = Instant::now();
        let mut tasks = Tasks::default();
        tasks.follow(key("a"), upid("000ACD12"), Operation::Start, start);
        assert!(tasks.take_due(start).is_empty());
        let later = start + Duration::from_secs(1);
        assert_eq!(tasks.take_due(later).len(), 1);
        let (a, task) = (key("a"), upid("000ACD12"));
        assert_eq!(tasks.looked(&a, &task, Ok(None), later), Looked::Nothing);
        assert_eq!(tasks.looked(&a, &task, Ok(Some(Exit::Success)), later), Looked::End);
        assert!(tasks.next_due().is_none());
        assert!(matches!(tasks.state(&key("a")), Some(TaskState::Ended(_))));
        tasks.forget(&key("a"));
        assert!(tasks.state(&key("a")).is_none());
    }

    #[test]
    fn what_takes_long_is_not_looked_at_too_soon_and_many_are_looked_at_more_often() {
        let start = Instant::now();
        let due = |operation| {
            let mut tasks = Tasks::default();
            tasks.follow(key("a"), upid("000ACD12"), operation, start);
            tasks.next_due().unwrap() - start
        };
        assert_eq!(due(Operation::Clone), Duration::from_millis(500));
        assert_eq!(due(Operation::Resize), SHORTEST);
        let age = Duration::from_secs(6);
        for (many, expected) in [(1, 1000), (MANY, 1000), (MANY * 2, 500), (MANY * 20, 333)] {
            assert_eq!(pause(age, None, many).as_millis(), expected, "{many}");
        }
        let usual = Some(Duration::from_secs(7));
        assert_eq!(pause(age, usual, MANY * 20), Duration::from_secs(1), "known before");
    }

    #[test]
    fn an_answer_about_an_older_task_is_dropped() {
        let now = Instant::now();
        let mut tasks = Tasks::default();
        tasks.follow(key("a"), upid("000ACD12"), Operation::Stop, now);
        tasks.follow(key("a"), upid("000ACD13"), Operation::Destroy, now);
        let older = tasks.looked(&key("a"), &upid("000ACD12"), Ok(Some(Exit::Success)), now);
        assert_eq!(older, Looked::Nothing);
        assert!(matches!(tasks.state(&key("a")), Some(TaskState::Running { .. })));
    }

    #[test]
    fn one_list_tells_of_all_tasks_and_the_rest_are_asked_for_once_they_should_be_in_it() {
        let start = Instant::now();
        let mut tasks = Tasks::default();
        for (name, pid) in [("a", "000ACD12"), ("b", "000ACD13"), ("c", "000ACD14")] {
            tasks.follow(key(name), upid(pid), Operation::Start, start);
        }
        let look_up = |asked: &Upid| match asked {
            one if *one == upid("000ACD12") => Some(Listed::Ended(&Exit::Success)),
            one if *one == upid("000ACD13") => Some(Listed::Running),
            _ => None,
        };
        let soon = start + Duration::from_millis(200);
        let due = tasks.take_due(soon);
        assert_eq!(tasks.listed(&due, soon, look_up), (vec![key("a")], Vec::new()));
        let later = start + LISTED;
        let due = tasks.take_due(later);
        assert_eq!(
            tasks.listed(&due, later, look_up),
            (Vec::new(), vec![(key("c"), upid("000ACD14"))])
        );
        assert!(matches!(tasks.state(&key("b")), Some(TaskState::Running { .. })));
    }

    #[test]
    fn a_node_that_falls_silent_is_found_out_though_its_tasks_are_listed_as_running() {
        let start = Instant::now();
        let mut tasks = Tasks::default();
        let (a, task) = (key("a"), upid("000ACD12"));
        tasks.follow(a.clone(), task.clone(), Operation::Clone, start);
        let mut told = 0;
        let mut asked = |after: u64| {
            let now = start + Duration::from_secs(after);
            let due = tasks.take_due(now);
            let (_, own) = tasks.listed(&due, now, |_| Some(Listed::Running));
            if own.is_empty() {
                return false;
            }
            let answer = if after < 30 { Ok(None) } else { Err("no route".to_owned()) };
            told += usize::from(tasks.looked(&a, &task, answer, now) == Looked::Silence);
            true
        };
        let times: Vec<u64> = (1..90).filter(|after| asked(*after)).collect();
        assert!(times[0] >= 10 && times[1] >= 20 && times[2] >= 40, "{times:?}");
        assert!(times.len() > 6, "and again until it answers: {times:?}");
        assert_eq!(told, 1);
    }

    #[test]
    fn a_look_without_an_answer_does_not_end_a_task() {
        let now = Instant::now();
        let mut tasks = Tasks::default();
        tasks.follow(key("a"), upid("000ACD12"), Operation::Stop, now);
        let (a, task, no_route) = (key("a"), upid("000ACD12"), || Err("no route".to_owned()));
        assert_eq!(tasks.looked(&a, &task, no_route(), now), Looked::Silence);
        assert_eq!(tasks.looked(&a, &task, no_route(), now), Looked::Nothing, "told once");
        let Some(TaskState::Running { trouble, .. }) = tasks.state(&key("a")) else {
            panic!("ended without an answer")
        };
        assert_eq!(trouble.as_deref(), Some("no route"));
        let later = now + PATIENCE;
        assert_eq!(tasks.looked(&a, &task, no_route(), later), Looked::End);
        let Some(TaskState::Ended(ended)) = tasks.state(&key("a")) else { panic!("for ever") };
        assert!(matches!(ended.exit, Exit::Unknown(_)), "and even then it is not known how");
    }
}

//! Every call of a manager passes here, before its effect and after. At one of them the manager is
//! killed, or stands still.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use testbed::ManagerProcess;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a call that is held back waits for its repetition.
const HELD: Duration = Duration::from_secs(3);

/// The same where the next manager has to wait for the lease first.
const HELD_BY_FROZEN: Duration = Duration::from_secs(10);

/// At which moment of a call the manager is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Just before; the call is lost with it.
    Lost,
    /// Just before; the call has its effect when the next manager is about to make it again.
    Late,
    /// Its effect has come to be, its answer has not arrived.
    Done,
}

/// Where a manager is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) call: String,
    pub(crate) moment: Moment,
}

impl Point {
    /// Whether the call is one to Proxmox, whose names have a path.
    pub(crate) fn is_at_proxmox(&self) -> bool {
        self.call.contains(" /")
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {}", self.moment, self.call)
    }
}

/// What kills a manager.
#[derive(Clone, Debug)]
pub(crate) enum Trap {
    /// One call.
    At(Point),
    /// The first of each kind of write, one manager after the other.
    Each(Moment, BTreeSet<String>),
}

impl Trap {
    pub(crate) fn each(moment: Moment) -> Self {
        Self::Each(moment, BTreeSet::new())
    }

    /// Whether the manager dies now, before a call's effect or after.
    fn springs(&mut self, call: &str, before: bool) -> Option<Moment> {
        let moment = match self {
            Self::At(point) => point.moment,
            Self::Each(moment, _) => *moment,
        };
        let is_now = before == (moment != Moment::Done);
        let springs = is_now
            && match self {
                Self::At(point) => point.call == call,
                // Without its number, or no manager would ever get past it.
                Self::Each(_, struck) => {
                    let kind = call.split(" #").next().unwrap_or(call);
                    !call.starts_with("GET ") && struck.insert(kind.to_owned())
                }
            };
        springs.then_some(moment)
    }
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Goes,
    IsLost,
}

#[derive(Default)]
struct State {
    /// The names of calls in the order in which they were made first.
    seen: Vec<String>,
    counts: BTreeMap<String, u32>,
    trap: Option<Trap>,
    deaths: usize,
    /// Name and number of the call that is held back.
    held: Option<(String, u64)>,
}

impl State {
    fn springs(&mut self, call: &str, before: bool) -> Option<Moment> {
        let moment = self.trap.as_mut()?.springs(call, before)?;
        self.deaths += 1;
        if matches!(self.trap, Some(Trap::At(_))) {
            self.trap = None;
        }
        Some(moment)
    }
}

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    manager: Mutex<Option<ManagerProcess>>,
    /// Those that stand still, where none is killed.
    frozen: Option<Mutex<Vec<ManagerProcess>>>,
    killed: Notify,
    release: Notify,
    landed: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// A gate where managers stand still instead of being killed.
    pub(crate) fn freezing() -> Self {
        Self { frozen: Some(Mutex::default()), ..Self::default() }
    }

    /// Those that stand still.
    pub(crate) fn take_frozen(&self) -> Vec<ManagerProcess> {
        self.frozen.as_ref().map(|all| std::mem::take(&mut *lock(all))).unwrap_or_default()
    }

    /// The manager that is killed from now on.
    pub(crate) fn guard(&self, manager: ManagerProcess) {
        *lock(&self.manager) = Some(manager);
    }

    /// Kills the manager, now.
    pub(crate) fn kill(&self) {
        if let Some(mut manager) = lock(&self.manager).take() {
            manager.kill_hard().unwrap();
        }
        self.killed.notify_one();
    }

    /// What the trap does.
    fn strike(&self) {
        let Some(frozen) = &self.frozen else { return self.kill() };
        if let Some(mut manager) = lock(&self.manager).take() {
            manager.freeze();
            lock(frozen).push(manager);
        }
        self.killed.notify_one();
    }

    /// How long a call that is held back waits for its repetition.
    fn patience(&self) -> Duration {
        if self.frozen.is_some() { HELD_BY_FROZEN } else { HELD }
    }

    /// Waits until the manager was killed at the trap.
    pub(crate) async fn killed(&self) {
        self.killed.notified().await;
    }

    /// The last lines of the manager's log.
    pub(crate) fn log_tail(&self, lines: usize) -> String {
        let manager = lock(&self.manager);
        manager.as_ref().map_or_else(|| "no manager".to_owned(), |one| one.log_tail(lines))
    }

    /// Where the manager's log is, its process and the port of its metrics.
    pub(crate) fn manager(&self) -> Option<(PathBuf, u32, u16)> {
        let manager = lock(&self.manager);
        manager.as_ref().map(|one| (one.log().to_owned(), one.id(), one.diagnostics_port))
    }

    /// Sets a trap, or only starts to take note of the calls.
    pub(crate) fn arm(&self, trap: Option<Trap>) {
        *lock(&self.state) = State { trap, ..State::default() };
    }

    /// The calls since [`Self::arm`], and how many managers have died.
    pub(crate) fn disarm(&self) -> (Vec<String>, usize) {
        let mut state = lock(&self.state);
        state.trap = None;
        (std::mem::take(&mut state.seen), state.deaths)
    }

    /// The name of a call that is made again and again, with its number from the second time on.
    pub(crate) fn numbered(&self, call: &str) -> String {
        let mut state = lock(&self.state);
        let count = state.counts.entry(call.to_owned()).or_default();
        *count += 1;
        if *count == 1 { call.to_owned() } else { format!("{call} #{count}") }
    }

    /// A call has come in, nothing has happened.
    pub(crate) async fn before(&self, call: String, number: u64) -> Verdict {
        let (moment, repeats) = self.enter(&call, number);
        if repeats {
            self.release.notify_one();
            // What was held back has the same way to go; it is not waited for without end.
            let _ = timeout(self.patience(), self.landed.notified()).await;
        }
        match moment {
            None | Some(Moment::Done) => Verdict::Goes,
            Some(Moment::Lost) => {
                self.strike();
                Verdict::IsLost
            }
            Some(Moment::Late) => {
                self.strike();
                // A repetition that never comes lets it go as well.
                let _ = timeout(self.patience(), self.release.notified()).await;
                Verdict::Goes
            }
        }
    }

    /// Takes note of a call: the moment of its trap, and whether it repeats one that is held back.
    fn enter(&self, call: &str, number: u64) -> (Option<Moment>, bool) {
        let mut state = lock(&self.state);
        if !state.seen.iter().any(|known| known == call) {
            state.seen.push(call.to_owned());
        }
        let repeats = state.held.as_ref().is_some_and(|(held, _)| held == call);
        let moment = state.springs(call, true);
        if moment == Some(Moment::Late) {
            state.held = Some((call.to_owned(), number));
        }
        (moment, repeats)
    }

    /// A call has had its effect, nothing has been answered.
    pub(crate) fn after(&self, call: &str, number: u64) {
        let strikes = {
            let mut state = lock(&self.state);
            if state.held.as_ref().is_some_and(|(_, held)| *held == number) {
                state.held = None;
                self.landed.notify_one();
            }
            state.springs(call, false).is_some()
        };
        if strikes {
            self.strike();
        }
    }
}

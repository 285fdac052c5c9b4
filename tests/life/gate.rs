//! Every call of a manager passes here, before its effect and after. At one of them the manager is
//! killed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use testbed::ManagerProcess;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a call that is held back waits for its repetition.
const HELD: Duration = Duration::from_secs(3);

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
    trap: Option<Point>,
    /// Name and number of the call that is held back.
    held: Option<(String, u64)>,
}

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    manager: Mutex<Option<ManagerProcess>>,
    killed: Notify,
    release: Notify,
    landed: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
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

    /// Waits until the manager was killed at the trap.
    pub(crate) async fn killed(&self) {
        self.killed.notified().await;
    }

    /// The last lines of the manager's log.
    pub(crate) fn log_tail(&self, lines: usize) -> String {
        let manager = lock(&self.manager);
        manager.as_ref().map_or_else(|| "no manager".to_owned(), |one| one.log_tail(lines))
    }

    /// Sets a trap, or only starts to take note of the calls.
    pub(crate) fn arm(&self, trap: Option<Point>) {
        *lock(&self.state) = State { trap, ..State::default() };
    }

    /// The calls since [`Self::arm`], and whether the trap is still set.
    pub(crate) fn disarm(&self) -> (Vec<String>, bool) {
        let mut state = lock(&self.state);
        (std::mem::take(&mut state.seen), state.trap.take().is_some())
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
            let _ = timeout(HELD, self.landed.notified()).await;
        }
        match moment {
            None | Some(Moment::Done) => Verdict::Goes,
            Some(Moment::Lost) => {
                self.kill();
                Verdict::IsLost
            }
            Some(Moment::Late) => {
                self.kill();
                // A repetition that never comes lets it go as well.
                let _ = timeout(HELD, self.release.notified()).await;
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
        let moment = state.trap.as_ref().filter(|trap| trap.call == call).map(|trap| trap.moment);
        if matches!(moment, Some(Moment::Lost | Moment::Late)) {
            state.trap = None;
        }
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
            let strikes = state
                .trap
                .as_ref()
                .is_some_and(|trap| trap.moment == Moment::Done && trap.call == call);
            if strikes {
                state.trap = None;
            }
            strikes
        };
        if strikes {
            self.kill();
        }
    }
}

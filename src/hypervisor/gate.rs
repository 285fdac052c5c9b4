//! Who may ask an endpoint now. One that hangs holds everybody who asks it for a minute; the gate
//! keeps those from taking all the room that the machines of other endpoints need.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::pve;

/// Whoever is inside for longer without a step done has met something that does not answer.
const HUNG: Duration = Duration::from_secs(5);

/// How long to wait for a place while it goes on inside, and how often to see whether it does. Who
/// comes again instead costs a pass each time, and many who do keep those inside from going on. Longer
/// would keep a worker from other endpoints, and the process from its end.
const PATIENCE: Duration = Duration::from_secs(5);
const SEE: Duration = Duration::from_secs(1);

/// A gate at one endpoint, which fails with `E`.
#[derive(Debug)]
pub(super) struct Gate<E = pve::Error> {
    state: Mutex<State<E>>,
    freed: Notify,
}

#[derive(Debug)]
struct State<E> {
    /// When each of those inside came in or went on.
    inside: BTreeMap<u64, Instant>,
    next: u64,
    /// Why the endpoint was of no use when it was asked last.
    lost: Option<E>,
}

/// Whether somebody may ask.
#[derive(Debug)]
pub enum Admission<E = pve::Error> {
    /// Yes, until this is dropped.
    Granted(Leave<E>),
    /// The endpoint was of no use when it was asked last, and somebody else is finding out whether
    /// it is again.
    Lost(E),
    /// As many as may are inside, and it does not go on: come again later.
    Full,
}

/// Leave to ask; dropped, the next one may.
#[derive(Debug)]
pub struct Leave<E = pve::Error> {
    gate: Arc<Gate<E>>,
    number: u64,
    /// Whether the endpoint was of no use before, which is to be found out first.
    pub is_probe: bool,
}

impl<E> Leave<E> {
    /// A step is done: its holder goes on.
    pub fn goes_on(&self) {
        self.gate.with(|state| state.inside.insert(self.number, Instant::now()));
    }
}

impl<E> Drop for Leave<E> {
    fn drop(&mut self) {
        self.gate.with(|state| state.inside.remove(&self.number));
        self.gate.freed.notify_one();
    }
}

impl<E> Default for Gate<E> {
    fn default() -> Self {
        let state = State { inside: BTreeMap::new(), next: 0, lost: None };
        Self { state: Mutex::new(state), freed: Notify::new() }
    }
}

impl<E> Gate<E> {
    fn with<T>(&self, work: impl FnOnce(&mut State<E>) -> T) -> T {
        // Plain bookkeeping, which a panic elsewhere leaves good.
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The endpoint is of no use: from now on one at a time asks it.
    pub(super) fn lose(&self, error: E) {
        self.with(|state| state.lost = Some(error));
    }

    /// The endpoint answers.
    pub(super) fn find(&self) {
        self.with(|state| state.lost = None);
    }
}

impl<E: Clone> Gate<E> {
    /// Lets in, beside at most `at_most - 1` others; waits for a place while it goes on inside. When
    /// the endpoint turns out to be of no use meanwhile, nobody of those who waited asks it again.
    pub(super) async fn admit(self: &Arc<Self>, at_most: usize) -> Admission<E> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_admit(at_most, Instant::now()) {
                Ok(admission) => return admission,
                Err(hung) if hung => return Admission::Full,
                Err(_) => {}
            }
            let is_free = timeout(SEE, self.freed.notified()).await.is_ok();
            if !is_free && Instant::now() >= deadline {
                return Admission::Full;
            }
            if let Some(error) = self.with(|state| state.lost.clone()) {
                // Whoever waits beside is told the same.
                self.freed.notify_one();
                return Admission::Lost(error);
            }
        }
    }

    /// `Err` when it is full: whether half of it or more hangs.
    fn try_admit(self: &Arc<Self>, at_most: usize, now: Instant) -> Result<Admission<E>, bool> {
        self.with(|state| {
            let is_probe = state.lost.is_some();
            if let Some(error) = state.lost.as_ref().filter(|_| !state.inside.is_empty()) {
                return Ok(Admission::Lost(error.clone()));
            }
            if state.inside.len() >= at_most.max(1) {
                let hangs = |since: &&Instant| now.duration_since(**since) > HUNG;
                let hung = state.inside.values().filter(hangs).count();
                return Err(hung.saturating_mul(2) >= state.inside.len());
            }
            state.next += 1;
            state.inside.insert(state.next, now);
            let gate = Arc::clone(self);
            Ok(Admission::Granted(Leave { gate, number: state.next, is_probe }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Words = Gate<&'static str>;

    fn granted(gate: &Arc<Words>, now: Instant) -> Leave<&'static str> {
        match gate.try_admit(2, now) {
            Ok(Admission::Granted(pass)) => pass,
            other => panic!("not let in: {other:?}"),
        }
    }

    #[test]
    fn so_many_are_let_in_and_the_next_when_one_leaves() {
        let (gate, now) = (Arc::new(Words::default()), Instant::now());
        let first = granted(&gate, now);
        let _second = granted(&gate, now);
        assert!(matches!(gate.try_admit(2, now), Err(false)));
        assert!(matches!(gate.try_admit(2, now + HUNG * 2), Err(true)), "nobody waits there");
        drop(first);
        assert!(!granted(&gate, now).is_probe);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_waiting_while_most_of_those_inside_go_on() {
        let gate = Arc::new(Words::default());
        let inside: Vec<_> = (0..4).map(|_| gate.try_admit(4, Instant::now())).collect();
        let leave = |index: usize| match &inside[index] {
            Ok(Admission::Granted(leave)) => leave,
            other => panic!("not let in: {other:?}"),
        };
        for (going_on, hangs) in [(4, false), (3, false), (2, true), (0, true), (3, false)] {
            tokio::time::advance(HUNG + SEE).await;
            (0..going_on).for_each(|index| leave(index).goes_on());
            let began = Instant::now();
            assert!(matches!(gate.admit(4).await, Admission::Full));
            let waited = began.elapsed() >= PATIENCE;
            assert_eq!(waited, !hangs, "{going_on} of four go on");
        }
    }

    #[test]
    fn one_at_a_time_finds_out_whether_a_lost_endpoint_is_back() {
        let (gate, now) = (Arc::new(Words::default()), Instant::now());
        let first = granted(&gate, now);
        gate.lose("no answer");
        assert!(matches!(gate.try_admit(2, now), Ok(Admission::Lost("no answer"))));
        drop(first);
        let probe = granted(&gate, now);
        assert!(probe.is_probe);
        assert!(matches!(gate.try_admit(2, now), Ok(Admission::Lost(_))));
        gate.find();
        assert!(!granted(&gate, now).is_probe);
    }

    #[tokio::test]
    async fn who_waits_is_told_when_the_endpoint_turns_out_to_be_of_no_use() {
        let gate = Arc::new(Words::default());
        let first = granted(&gate, Instant::now());
        let wait = || {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move { gate.admit(1).await })
        };
        let waiting = [wait(), wait(), wait()];
        tokio::task::yield_now().await;
        gate.lose("no answer");
        drop(first);
        for one in waiting {
            assert!(matches!(one.await, Ok(Admission::Lost("no answer"))));
        }
    }

    #[tokio::test]
    async fn who_waits_gets_in_when_a_place_is_free() {
        let gate = Arc::new(Words::default());
        let first = granted(&gate, Instant::now());
        let waits = tokio::spawn({
            let gate = Arc::clone(&gate);
            async move { gate.admit(1).await }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(matches!(waits.await, Ok(Admission::Granted(_))));
    }
}

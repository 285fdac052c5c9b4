//! When a guest that was started is worth asking.
//!
//! Each question to an agent that is not up holds one of a node's few workers for three seconds, so
//! a hundred guests that boot are not asked a hundred times over. A few of each template are asked
//! again and again; from how long the quickest took the others are asked when they may be up: one
//! that is asked too early costs a few more questions, one that is asked too late is kept waiting.
//! Pure bookkeeping, which decides no more than when somebody looks.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::ObjectKey;
use crate::ids::{NodeName, VmId};

/// Guests of one template that are asked while it is not known how long it takes.
const SCOUTS: usize = 2;

/// Until the first question: nothing boots faster.
const FIRST: Duration = Duration::from_secs(2);

/// Longest time between two questions, and longest wait for the scouts.
const LONGEST: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_mins(1);

/// Pauses between two looks for an answer.
const ANSWER_SOONEST: Duration = Duration::from_millis(250);
const ANSWER_LATEST: Duration = Duration::from_secs(5);

/// A template, by node and VMID.
pub type Kind = (NodeName, VmId);

#[derive(Debug, Clone)]
struct Guest {
    kind: Kind,
    started: Instant,
    /// How often it was asked.
    questions: u32,
    asked: Option<Instant>,
}

/// Guests that boot, and how long the quickest guest of each template took.
#[derive(Debug, Default)]
pub struct Boots {
    guests: BTreeMap<ObjectKey, Guest>,
    learnt: BTreeMap<Kind, Duration>,
}

/// With so many that wait to learn how long it takes, the scouts are asked twice as often.
const MANY: usize = 8;

/// Pause after a question without the wanted answer: the answer is learnt at most a tenth late.
fn pause(age: Duration) -> Duration {
    (age / 10).clamp(Duration::from_millis(700), LONGEST)
}

impl Boots {
    /// A guest was started.
    pub fn started(&mut self, key: &ObjectKey, kind: Kind, at: Instant) {
        let guest = Guest { kind, started: at, questions: 0, asked: None };
        let known = self.guests.entry(key.clone()).or_insert_with(|| guest.clone());
        if known.started != at {
            *known = guest;
        }
    }

    /// How long to wait until a guest is worth asking; none when it is now.
    pub fn wait(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        let guest = self.guests.get(key)?;
        let age = now.duration_since(guest.started);
        let at = match (guest.asked, self.learnt.get(&guest.kind)) {
            (Some(asked), usual) => {
                let pause = pause(asked.duration_since(guest.started));
                let scouts_for_many = usual.is_none() && self.unasked(&guest.kind) >= MANY;
                asked + if scouts_for_many { pause / 2 } else { pause }
            }
            (None, Some(usual)) => guest.started + *usual,
            (None, None) if age >= PATIENCE || self.is_scout(key, guest) => guest.started + FIRST,
            (None, None) => guest.started + PATIENCE,
        };
        at.checked_duration_since(now).filter(|left| !left.is_zero())
    }

    /// How many guests of a template wait for what its scouts learn.
    fn unasked(&self, kind: &Kind) -> usize {
        self.guests.values().filter(|one| one.kind == *kind && one.asked.is_none()).count()
    }

    /// How long to wait for the answer to the last question: little at first, as most take less than
    /// a second, and then as long as it has taken so far.
    pub fn answer_wait(&self, key: &ObjectKey, now: Instant) -> Duration {
        let asked = self.guests.get(key).and_then(|guest| guest.asked);
        let age = asked.map_or(ANSWER_LATEST, |asked| now.duration_since(asked));
        age.clamp(ANSWER_SOONEST, ANSWER_LATEST)
    }

    fn is_scout(&self, key: &ObjectKey, guest: &Guest) -> bool {
        let mut same: Vec<(Instant, &ObjectKey)> = self
            .guests
            .iter()
            .filter(|(_, other)| other.kind == guest.kind)
            .map(|(key, other)| (other.started, key))
            .collect();
        same.sort_unstable();
        same.iter().take(SCOUTS).any(|(_, scout)| *scout == key)
    }

    /// A guest is asked now.
    pub fn asked(&mut self, key: &ObjectKey, now: Instant) {
        if let Some(guest) = self.guests.get_mut(key) {
            guest.questions += 1;
            guest.asked = Some(now);
        }
    }

    /// Since when a guest boots.
    pub fn age(&self, key: &ObjectKey, now: Instant) -> Option<Duration> {
        self.guests.get(key).map(|guest| now.duration_since(guest.started))
    }

    /// A guest is up. Gives those that wait to learn how long that takes.
    pub fn up(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let Some(guest) = self.guests.remove(key) else { return Vec::new() };
        let Some(asked) = guest.asked else { return Vec::new() };
        let took = asked.duration_since(guest.started);
        // Up at the first question, it may have been up before: the next is asked earlier.
        let usual = if guest.questions <= 1 { took.mul_f32(0.97) } else { took };
        // One that was slow says nothing of the others, and nobody waits longer than for the scouts.
        let usual = usual.min(PATIENCE);
        let is_news = !self.learnt.contains_key(&guest.kind);
        let known = self.learnt.entry(guest.kind.clone()).or_insert(usual);
        *known = usual.min(*known);
        let waits = |other: &Guest| is_news && other.kind == guest.kind && other.asked.is_none();
        let waiting = self.guests.iter().filter(|(_, other)| waits(other));
        waiting.map(|(key, _)| key.clone()).collect()
    }

    /// A guest is of no interest any more.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.guests.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn kind() -> Kind {
        ("pve1".parse().unwrap(), "900".parse().unwrap())
    }

    #[test]
    fn a_few_are_asked_again_and_again_and_the_others_when_they_should_be_up() {
        let start = Instant::now();
        let mut boots = Boots::default();
        for name in ["a", "b", "c"] {
            boots.started(&key(name), kind(), start);
        }
        let later = start + FIRST;
        assert_eq!(boots.wait(&key("a"), later), None);
        assert_eq!(boots.wait(&key("b"), later), None);
        assert!(boots.wait(&key("c"), later).is_some());
        let up = start + Duration::from_secs(10);
        boots.asked(&key("a"), later);
        boots.asked(&key("a"), up);
        assert_eq!(boots.up(&key("a")), [key("b"), key("c")]);
        assert_eq!(boots.wait(&key("c"), up), None);
        assert_eq!(boots.wait(&key("c"), later), Some(Duration::from_secs(8)));
    }

    /// Lets a guest come up that is asked once, or once more at the end. Gives for how long the next
    /// one is left alone.
    fn learn(boots: &mut Boots, took: Duration, questions: usize) -> Option<Duration> {
        let start = Instant::now();
        boots.started(&key("a"), kind(), start);
        for _ in 0..questions {
            boots.asked(&key("a"), start + took);
        }
        boots.up(&key("a"));
        boots.started(&key("next"), kind(), start);
        let wait = boots.wait(&key("next"), start);
        boots.forget(&key("next"));
        wait
    }

    #[test]
    fn one_slow_boot_delays_no_later_guest() {
        let seconds = Duration::from_secs;
        for (boots, expected) in [
            // Only slow ones: nobody waits longer than for the scouts.
            (&[(600, 2)][..], PATIENCE),
            (&[(600, 2), (30, 2)], seconds(30)),
            (&[(30, 2), (600, 2)], seconds(30)),
            (&[(30, 2), (600, 1), (40, 2)], seconds(30)),
            // Up at the first question, they may have been up before.
            (&[(100, 2), (50, 1)], seconds(50).mul_f32(0.97)),
        ] {
            let mut known = Boots::default();
            let mut wait = None;
            for (took, questions) in boots {
                wait = learn(&mut known, seconds(*took), *questions);
            }
            assert_eq!(wait, Some(expected), "{boots:?}");
        }
    }

    #[test]
    fn a_guest_that_never_comes_up_is_asked_less_and_less_and_holds_nobody_up() {
        let start = Instant::now();
        let mut boots = Boots::default();
        for name in ["a", "b", "c"] {
            boots.started(&key(name), kind(), start);
        }
        let late = start + PATIENCE;
        assert_eq!(boots.wait(&key("c"), late), None);
        boots.asked(&key("a"), late);
        assert_eq!(boots.wait(&key("a"), late), Some(Duration::from_secs(6)));
        let very_late = start + Duration::from_hours(1);
        boots.asked(&key("a"), very_late);
        assert_eq!(boots.wait(&key("a"), very_late), Some(LONGEST));
    }

    #[test]
    fn scouts_of_many_are_asked_twice_as_often() {
        let start = Instant::now();
        let asked = start + Duration::from_secs(10);
        let wait = |others: usize| {
            let mut boots = Boots::default();
            boots.started(&key("a"), kind(), start);
            for other in 0..others {
                boots.started(&key(&format!("b{other}")), kind(), start);
            }
            boots.asked(&key("a"), asked);
            boots.wait(&key("a"), asked)
        };
        assert_eq!(wait(MANY - 1), Some(Duration::from_secs(1)));
        assert_eq!(wait(MANY), Some(Duration::from_millis(500)));
    }

    #[test]
    fn an_answer_is_waited_for_by_the_age_of_its_own_question_however_many_there_were() {
        let start = Instant::now();
        let mut boots = Boots::default();
        boots.started(&key("a"), kind(), start);
        for second in 1..=100 {
            let asked = start + Duration::from_secs(second);
            boots.asked(&key("a"), asked);
            assert_eq!(boots.answer_wait(&key("a"), asked), ANSWER_SOONEST);
        }
        let asked = start + Duration::from_secs(100);
        let wait = |seconds| boots.answer_wait(&key("a"), asked + Duration::from_secs(seconds));
        assert_eq!(wait(2), Duration::from_secs(2));
        assert_eq!(wait(60), ANSWER_LATEST);
        assert_eq!(boots.answer_wait(&key("unknown"), start), ANSWER_LATEST);
    }
}

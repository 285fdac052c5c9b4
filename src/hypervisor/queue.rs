//! Whose turn it is to be cloned. A clone reads and writes whole disks, so that many at once stall
//! the storage for every guest on it, and Proxmox fails those that wait for its lock for ten
//! seconds. Pure bookkeeping; who has to wait learns behind how many.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::ObjectKey;
use crate::ids::NodeName;

/// Who has not asked again for this long does not want a turn any more. Longer than the longest
/// pause between two questions and what chance adds to it.
const STALE: Duration = Duration::from_mins(3);

/// Pause between two questions of one who is about to be let in, and longest pause at all.
const NEAR: Duration = Duration::from_secs(30);
const FAR: Duration = Duration::from_mins(2);

/// Clones at once; 0 is without limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloneLimits {
    /// At one endpoint; default 32.
    pub endpoint: usize,
    /// Of templates of one node, which does the work; default 16.
    pub node: usize,
    /// To one storage; default 16.
    pub storage: usize,
}

impl Default for CloneLimits {
    fn default() -> Self {
        Self { endpoint: 32, node: 16, storage: 16 }
    }
}

/// What a clone takes up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Node of the template.
    pub node: NodeName,
    /// Storage that is written to, when known.
    pub storage: Option<String>,
}

/// Where in the queue somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub number: usize,
    /// How many wait for the same.
    pub of: usize,
    /// What is waited for: the endpoint, a node or a storage.
    pub at: String,
    /// How many are let in there.
    pub limit: usize,
}

impl Position {
    /// When to ask again. Whose turn it is is woken; who is far from it would only tell of each
    /// number on the way.
    pub fn pause(&self) -> Duration {
        let rounds = self.number.saturating_sub(1) / self.limit.max(1);
        NEAR.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX).saturating_add(1)).min(FAR)
    }
}

#[derive(Debug)]
struct Waiting {
    key: ObjectKey,
    place: Place,
    asked: Instant,
}

/// Clones under way, and those that wait, first come first.
#[derive(Debug, Default)]
pub(super) struct Queue {
    limits: CloneLimits,
    running: BTreeMap<ObjectKey, Place>,
    waiting: Vec<Waiting>,
}

impl Queue {
    pub(super) fn new(limits: CloneLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Asks for a turn, or where in the queue the place is.
    pub(super) fn ask(
        &mut self,
        key: &ObjectKey,
        place: &Place,
        now: Instant,
    ) -> Result<(), Position> {
        if self.running.contains_key(key) {
            return Ok(());
        }
        self.drop_stale(now);
        if let Some(known) = self.waiting.iter_mut().find(|one| one.key == *key) {
            known.place = place.clone();
            known.asked = now;
        } else {
            let (key, place) = (key.clone(), place.clone());
            self.waiting.push(Waiting { key, place, asked: now });
        }
        let at = self.waiting.iter().position(|one| one.key == *key).unwrap_or_default();
        if let Some(position) = self.held_up(at) {
            return Err(position);
        }
        let one = self.waiting.remove(at);
        self.running.insert(one.key, one.place);
        Ok(())
    }

    /// Where somebody is who goes on waiting; none for who does not wait, or need not any longer.
    pub(super) fn wait_on(&mut self, key: &ObjectKey, now: Instant) -> Option<Position> {
        self.drop_stale(now);
        let at = self.waiting.iter().position(|one| one.key == *key)?;
        let position = self.held_up(at)?;
        self.waiting.get_mut(at)?.asked = now;
        Some(position)
    }

    /// A clone is under way that was asked for before this process was there.
    pub(super) fn adopt(&mut self, key: &ObjectKey, place: Place) {
        self.waiting.retain(|one| one.key != *key);
        self.running.insert(key.clone(), place);
    }

    /// A clone is over or not wanted any more. Gives those whose turn it is.
    pub(super) fn leave(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let had = self.running.remove(key).is_some();
        self.without(key, had)
    }

    /// Somebody waits for something else now, and holds up nobody; a clone that is under way goes on.
    /// Gives those whose turn it is.
    pub(super) fn step_out(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.without(key, false)
    }

    fn drop_stale(&mut self, now: Instant) {
        self.waiting.retain(|one| now.duration_since(one.asked) < STALE);
    }

    fn without(&mut self, key: &ObjectKey, freed: bool) -> Vec<ObjectKey> {
        let before = self.waiting.len();
        self.waiting.retain(|one| one.key != *key);
        if !freed && before == self.waiting.len() {
            return Vec::new();
        }
        (0..self.waiting.len())
            .filter(|at| self.held_up(*at).is_none())
            .map(|at| self.waiting[at].key.clone())
            .collect()
    }

    /// What keeps the one at this place from its turn. Those before it go first at whatever they
    /// share with it.
    fn held_up(&self, at: usize) -> Option<Position> {
        let one = &self.waiting.get(at)?.place;
        let CloneLimits { endpoint, node, storage } = self.limits;
        let same_node = |other: &Place| other.node == one.node;
        let same_storage = |other: &Place| one.storage.is_some() && other.storage == one.storage;
        self.behind(at, node, one.node.to_string(), same_node)
            .or_else(|| {
                let name = one.storage.as_deref().unwrap_or_default();
                self.behind(at, storage, format!("storage {name}"), same_storage)
            })
            .or_else(|| self.behind(at, endpoint, "this endpoint".to_owned(), |_| true))
    }

    fn behind(
        &self,
        at: usize,
        limit: usize,
        name: String,
        shares: impl Fn(&Place) -> bool,
    ) -> Option<Position> {
        let running = self.running.values().filter(|place| shares(place)).count();
        let sharing = |range: &[Waiting]| range.iter().filter(|one| shares(&one.place)).count();
        let before = sharing(self.waiting.get(..at)?);
        let is_held = limit > 0 && running + before >= limit;
        is_held.then(|| {
            let of = sharing(&self.waiting);
            Position { number: before + 1, of, at: name, limit }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: "default".to_owned(), name: name.to_owned() }
    }

    fn place(node: &str, storage: &str) -> Place {
        Place { node: node.parse().unwrap(), storage: Some(storage.to_owned()) }
    }

    #[test]
    fn who_comes_first_is_cloned_first_and_the_next_is_woken() {
        let now = Instant::now();
        let mut queue = Queue::new(CloneLimits { endpoint: 0, node: 1, storage: 0 });
        let pve = place("pve1", "ceph");
        assert_eq!(queue.ask(&key("a"), &pve, now), Ok(()));
        assert_eq!(queue.ask(&key("a"), &pve, now), Ok(()), "once is enough");
        let second = queue.ask(&key("b"), &pve, now).unwrap_err();
        let third = queue.ask(&key("c"), &pve, now).unwrap_err();
        assert_eq!((second.number, third.number, third.of), (1, 2, 2));
        assert_eq!(third.at, "pve1");
        assert_eq!(queue.leave(&key("a")), [key("b")]);
        assert!(queue.ask(&key("c"), &pve, now).is_err(), "b goes first");
        assert_eq!(queue.ask(&key("b"), &pve, now), Ok(()));
    }

    #[test]
    fn a_full_storage_holds_up_no_other_and_the_endpoint_holds_up_all() {
        let now = Instant::now();
        let mut queue = Queue::new(CloneLimits { endpoint: 2, node: 0, storage: 1 });
        assert_eq!(queue.ask(&key("a"), &place("pve1", "one"), now), Ok(()));
        let held = queue.ask(&key("b"), &place("pve1", "one"), now).unwrap_err();
        assert_eq!((held.at.as_str(), held.limit), ("storage one", 1));
        let other = queue.ask(&key("c"), &place("pve2", "two"), now);
        assert_eq!(other.unwrap_err().at, "this endpoint", "b has its turn before");
        assert_eq!(queue.leave(&key("b")), [key("c")]);
    }

    #[test]
    fn a_clone_that_was_found_under_way_takes_up_its_place() {
        let now = Instant::now();
        let mut queue = Queue::new(CloneLimits { endpoint: 0, node: 1, storage: 0 });
        let place = || Place { node: "pve1".parse().unwrap(), storage: None };
        queue.adopt(&key("a"), place());
        assert!(queue.ask(&key("b"), &place(), now).is_err());
        assert_eq!(queue.ask(&key("a"), &place(), now), Ok(()), "it has its turn");
        assert_eq!(queue.leave(&key("a")), [key("b")]);
        assert_eq!(queue.ask(&key("b"), &place(), now), Ok(()));
    }

    #[test]
    fn who_waits_learns_that_it_still_waits_and_keeps_its_place() {
        let now = Instant::now();
        let mut queue = Queue::new(CloneLimits { endpoint: 1, node: 0, storage: 0 });
        let pve = place("pve1", "one");
        assert_eq!(queue.wait_on(&key("b"), now), None, "nobody knows it");
        assert_eq!(queue.ask(&key("a"), &pve, now), Ok(()));
        let asked = queue.ask(&key("b"), &pve, now).unwrap_err();
        let soon = now + STALE / 2;
        assert_eq!(queue.wait_on(&key("b"), soon), Some(asked));
        assert!(queue.wait_on(&key("b"), now + STALE).is_some(), "it asked meanwhile");
        assert_eq!(queue.wait_on(&key("a"), soon), None, "it has its turn");
        queue.leave(&key("a"));
        assert_eq!(queue.wait_on(&key("b"), soon), None, "it is its turn");
        assert_eq!(queue.ask(&key("b"), &pve, soon), Ok(()));
    }

    #[test]
    fn who_waits_for_something_else_holds_up_nobody() {
        let now = Instant::now();
        let mut queue = Queue::new(CloneLimits { endpoint: 1, node: 0, storage: 0 });
        let pve = place("pve1", "one");
        assert_eq!(queue.ask(&key("a"), &pve, now), Ok(()));
        assert!(queue.ask(&key("b"), &pve, now).is_err());
        assert!(queue.ask(&key("c"), &pve, now).is_err());
        assert_eq!(queue.step_out(&key("a")), [], "its clone goes on");
        assert!(queue.ask(&key("b"), &pve, now).is_err());
        assert_eq!(queue.leave(&key("a")), [key("b")]);
        assert_eq!(queue.step_out(&key("b")), [key("c")], "b was paused");
        assert_eq!(queue.ask(&key("c"), &pve, now), Ok(()));
    }

    #[test]
    fn who_is_far_back_asks_less_often_and_often_enough() {
        for (number, limit, seconds) in
            [(1, 16, 30), (16, 16, 30), (17, 16, 60), (49, 16, 120), (900, 16, 120), (3, 1, 90)]
        {
            let position = Position { number, of: 1000, at: "pve1".to_owned(), limit };
            assert_eq!(position.pause(), Duration::from_secs(seconds), "{number} of {limit}");
        }
        assert!(FAR.mul_f32(1.2) < STALE, "chance adds up to a fifth");
    }

    #[test]
    fn who_does_not_ask_again_loses_the_place() {
        let now = Instant::now();
        let mut queue = Queue::new(CloneLimits { endpoint: 1, node: 0, storage: 0 });
        assert_eq!(queue.ask(&key("a"), &place("pve1", "one"), now), Ok(()));
        assert!(queue.ask(&key("b"), &place("pve1", "one"), now).is_err());
        let later = queue.ask(&key("c"), &place("pve1", "one"), now + STALE).unwrap_err();
        assert_eq!((later.number, later.of), (1, 1));
    }
}

//! Whose turn it is to be cloned. A clone reads and writes whole disks, so that many at once stall
//! the storage for every guest on it, and Proxmox fails those that wait for its lock for ten
//! seconds. Pure bookkeeping; who has to wait learns behind how many.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::ObjectKey;
use crate::ids::NodeName;

/// Who has not asked again for this long does not want a turn any more.
const STALE: Duration = Duration::from_mins(3);

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
        self.waiting.retain(|one| now.duration_since(one.asked) < STALE);
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

    /// A clone is over or not wanted any more. Gives those whose turn it is.
    pub(super) fn leave(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        let had = self.running.remove(key).is_some();
        let before = self.waiting.len();
        self.waiting.retain(|one| one.key != *key);
        if !had && before == self.waiting.len() {
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
    fn who_does_not_ask_again_loses_the_place() {
        let now = Instant::now();
        let mut queue = Queue::new(CloneLimits { endpoint: 1, node: 0, storage: 0 });
        assert_eq!(queue.ask(&key("a"), &place("pve1", "one"), now), Ok(()));
        assert!(queue.ask(&key("b"), &place("pve1", "one"), now).is_err());
        let later = queue.ask(&key("c"), &place("pve1", "one"), now + STALE).unwrap_err();
        assert_eq!((later.number, later.of), (1, 1));
    }
}

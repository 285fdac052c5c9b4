//! Which VMIDs and how much memory machines have been promised but Proxmox does not list yet.
//!
//! `cluster/nextid` reserves nothing and `cluster/resources` lags behind a clone, so two machines
//! created at once would pick the same VMID or fill the same node twice. Every choice is therefore
//! entered here first. The ledger is compare-and-swap: a choice made from an older version is
//! refused and made again. It lives as long as the process; after a restart the VMIDs recorded in
//! the ProxmoxMachines take its place. Nothing here waits or talks to anyone.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::ids::{NodeName, VmId};

/// How long a VMID is avoided that somebody whom we cannot see has: they may leave it.
const AVOIDED: Duration = Duration::from_mins(10);

/// What one machine has been promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// UID of the ProxmoxMachine.
    pub owner: String,
    /// Node on which the VM is going to be, when known.
    pub node: Option<NodeName>,
    /// Memory of the VM in bytes; 0 where the template decides.
    pub memory: u64,
    /// Cluster and role it is counted under when machines are spread.
    pub group: String,
}

/// Promises by VMID, and the VMIDs that turned out to be taken by somebody we cannot see.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    version: u64,
    promises: BTreeMap<VmId, Promise>,
    taken: BTreeMap<VmId, Instant>,
}

/// Why a promise was not entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Another choice was made since the version that this one was based on.
    Outdated,
    /// The VMID is promised to another machine.
    Promised,
}

impl Ledger {
    /// Version to base a choice on.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The promises.
    pub fn promises(&self) -> &BTreeMap<VmId, Promise> {
        &self.promises
    }

    /// VMIDs that no machine may choose.
    pub fn taken(&self, now: Instant) -> BTreeSet<VmId> {
        let seen = self.taken.iter().filter(|(_, at)| now.duration_since(**at) < AVOIDED);
        self.promises.keys().chain(seen.map(|(vmid, _)| vmid)).copied().collect()
    }

    /// Enters a choice that was made from `version`.
    pub fn promise(&mut self, version: u64, vmid: VmId, promise: Promise) -> Result<(), Refused> {
        if version != self.version {
            return Err(Refused::Outdated);
        }
        self.restore(vmid, promise)
    }

    /// Enters what a ProxmoxMachine already records, as after a restart. It has one VMID: what it was
    /// promised under another one ends.
    pub fn restore(&mut self, vmid: VmId, promise: Promise) -> Result<(), Refused> {
        match self.promises.get(&vmid) {
            Some(held) if held.owner != promise.owner => Err(Refused::Promised),
            Some(held) if *held == promise => Ok(()),
            _ => {
                self.promises.retain(|_, held| held.owner != promise.owner);
                self.promises.insert(vmid, promise);
                self.version += 1;
                Ok(())
            }
        }
    }

    /// Enters what the copy of a ProxmoxMachine records of which nothing is known, as after a restart.
    /// A choice that was made or is being written is newer than the copy, so that it stays; only the
    /// memory is added of one that was entered before any reading told it.
    pub fn recall(&mut self, vmid: VmId, promise: Promise) {
        let has_another = self.promises.values().any(|held| held.owner == promise.owner);
        match self.promises.entry(vmid) {
            Entry::Vacant(vacant) if !has_another => {
                vacant.insert(promise);
                self.version += 1;
            }
            Entry::Occupied(mut held)
                if held.get().owner == promise.owner
                    && held.get().memory == 0
                    && promise.memory > 0 =>
            {
                held.get_mut().memory = promise.memory;
                self.version += 1;
            }
            _ => {}
        }
    }

    /// Ends the promise of `vmid` to `owner`: the VM is listed now, or was given up.
    pub fn release(&mut self, vmid: VmId, owner: &str) {
        if self.promises.get(&vmid).is_some_and(|held| held.owner == owner) {
            self.promises.remove(&vmid);
            self.version += 1;
        }
    }

    /// Ends all promises to `owner`, which is gone.
    pub fn forget(&mut self, owner: &str) {
        let before = self.promises.len();
        self.promises.retain(|_, held| held.owner != owner);
        if self.promises.len() != before {
            self.version += 1;
        }
    }

    /// Remembers that somebody else has `vmid`, so that it is not chosen again for some time.
    pub fn mark_taken(&mut self, vmid: VmId, now: Instant) {
        self.taken.insert(vmid, now);
        self.version += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn promise(owner: &str) -> Promise {
        Promise { owner: owner.to_owned(), node: None, memory: 0, group: "c/workers".to_owned() }
    }

    #[test]
    fn a_copy_that_is_behind_does_not_undo_a_choice() {
        let mut ledger = Ledger::default();
        let at = |node: &str| Promise { node: node.parse().ok(), ..promise("a") };
        ledger.recall(VmId::MIN, at("pve3"));
        assert_eq!(ledger.promise(ledger.version(), VmId::MIN, at("pve1")), Ok(()));
        let version = ledger.version();
        ledger.recall(VmId::MIN, at("pve3"));
        assert_eq!(ledger.promises().get(&VmId::MIN), Some(&at("pve1")));
        assert_eq!(ledger.version(), version);
    }

    #[test]
    fn the_memory_that_a_reading_tells_later_is_added() {
        let mut ledger = Ledger::default();
        let of = |memory| Promise { memory, ..promise("a") };
        ledger.restore(VmId::MIN, of(0)).unwrap();
        ledger.recall(VmId::MIN, of(4));
        assert_eq!(ledger.promises()[&VmId::MIN].memory, 4);
        let version = ledger.version();
        for other in [of(0), of(8), Promise { memory: 8, ..promise("b") }] {
            ledger.recall(VmId::MIN, other);
        }
        assert_eq!((ledger.promises()[&VmId::MIN].memory, ledger.version()), (4, version));
    }

    #[test]
    fn a_copy_that_is_behind_does_not_bring_back_a_number_that_was_given_up() {
        let mut ledger = Ledger::default();
        let [first, second] = [105, 106].map(|number| VmId::try_from(number).unwrap());
        let held = |ledger: &Ledger| ledger.promises().keys().copied().collect::<Vec<_>>();
        ledger.promise(ledger.version(), first, promise("a")).unwrap();
        ledger.release(first, "a");
        ledger.recall(first, promise("a"));
        ledger.promise(ledger.version(), second, promise("a")).unwrap();
        assert_eq!(held(&ledger), [second], "it comes between giving up and the next choice");
        ledger.recall(first, promise("a"));
        assert_eq!(held(&ledger), [second], "it comes after the next choice");
    }

    #[test]
    fn a_choice_made_from_an_older_version_is_refused() {
        let mut ledger = Ledger::default();
        let seen = ledger.version();
        assert_eq!(ledger.promise(seen, VmId::MIN, promise("a")), Ok(()));
        let other = VmId::MIN.next().unwrap();
        assert_eq!(ledger.promise(seen, other, promise("b")), Err(Refused::Outdated));
        assert_eq!(ledger.promise(ledger.version(), other, promise("b")), Ok(()));
    }

    #[test]
    fn a_vmid_is_promised_to_one_machine_only() {
        let mut ledger = Ledger::default();
        ledger.restore(VmId::MIN, promise("a")).unwrap();
        assert_eq!(ledger.restore(VmId::MIN, promise("b")), Err(Refused::Promised));
        ledger.release(VmId::MIN, "b");
        assert!(
            ledger.taken(Instant::now()).contains(&VmId::MIN),
            "only the owner gives a promise back"
        );
        ledger.release(VmId::MIN, "a");
        assert!(ledger.taken(Instant::now()).is_empty());
    }

    #[test]
    fn promises_end_with_whom_they_were_made_to() {
        let mut ledger = Ledger::default();
        let other = VmId::MIN.next().unwrap();
        ledger.restore(VmId::MIN, promise("a")).unwrap();
        ledger.restore(other, promise("b")).unwrap();
        let seen = ledger.version();
        ledger.forget("a");
        assert_eq!(ledger.taken(Instant::now()), [other].into());
        assert_ne!(ledger.version(), seen, "what was chosen before is chosen anew");
        let seen = ledger.version();
        ledger.forget("a");
        assert_eq!(ledger.version(), seen);
    }

    #[test]
    fn a_vmid_found_taken_is_never_chosen_again() {
        let mut ledger = Ledger::default();
        ledger.restore(VmId::MIN, promise("a")).unwrap();
        ledger.mark_taken(VmId::MIN, Instant::now());
        ledger.release(VmId::MIN, "a");
        assert!(ledger.taken(Instant::now()).contains(&VmId::MIN));
        assert!(!ledger.taken(Instant::now() + AVOIDED).contains(&VmId::MIN), "not for ever");
    }
}

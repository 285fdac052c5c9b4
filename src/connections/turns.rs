//! One reading of a source at a time: of many passes that find it old at once, one asks the API
//! server, and the others take what it got.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::Settled;
use super::source::Source;
use crate::fault::Class;

/// What came of the latest reading, for those who wait.
pub(super) type Turn = tokio::sync::Mutex<Option<Latest>>;

/// A reading that is over.
pub(super) struct Latest {
    /// When it began: it is as good as one's own for who asked before.
    pub(super) began: Instant,
    /// On whose behalf, which some faults name.
    pub(super) asker: String,
    pub(super) settled: Settled,
}

impl Latest {
    /// What it gave, when another reading would give the same.
    pub(super) fn serves(&self, since: Instant, asker: &str) -> Option<Settled> {
        let names_others = |class| class != Class::Transient && self.asker != asker;
        let is_others = self.settled.1.as_ref().is_err_and(|fault| names_others(fault.class));
        (self.began >= since && !is_others).then(|| self.settled.clone())
    }
}

/// The sources that are being read.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<Source, Arc<Turn>>>);

impl Turns {
    /// That of a source, to be locked while it is read.
    pub(super) fn of(&self, source: &Source) -> Arc<Turn> {
        // Plain bookkeeping, which a panic elsewhere leaves good.
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits any more for what nobody else holds.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(source.clone()).or_default())
    }
}

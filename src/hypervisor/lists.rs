//! When the list of tasks is read: one reading at a time, and not too often. Pure bookkeeping.

use std::time::Duration;

use tokio::time::Instant;

/// Pause between two readings, however many tasks are in flight; and where one waits for a task that
/// takes next to no time, of which a machine has three in a row.
const PAUSE: Duration = Duration::from_millis(150);
const SHORT_PAUSE: Duration = Duration::from_millis(50);

/// After this time without an answer another reading is begun: one answer that is lost need not hold
/// everybody up, and an endpoint that hangs is asked no more than a few times.
const SILENCE: Duration = Duration::from_secs(15);

/// When tasks are to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// The first one of all.
    pub at: Instant,
    /// The first one of those that take next to no time.
    pub quick_at: Option<Instant>,
}

/// The readings under way.
#[derive(Debug, Default)]
pub(super) struct Lists {
    under_way: usize,
    began: Option<Instant>,
}

impl Lists {
    /// When the next one may begin for tasks that are `due`.
    pub(super) fn next(&self, due: Due) -> Instant {
        let after = |pause| self.began.map(|began| began + pause);
        let when = |at: Instant, pause| after(pause).map_or(at, |next| at.max(next));
        if self.under_way > 0 {
            return when(due.at, SILENCE);
        }
        let soon = due.quick_at.map(|at| when(at, SHORT_PAUSE));
        let at = when(due.at, PAUSE);
        soon.map_or(at, |soon| soon.min(at))
    }

    /// One begins.
    pub(super) fn begins(&mut self, now: Instant) {
        self.under_way += 1;
        self.began = Some(now);
    }

    /// One has come to its end, whatever came of it.
    pub(super) fn ends(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_not_answered_is_not_asked_for_again_and_again() {
        let (start, mut lists) = (Instant::now(), Lists::default());
        let any = Due { at: start, quick_at: None };
        assert!(lists.next(any) <= start);
        lists.begins(start);
        assert!(lists.next(any) > start + PAUSE * 20, "one is under way");
        lists.ends();
        assert!(lists.next(any) > start + PAUSE / 2, "too soon");
        assert!(lists.next(any) <= start + PAUSE);
        let quick = Due { quick_at: Some(start + SHORT_PAUSE / 2), ..any };
        assert_eq!(lists.next(quick), start + SHORT_PAUSE);
        let later = Due { quick_at: Some(start + PAUSE * 2), ..any };
        assert_eq!(lists.next(later), start + PAUSE);
        // At one that hangs for a minute, a few are under way at most.
        let mut begun = 0;
        for second in 1..=60 {
            let now = start + Duration::from_secs(second);
            if lists.next(any) <= now {
                lists.begins(now);
                begun += 1;
            }
        }
        assert_eq!(begun, 4);
        lists.ends();
        assert!(lists.next(quick) > start + Duration::from_mins(1), "others are under way");
    }
}

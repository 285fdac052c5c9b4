//! When the list of tasks is read: one reading at a time, and not too often. Pure bookkeeping.

use std::time::Duration;

use tokio::time::Instant;

/// Pause between two readings, however many tasks are in flight.
const PAUSE: Duration = Duration::from_millis(150);

/// After this time without an answer another reading is begun: one answer that is lost need not hold
/// everybody up, and an endpoint that hangs is asked no more than a few times.
const SILENCE: Duration = Duration::from_secs(15);

/// The readings under way.
#[derive(Debug, Default)]
pub(super) struct Lists {
    under_way: usize,
    began: Option<Instant>,
}

impl Lists {
    /// From when on another one may begin; none when at any time.
    pub(super) fn next(&self) -> Option<Instant> {
        let pause = if self.under_way == 0 { PAUSE } else { SILENCE };
        self.began.map(|began| began + pause)
    }

    /// Whether one may begin now.
    pub(super) fn may_begin(&self, now: Instant) -> bool {
        self.next().is_none_or(|next| next <= now)
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
        assert!(lists.may_begin(start));
        lists.begins(start);
        assert!(!lists.may_begin(start + PAUSE * 20), "one is under way");
        lists.ends();
        assert!(!lists.may_begin(start + PAUSE / 2), "too soon");
        assert!(lists.may_begin(start + PAUSE));
        // At one that hangs for a minute, a few are under way at most.
        let mut begun = 0;
        for second in 1..=60 {
            let now = start + Duration::from_secs(second);
            if lists.may_begin(now) {
                lists.begins(now);
                begun += 1;
            }
        }
        assert_eq!(begun, 4);
        lists.ends();
        assert!(!lists.may_begin(start + Duration::from_mins(1)), "others are under way");
    }
}

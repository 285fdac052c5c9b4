//! Who has to wait for others at an endpoint.

use tokio::time::Instant;

use super::super::CROWDED;
use super::super::decision::{Decision, Waiting, Wake};
use super::super::pass::{Interrupted, Pass, Setback};
use super::super::report::Conclusion;
use crate::connections::{self, Source};
use crate::fault::{Class, Fault};
use crate::hypervisor::Endpoint;
use crate::pve;

/// How long a machine may be turned away before its condition says so.
const UNTOLD: std::time::Duration = std::time::Duration::from_secs(30);

/// Since when a machine is turned away at a crowded endpoint.
#[derive(Debug, Default, Clone, Copy)]
pub(in super::super) struct Crowd {
    since: Option<Instant>,
}

impl Crowd {
    /// It is turned away once more. Whether it is time to say so.
    fn turns_away(&mut self, now: Instant) -> bool {
        now.duration_since(*self.since.get_or_insert(now)) >= UNTOLD
    }

    /// It is let in, or told something else.
    fn ends(&mut self) {
        self.since = None;
    }
}

impl Pass<'_> {
    /// What comes of a pass that had no leave to ask its endpoint: it comes again soon, and when
    /// that goes on for long, it is told.
    pub(in super::super) fn turned_away(&mut self) -> Result<Conclusion, Interrupted> {
        let now = Instant::now();
        let is_long =
            self.shared.memory.with(&self.key, |remembered| remembered.crowd.turns_away(now));
        if !is_long {
            return Err(Interrupted::Crowded);
        }
        let source = self.facts.infra.as_ref().map_or(Source::Manager, Source::of);
        let fault = Fault::new(
            Class::Transient,
            format!(
                "as many machines as may ask Proxmox with {source} at once wait for its answers, \
                 and none comes: check that it and the nodes of its cluster run and can be reached"
            ),
        );
        let wake = Wake::After(CROWDED);
        Ok(Conclusion::Decided(Decision::Wait(Waiting::Connection(fault), wake)))
    }

    /// The endpoint was entered, or it is known why not.
    pub(super) fn not_turned_away(&self) {
        self.shared.memory.with(&self.key, |remembered| remembered.crowd.ends());
    }

    /// A call that was not sent: nothing was tried, so nothing failed but the connection.
    pub(in super::super) fn unsent(&self, endpoint: &Endpoint, error: &pve::Error) -> Setback {
        let fault = match &self.facts.infra {
            Some(infra) => connections::unreachable(infra, endpoint, error),
            None => Fault::new(error.class(), error.to_string()),
        };
        Setback::Wait(Waiting::Connection(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_is_turned_away_for_long_says_so() {
        let (start, mut crowd) = (Instant::now(), Crowd::default());
        assert!(!crowd.turns_away(start));
        assert!(!crowd.turns_away(start + UNTOLD / 2));
        assert!(crowd.turns_away(start + UNTOLD));
        assert!(crowd.turns_away(start + UNTOLD * 2), "until it is let in");
        crowd.ends();
        assert!(!crowd.turns_away(start + UNTOLD * 3));
    }
}

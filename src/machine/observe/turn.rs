//! Who has to wait for others at an endpoint: for leave to ask it, for a turn to clone.

use tokio::time::Instant;

use super::super::CROWDED;
use super::super::decision::{Decision, Look, Waiting, Wake};
use super::super::pass::{Interrupted, Pass, Setback};
use super::super::report::Conclusion;
use crate::connections::{self, Source};
use crate::fault::{Class, Fault};
use crate::hypervisor::{Endpoint, Operation, Place, Position};
use crate::pve::{self, Upid};

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
                 which come late or not at all: check that it and the nodes of its cluster run and \
                 can be reached"
            ),
        );
        let wake = Wake::After(CROWDED);
        Ok(Conclusion::Decided(Decision::Wait(Waiting::Connection(fault), wake)))
    }

    /// The endpoint was entered, or it is known why not.
    pub(super) fn not_turned_away(&self) {
        self.shared.memory.with(&self.key, |remembered| remembered.crowd.ends());
    }

    /// Behind how many the machine goes on waiting for its clone, if all that is to be looked up is
    /// what it found before it began to wait: nobody has made its VM since.
    pub(in super::super) fn still_waits(&self, look: &Look) -> Option<Position> {
        let is_first = !self.facts.is_deleted() && self.facts.machine.spec.provider_id.is_none();
        let endpoint = self.endpoint.as_ref()?;
        (is_first && matches!(look, Look::Vm)).then(|| endpoint.clone_position(&self.key))?
    }

    /// A machine that waits for something else than its turn keeps nobody from theirs.
    pub(in super::super) fn step_out_unless_queued(&self, conclusion: &Conclusion) {
        let is_queued = matches!(
            conclusion,
            // Without the endpoint it is nobody's turn.
            Conclusion::Decided(Decision::Wait(Waiting::Turn(_) | Waiting::Connection(_), _))
        );
        if is_queued {
            return;
        }
        let known =
            || self.facts.infra.as_ref().and_then(|infra| self.shared.connections.known(infra));
        if let Some(endpoint) = self.endpoint.clone().or_else(known) {
            endpoint.step_out_of_clones(&self.key);
        }
    }

    /// Follows the task that the object records. A clone among them takes up its place as if this
    /// process had asked for it.
    pub(super) fn follow_recorded(&self, endpoint: &Endpoint, upid: Upid, operation: Operation) {
        if operation == Operation::Clone {
            let storage = self.facts.machine.spec.storage.clone();
            endpoint.adopt_clone(&self.key, Place { node: upid.node().clone(), storage });
        }
        endpoint.follow(&self.key, upid, operation);
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

//! Readings of the whole cluster: one is under way at most, and the last one is at hand for everybody.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::View;
use super::endpoint::lock;
use crate::pve;

/// How long a failed reading stands for all who ask: an endpoint that hangs is not asked once for
/// each of them.
const SHARED_FAILURE: Duration = Duration::from_secs(3);

/// The last reading, and how the one after it failed, if it did.
#[derive(Debug, Default)]
struct Last {
    view: Option<Arc<View>>,
    /// The last one of the endpoint whose watch was taken over, which serves to compare alone.
    before: Option<Arc<View>>,
    failure: Option<(Instant, pve::Error)>,
}

/// What came of asking for a reading.
#[derive(Debug)]
pub(super) enum Got {
    /// It was there already, or its failure was.
    Held(Result<Arc<View>, pve::Error>),
    /// It was read for this caller, who tells others what it shows beside the one before.
    Read(Result<(Arc<View>, Option<Arc<View>>), pve::Error>),
}

/// Readings of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// Held by who reads.
    turn: tokio::sync::Mutex<()>,
    last: Mutex<Last>,
}

impl Readings {
    /// A reading that was asked for at `not_before` or later. Callers that come while one is under way
    /// share it when it is new enough for them; who is content with the last one does not wait.
    pub(super) async fn get(
        &self,
        not_before: Instant,
        read: impl AsyncFnOnce(Instant) -> Result<View, pve::Error>,
    ) -> Got {
        if let Some(view) = self.since(not_before) {
            return Got::Held(Ok(view));
        }
        let _turn = self.turn.lock().await;
        if let Some(view) = self.since(not_before) {
            return Got::Held(Ok(view));
        }
        if let Some((at, error)) = &lock(&self.last).failure
            && at.elapsed() < SHARED_FAILURE
        {
            return Got::Held(Err(error.clone()));
        }
        let read = read(Instant::now()).await;
        let mut last = lock(&self.last);
        Got::Read(match read {
            Ok(view) => {
                let view = Arc::new(view);
                let before = last.view.take().or_else(|| last.before.take());
                *last = Last { view: Some(Arc::clone(&view)), ..Last::default() };
                Ok((view, before))
            }
            Err(error) => {
                last.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        })
    }

    fn since(&self, not_before: Instant) -> Option<Arc<View>> {
        self.last().filter(|view| view.asked >= not_before)
    }

    /// The last one, however old.
    pub(super) fn last(&self) -> Option<Arc<View>> {
        lock(&self.last).view.clone()
    }

    /// The last one here or, where none has come yet, the one that was handed over.
    pub(super) fn last_or_before(&self) -> Option<Arc<View>> {
        let last = lock(&self.last);
        last.view.as_ref().or(last.before.as_ref()).cloned()
    }

    /// What changed since the last reading of an endpoint whose watch is taken over is a change.
    pub(super) fn compare_with(&self, before: Option<Arc<View>>) {
        let mut last = lock(&self.last);
        last.before = last.before.take().or(before);
    }
}

//! Until when whoever asks may change something. A process that was frozen for a while goes on where it
//! was, though another one has taken its place meanwhile. The clock is that of the machine it runs on:
//! where that stands still as well, as with a paused virtual machine, nothing tells.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// A time after which no call that changes something is sent. Without one, all are. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

impl Fence {
    /// From now on calls that change something are sent before `end` only.
    pub fn open_until(&self, end: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }

    /// Whether a call that changes something may be sent at `now`.
    pub fn is_open(&self, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|end| now < end)
    }
}

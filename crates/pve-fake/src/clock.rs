//! Time as a value: the model is told what time it is and never asks.
//!
//! Must not read a clock outside [`Clock::now`], which only the server uses.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch, in the simulator's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Whole seconds since the epoch, as Proxmox prints times.
    pub fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// Time passed since `earlier`; zero if `earlier` lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Millis {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        let millis = u64::try_from(rhs.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }
}

/// The server's clock: wall time plus what a test has skipped.
#[derive(Debug, Default)]
pub struct Clock {
    skipped: AtomicU64,
}

impl Clock {
    /// The present, in the simulator's time.
    pub fn now(&self) -> Millis {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(0) + wall + Duration::from_millis(self.skipped.load(Ordering::Relaxed))
    }

    /// Lets `by` pass at once.
    pub fn skip(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.skipped.fetch_add(millis, Ordering::Relaxed);
    }
}

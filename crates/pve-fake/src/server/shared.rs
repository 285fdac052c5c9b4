//! What connections, the driver and guests have in common.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::Config;
use crate::clock::Clock;
use crate::config::{Release, Timings};
use crate::fault::Faults;
use crate::guest::Guest;
use crate::hook::Hook;
use crate::journal::Journal;
use crate::model::{GuestKind, Model, Report};

pub(crate) struct Shared {
    pub(super) clock: Clock,
    pub(super) release: Release,
    pub(super) timings: Timings,
    pub(super) journal: Mutex<Journal>,
    pub(super) faults: Mutex<Faults>,
    pub(super) hook: Mutex<Option<Hook>>,
    pub(super) guest: Option<Arc<dyn Guest>>,
    /// Something may be due earlier than it was.
    pub(super) wake: Arc<Notify>,
    /// Its change closes all connections.
    pub(super) close: watch::Sender<u64>,
    model: Mutex<Model>,
}

impl Shared {
    pub(super) fn new(config: &Config) -> Self {
        let clock = Clock::default();
        let guests = if config.guest.is_some() { GuestKind::Reported } else { GuestKind::BuiltIn };
        let model =
            Model::new(&config.seed, config.release, config.timings.clone(), guests, clock.now());
        Self {
            clock,
            release: config.release,
            timings: config.timings.clone(),
            journal: Mutex::default(),
            faults: Mutex::default(),
            hook: Mutex::default(),
            guest: config.guest.clone(),
            wake: Arc::default(),
            close: watch::Sender::new(0),
            model: Mutex::new(model),
        }
    }

    /// The model, locked, at whatever time it is.
    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The model, locked and advanced to the present.
    pub(super) fn present(&self) -> MutexGuard<'_, Model> {
        let mut model = self.model();
        model.advance(self.clock.now());
        model
    }

    pub(crate) fn report(&self, vmid: u32, boot: u64, report: Report) {
        self.present().report(vmid, boot, report);
        self.wake.notify_one();
    }

    pub(crate) fn is_running(&self, vmid: u32, boot: u64) -> bool {
        self.present().is_running(vmid, boot)
    }
}

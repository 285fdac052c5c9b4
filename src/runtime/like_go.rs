//! The passes once more, under the names that controller-runtime gives to those of a Go manager, so that
//! dashboards and alarms made for capmox go on. Controllers have the names that they have there: their
//! kind in small letters.
//!
//! A pass that logged a warning counts as `error`, any other as `success`. `requeue` and `requeue_after`
//! stay 0: when to look again is no outcome here.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::metrics::{BUCKETS, Histograms};

/// Those of capmox, which are there from the start, as with controller-runtime.
const CONTROLLERS: [&str; 2] = ["proxmoxcluster", "proxmoxmachine"];
const RESULTS: [&str; 4] = ["error", "requeue", "requeue_after", "success"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    controller: &'static str,
    result: &'static str,
}

/// The metrics; clones count into the same.
#[derive(Clone)]
pub(super) struct LikeGo {
    total: Family<Outcome, Counter>,
    errors: Family<Controller, Counter>,
    time: Histograms<Controller>,
    active: Family<Controller, Gauge>,
}

impl LikeGo {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let time = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let (total, errors, active) = (Family::default(), Family::default(), Family::default());
        let made = Self { total, errors, time, active };
        registry.register("reconcile", "Passes by controller and result", made.total.clone());
        registry.register("reconcile_errors", "Passes that warned", made.errors.clone());
        registry.register("reconcile_time_seconds", "Time that a pass took", made.time.clone());
        registry.register("active_workers", "Passes under way", made.active.clone());
        for controller in CONTROLLERS {
            for result in RESULTS {
                drop(made.total.get_or_create(&Outcome { controller, result }));
            }
            drop(made.errors.get_or_create(&Controller { controller }));
            drop(made.active.get_or_create(&Controller { controller }));
        }
        made
    }

    pub(super) fn begun(&self, kind: &str) {
        self.active.get_or_create(&of(kind)).inc();
    }

    pub(super) fn ended(&self, kind: &str, has_warned: bool, elapsed: Duration) {
        let labels = of(kind);
        let Controller { controller } = labels;
        let result = if has_warned { "error" } else { "success" };
        self.active.get_or_create(&labels).dec();
        self.time.get_or_create(&labels).observe(elapsed.as_secs_f64());
        self.total.get_or_create(&Outcome { controller, result }).inc();
        if has_warned {
            self.errors.get_or_create(&labels).inc();
        }
    }
}

fn of(kind: &str) -> Controller {
    let controller = match kind {
        "ProxmoxCluster" => "proxmoxcluster",
        "ProxmoxMachine" => "proxmoxmachine",
        _ => "proxmoxconnection",
    };
    Controller { controller }
}

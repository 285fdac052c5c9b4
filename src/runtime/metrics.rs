//! What is counted. Labels come from closed sets only: no names of objects, no error texts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::like_go::LikeGo;
use crate::pve::{Call, Observer};

/// Content type of [`Metrics::text`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds in seconds: from a cached read to the two minutes after which a call is given up.
pub(super) const BUCKETS: [f64; 12] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    path: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    method: &'static str,
    path: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PassLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RightLabels {
    group: &'static str,
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DefinitionLabels {
    kind: String,
}

pub(super) type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The process's metrics. Cheap to clone; clones count into the same.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    calls: Family<CallLabels, Counter>,
    durations: Histograms<PathLabels>,
    retries: Family<PathLabels, Counter>,
    passes: Family<PassLabels, Counter>,
    pass_durations: Histograms<KindLabels>,
    like_go: LikeGo,
    leader: Gauge,
    lacking_rights: Family<RightLabels, Gauge>,
    lacking_fields: Family<DefinitionLabels, Gauge>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = Registry::default();
        let like_go = LikeGo::register(all.sub_registry_with_prefix("controller_runtime"));
        let registry = all.sub_registry_with_prefix("capmox");
        let info = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version that runs", info);
        let leader = Gauge::default();
        registry.register(
            "leader",
            "Whether this process works (1) or waits for the lease (0)",
            leader.clone(),
        );
        let calls = Family::default();
        registry.register(
            "proxmox_requests",
            "Requests to Proxmox, by the class of the answer's status or what kept it from coming",
            calls.clone(),
        );
        let retries = Family::default();
        registry.register(
            "proxmox_retries",
            "Requests among them that repeat one",
            retries.clone(),
        );
        let durations =
            Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        registry.register(
            "proxmox_request_duration_seconds",
            "Time from sending a request to the end of its answer, without queueing here",
            durations.clone(),
        );
        let (passes, pass_durations) = register_passes(registry);
        let (lacking_rights, lacking_fields) = register_lacks(registry);
        Self {
            registry: Arc::new(all),
            calls,
            durations,
            retries,
            passes,
            pass_durations,
            like_go,
            leader,
            lacking_rights,
            lacking_fields,
        }
    }
}

fn register_passes(
    registry: &mut Registry,
) -> (Family<PassLabels, Counter>, Histograms<KindLabels>) {
    let passes = Family::default();
    registry.register(
        "reconciles",
        "Passes over an object; those that logged a warning, such as a fault, are told apart",
        passes.clone(),
    );
    let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
    registry.register("reconcile_duration_seconds", "Time that a pass took", durations.clone());
    (passes, durations)
}

fn register_lacks(
    registry: &mut Registry,
) -> (Family<RightLabels, Gauge>, Family<DefinitionLabels, Gauge>) {
    let rights = Family::default();
    registry.register(
        "lacking_rights",
        "Verbs that the manager needs on a resource and may not, as of its start",
        rights.clone(),
    );
    let fields = Family::default();
    registry.register(
        "lacking_fields",
        "Fields of a kind that the installed definition does not keep, as of the manager's start",
        fields.clone(),
    );
    (rights, fields)
}

impl Metrics {
    /// Everything, in the text form of OpenMetrics, which Prometheus reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// A pass over an object of `kind` begins.
    pub(super) fn passes(&self, kind: &'static str) {
        self.like_go.begun(kind);
    }

    /// A pass over an object of `kind` is over.
    pub(super) fn passed(&self, kind: &'static str, has_warned: bool, elapsed: Duration) {
        let outcome = if has_warned { "warned" } else { "quiet" };
        self.passes.get_or_create(&PassLabels { kind, outcome }).inc();
        self.pass_durations.get_or_create(&KindLabels { kind }).observe(elapsed.as_secs_f64());
        self.like_go.ended(kind, has_warned, elapsed);
    }

    /// So many verbs on a resource are needed and not given.
    pub(super) fn lacks_rights(&self, group: &'static str, resource: &'static str, verbs: usize) {
        let labels = RightLabels { group, resource };
        self.lacking_rights.get_or_create(&labels).set(verbs.try_into().unwrap_or(i64::MAX));
    }

    /// So many fields of a kind of ours are not kept.
    pub(super) fn lacks_fields(&self, kind: &str, fields: usize) {
        let labels = DefinitionLabels { kind: kind.to_owned() };
        self.lacking_fields.get_or_create(&labels).set(fields.try_into().unwrap_or(i64::MAX));
    }

    /// Whether this process works.
    pub(super) fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }
}

impl Observer for Metrics {
    fn called(&self, call: &Call) {
        let &Call { method, endpoint: path, status, elapsed, attempt } = call;
        let labels = CallLabels { method, path, outcome: outcome(status) };
        self.calls.get_or_create(&labels).inc();
        let labels = PathLabels { method, path };
        self.durations.get_or_create(&labels).observe(elapsed.as_secs_f64());
        if attempt > 1 {
            self.retries.get_or_create(&labels).inc();
        }
    }
}

/// Proxmox's own codes apart from those of HTTP, because they say that a node is silent.
fn outcome(status: Option<u16>) -> &'static str {
    match status {
        None => "no-answer",
        Some(200..=299) => "ok",
        Some(401) => "unauthorized",
        Some(403) => "forbidden",
        Some(400..=499) => "refused",
        Some(595..=599) => "node-unreachable",
        Some(_) => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_method_path_and_outcome() {
        let metrics = Metrics::default();
        let call = |status, attempt| Call {
            method: "GET",
            endpoint: "nodes/{node}/qemu/{vmid}/config",
            status,
            elapsed: Duration::from_millis(20),
            attempt,
        };
        for (status, attempt) in [(Some(200), 1), (Some(595), 1), (None, 1), (Some(200), 2)] {
            metrics.called(&call(status, attempt));
        }
        metrics.set_leader(true);
        let text = metrics.text();
        let labels = "method=\"GET\",path=\"nodes/{node}/qemu/{vmid}/config\"";
        for line in [
            format!("capmox_proxmox_requests_total{{{labels},outcome=\"ok\"}} 2"),
            format!("capmox_proxmox_requests_total{{{labels},outcome=\"node-unreachable\"}} 1"),
            format!("capmox_proxmox_requests_total{{{labels},outcome=\"no-answer\"}} 1"),
            format!("capmox_proxmox_retries_total{{{labels}}} 1"),
            format!("capmox_proxmox_request_duration_seconds_count{{{labels}}} 4"),
            format!("capmox_proxmox_request_duration_seconds_bucket{{le=\"0.025\",{labels}}} 4"),
            "capmox_leader 1".to_owned(),
            format!("capmox_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in\n{text}");
        }
    }
}

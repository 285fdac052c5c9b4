//! Counts the controllers' passes by the spans that they open, so that no controller needs to know
//! of metrics.

use tokio::time::Instant;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::metrics::Metrics;

/// Span of a pass, and the kind that it is about.
const SPANS: [(&str, &str); 3] = [
    ("machine", "ProxmoxMachine"),
    ("proxmoxcluster", "ProxmoxCluster"),
    ("proxmoxconnection", "ProxmoxConnection"),
];

/// What passes this by is seen: the controllers alone.
pub(super) fn filter() -> Targets {
    let controllers = ["capmox::cluster", "capmox::connection", "capmox::machine"];
    Targets::new().with_targets(controllers.map(|it| (it, Level::INFO)))
}

/// The counting layer.
pub(super) struct Passes(pub(super) Metrics);

/// A pass under way.
struct Pass {
    kind: &'static str,
    began: Instant,
    has_warned: bool,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Passes {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let name = attributes.metadata().name();
        let kind = SPANS.iter().find(|(span, _)| *span == name).map(|(_, kind)| *kind);
        if let (Some(kind), Some(span)) = (kind, context.span(id)) {
            self.0.passes(kind);
            let pass = Pass { kind, began: Instant::now(), has_warned: false };
            span.extensions_mut().insert(pass);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        // Levels grow with how much is said.
        if *event.metadata().level() > Level::WARN {
            return;
        }
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(pass) = span.extensions_mut().get_mut::<Pass>() {
                pass.has_warned = true;
            }
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let pass = context.span(&id).and_then(|span| span.extensions_mut().remove::<Pass>());
        if let Some(Pass { kind, began, has_warned }) = pass {
            self.0.passed(kind, has_warned, began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn passes_are_counted_with_whether_they_warned_and_other_spans_are_not() {
        let metrics = Metrics::default();
        let layer = Passes(metrics.clone()).with_filter(filter());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let machine = || tracing::info_span!(target: "capmox::machine", "machine", name = "m");
            machine().in_scope(|| {
                tracing::info!(target: "capmox::machine", "a step");
                let working = "controller_runtime_active_workers{controller=\"proxmoxmachine\"} 1";
                assert!(metrics.text().contains(working), "{}", metrics.text());
            });
            machine().in_scope(|| {
                let inner = tracing::info_span!(target: "capmox::machine::act", "step");
                inner.in_scope(|| tracing::warn!(target: "capmox::machine::act", "a fault"));
            });
            tracing::info_span!(target: "capmox::cluster", "proxmoxcluster").in_scope(|| ());
            tracing::info_span!(target: "elsewhere", "machine").in_scope(|| ());
        });
        let text = metrics.text();
        for line in [
            "capmox_reconciles_total{kind=\"ProxmoxMachine\",outcome=\"quiet\"} 1",
            "capmox_reconciles_total{kind=\"ProxmoxMachine\",outcome=\"warned\"} 1",
            "capmox_reconciles_total{kind=\"ProxmoxCluster\",outcome=\"quiet\"} 1",
            "capmox_reconcile_duration_seconds_count{kind=\"ProxmoxMachine\"} 2",
            "controller_runtime_reconcile_total{controller=\"proxmoxmachine\",result=\"success\"} 1",
            "controller_runtime_reconcile_total{controller=\"proxmoxmachine\",result=\"error\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"proxmoxmachine\"} 1",
            "controller_runtime_reconcile_errors_total{controller=\"proxmoxcluster\"} 0",
            "controller_runtime_reconcile_time_seconds_count{controller=\"proxmoxmachine\"} 2",
            "controller_runtime_active_workers{controller=\"proxmoxmachine\"} 0",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in\n{text}");
        }
    }
}

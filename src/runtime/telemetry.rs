//! Logging: to standard error, as text or JSON, as much as `--v` asks for.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use super::metrics::Metrics;
use super::passes::{self, Passes};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Logging {
    /// klog's `--v`.
    pub verbosity: i32,
    /// Form of a line.
    pub format: LogFormat,
}

/// Each Proxmox call is a debug line of this module, and a lot.
const CALLS: &str = "capmox::pve";

impl Logging {
    /// What passes. Libraries stay quiet long: some of them print at trace what goes over a
    /// connection, so they are never let down to it.
    pub(super) fn filter(self) -> Targets {
        let (own, calls, others) = match self.verbosity {
            ..=0 => (Level::INFO, Level::INFO, Level::WARN),
            1 => (Level::INFO, Level::INFO, Level::INFO),
            2 | 3 => (Level::DEBUG, Level::INFO, Level::INFO),
            4 | 5 => (Level::DEBUG, Level::DEBUG, Level::INFO),
            6.. => (Level::TRACE, Level::TRACE, Level::DEBUG),
        };
        Targets::new()
            .with_default(others)
            .with_target("capmox", own)
            .with_target(CALLS, calls)
            // It prints whole objects that it cannot read, and one may be a Secret.
            .with_target("kube_client::client", Level::ERROR)
            .with_target("kube_client::client::builder", others)
            // Their debug lines hold headers.
            .with_target("hyper", Level::INFO)
            .with_target("h2", Level::INFO)
            .with_target("rustls", Level::INFO)
    }

    /// Sets the process's logging, and counts passes by it; once.
    ///
    /// # Errors
    ///
    /// When it is set already.
    pub(super) fn start(
        self,
        metrics: Metrics,
    ) -> Result<(), tracing_subscriber::util::TryInitError> {
        let layer = fmt::layer().with_writer(std::io::stderr);
        let layer = match self.format {
            LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        };
        tracing_subscriber::registry()
            .with(layer.with_filter(self.filter()))
            .with(Passes(metrics).with_filter(passes::filter()))
            .try_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_opens_our_own_lines_first_and_libraries_never_wholly() {
        let passes = |verbosity, target, level| {
            Logging { verbosity, ..Logging::default() }.filter().would_enable(target, &level)
        };
        for (verbosity, target, level, wanted) in [
            (0, "capmox::machine", Level::INFO, true),
            (0, "capmox::machine", Level::DEBUG, false),
            (0, "kube_client", Level::INFO, false),
            (0, "kube_client", Level::WARN, true),
            (2, "capmox::machine", Level::DEBUG, true),
            (2, "capmox::pve::transport", Level::DEBUG, false),
            (4, "capmox::pve::transport", Level::DEBUG, true),
            (6, "capmox::machine", Level::TRACE, true),
            (99, "kube_client", Level::TRACE, false),
            (99, "kube_client::client", Level::WARN, false),
            (99, "kube_client::client::builder", Level::DEBUG, true),
            (99, "hyper_util::client", Level::DEBUG, false),
            (99, "h2::codec", Level::DEBUG, false),
            (-1, "capmox", Level::INFO, true),
        ] {
            assert_eq!(passes(verbosity, target, level), wanted, "{verbosity} {target} {level}");
        }
    }
}

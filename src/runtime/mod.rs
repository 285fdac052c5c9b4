//! The process: its settings, its servers, the lease, and the start and end of the controllers.
//!
//! Only this module and [`crate::cli`] read the environment and files that say how to run.

mod bind;
mod diagnostics;
mod health;
mod http;
mod lacks;
mod lease;
mod like_go;
mod metrics;
mod passes;
mod process;
pub mod rbac;
mod telemetry;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

pub use bind::Bind;
pub use lease::LeaseTimes;
pub use metrics::Metrics;
pub use process::{Error, client, run};
pub use telemetry::{LogFormat, Logging};

use crate::connection::StatusWriter;
use crate::connections::Given;
use crate::hypervisor::CloneLimits;
use crate::ids::StorageName;

/// Oldest version of TLS that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsVersion {
    /// 1.2.
    #[default]
    V12,
    /// 1.3.
    V13,
}

/// Where the admission webhooks serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhooks {
    /// Port, on all addresses.
    pub port: u16,
    /// Directory with `tls.crt` and `tls.key`.
    pub cert_dir: PathBuf,
}

/// How to run.
#[derive(Debug)]
pub struct Settings {
    /// Kubeconfig; found as other clients find it when none.
    pub kubeconfig: Option<PathBuf>,
    /// The only namespace to look at; all when none.
    pub namespace: Option<String>,
    /// Value of the watch label that objects must carry; any when none.
    pub watch_filter: Option<String>,
    /// Objects of one kind worked on at once.
    pub concurrency: u16,
    /// Clones at once at each endpoint.
    pub clones: CloneLimits,
    /// The only storages for bootstrap data, the preferred one first; any when empty.
    pub iso_storages: Vec<StorageName>,
    /// Whether the embedded allocator serves pools.
    pub embedded_ipam: bool,
    /// Who writes the status of ProxmoxConnections.
    pub connection_status: StatusWriter,
    /// Secret that the manager's own credentials came from, as `namespace/name`, or as a name in the
    /// process's own namespace.
    pub credentials_secret: Option<String>,
    /// Whether to work only while holding a lease.
    pub leader_elect: Option<LeaseTimes>,
    /// Namespace of the lease; the process's own when none.
    pub leader_election_namespace: Option<String>,
    /// Where probes are answered.
    pub health: Bind,
    /// Where metrics are given.
    pub diagnostics: Bind,
    /// Whether metrics are given to anybody by plain HTTP.
    pub insecure_diagnostics: bool,
    /// For metrics over HTTPS.
    pub tls_min_version: TlsVersion,
    /// The admission webhooks; none when off.
    pub webhooks: Option<Webhooks>,
    /// The manager's own credentials, without the file below.
    pub own: Given,
    /// PEM file for them.
    pub root_cert_file: Option<PathBuf>,
    /// What is logged.
    pub logging: Logging,
    /// Remarks on the command line, to be logged.
    pub notes: Vec<String>,
}

/// Sets the process up and runs it to its end.
pub fn start(settings: Settings) -> ExitCode {
    // Fails when a provider is installed already, which then serves.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Metrics::default();
    // Fails when logging is set already, which then serves.
    let _ = settings.logging.start(metrics.clone());
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = match threads {
        Ok(threads) => {
            let result = threads.block_on(run(settings, metrics));
            // Whatever still runs has had its time.
            threads.shutdown_background();
            result
        }
        Err(error) => Err(Error::Threads(error)),
    };
    match result {
        Ok(()) => {
            tracing::info!("ended as asked");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(%error, "ended");
            ExitCode::FAILURE
        }
    }
}

//! From settings to running servers and controllers, and down again.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::diagnostics::{self, Access};
use super::health::{self, Readiness};
use super::metrics::Metrics;
use super::work::{self, Work};
use super::{Bind, Settings, Webhooks, http};
use crate::connections::{Given, Own};
use crate::hypervisor::ObjectKey;
use crate::webhook;

/// Time between two attempts to reach the API server at the start.
const API_RETRY: Duration = Duration::from_secs(2);
/// How long an attempt may take.
const API_LIMIT: Duration = Duration::from_secs(15);

/// Why the process ends by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system gives no threads.
    #[error("cannot start threads: {0}")]
    Threads(#[source] io::Error),
    /// The system gives no signals.
    #[error("cannot listen for signals: {0}")]
    Signals(#[source] io::Error),
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {}: {why}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is nothing that says where the API server is.
    #[error(
        "no Kubernetes cluster: {0}; give --kubeconfig, set KUBECONFIG, or run in a pod with a \
         service account"
    )]
    NoCluster(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({flag}): {source}")]
    Listen {
        /// The flag that names it.
        flag: &'static str,
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The webhook server cannot start.
    #[error(transparent)]
    Webhooks(#[from] webhook::ServeError),
    /// No certificate for metrics.
    #[error("no certificate for metrics over HTTPS can be made: {0}")]
    Certificate(String),
    /// The lease is somebody else's now.
    #[error("the lease {name} is lost: {why}; everything was stopped at once")]
    LeaseLost {
        /// Namespace and name.
        name: String,
        /// How.
        why: String,
    },
    /// A controller ended or panicked.
    #[error("the {0} ended by itself, which is a bug; see the log above")]
    Ended(&'static str),
    /// Work in hand did not end in time.
    #[error("work in hand did not end within {0:?} and was cut off")]
    CutOff(Duration),
    /// A second signal came.
    #[error("a second signal came; work in hand was cut off")]
    Impatient,
}

/// Runs until SIGTERM or SIGINT, or until something fails that a restart may cure. Needs a default
/// provider of rustls.
///
/// # Errors
///
/// [`Error`]; a Proxmox that does not answer or refuses the credentials is none.
pub async fn run(settings: Settings, metrics: Metrics) -> Result<(), Error> {
    info!(version = env!("CARGO_PKG_VERSION"), "capmox starts");
    for note in &settings.notes {
        info!("{note}");
    }
    let shutdown = CancellationToken::new();
    let signals = Signals::new()?;
    let work = serve_and_work(settings, metrics, shutdown.clone());
    tokio::select! {
        result = work => result,
        () = signals.twice(shutdown) => Err(Error::Impatient),
    }
}

async fn serve_and_work(
    settings: Settings,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let config = config(settings.kubeconfig.as_deref()).await?;
    let started = watch::Sender::new(false);
    // Servers outlive the controllers: probes are answered while work in hand ends.
    let serving = CancellationToken::new();
    let _ends_with_this = serving.clone().drop_guard();
    let mut servers = JoinSet::new();

    let webhooks = match &settings.webhooks {
        Some(webhooks) => {
            let server = bind_webhooks(webhooks).await?;
            let ready = server.ready();
            info!(address = %server.address(), "admission webhooks");
            servers.spawn(logged(server.run(serving.clone())));
            Some(ready)
        }
        None => None,
    };
    let readiness = Readiness { started: started.subscribe(), webhooks };
    if let Some(listener) = listen("--health-probe-bind-address", &settings.health).await? {
        info!(address = %settings.health, "probes");
        let router = health::router(readiness);
        servers.spawn(http::serve("health", listener, None, router, serving.clone()));
    }
    let namespace = config.default_namespace.clone();
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|error| Error::NoCluster(error.to_string()))?;
    if let Some(listener) = listen("--diagnostics-address", &settings.diagnostics).await? {
        let (access, tls) = if settings.insecure_diagnostics {
            (Access::Open, None)
        } else {
            let tls = diagnostics::tls(settings.tls_min_version).map_err(Error::Certificate)?;
            (Access::Reviewed(client.clone()), Some(tls))
        };
        info!(address = %settings.diagnostics, https = tls.is_some(), "metrics");
        let router = diagnostics::router(metrics.clone(), access);
        servers.spawn(http::serve("diagnostics", listener, tls, router, serving.clone()));
    }
    if shutdown.run_until_cancelled(reach(&client, &server)).await.is_none() {
        return Ok(());
    }
    started.send_replace(true);
    let secret = settings.credentials_secret.as_deref().map(|name| secret_key(name, &namespace));
    let own = own(settings.own, settings.root_cert_file, secret).await;
    let work = Work {
        client,
        own,
        metrics,
        namespace: settings.namespace,
        watch_filter: settings.watch_filter,
        concurrency: settings.concurrency,
        clones: settings.clones,
        iso_storages: settings.iso_storages,
        embedded_ipam: settings.embedded_ipam,
        connection_status: settings.connection_status,
    };
    let lease_namespace = settings.leader_election_namespace.unwrap_or(namespace);
    let result = work::lead(work, settings.leader_elect, &lease_namespace, &shutdown).await;
    serving.cancel();
    while servers.join_next().await.is_some() {}
    result
}

async fn logged(server: impl Future<Output = Result<(), webhook::ServeError>>) {
    if let Err(error) = server.await {
        tracing::error!(%error, "admission webhooks ended");
    }
}

/// A client of the management cluster; no call is made.
///
/// # Errors
///
/// [`Error::Kubeconfig`] and [`Error::NoCluster`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    let config = config(kubeconfig).await?;
    Client::try_from(config).map_err(|error| Error::NoCluster(error.to_string()))
}

/// Where the API server is and how to speak to it.
async fn config(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let Some(path) = kubeconfig else {
        return Config::infer().await.map_err(|error| Error::NoCluster(error.to_string()));
    };
    let refused = |why: String| Error::Kubeconfig { path: path.to_owned(), why };
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| refused(error.to_string()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| refused(error.to_string()))
}

async fn listen(flag: &'static str, bind: &Bind) -> Result<Option<tokio::net::TcpListener>, Error> {
    bind.listen().await.map_err(|source| Error::Listen { flag, address: bind.to_string(), source })
}

/// On all addresses; by IPv4 alone where the host has no IPv6.
async fn bind_webhooks(webhooks: &Webhooks) -> Result<webhook::Server, Error> {
    let server = |address: IpAddr| {
        let bind = SocketAddr::new(address, webhooks.port);
        webhook::Server::bind(webhook::Config { bind, cert_dir: webhooks.cert_dir.clone() })
    };
    match server(Ipv6Addr::UNSPECIFIED.into()).await {
        Err(webhook::ServeError::Bind { source, .. })
            if source.kind() != io::ErrorKind::AddrInUse =>
        {
            Ok(server(Ipv4Addr::UNSPECIFIED.into()).await?)
        }
        bound => Ok(bound?),
    }
}

/// Waits until the API server answers.
async fn reach(client: &Client, server: &str) {
    let mut told = None;
    // Nothing tells when it is back.
    let mut attempts = tokio::time::interval(API_RETRY);
    attempts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        attempts.tick().await;
        let why = match timeout(API_LIMIT, client.apiserver_version()).await {
            Ok(Ok(version)) => {
                info!(server, version = version.git_version, "API server reached");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if told.as_ref() != Some(&why) {
            warn!(server, why, "waiting for the API server");
            told = Some(why);
        }
    }
}

/// The Secret that is named as `namespace/name` or, in our own namespace, as `name`.
fn secret_key(text: &str, own_namespace: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap_or((own_namespace, text));
    ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
}

/// Completes the manager's own credentials by the file, and says what is wrong with them. The
/// clusters that need them say it again; others do not care.
async fn own(mut given: Given, root_cert_file: Option<PathBuf>, secret: Option<ObjectKey>) -> Own {
    if let Some(path) = root_cert_file {
        let read = tokio::fs::read(&path).await;
        given.root_ca =
            Some(read.map_err(|error| format!("cannot read {}: {error}", path.display())));
    }
    if let Some(secret) = &secret {
        info!(%secret, "the manager's own credentials follow this Secret");
    }
    let own = Own::new(given).kept_in(secret);
    match (own.fault(), own.url()) {
        (Some(fault), _) => warn!(
            error = %fault,
            "the manager's own credentials cannot be used; clusters without credentialsRef show it"
        ),
        (None, Some(url)) => info!(url, "clusters without credentialsRef use the manager's own"),
        (None, None) => info!("no credentials of the manager's own; each cluster names a Secret"),
    }
    own
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Error> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Cancels `shutdown` at the first, returns at the second.
    async fn twice(mut self, shutdown: CancellationToken) {
        let first = self.next().await;
        info!(signal = first, "ending; work in hand is finished first");
        shutdown.cancel();
        self.next().await;
    }
}

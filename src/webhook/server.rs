//! HTTPS in front of the admission rules.
//!
//! Decides nothing: a request is unpacked, handed to [`super::rules`] and answered.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::certs::{CertError, Certificates, Look, Reader};
use super::rules::{self, Kind, Review, Verdict};

/// Where capmox v0.7 serves, and so where existing `ValidatingWebhookConfiguration`s point to.
const CLUSTER_PATH: &str = "/validate-infrastructure-cluster-x-k8s-io-v1alpha1-proxmoxcluster";
const MACHINE_PATH: &str = "/validate-infrastructure-cluster-x-k8s-io-v1alpha1-proxmoxmachine";
/// capmox v0.7 judges no templates; the paths follow the same pattern.
const CLUSTER_TEMPLATE_PATH: &str =
    "/validate-infrastructure-cluster-x-k8s-io-v1alpha1-proxmoxclustertemplate";
const MACHINE_TEMPLATE_PATH: &str =
    "/validate-infrastructure-cluster-x-k8s-io-v1alpha1-proxmoxmachinetemplate";

/// Old and new object of the largest request that the apiserver passes on (3 MiB), and a margin.
const BODY_LIMIT: usize = 7 << 20;
/// Two small files are read this often. Mounted Secrets follow a renewal within a minute or so; what
/// is added to that should not be felt.
const CERTIFICATE_CHECK: Duration = Duration::from_secs(1);
/// A complaint about the certificate is repeated this often, so that it is found in recent logs.
const COMPLAINT_REPEAT: Duration = Duration::from_mins(5);
/// The apiserver waits at most 30 seconds for a webhook; no honest handshake takes ten.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Settings of the admission server.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on; capmox v0.7 uses port 9443 of all addresses.
    pub bind: SocketAddr,
    /// Directory with `tls.crt` and `tls.key`; capmox v0.7 reads
    /// `/tmp/k8s-webhook-server/serving-certs`.
    pub cert_dir: PathBuf,
}

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for admission requests: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// The TLS library refuses its own defaults.
    #[error("cannot set up TLS for admission requests: {0}")]
    Tls(#[from] rustls::Error),
}

/// A bound server that does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    certificates: Arc<Certificates>,
    ready: watch::Sender<bool>,
}

/// Binds and serves until `shutdown`; see [`Server`].
///
/// # Errors
///
/// [`ServeError`] when the server cannot start. A missing certificate is no such error.
pub async fn serve(config: Config, shutdown: CancellationToken) -> Result<(), ServeError> {
    Server::bind(config).await?.run(shutdown).await
}

impl Server {
    /// Takes the port.
    ///
    /// # Errors
    ///
    /// [`ServeError::Bind`].
    pub async fn bind(config: Config) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Bind { address: config.bind, source };
        let listener = TcpListener::bind(config.bind).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let certificates = Certificates::new(config.cert_dir);
        Ok(Self { listener, address, certificates, ready: watch::Sender::new(false) })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// True from the moment a certificate was loaded; for the readiness probe.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Serves until `shutdown`.
    ///
    /// Without a certificate it complains, stays unready and looks again, while the controllers
    /// work on. (capmox v0.7 ends the whole process; a renewal that goes wrong should not do that.)
    ///
    /// # Errors
    ///
    /// [`ServeError::Tls`].
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.certificates) as Arc<_>);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let reader = Reader::new(Arc::clone(&self.certificates), provider);
        tokio::join!(
            follow(reader, &self.ready, &shutdown),
            accept(&self.listener, &acceptor, &shutdown)
        );
        Ok(())
    }
}

/// Keeps the certificate that of the files.
async fn follow(mut reader: Reader, ready: &watch::Sender<bool>, shutdown: &CancellationToken) {
    let mut ticks = interval(CERTIFICATE_CHECK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complained: Option<(String, Instant)> = None;
    while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
        match reader.look().await {
            Ok(Look::Same) => {}
            Ok(Look::Loaded) => {
                info!("serving certificate of the admission webhooks loaded");
                complained = None;
                ready.send_replace(true);
            }
            Err(error) => complain(&error, *ready.borrow(), &mut complained),
        }
    }
}

fn complain(error: &CertError, serving: bool, last: &mut Option<(String, Instant)>) {
    let text = error.to_string();
    let fresh = last
        .as_ref()
        .is_none_or(|(before, at)| *before != text || at.elapsed() >= COMPLAINT_REPEAT);
    if fresh {
        let effect = if serving {
            "the certificate loaded before stays in use"
        } else {
            "admission requests are not answered until there is one"
        };
        warn!(error = %text, effect, "serving certificate of the admission webhooks");
        *last = Some((text, Instant::now()));
    }
}

async fn accept(listener: &TcpListener, acceptor: &TlsAcceptor, shutdown: &CancellationToken) {
    let service = router();
    let connections = GracefulShutdown::new();
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let watcher = connections.watcher();
                tokio::spawn(connection(stream, acceptor.clone(), service.clone(), watcher));
            }
            // Out of file descriptors, or the peer is gone already: the next accept may do better.
            Err(error) => {
                warn!(%error, "cannot accept a connection for admission");
                // Either way the outcome is the same: wait a moment, less at shutdown.
                let _ = timeout(ACCEPT_RETRY, shutdown.cancelled()).await;
            }
        }
    }
    if timeout(SHUTDOWN_GRACE, connections.shutdown()).await.is_err() {
        debug!("admission requests were cut off at shutdown");
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: Router,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let stream = match timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "TLS handshake for admission failed"),
        Err(_) => return debug!("TLS handshake for admission took too long"),
    };
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    if let Err(error) = watcher.watch(http).await {
        debug!(%error, "connection for admission ended");
    }
}

fn router() -> Router {
    let paths = [
        (CLUSTER_PATH, Kind::ProxmoxCluster),
        (CLUSTER_TEMPLATE_PATH, Kind::ProxmoxClusterTemplate),
        (MACHINE_PATH, Kind::ProxmoxMachine),
        (MACHINE_TEMPLATE_PATH, Kind::ProxmoxMachineTemplate),
    ];
    let routes = paths.into_iter().fold(Router::new(), |router, (path, kind)| {
        router.route(path, post(async move |body: Bytes| answer(kind, &body)))
    });
    routes.layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// One admission review, as the apiserver sends it, to the answer.
fn answer(kind: Kind, body: &[u8]) -> axum::Json<AdmissionReview<DynamicObject>> {
    let review = serde_json::from_slice::<AdmissionReview<DynamicObject>>(body);
    let request: Result<AdmissionRequest<DynamicObject>, String> = review
        .map_err(|error| error.to_string())
        .and_then(|review| review.try_into().map_err(|_| "it holds no request".to_owned()));
    axum::Json(match request {
        Ok(request) => respond(kind, &request).into_review(),
        Err(error) => {
            warn!(%error, "unreadable admission review");
            AdmissionResponse::invalid(format!("not an AdmissionReview: {error}")).into_review()
        }
    })
}

fn respond(kind: Kind, request: &AdmissionRequest<DynamicObject>) -> AdmissionResponse {
    let mut response = AdmissionResponse::from(request);
    let (Some(object), Operation::Create | Operation::Update) =
        (&request.object, &request.operation)
    else {
        return response;
    };
    let verdict = rules::review(&Review {
        kind,
        name: &request.name,
        object,
        old: request.old_object.as_ref(),
        dry_run: request.dry_run,
    });
    let warnings = match verdict {
        Verdict::Accepted => vec![],
        Verdict::Doubted(warnings) => warnings,
        Verdict::Refused { status, warnings } => {
            info!(
                kind = kind.as_str(),
                namespace = request.namespace.as_deref(),
                name = request.name,
                user = request.user_info.username,
                reason = status.message,
                "refused"
            );
            response.allowed = false;
            response.result = *status;
            warnings
        }
    };
    response.warnings = (!warnings.is_empty()).then_some(warnings);
    response
}

#[cfg(test)]
mod tests;

//! A small HTTP server, plain or over TLS, that ends softly.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// No honest handshake takes longer.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// No honest client takes longer to send its headers.
const HEADER_LIMIT: Duration = Duration::from_secs(30);
const ACCEPT_RETRY: Duration = Duration::from_secs(1);
/// Answers under way at the end get this long.
const GRACE: Duration = Duration::from_secs(1);

/// Serves until `shutdown`.
pub(super) async fn serve(
    name: &'static str,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    shutdown: CancellationToken,
) {
    let connections = GracefulShutdown::new();
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let watcher = connections.watcher();
                tokio::spawn(connection(name, stream, tls.clone(), router.clone(), watcher));
            }
            // Out of file descriptors, or the peer is gone already: the next accept may do better.
            Err(error) => {
                warn!(server = name, %error, "cannot accept a connection");
                let _ = timeout(ACCEPT_RETRY, shutdown.cancelled()).await;
            }
        }
    }
    let _ = timeout(GRACE, connections.shutdown()).await;
}

async fn connection(
    name: &'static str,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    watcher: Watcher,
) {
    let Some(tls) = tls else { return speak(name, stream, router, watcher).await };
    match timeout(HANDSHAKE_LIMIT, tls.accept(stream)).await {
        Ok(Ok(stream)) => speak(name, stream, router, watcher).await,
        Ok(Err(error)) => debug!(server = name, %error, "TLS handshake failed"),
        Err(_) => debug!(server = name, "TLS handshake took too long"),
    }
}

async fn speak(
    name: &'static str,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    router: Router,
    watcher: Watcher,
) {
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(http).await {
        debug!(server = name, %error, "connection ended");
    }
}

//! Connections: accepted, kept alive as long as pveproxy would, closed after an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::answer::{Answer, Lost};
use super::call;
use super::shared::Shared;

/// After so many requests pveproxy closes a connection.
const REQUESTS_PER_CONNECTION: u32 = 100;

pub(super) async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // An answer in two packets must not wait for the first one's acknowledgement.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            match acceptor {
                None => serve(shared, stream).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(shared, stream).await;
                    }
                }
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(shared: Arc<Shared>, stream: S) {
    let mut close = shared.close.subscribe();
    let count = AtomicU32::new(0);
    let keep_alive = shared.timings.keep_alive;
    let service = service_fn(|request| {
        let shared = Arc::clone(&shared);
        let last = count.fetch_add(1, Ordering::Relaxed) + 1 >= REQUESTS_PER_CONNECTION;
        async move {
            let answer = call::take(shared, request).await;
            match answer {
                Answer::Reply(mut response) => {
                    if last || response.status().as_u16() >= 400 {
                        let close = http::HeaderValue::from_static("close");
                        response.headers_mut().insert(http::header::CONNECTION, close);
                    }
                    Ok::<_, Lost>(response)
                }
                Answer::Drop => Err(Lost),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(keep_alive)
        .keep_alive(true)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // How a connection ended is the client's business.
        _ = connection => {}
        _ = close.changed() => {}
    }
}

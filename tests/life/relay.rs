//! Stands between a manager and the API server, so that the manager can be killed at an exact write.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode, header};
use axum::response::IntoResponse as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::calls;
use crate::gate::{Gate, Verdict};

/// A running relay; it ends with this value.
pub(crate) struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    /// Passes everything on with the rights of `client`.
    pub(crate) async fn start(client: kube::Client, gate: Arc<Gate>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let app = axum::Router::new().fallback(move |request: Request<Body>| {
            let (client, gate) = (client.clone(), Arc::clone(&gate));
            async move {
                // What has come in is carried through even if the manager goes away.
                let carried = tokio::spawn(carry(client, gate, request));
                match carried.await {
                    Ok(Ok(response)) => response,
                    Ok(Err(error)) => lost(&format!("{error:#}")),
                    Err(error) => lost(&error.to_string()),
                }
            }
        });
        let task = tokio::spawn(async move {
            // It ends only with the test.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, task })
    }

    /// A kubeconfig for it.
    pub(crate) fn kubeconfig(&self) -> String {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "relay", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "relay", "user": {}}],
            "contexts": [{"name": "relay", "context": {"cluster": "relay", "user": "relay"}}],
            "current-context": "relay",
        })
        .to_string()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lost(why: &str) -> Response<Body> {
    (StatusCode::BAD_GATEWAY, why.to_owned()).into_response()
}

async fn carry(
    client: kube::Client,
    gate: Arc<Gate>,
    request: Request<Body>,
) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.context("the request broke off")?;
    parts.headers.remove(header::HOST);
    let call = calls::to_kubernetes(parts.method.as_str(), parts.uri.path(), &body);
    // Nothing rests on an event, so the first stands for all.
    let numbered =
        |call: String| if call.ends_with(" events") { call } else { gate.numbered(&call) };
    let call = call.map(numbered);
    if let Some(call) = &call
        && gate.before(call.clone(), 0).await == Verdict::IsLost
    {
        return Ok(lost("lost"));
    }
    let answer = client.send(Request::from_parts(parts, body.into())).await?;
    if let Some(call) = &call {
        gate.after(call, 0);
    }
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove(header::TRANSFER_ENCODING);
    Ok(Response::from_parts(parts, Body::new(body)))
}

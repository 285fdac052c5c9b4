//! Stands between a manager and the API server, so that the manager can be killed at an exact write.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use axum::body::{Body, to_bytes};
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode, header};
use axum::response::IntoResponse as _;
use futures::{StreamExt as _, TryStreamExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::calls;
use crate::gate::{Gate, Verdict};

/// What was asked of the API server about Secrets, and what it refused.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Path of each Secret that was read.
    pub(crate) reads: Vec<String>,
    /// Watches of one Secret each.
    pub(crate) one: Watched,
    /// Watches of all Secrets.
    pub(crate) all: Watched,
    /// Lists and watches that asked for more than metadata.
    pub(crate) whole: Vec<String>,
    /// Requests that went beyond the manager's rights.
    pub(crate) refused: Vec<String>,
}

/// What watching took.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) lists: usize,
    pub(crate) watches: usize,
    /// What the watches brought.
    pub(crate) bytes: usize,
}

impl Tally {
    fn of(&mut self, scope: Scope) -> &mut Watched {
        match scope {
            Scope::One => &mut self.one,
            Scope::All => &mut self.all,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Scope {
    One,
    All,
}

/// What the API server does to every request for a while; watches under way end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It refuses them with this status.
    Refuses(u16),
    /// It hangs up.
    Breaks,
}

type Shared = Arc<Mutex<Tally>>;

fn lock(tally: &Shared) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running relay; it ends with this value.
pub(crate) struct Relay {
    address: SocketAddr,
    task: JoinHandle<()>,
    tally: Shared,
    trouble: watch::Sender<Option<Trouble>>,
}

impl Relay {
    /// Passes everything on with the rights of `client`.
    pub(crate) async fn start(client: kube::Client, gate: Arc<Gate>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let tally = Shared::default();
        let of_relay = Arc::clone(&tally);
        let trouble = watch::Sender::new(None);
        let troubled = trouble.subscribe();
        let app = axum::Router::new().fallback(move |request: Request<Body>| {
            let (client, gate) = (client.clone(), Arc::clone(&gate));
            let (tally, troubled) = (Arc::clone(&of_relay), troubled.clone());
            async move {
                match *troubled.borrow() {
                    Some(Trouble::Refuses(code)) => return refusal(code),
                    Some(Trouble::Breaks) => return broken(),
                    None => {}
                }
                // What has come in is carried through even if the manager goes away.
                let carried = tokio::spawn(carry(client, gate, tally, request));
                match carried.await {
                    Ok(Ok(response)) => until_trouble(response, troubled),
                    Ok(Err(error)) => lost(&format!("{error:#}")),
                    Err(error) => lost(&error.to_string()),
                }
            }
        });
        let task = tokio::spawn(async move {
            // It ends only with the test.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { address, task, tally, trouble })
    }

    /// From now on.
    pub(crate) fn trouble(&self, trouble: Option<Trouble>) {
        self.trouble.send_replace(trouble);
    }

    /// What was asked since the last time that this was asked for.
    pub(crate) fn take_tally(&self) -> Tally {
        std::mem::take(&mut *lock(&self.tally))
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

/// The API server's own words.
fn refusal(code: u16) -> Response<Body> {
    let (reason, message) = match code {
        429 => ("TooManyRequests", "too many requests, please try again later"),
        _ => ("InternalError", "etcdserver: request timed out"),
    };
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    let status_code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::RETRY_AFTER, "1")];
    (status_code, headers, status.to_string()).into_response()
}

fn broken() -> Response<Body> {
    let breaks = futures::stream::once(async { Err::<String, _>(std::io::Error::other("broken")) });
    Response::new(Body::from_stream(breaks))
}

/// What is still being said when trouble begins is cut off.
fn until_trouble(
    response: Response<Body>,
    mut troubled: watch::Receiver<Option<Trouble>>,
) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let begins = async move { troubled.wait_for(Option::is_some).await.map(drop) };
    let said = body.into_data_stream().take_until(Box::pin(begins));
    Response::from_parts(parts, Body::from_stream(said))
}

fn lost(why: &str) -> Response<Body> {
    (StatusCode::BAD_GATEWAY, why.to_owned()).into_response()
}

async fn carry(
    client: kube::Client,
    gate: Arc<Gate>,
    tally: Shared,
    request: Request<Body>,
) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.context("the request broke off")?;
    parts.headers.remove(header::HOST);
    let watched = note(&mut lock(&tally), &parts);
    let asked = format!("{} {}", parts.method, parts.uri);
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
    if parts.status == StatusCode::FORBIDDEN {
        lock(&tally).refused.push(asked);
    }
    let body = Body::new(body);
    let Some(scope) = watched else { return Ok(Response::from_parts(parts, body)) };
    let counted = body.into_data_stream().inspect_ok(move |bytes| {
        lock(&tally).of(scope).bytes += bytes.len();
    });
    Ok(Response::from_parts(parts, Body::from_stream(counted)))
}

/// Takes note of a request about Secrets; what it watches, if it does.
fn note(tally: &mut Tally, request: &Parts) -> Option<Scope> {
    let path = request.uri.path();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_read = parts.starts_with(&["api", "v1"]) && request.method == "GET";
    let at = parts.iter().position(|part| *part == "secrets").filter(|_| is_read)?;
    if let Some(name) = parts.get(at + 1) {
        tally.reads.push((*name).to_owned());
        return None;
    }
    let accepts = request.headers.get(header::ACCEPT).and_then(|it| it.to_str().ok());
    if !accepts.is_some_and(|accepts| accepts.contains("PartialObjectMetadata")) {
        tally.whole.push(request.uri.to_string());
    }
    let query = request.uri.query().unwrap_or_default();
    let scope = if query.contains("metadata.name") { Scope::One } else { Scope::All };
    let counts = tally.of(scope);
    if query.contains("watch=") {
        counts.watches += 1;
        return Some(scope);
    }
    counts.lists += 1;
    None
}

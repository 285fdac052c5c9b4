//! Against a small server that keeps one Lease as the API server does: a write with an old version
//! is refused.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;

const TIMES: LeaseTimes = LeaseTimes {
    duration: Duration::from_secs(2),
    renew_deadline: Duration::from_secs(1),
    retry_period: Duration::from_millis(50),
};
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Kept {
    lease: Option<Value>,
    version: u64,
    /// Whether it answers at all.
    is_down: bool,
}

type Store = Arc<Mutex<Kept>>;

fn failure(code: u16, reason: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason,
        "reason": reason, "code": code,
    });
    (StatusCode::from_u16(code).unwrap(), Json(status)).into_response()
}

fn read(State(store): State<Store>) -> Response {
    let kept = store.lock().unwrap();
    match &kept.lease {
        _ if kept.is_down => failure(500, "InternalError"),
        None => failure(404, "NotFound"),
        Some(lease) => Json(lease.clone()).into_response(),
    }
}

fn write(State(store): State<Store>, Json(mut lease): Json<Value>) -> Response {
    let mut kept = store.lock().unwrap();
    let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
    if kept.is_down {
        return failure(500, "InternalError");
    }
    match &kept.lease {
        Some(before) if version(before) != version(&lease) => return failure(409, "Conflict"),
        None if !version(&lease).is_null() => return failure(404, "NotFound"),
        _ => {}
    }
    kept.version += 1;
    lease["metadata"]["resourceVersion"] = json!(kept.version.to_string());
    kept.lease = Some(lease.clone());
    Json(lease).into_response()
}

async fn server() -> (Store, Api<Lease>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = Store::default();
    let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
    let post = async |store: State<Store>, lease: Json<Value>| write(store, lease);
    let put = async |store: State<Store>, lease: Json<Value>| write(store, lease);
    let router = Router::new()
        .route(path, axum::routing::post(post))
        .route(&format!("{path}/{NAME}"), get(async |store: State<Store>| read(store)).put(put))
        .with_state(Arc::clone(&store));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();
    (store, Api::namespaced(client, "ns"))
}

fn elector(leases: &Api<Lease>, us: &str) -> Elector {
    Elector::new(leases.clone(), NAME, us.to_owned(), TIMES, Fence::default())
}

fn holder(store: &Store) -> String {
    let kept = store.lock().unwrap();
    let lease = kept.lease.as_ref().unwrap();
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

async fn acquire(elector: &mut Elector) {
    let acquired = timeout(PATIENCE, elector.acquire(&CancellationToken::new())).await;
    assert!(acquired.unwrap());
}

#[tokio::test]
async fn one_of_two_leads_and_the_other_follows_when_it_releases() {
    let (store, leases) = server().await;
    let mut first = elector(&leases, "first");
    acquire(&mut first).await;
    assert_eq!(holder(&store), "first");

    let mut second = elector(&leases, "second");
    let waiting = CancellationToken::new();
    let waited = timeout(TIMES.retry_period * 4, second.acquire(&waiting)).await;
    assert!(waited.is_err(), "the lease is held");

    let done = CancellationToken::new();
    done.cancel();
    assert!(matches!(first.keep(&done).await, End::Asked));
    first.release().await;
    assert_eq!(holder(&store), "");
    acquire(&mut second).await;
    assert_eq!(holder(&store), "second");
    let transitions =
        store.lock().unwrap().lease.as_ref().unwrap()["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions, json!(1));
}

#[tokio::test]
async fn a_holder_that_is_silent_is_replaced_after_the_duration_by_the_clock_here() {
    let (store, leases) = server().await;
    acquire(&mut elector(&leases, "gone")).await;
    // A clock an hour ahead would keep others waiting for an hour, if they believed it.
    store.lock().unwrap().lease.as_mut().unwrap()["spec"]["renewTime"] =
        json!("2999-01-01T00:00:00.000000Z");
    let mut next = elector(&leases, "next");
    let start = Instant::now();
    acquire(&mut next).await;
    assert!(start.elapsed() >= TIMES.duration, "{:?}", start.elapsed());
    assert_eq!(holder(&store), "next");
}

#[tokio::test]
async fn a_holder_that_another_one_replaced_stops_at_once() {
    let (store, leases) = server().await;
    let mut ours = elector(&leases, "ours");
    acquire(&mut ours).await;
    {
        let mut kept = store.lock().unwrap();
        let lease = kept.lease.as_mut().unwrap();
        lease["spec"]["holderIdentity"] = json!("thief");
        lease["metadata"]["resourceVersion"] = json!("1000");
    }
    let end = timeout(PATIENCE, ours.keep(&CancellationToken::new())).await.unwrap();
    assert!(matches!(end, End::Lost(why) if why.contains("thief")));
    assert_eq!(holder(&store), "thief");
    ours.release().await;
    assert_eq!(holder(&store), "thief", "what is not ours is not released");
}

#[tokio::test]
async fn a_holder_that_cannot_renew_stops_before_others_may_start() {
    let (store, leases) = server().await;
    let mut ours = elector(&leases, "ours");
    acquire(&mut ours).await;
    store.lock().unwrap().is_down = true;
    let start = Instant::now();
    let end = timeout(PATIENCE, ours.keep(&CancellationToken::new())).await.unwrap();
    assert!(matches!(end, End::Lost(why) if why.contains("could not be renewed")));
    assert!(start.elapsed() < TIMES.duration, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_deleted_lease_is_made_again() {
    let (store, leases) = server().await;
    let mut ours = elector(&leases, "ours");
    acquire(&mut ours).await;
    store.lock().unwrap().lease = None;
    let done = CancellationToken::new();
    let looked = async {
        loop {
            if store.lock().unwrap().lease.is_some() {
                break done.cancel();
            }
            tokio::task::yield_now().await;
        }
    };
    let (end, ()) =
        timeout(PATIENCE, async { tokio::join!(ours.keep(&done), looked) }).await.unwrap();
    assert!(matches!(end, End::Asked));
    assert_eq!(holder(&store), "ours");
}

#[test]
fn times_that_let_two_lead_are_refused() {
    let seconds = |duration, renew, retry| LeaseTimes {
        duration: Duration::from_secs(duration),
        renew_deadline: Duration::from_secs(renew),
        retry_period: Duration::from_secs(retry),
    };
    assert!(LeaseTimes::default().check().is_ok());
    for (times, word) in [
        (seconds(10, 10, 2), "lease-duration"),
        (seconds(0, 10, 2), "at least"),
        (seconds(15, 2, 2), "renew-deadline"),
    ] {
        assert!(times.check().unwrap_err().contains(word));
    }
    let close = LeaseTimes { duration: Duration::from_millis(10_900), ..LeaseTimes::default() };
    assert!(close.check().is_err(), "the record holds whole seconds");
}

#[tokio::test]
async fn proxmox_is_changed_only_while_the_lease_is_held_for_certain() {
    let (store, leases) = server().await;
    let mut ours = elector(&leases, "ours");
    let fence = ours.fence.clone();
    acquire(&mut ours).await;
    let begun = Instant::now();
    assert!(fence.is_open(begun));
    assert!(!fence.is_open(begun + TIMES.renew_deadline), "it was stopped for so long");
    let renewed = async {
        while !fence.is_open(begun + TIMES.renew_deadline) {
            tokio::task::yield_now().await;
        }
        store.lock().unwrap().is_down = true;
    };
    let (done, held) = (CancellationToken::new(), Fence::clone(&fence));
    let both = async { tokio::join!(ours.keep(&done), renewed) };
    let (end, ()) = timeout(PATIENCE, both).await.unwrap();
    assert!(matches!(end, End::Lost(_)));
    assert!(!held.is_open(Instant::now()));
}

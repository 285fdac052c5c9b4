//! The background loop at an endpoint of which a part hangs, in time that does not pass.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::future::BoxFuture;
use serde_json::json;

use super::*;
use crate::pve::{Asked, Call, ClientConfig, Limits, Line, Observer, Outcome, Tls, token};

const UPID: &str = "UPID:pve1:00000001:00000002:00000003:qmstart:100:a@pve!t:";

/// Answers with a task that has ended, and is silent at one path.
#[derive(Debug, Clone)]
struct Server {
    silent: &'static str,
    /// How often that path answers before.
    answers: Arc<AtomicUsize>,
    lists: Arc<AtomicUsize>,
}

impl Server {
    fn silent_at(silent: &'static str) -> Self {
        Self { silent, answers: Arc::default(), lists: Arc::default() }
    }
}

impl Observer for Server {
    fn called(&self, _: &Call) {}

    fn line(&self) -> Option<Arc<dyn Line>> {
        Some(Arc::new(self.clone()))
    }
}

impl Line for Server {
    fn ask(&self, asked: Asked) -> BoxFuture<'static, Outcome> {
        if asked.path == "/cluster/tasks" {
            self.lists.fetch_add(1, Relaxed);
        }
        let is_silent = asked.path == self.silent
            && self.answers.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err();
        Box::pin(async move {
            if is_silent {
                tokio::time::sleep_until(Instant::now() + Duration::from_mins(1)).await;
                return Outcome::Silence;
            }
            if asked.path == "/cluster/resources" {
                let node = json!({"type": "node", "id": "node/pve1", "node": "pve1"});
                return Outcome::Answer {
                    status: 200,
                    reason: None,
                    body: json!({"data": [node]}),
                };
            }
            let task = json!({"upid": UPID, "node": "pve1", "type": "qmstart", "id": "100",
                "user": "a@pve!t", "starttime": 3, "endtime": 4, "status": "OK"});
            Outcome::Answer { status: 200, reason: None, body: json!({"data": [task]}) }
        })
    }

    fn chance(&self) -> u64 {
        0
    }
}

fn at(server: &Server) -> (Arc<Endpoint>, mpsc::UnboundedReceiver<ObjectKey>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let auth = token("a@pve!t", "01234567-89ab-cdef-0123-456789abcdef").unwrap();
    let base_url = "https://pve:8006".parse().unwrap();
    let config = ClientConfig { base_url, auth, tls: Tls::Insecure, limits: Limits::default() };
    let client = Client::observed(config, Arc::new(server.clone())).unwrap();
    let (wakes, woken) = mpsc::unbounded_channel();
    let limits = CloneLimits::default();
    let endpoint = Endpoint::start(client, Arc::default(), limits, wakes, CancellationToken::new());
    (endpoint, woken)
}

fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: "lab".to_owned(), name: name.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn tasks_are_looked_at_while_the_idle_reading_hangs() {
    let server = Server::silent_at("/cluster/resources");
    let (endpoint, mut woken) = at(&server);
    endpoint.watch(VmId::MIN, key("up"));
    tokio::time::sleep_until(Instant::now() + IDLE_PAUSE + Duration::from_secs(1)).await;
    let followed = Instant::now();
    endpoint.follow(&key("m"), UPID.parse().unwrap(), Operation::Start);
    assert_eq!(woken.recv().await, Some(key("m")));
    assert!(followed.elapsed() < Duration::from_secs(5), "{:?}", followed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_list_of_tasks_that_hangs_is_not_asked_for_by_each_task() {
    let server = Server::silent_at("/cluster/tasks");
    let (endpoint, _woken) = at(&server);
    for number in 0..20 {
        endpoint.follow(&key(&number.to_string()), UPID.parse().unwrap(), Operation::Start);
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(500)).await;
    }
    assert_eq!(server.lists.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_content_with_the_last_reading_does_not_wait_for_the_one_that_hangs() {
    let server = Server::silent_at("/cluster/resources");
    server.answers.store(1, Relaxed);
    let (endpoint, _woken) = at(&server);
    let first = endpoint.view(Instant::now()).await.unwrap();
    tokio::time::sleep_until(Instant::now() + Duration::from_secs(1)).await;
    let other = Arc::clone(&endpoint);
    let hanging = tokio::spawn(async move { other.view(Instant::now()).await });
    tokio::task::yield_now().await;
    let asked = Instant::now();
    assert_eq!(endpoint.held_view().as_ref(), Some(&first));
    assert_eq!(endpoint.recent_view().await.unwrap(), first);
    assert_eq!(asked.elapsed(), Duration::ZERO);
    assert!(hanging.await.unwrap().is_err());
    assert!(asked.elapsed() >= Duration::from_secs(30), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_is_not_taken_for_the_endpoint_by_those_who_wait_for_its_storages() {
    let server = Server::silent_at("/nodes/pve1/storage");
    let (endpoint, _woken) = at(&server);
    let node: NodeName = "pve1".parse().unwrap();
    let (other, of) = (Arc::clone(&endpoint), node.clone());
    let hanging = tokio::spawn(async move { other.storages(&of).await.map(drop) });
    tokio::task::yield_now().await;
    let error = endpoint.storages(&node).await.unwrap_err();
    assert!(!hanging.is_finished(), "it was not waited for to the end");
    assert!(!error.is_endpoint_lost(), "{error}");
    assert!(error.to_string().contains("node pve1 does not answer"), "{error}");
}

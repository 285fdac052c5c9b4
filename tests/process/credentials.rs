//! Credentials Secrets on a real API server, as they come, change and go.

use std::sync::Arc;
use std::time::Duration;

use capmox::api::ProxmoxCluster;
use capmox::connections::{Connections, Own, Settings};
use capmox::fault::Class;
use capmox::hypervisor::Endpoint;
use capmox::runtime::Metrics;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use pve_fake::{Config, Fake};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::stage::{PATIENCE, world};

struct Stage {
    connections: Connections,
    secrets: Api<Secret>,
    namespace: String,
    fake: Fake,
    metrics: Metrics,
}

impl Stage {
    async fn set() -> Self {
        let world = world().await;
        let namespace = world.namespace("credentials").await.unwrap();
        let client = world.client().await.unwrap();
        let metrics = Metrics::default();
        let (wakes, _) = mpsc::unbounded_channel();
        let connections = Connections::new(Settings {
            client: client.clone(),
            own: Own::none(),
            wakes,
            observer: Arc::new(metrics.clone()),
            fence: capmox::pve::Fence::default(),
            clones: capmox::hypervisor::CloneLimits::default(),
            shutdown: CancellationToken::new(),
        });
        let fake = Fake::start(Config::default()).await.unwrap();
        Self { connections, secrets: Api::namespaced(client, &namespace), namespace, fake, metrics }
    }

    fn cluster(&self) -> ProxmoxCluster {
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ProxmoxCluster",
            "metadata": {"name": "c", "namespace": self.namespace},
            "spec": {"dnsServers": ["10.0.0.1"], "credentialsRef": {"name": "creds"}},
        }))
        .unwrap()
    }

    fn good(&self) -> Value {
        let token = self.fake.token();
        json!({"url": self.fake.url(), "token": token.id, "secret": token.secret})
    }

    async fn create(&self, data: &Value) {
        let secret = json!({"metadata": {"name": "creds"}, "stringData": data});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn change(&self, data: &Value) {
        let patch = Patch::Merge(json!({"stringData": data}));
        self.secrets.patch("creds", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Asks until the answer is as wanted: a change is noticed by a watch.
    async fn until<T>(
        &self,
        wanted: impl Fn(Result<Arc<Endpoint>, capmox::fault::Fault>) -> Result<T, String>,
    ) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            match wanted(self.connections.of(&self.cluster()).await) {
                Ok(found) => return found,
                Err(last) => assert!(Instant::now() < until, "{last}"),
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_secret_may_come_later_change_and_go() {
    let stage = Stage::set().await;
    let fault = stage.connections.of(&stage.cluster()).await.unwrap_err();
    assert_eq!(fault.class, Class::Blocked);
    for word in ["Secret creds", &stage.namespace, "url, token and secret"] {
        assert!(fault.message.contains(word), "{fault}");
    }

    stage.create(&stage.good()).await;
    let first = stage.connections.of(&stage.cluster()).await.unwrap();
    assert_eq!(first.version().await.unwrap(), "9.1.4");
    assert!(stage.metrics.text().contains("path=\"version\",outcome=\"ok\"} 1"));

    // Anything that leaves the credentials as they are keeps the endpoint.
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    stage.secrets.patch("creds", &PatchParams::default(), &label).await.unwrap();
    stage.change(&json!({"url": format!("{}/api2/json", stage.fake.url())})).await;
    let same = stage.connections.of(&stage.cluster()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &same));

    stage.change(&json!({"token": "capmox@pve"})).await;
    stage
        .until(|answer| match answer {
            Err(fault) if fault.class == Class::Invalid => Ok(()),
            other => Err(format!("{:?}", other.map(|_| ()))),
        })
        .await;

    stage.change(&json!({"token": "capmox@pve!revoked"})).await;
    let wrong = stage.until(|answer| answer.map_err(|fault| fault.message)).await;
    assert_eq!(wrong.version().await.unwrap_err().class(), Class::Denied);

    stage.change(&stage.good()).await;
    let again = stage
        .until(|answer| match answer {
            Ok(endpoint) if !Arc::ptr_eq(&endpoint, &wrong) => Ok(endpoint),
            other => Err(format!("{:?}", other.map(|_| ()))),
        })
        .await;
    assert!(again.version().await.is_ok());
    assert!(first.version().await.is_ok(), "who still holds the first one can go on");

    stage.secrets.delete("creds", &DeleteParams::default()).await.unwrap();
    stage
        .until(|answer| match answer {
            Err(fault) if fault.class == Class::Blocked => Ok(()),
            other => Err(format!("{:?}", other.map(|_| ()))),
        })
        .await;
    stage.create(&stage.good()).await;
    assert!(stage.connections.of(&stage.cluster()).await.is_ok());
}

#[tokio::test]
async fn a_secret_that_did_not_change_is_not_read_again() {
    let stage = Stage::set().await;
    stage.create(&stage.good()).await;
    let first = stage.connections.of(&stage.cluster()).await.unwrap();
    // Once the watch has seen it, an answer needs no request: it comes at the first poll.
    let until = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        let cluster = stage.cluster();
        let asked = std::pin::pin!(stage.connections.of(&cluster));
        if let Some(answer) = futures::FutureExt::now_or_never(asked) {
            assert!(Arc::ptr_eq(&answer.unwrap(), &first));
            break;
        }
        assert!(Instant::now() < until, "every answer needs a request");
    }
}

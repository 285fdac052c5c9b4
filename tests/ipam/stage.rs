//! A namespace to play in, an allocator to start and stop, and ways to wait for what it does.

use std::time::Duration;

use capmox::api::ipam::{GlobalInClusterIPPool, IPAddress, IPAddressClaim, InClusterIPPool};
use capmox::embedded_ipam;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::World;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the allocator has for anything; generous, as two cores are shared with the apiserver.
const PATIENCE: Duration = Duration::from_secs(30);

/// The allocator serves all namespaces, so only one test runs at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    _alone: MutexGuard<'static, ()>,
}

/// An allocator at work.
pub(crate) struct Allocator {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), embedded_ipam::Error>>,
}

impl Allocator {
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.end().await.unwrap();
    }

    /// Waits until it ends by itself.
    pub(crate) async fn end(self) -> Result<(), embedded_ipam::Error> {
        within("the allocator ends", self.task).await.unwrap()
    }

    /// Ends it as a crash would, between any two requests or within one.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(value) = tokio::time::timeout(PATIENCE, future).await else {
        panic!("not within {PATIENCE:?}: {what}");
    };
    value
}

impl Stage {
    pub(crate) async fn set() -> Self {
        let alone = ALONE.lock().await;
        let world = World::shared().await.unwrap();
        let client = world.client().await.unwrap();
        let namespace = world.namespace("ipam").await.unwrap();
        Self { client, namespace, _alone: alone }
    }

    pub(crate) fn start(&self) -> Allocator {
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(embedded_ipam::run(self.client.clone(), shutdown.clone()));
        Allocator { shutdown, task }
    }

    pub(crate) fn claims(&self) -> Api<IPAddressClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn addresses(&self) -> Api<IPAddress> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn pools(&self) -> Api<InClusterIPPool> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn global_pools(&self) -> Api<GlobalInClusterIPPool> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn pool(&self, name: &str, spec: Value) -> InClusterIPPool {
        create(&self.pools(), "ipam.cluster.x-k8s.io/v1alpha2", "InClusterIPPool", name, spec).await
    }

    pub(crate) async fn global_pool(&self, name: &str, spec: Value) -> GlobalInClusterIPPool {
        let api = self.global_pools();
        create(&api, "ipam.cluster.x-k8s.io/v1alpha2", "GlobalInClusterIPPool", name, spec).await
    }

    pub(crate) async fn claim(&self, name: &str, pool_kind: &str, pool: &str) -> IPAddressClaim {
        let spec = json!({
            "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": pool_kind, "name": pool},
        });
        create(&self.claims(), "ipam.cluster.x-k8s.io/v1beta1", "IPAddressClaim", name, spec).await
    }

    /// Waits for the address of a claim, as a consumer would: by the claim's status.
    pub(crate) async fn address_of(&self, claim: &str) -> IPAddress {
        let bound = |claim: Option<&IPAddressClaim>| claim.is_some_and(|c| bound_to(c).is_some());
        let claim = self.until(&self.claims(), claim, bound).await.unwrap();
        self.addresses().get(&bound_to(&claim).unwrap()).await.unwrap()
    }

    /// Waits until the claim says why it has no address.
    pub(crate) async fn complaint_of(&self, claim: &str, reason: &str) -> String {
        let complains = |claim: Option<&IPAddressClaim>| {
            claim.and_then(ready).is_some_and(|(status, why, _)| status == "False" && why == reason)
        };
        let claim = self.until(&self.claims(), claim, complains).await.unwrap();
        ready(&claim).unwrap().2
    }

    pub(crate) async fn until<K>(
        &self,
        api: &Api<K>,
        name: &str,
        condition: impl Condition<K>,
    ) -> Option<K>
    where
        K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let waiting = await_condition(api.clone(), name, condition);
        let Ok(found) = tokio::time::timeout(PATIENCE, waiting).await else {
            panic!("{name} stays as it is: {:#?}", api.get_opt(name).await.unwrap());
        };
        found.unwrap()
    }

    pub(crate) async fn delete<K>(&self, api: &Api<K>, name: &str)
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        api.delete(name, &DeleteParams::background()).await.unwrap();
    }

    pub(crate) async fn gone<K>(&self, api: &Api<K>, name: &str)
    where
        K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        self.until(api, name, |found: Option<&K>| found.is_none()).await;
    }

    pub(crate) async fn merge<K>(&self, api: &Api<K>, name: &str, patch: Value)
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The texts of all addresses, sorted.
    pub(crate) async fn handed_out(&self) -> Vec<String> {
        let list = self.addresses().list(&ListParams::default()).await.unwrap();
        let mut texts: Vec<String> = list.items.into_iter().map(|one| one.spec.address).collect();
        texts.sort();
        texts
    }
}

async fn create<K>(api: &Api<K>, version: &str, kind: &str, name: &str, spec: Value) -> K
where
    K: Clone + serde::Serialize + DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }))
    .unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

fn bound_to(claim: &IPAddressClaim) -> Option<String> {
    let status = serde_json::to_value(claim.status.as_ref()?).unwrap();
    Some(status["addressRef"]["name"].as_str()?.to_owned())
}

/// Status, reason and message of the condition Ready.
fn ready(claim: &IPAddressClaim) -> Option<(String, String, String)> {
    let status = serde_json::to_value(claim.status.as_ref()?).unwrap();
    let conditions = status["conditions"].as_array()?.clone();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready")?;
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

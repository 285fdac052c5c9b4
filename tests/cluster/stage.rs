//! A namespace with a controller and a Proxmox of its own, and ways to wait for what it does.

use std::sync::Arc;
use std::time::Duration;

use capmox::api::capi::{Cluster, Machine};
use capmox::api::ipam::InClusterIPPool;
use capmox::api::{ProxmoxCluster, ProxmoxMachine, conditions};
use capmox::cluster::{Context, run};
use capmox::connections::{Connections, Own, Settings};
use capmox::pve::{Call, Observer};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::wait::{Condition, await_condition};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, ResourceExt};
use pve_fake::{Config, Fake};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::World;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How long the controller has for anything; generous, as two cores are shared with the apiserver.
/// A retry after a failure may take half a minute.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) fake: Fake,
    shutdown: CancellationToken,
}

#[derive(Debug)]
struct Unmoved;

impl Observer for Unmoved {
    fn called(&self, _: &Call) {}
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::set_in(World::shared().await.unwrap()).await
    }

    pub(crate) async fn set_in(world: &World) -> Self {
        let stage = Self {
            client: world.client().await.unwrap(),
            namespace: world.namespace("cluster").await.unwrap(),
            fake: Fake::start(Config::default()).await.unwrap(),
            shutdown: CancellationToken::new(),
        };
        let (wakes, _) = mpsc::unbounded_channel();
        let connections = Connections::new(Settings {
            client: stage.client.clone(),
            own: Own::none(),
            wakes,
            observer: Arc::new(Unmoved),
            fence: capmox::pve::Fence::default(),
            clones: capmox::hypervisor::CloneLimits::default(),
            shutdown: stage.shutdown.clone(),
        });
        let context = Context {
            client: stage.client.clone(),
            connections: Arc::new(connections),
            namespace: Some(stage.namespace.clone()),
            watch_filter: None,
            concurrency: 4,
        };
        tokio::spawn(run(context, stage.shutdown.clone()));
        stage
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn clusters(&self) -> Api<ProxmoxCluster> {
        self.api()
    }

    pub(crate) fn pools(&self) -> Api<InClusterIPPool> {
        self.api()
    }

    /// Credentials as users write them, changed by `change`.
    pub(crate) async fn secret(&self, name: &str, change: Value) -> Secret {
        let token = self.fake.token();
        let mut data = json!({"url": self.fake.url(), "token": token.id, "secret": token.secret});
        for (key, value) in change.as_object().unwrap() {
            data[key.as_str()] = value.clone();
        }
        data.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let secret: Secret = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data,
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &secret).await.unwrap()
    }

    /// A Cluster that names the ProxmoxCluster `infra`.
    pub(crate) async fn owner(&self, spec: Value) -> Cluster {
        let mut all = json!({"infrastructureRef": {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ProxmoxCluster", "name": "infra", "namespace": self.namespace,
        }});
        for (key, value) in spec.as_object().unwrap() {
            all[key.as_str()] = value.clone();
        }
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
            "metadata": {"name": "workload"}, "spec": all,
        }))
        .unwrap();
        self.api().create(&PostParams::default(), &cluster).await.unwrap()
    }

    /// The ProxmoxCluster `infra` with the Secret `creds`, changed by `spec`.
    pub(crate) async fn infra(&self, metadata: Value, spec: Value) -> ProxmoxCluster {
        let mut all = json!({
            "controlPlaneEndpoint": {"host": "10.0.0.5", "port": 6443},
            "dnsServers": ["10.0.0.1"],
            "ipv4Config": {
                "addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1",
            },
            "credentialsRef": {"name": "creds"},
        });
        for (key, value) in spec.as_object().unwrap() {
            all[key.as_str()] = value.clone();
        }
        all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let mut meta = metadata;
        meta["name"] = json!("infra");
        let cluster: ProxmoxCluster = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxCluster",
            "metadata": meta, "spec": all,
        }))
        .unwrap();
        self.clusters().create(&PostParams::default(), &cluster).await.unwrap()
    }

    /// Secret, Cluster and ProxmoxCluster, in service.
    pub(crate) async fn in_service(&self) -> ProxmoxCluster {
        self.secret("creds", json!({})).await;
        let owner = self.owner(json!({})).await;
        self.infra(owned_by(&owner), json!({})).await;
        self.until_ready().await
    }

    pub(crate) async fn until_ready(&self) -> ProxmoxCluster {
        self.until_says("True", "", "").await
    }

    /// Waits until ClusterReady has a status, a reason and part of a message.
    pub(crate) async fn until_says(
        &self,
        status: &str,
        reason: &str,
        message: &str,
    ) -> ProxmoxCluster {
        let says = |cluster: Option<&ProxmoxCluster>| {
            let conditions = cluster.and_then(|cluster| cluster.status.as_ref());
            let conditions = conditions.map(|status| status.conditions.as_slice());
            conditions.and_then(|all| conditions::find(all, "ClusterReady")).is_some_and(|found| {
                found.status == status
                    && found.reason.as_deref().unwrap_or_default() == reason
                    && found.message.as_deref().unwrap_or_default().contains(message)
            })
        };
        self.until(&self.clusters(), "infra", says).await.unwrap()
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

    pub(crate) async fn merge<K>(&self, api: &Api<K>, name: &str, patch: Value)
    where
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The reasons of the events in the namespace, as soon as there are so many.
    pub(crate) async fn reasons_of_events(&self, count: usize) -> Vec<String> {
        let events = watcher(self.api::<Event>(), watcher::Config::default());
        let events = events.applied_objects().try_filter_map(async |event| Ok(event.reason));
        let reasons = events.take(count).try_collect();
        tokio::time::timeout(PATIENCE, reasons).await.expect("too few events").unwrap()
    }

    /// A machine of the cluster, on `node`.
    pub(crate) async fn machine(&self, name: &str, node: &str, is_control_plane: bool) {
        let mut labels = json!({"cluster.x-k8s.io/cluster-name": "workload"});
        if is_control_plane {
            labels["cluster.x-k8s.io/control-plane"] = json!("");
        }
        let machine: ProxmoxMachine = serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxMachine",
            "metadata": {"name": name, "labels": labels},
            "spec": {"sourceNode": "pve1", "templateID": 900},
        }))
        .unwrap();
        let api = self.api::<ProxmoxMachine>();
        api.create(&PostParams::default(), &machine).await.unwrap();
        let status = json!({"status": {"ready": false, "proxmoxNode": node}});
        let parameters = PatchParams::default();
        api.patch_status(name, &parameters, &Patch::Merge(&status)).await.unwrap();
    }
}

impl Stage {
    /// A machine of the cluster with its Machine, on `node`; neither says that it leads.
    pub(crate) async fn machine_of(&self, name: &str, node: &str) {
        let owner: Machine = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
            "metadata": {
                "name": name, "labels": {"cluster.x-k8s.io/cluster-name": "workload"},
            },
            "spec": {"clusterName": "workload", "bootstrap": {"dataSecretName": "data"},
                "infrastructureRef": {
                    "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
                    "kind": "ProxmoxMachine", "name": name, "namespace": self.namespace,
                }},
        }))
        .unwrap();
        let owner = self.api().create(&PostParams::default(), &owner).await.unwrap();
        self.machine(name, node, false).await;
        let reference = json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
            "name": name, "uid": owner.uid().unwrap()});
        let change = json!({"metadata": {"ownerReferences": [reference]}});
        self.merge(&self.api::<ProxmoxMachine>(), name, change).await;
    }
}

/// Metadata with the owner reference that Cluster API sets.
pub(crate) fn owned_by(owner: &Cluster) -> Value {
    json!({
        "labels": {"cluster.x-k8s.io/cluster-name": owner.name_any()},
        "ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
            "name": owner.name_any(), "uid": owner.uid().unwrap(),
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

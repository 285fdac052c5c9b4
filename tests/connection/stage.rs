//! A namespace with the controllers and a Proxmox of its own, and ways to wait for what they do.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use capmox::api::{ProxmoxCluster, ProxmoxConnection, ProxmoxMachine};
use capmox::connection::StatusWriter;
use capmox::connections::{Connections, Own, Settings};
use capmox::runtime::Metrics;
use capmox::{cluster, connection, embedded_ipam, machine};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use pve_fake::{Config, Fake};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::World;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long anything may take; two cores are shared with the API server.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) fake: Fake,
    pub(crate) connections: Arc<Connections>,
    shutdown: CancellationToken,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Endpoints for somebody who acts as `client`.
pub(crate) fn connections(client: &Client, shutdown: &CancellationToken) -> Arc<Connections> {
    let (wakes, _) = mpsc::unbounded_channel();
    Arc::new(Connections::new(Settings {
        client: client.clone(),
        own: Own::none(),
        wakes,
        observer: Arc::new(Metrics::default()),
        fence: capmox::pve::Fence::default(),
        clones: capmox::hypervisor::CloneLimits::default(),
        shutdown: shutdown.clone(),
    }))
}

impl Stage {
    pub(crate) async fn set() -> Self {
        Self::set_in(World::shared().await.unwrap(), StatusWriter::Us).await
    }

    /// In this world, where nobody else may write the status of its connections.
    pub(crate) async fn set_in(world: &World, writer: StatusWriter) -> Self {
        let client = world.client().await.unwrap();
        let namespace = world.namespace("connection").await.unwrap();
        let shutdown = CancellationToken::new();
        let (wakes, woken) = mpsc::unbounded_channel();
        let connections = Arc::new(Connections::new(Settings {
            client: client.clone(),
            own: Own::none(),
            wakes,
            observer: Arc::new(Metrics::default()),
            fence: capmox::pve::Fence::default(),
            clones: capmox::hypervisor::CloneLimits::default(),
            shutdown: shutdown.clone(),
        }));
        let stage = Self {
            fake: Fake::start(Config::default()).await.unwrap(),
            client,
            namespace,
            connections,
            shutdown,
        };
        stage.start(writer, woken);
        stage
    }

    fn start(
        &self,
        writer: StatusWriter,
        wakes: mpsc::UnboundedReceiver<capmox::hypervisor::ObjectKey>,
    ) {
        let (client, connections) = (self.client.clone(), Arc::clone(&self.connections));
        let context = connection::Context {
            client: client.clone(),
            connections: Arc::clone(&connections),
            writer,
            concurrency: 4,
        };
        tokio::spawn(connection::run(context, self.shutdown.clone()));
        let context = cluster::Context {
            client: client.clone(),
            connections: Arc::clone(&connections),
            namespace: Some(self.namespace.clone()),
            watch_filter: None,
            concurrency: 4,
        };
        tokio::spawn(cluster::run(context, self.shutdown.clone()));
        let context = machine::Context {
            client,
            connections,
            wakes,
            namespace: Some(self.namespace.clone()),
            watch_filter: None,
            concurrency: 10,
            iso_storages: Vec::new(),
        };
        tokio::spawn(machine::run(context, self.shutdown.clone()));
    }

    /// Gives addresses out; one at a time may do that on an API server.
    pub(crate) fn serve_pools(&self) {
        tokio::spawn(embedded_ipam::run(self.client.clone(), self.shutdown.clone()));
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn all(&self) -> Api<ProxmoxConnection> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn create(&self, object: Value) -> DynamicObject {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", "v1"));
        let gvk = GroupVersionKind::gvk(group, version, &types.kind);
        let plural = format!("{}s", types.kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        api.create(&PostParams::default(), &object).await.unwrap()
    }

    /// A Secret `creds` with the key `token`.
    pub(crate) async fn secret(&self, token: &str) -> Secret {
        let secret = json!({"metadata": {"name": "creds"}, "stringData": {"token": token}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.api().create(&PostParams::default(), &secret).await.unwrap()
    }

    pub(crate) async fn rotate(&self, token: &str) {
        let patch = Patch::Merge(json!({"stringData": {"token": token}}));
        self.api::<Secret>().patch("creds", &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete_secret(&self) {
        self.api::<Secret>().delete("creds", &DeleteParams::default()).await.unwrap();
    }

    pub(crate) fn reference(&self) -> Value {
        json!({"name": "creds", "namespace": self.namespace, "key": "token"})
    }

    /// A connection named after the namespace and `suffix`, with the token in `creds`.
    pub(crate) async fn connection(&self, suffix: &str, change: Value) -> String {
        let spec = json!({
            "endpoint": self.fake.url(),
            "tokenID": self.fake.token().id,
            "secretFrom": self.reference(),
            "insecureSkipVerify": true,
        });
        let name = format!("{}{suffix}", self.namespace);
        let object = json!({
            "apiVersion": "proxmox.alperen.cloud/v1alpha1", "kind": "ProxmoxConnection",
            "metadata": {"name": name}, "spec": objects_merged(&spec, &change),
        });
        let object: ProxmoxConnection = serde_json::from_value(object).unwrap();
        self.all().create(&PostParams::default(), &object).await.unwrap();
        name
    }

    /// Waits until `Ready` of a connection has this reason, and its message these words.
    pub(crate) async fn says(&self, name: &str, reason: &str, words: &[&str]) -> ProxmoxConnection {
        let wanted = |found: &ProxmoxConnection| {
            let conditions = found.status.iter().flat_map(|status| &status.conditions);
            conditions.filter(|one| one.type_ == "Ready").any(|one| {
                one.reason == reason && words.iter().all(|word| one.message.contains(word))
            })
        };
        until(&self.all(), name, wanted).await
    }

    /// A Cluster and a ProxmoxCluster that names the connection.
    pub(crate) async fn cluster(&self, connection: &str) {
        let owner = self.create(crate::objects::cluster(&self.namespace)).await;
        let status = Patch::Merge(json!({"status": {"infrastructureReady": true}}));
        let api = self.api::<capmox::api::capi::Cluster>();
        let parameters = PatchParams::default();
        api.patch_status(crate::objects::CLUSTER, &parameters, &status).await.unwrap();
        let change = json!({"credentialsRef": null, "connectionRef": {"name": connection}});
        self.create(crate::objects::infra_cluster(&owner, &change)).await;
    }

    pub(crate) async fn machine(&self, name: &str) {
        self.create(crate::objects::bootstrap_secret(name)).await;
        let owner = self.create(crate::objects::machine(name, &self.namespace)).await;
        self.create(crate::objects::infra_machine(&owner, &json!({}))).await;
    }

    /// Waits until `ClusterReady` has this status and reason.
    pub(crate) async fn cluster_says(&self, status: &str, reason: &str) -> ProxmoxCluster {
        let wanted = |found: &ProxmoxCluster| {
            let conditions = found.status.iter().flat_map(|status| &status.conditions);
            conditions.filter(|one| one.type_ == "ClusterReady").any(|one| {
                one.status == status && one.reason.as_deref().unwrap_or_default() == reason
            })
        };
        until(&self.api::<ProxmoxCluster>(), crate::objects::CLUSTER, wanted).await
    }

    pub(crate) async fn ready(&self, machine: &str) -> ProxmoxMachine {
        let wanted =
            |found: &ProxmoxMachine| found.status.as_ref().is_some_and(|status| status.ready);
        until(&self.api::<ProxmoxMachine>(), machine, wanted).await
    }
}

fn objects_merged(base: &Value, change: &Value) -> Value {
    crate::objects::merged(base, change)
}

/// Waits until an object is as it should be.
pub(crate) async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let condition = |found: Option<&K>| found.is_some_and(&wanted);
    match timeout(PATIENCE, await_condition(api.clone(), name, condition)).await {
        Ok(found) => found.unwrap().unwrap(),
        Err(late) => {
            panic!("{name} stays as it is, {late}: {:#?}", api.get_opt(name).await.unwrap())
        }
    }
}

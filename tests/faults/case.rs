//! One case: a namespace, a hypervisor, a cluster whose core the test plays, and ways to wait.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use capmox::api::conditions::{self, Condition};
use capmox::api::ipam::{IPAddress, IPAddressClaim, InClusterIPPool};
use capmox::api::{ProxmoxCluster, ProxmoxMachine, reasons};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::api::events;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource, ResourceExt as _};
use pve_fake::{Config, Fake, VmView};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, interval, timeout};

use crate::objects::{self, CLUSTER, CREDENTIALS, JOIN_TOKEN};
use crate::stage::{self, Stage};

/// How long anything may take: to be told, to recover, to go.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Between two looks at the simulator.
const LOOK: Duration = Duration::from_millis(25);

static NUMBER: AtomicU32 = AtomicU32::new(1);

/// One broken world.
pub(crate) struct Case {
    pub(crate) fake: Fake,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) stage: &'static Stage,
    _busy: Busy,
}

/// Counts a case as under way.
struct Busy(&'static Stage);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Case {
    /// A hypervisor and a namespace; no cluster yet.
    pub(crate) async fn empty(mut config: Config) -> Self {
        let stage = stage::set().await;
        stage.busy.fetch_add(1, Ordering::SeqCst);
        let busy = Busy(stage);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        // Its own, so that it can be looked for in the log.
        config.seed.tokens[0].secret = format!("5ec2e75e-c2e7-4ec2-8ec2-{number:012}");
        config.seed.cluster = format!("lab-{number}");
        let fake = Fake::start(config).await.unwrap();
        let namespace = stage.world.namespace("faults").await.unwrap();
        Self { fake, client: stage.client.clone(), namespace, stage, _busy: busy }
    }

    /// With credentials and a cluster.
    pub(crate) async fn with(config: Config, cluster: Value) -> Self {
        let case = Self::empty(config).await;
        case.write_credentials(&case.credentials()).await;
        case.cluster(cluster).await;
        case
    }

    /// With everything as it should be.
    pub(crate) async fn sound() -> Self {
        Self::with(Config::default(), json!({})).await
    }

    /// The keys of a good credentials Secret.
    pub(crate) fn credentials(&self) -> BTreeMap<&'static str, String> {
        let token = self.fake.token();
        BTreeMap::from([
            ("url", self.fake.url()),
            ("token", token.id.clone()),
            ("secret", token.secret.clone()),
        ])
    }

    /// Writes the credentials Secret with exactly these keys.
    pub(crate) async fn write_credentials(&self, keys: &BTreeMap<&'static str, String>) {
        let api: Api<Secret> = self.api();
        let data: BTreeMap<String, ByteString> = keys
            .iter()
            .map(|(key, text)| ((*key).to_owned(), ByteString(text.clone().into_bytes())))
            .collect();
        if api.get_opt(CREDENTIALS).await.unwrap().is_none() {
            let mut secret = Secret { data: Some(data), ..Secret::default() };
            secret.metadata.name = Some(CREDENTIALS.to_owned());
            api.create(&PostParams::default(), &secret).await.unwrap();
            return;
        }
        // Finalizer and owner, which the manager adds, stay.
        let patch = json!([{"op": "add", "path": "/data", "value": data}]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
        api.patch(CREDENTIALS, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Makes the Cluster and its ProxmoxCluster; Cluster API calls its infrastructure ready.
    pub(crate) async fn cluster(&self, change: Value) {
        let cluster = self.create(objects::cluster(&self.namespace)).await;
        let status = json!({"status": {"infrastructureReady": true}});
        let api = self.dynamic("cluster.x-k8s.io", "v1beta1", "Cluster");
        let parameters = PatchParams::default();
        api.patch_status(CLUSTER, &parameters, &Patch::Merge(status)).await.unwrap();
        self.create(objects::infra_cluster(&cluster, &change)).await;
    }

    /// Makes a Machine with all that belongs to it.
    pub(crate) async fn machine(&self, name: &str, change: Value) {
        self.create(objects::bootstrap_secret(name)).await;
        self.machine_without_secret(name, change).await;
    }

    /// The same without the bootstrap Secret.
    pub(crate) async fn machine_without_secret(&self, name: &str, change: Value) {
        let owner = self.create(objects::machine(name, &self.namespace)).await;
        self.create(objects::infra_machine(&owner, &change)).await;
    }

    /// The ProxmoxMachine of a Machine that is there already.
    pub(crate) async fn machine_without_secret_of(&self, owner: &DynamicObject, change: Value) {
        self.create(objects::infra_machine(owner, &change)).await;
    }

    /// As [`Self::machine`], with other metadata.
    pub(crate) async fn paused_machine(&self, name: &str, change: Value) {
        self.create(objects::bootstrap_secret(name)).await;
        let owner = self.create(objects::machine(name, &self.namespace)).await;
        let machine = objects::infra_machine(&owner, &json!({}));
        self.create(objects::merged(&machine, &change)).await;
    }

    pub(crate) async fn create(&self, object: Value) -> DynamicObject {
        self.try_create(object).await.unwrap()
    }

    pub(crate) async fn try_create(&self, object: Value) -> Result<DynamicObject, kube::Error> {
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", "v1"));
        let api = self.dynamic(group, version, &types.kind);
        api.create(&PostParams::default(), &object).await
    }

    pub(crate) fn dynamic(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn change<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug,
    {
        let patch = Patch::Merge(patch);
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Changes the spec of a ProxmoxMachine.
    pub(crate) async fn edit(&self, machine: &str, spec: Value) {
        self.change::<ProxmoxMachine>(machine, json!({"spec": spec})).await;
    }

    /// Cluster API sees the node join.
    pub(crate) async fn join(&self, machine: &str) {
        let reference = json!({"apiVersion": "v1", "kind": "Node", "name": machine});
        let status = json!({"status": {"bootstrapReady": true, "nodeRef": reference}});
        let api = self.dynamic("cluster.x-k8s.io", "v1beta1", "Machine");
        let parameters = PatchParams::default();
        api.patch_status(machine, &parameters, &Patch::Merge(status)).await.unwrap();
    }

    /// The same, and waits until the seed is gone.
    pub(crate) async fn join_without_seed(&self, machine: &str) {
        self.join(machine).await;
        self.until(machine, "without seed", |found| {
            found.status.as_ref().is_some_and(|status| status.bootstrap_iso.is_none())
        })
        .await;
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn until_object<K>(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&K) -> bool,
    ) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let condition = |found: Option<&K>| found.is_some_and(&holds);
        match timeout(PATIENCE, await_condition(self.api::<K>(), name, condition)).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(late) => panic!("{name}, {what}: {late}\n{}", self.story().await),
        }
    }

    /// Waits until a machine is as it should be.
    pub(crate) async fn until(
        &self,
        machine: &str,
        what: &str,
        holds: impl Fn(&ProxmoxMachine) -> bool,
    ) -> ProxmoxMachine {
        self.until_object(machine, what, holds).await
    }

    /// Waits until `VMProvisioned` is `headline` (status, severity, reason) with these words in its
    /// message, which it gives.
    pub(crate) async fn says(&self, machine: &str, headline: &str, words: &[&str]) -> String {
        let wanted = |found: &ProxmoxMachine| {
            said(found).is_some_and(|condition| {
                line(condition) == headline
                    && words.iter().all(|word| text(condition).contains(word))
            })
        };
        let found = self.until(machine, &format!("{headline} {words:?}"), wanted).await;
        let status = found.status.as_ref().unwrap();
        let ready = conditions::find(&status.conditions, reasons::READY).unwrap();
        let own = said(&found).unwrap();
        assert_eq!((line(ready), text(ready)), (line(own), text(own)), "Ready sums up");
        text(own).to_owned()
    }

    /// Waits until `ClusterReady` says these words; gives the message.
    pub(crate) async fn cluster_says(&self, headline: &str, words: &[&str]) -> String {
        let of = |found: &ProxmoxCluster| {
            let conditions = &found.status.as_ref()?.conditions;
            conditions::find(conditions, reasons::CLUSTER_READY).cloned()
        };
        let wanted = |found: &ProxmoxCluster| {
            of(found).is_some_and(|condition| {
                let text = text(&condition);
                line(&condition) == headline && words.iter().all(|word| text.contains(word))
            })
        };
        let what = format!("{headline} {words:?}");
        let found = self.until_object::<ProxmoxCluster>(CLUSTER, &what, wanted).await;
        text(&of(&found).unwrap()).to_owned()
    }

    /// Waits until the machine is up.
    pub(crate) async fn ready(&self, machine: &str) -> ProxmoxMachine {
        self.until(machine, "ready", |found| {
            let is_ready = found.status.as_ref().is_some_and(|status| status.ready);
            is_ready && said(found).is_some_and(|condition| condition.status == "True")
        })
        .await
    }

    /// Looks at the simulator until it shows something.
    pub(crate) async fn sees<T>(&self, what: &str, probe: impl Fn(&Fake) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            if let Some(found) = probe(&self.fake) {
                return found;
            }
            assert!(Instant::now() < deadline, "{what}: too late\n{}", self.story().await);
        }
    }

    /// Sees that nothing of `holds` changes for a while.
    pub(crate) async fn stays(&self, time: Duration, what: &str, holds: impl Fn(&Fake) -> bool) {
        let end = Instant::now() + time;
        let mut ticks = interval(LOOK);
        while Instant::now() < end {
            ticks.tick().await;
            assert!(holds(&self.fake), "{what} no more\n{}", self.journal());
        }
    }

    /// VMs made for a machine.
    pub(crate) fn vms_of(&self, machine: &str) -> Vec<VmView> {
        let vms = self.fake.model().vms();
        vms.into_iter().filter(|vm| vm.name.as_deref() == Some(machine)).collect()
    }

    /// The one VM of a machine.
    pub(crate) fn vm_of(&self, machine: &str) -> VmView {
        let mut vms = self.vms_of(machine);
        assert_eq!(vms.len(), 1, "VMs of {machine}: {vms:?}");
        vms.remove(0)
    }

    /// Nothing was asked of the hypervisor that changes something.
    pub(crate) fn is_untouched(&self) -> bool {
        self.fake.journal().entries().all(|entry| entry.method == "GET" || !entry.has_effect())
    }

    /// Deletes a machine as Cluster API does, without waiting.
    pub(crate) async fn delete(&self, machine: &str) {
        let api = self.api::<ProxmoxMachine>();
        api.delete(machine, &DeleteParams::background()).await.unwrap();
    }

    /// Waits until a machine is gone, then lets its Machine go.
    pub(crate) async fn gone(&self, machine: &str) {
        self.end_of::<ProxmoxMachine>(machine).await;
        let machines = self.dynamic("cluster.x-k8s.io", "v1beta1", "Machine");
        machines.delete(machine, &DeleteParams::background()).await.unwrap();
        assert!(self.vms_of(machine).is_empty(), "the VM of {machine} is left");
    }

    /// Waits until an object is gone.
    pub(crate) async fn end_of<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let gone = |found: Option<&K>| found.is_none();
        let ended = timeout(PATIENCE, await_condition(self.api::<K>(), name, gone)).await;
        assert!(ended.is_ok(), "{name} does not go\n{}", self.story().await);
    }

    /// Deletes everything, and sees that nothing is left and nothing was told that is secret.
    pub(crate) async fn end(self) {
        let machines: Vec<String> = self.names::<ProxmoxMachine>().await;
        for machine in &machines {
            self.delete(machine).await;
        }
        for machine in &machines {
            self.gone(machine).await;
        }
        let clusters = self.dynamic("cluster.x-k8s.io", "v1beta1", "Cluster");
        clusters.delete(CLUSTER, &DeleteParams::background()).await.unwrap();
        let infra = self.api::<ProxmoxCluster>();
        infra.delete(CLUSTER, &DeleteParams::background()).await.unwrap();
        self.end_of::<ProxmoxCluster>(CLUSTER).await;
        // The IPAM provider gives claims and addresses free in its own time.
        self.end_of_all::<IPAddressClaim>().await;
        self.end_of_all::<IPAddress>().await;
        // Pools too, once the last of their addresses is free.
        let pools = self.names::<InClusterIPPool>().await;
        for pool in pools.iter().filter(|pool| pool.starts_with(CLUSTER)) {
            self.end_of::<InClusterIPPool>(pool).await;
        }
        let held: Vec<Secret> = self.list().await;
        assert!(held.iter().all(|secret| secret.finalizers().is_empty()), "a Secret is held");
        self.check_leftovers();
        self.check_secrets().await;
    }

    async fn end_of_all<K>(&self)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug + Send + 'static,
    {
        for name in self.names::<K>().await {
            self.end_of::<K>(&name).await;
        }
    }

    /// Volumes that belong to no VM, and broken rules.
    fn check_leftovers(&self) {
        let broken = self.fake.check_no_leaks();
        assert!(broken.is_empty(), "{broken:?}\n{}", self.journal());
        let model = self.fake.model();
        let ids: Vec<u32> = model.vms().iter().map(|vm| vm.vmid).collect();
        let stray: Vec<u32> = model.tended().into_iter().filter(|id| !ids.contains(id)).collect();
        assert!(stray.is_empty(), "entries of HA or replication of VMs {stray:?} are left");
        for (node, volume, _) in model.volumes() {
            let numbers = volume.split(|c: char| !c.is_ascii_digit());
            let owner = numbers.filter_map(|text| text.parse::<u32>().ok()).find(|n| *n >= 100);
            assert!(owner.is_none_or(|id| ids.contains(&id)), "{volume} on {node} is left");
        }
    }

    /// Neither log nor conditions nor events carry what only Secrets may.
    async fn check_secrets(&self) {
        let token = self.fake.token().secret.clone();
        let log = self.stage.log();
        let events: Vec<Event> = self.list().await;
        let events = serde_json::to_string(&events).unwrap();
        for secret in [token.as_str(), JOIN_TOKEN] {
            assert!(!log.contains(secret), "a secret is in the log");
            assert!(!events.contains(secret), "a secret is in an event");
        }
    }

    pub(crate) async fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug,
    {
        self.api::<K>().list(&ListParams::default()).await.unwrap().items
    }

    /// Waits until an event of this reason says these words.
    pub(crate) async fn event(&self, reason: &str, words: &[&str]) {
        let says = |event: &events::v1::Event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason) && words.iter().all(|word| note.contains(word))
        };
        let deadline = Instant::now() + PATIENCE;
        let mut ticks = interval(LOOK * 10);
        while !self.list::<events::v1::Event>().await.iter().any(says) {
            ticks.tick().await;
            let story = self.story();
            assert!(Instant::now() < deadline, "no {reason} {words:?}\n{}", story.await);
        }
    }

    async fn names<K>(&self) -> Vec<String>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug,
    {
        let metadata = self.api::<K>().list_metadata(&ListParams::default()).await.unwrap();
        metadata.items.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// What happened, for a message.
    async fn story(&self) -> String {
        let infra = self.dynamic(capmox::api::GROUP, capmox::api::VERSION, "ProxmoxMachine");
        let machines = infra.list(&ListParams::default()).await.unwrap().items;
        let clusters: Vec<ProxmoxCluster> = self.list().await;
        let mut text = String::new();
        for cluster in clusters {
            let _ = writeln!(text, "ProxmoxCluster: {}", json!(cluster.status));
        }
        for machine in machines {
            let _ = writeln!(text, "{}: {}", machine.name_any(), machine.data);
        }
        let log = self.stage.log();
        let ours: Vec<&str> = log.lines().filter(|line| line.contains(&self.namespace)).collect();
        let from = ours.len().saturating_sub(40);
        for line in &ours[from..] {
            text.extend(line.chars().take(600));
            text.push('\n');
        }
        text + &self.journal()
    }

    /// The latest calls.
    fn journal(&self) -> String {
        let journal = self.fake.journal();
        let all: Vec<String> = journal
            .entries()
            .map(|entry| {
                let reason = entry.reason.as_deref().unwrap_or_default();
                let effect = entry.effect.as_deref().unwrap_or_default();
                let (method, path, status) = (&entry.method, &entry.path, entry.status);
                format!("{method} {path} {status} {reason} {effect}\n")
            })
            .collect();
        all[all.len().saturating_sub(60)..].concat()
    }
}

/// The condition `VMProvisioned`.
pub(crate) fn said(machine: &ProxmoxMachine) -> Option<&Condition> {
    conditions::find(&machine.status.as_ref()?.conditions, reasons::VM_PROVISIONED)
}

/// Status, severity and reason.
pub(crate) fn line(condition: &Condition) -> String {
    let parts = [Some(&condition.status), condition.severity.as_ref(), condition.reason.as_ref()];
    parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
}

pub(crate) fn text(condition: &Condition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}

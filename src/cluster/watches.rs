//! What the controller watches, and which ProxmoxCluster a change concerns.
//!
//! Objects that cannot be read do not stop a watch. A watch that fails heals itself and holds up no
//! other; until then the regular look stands in for it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::controller::{Config, Controller};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::facts::{credentials, has_finalizer, key};
use crate::api::capi::{self, Cluster, Machine, WATCH_LABEL};
use crate::api::ipam::InClusterIPPool;
use crate::api::{GROUP, ProxmoxCluster, ProxmoxMachine, ProxmoxMachineSpec, SECRET_FINALIZER};
use crate::changes::{changes, paced};
use crate::connections::{Connections, Source};
use crate::hypervisor::ObjectKey;

/// A ProxmoxCluster, or why it cannot be read.
pub(super) type ClusterGuard = DeserializeGuard<ProxmoxCluster>;
/// A ProxmoxMachine, or why it cannot be read.
pub(super) type MachineGuard = DeserializeGuard<ProxmoxMachine>;
/// A Machine without all that it is not asked for.
pub(super) type OwnerMeta = PartialObjectMeta<Machine>;
/// A Secret without its data.
pub(super) type SecretMeta = PartialObjectMeta<Secret>;

/// How often the places of machines are written again while they change.
const MACHINES_PAUSE: Duration = Duration::from_secs(1);

/// A controller with all watches set up, and what they collect.
pub(super) struct Watches {
    pub(super) controller: Controller<ClusterGuard>,
    /// ProxmoxClusters that are looked after.
    pub(super) clusters: Store<ClusterGuard>,
    /// ProxmoxMachines, with nothing but metadata and node.
    pub(super) machines: Store<MachineGuard>,
    /// Machines, with nothing but their labels.
    pub(super) owners: Store<OwnerMeta>,
    /// Secrets that some ProxmoxCluster holds.
    pub(super) held: Held,
}

/// The Secrets with our finalizer, and the UIDs of their owners.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<BTreeMap<ObjectKey, Vec<String>>>>);

impl Held {
    /// The Secrets that the object with this UID owns.
    pub(super) fn by(&self, uid: &str) -> Vec<ObjectKey> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = held.iter().filter(|(_, owners)| owners.iter().any(|owner| owner == uid));
        owned.map(|(secret, _)| secret.clone()).collect()
    }

    fn note(&self, event: &Event<SecretMeta>) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(secret) | Event::InitApply(secret)
                if has_finalizer(&secret.metadata, SECRET_FINALIZER) =>
            {
                let owners = secret.metadata.owner_references.iter().flatten();
                let owners = owners.map(|owner| owner.uid.clone()).collect();
                held.insert(key(&secret.metadata), owners);
            }
            Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret) => {
                held.remove(&key(&secret.metadata));
            }
            // Secrets that went unnoticed meanwhile are found absent when they are read.
            Event::Init | Event::InitDone => {}
        }
    }
}

/// Sets up the watches.
pub(super) fn watches(
    client: &Client,
    connections: &Connections,
    namespace: Option<&str>,
    watch_filter: Option<&str>,
    concurrency: u16,
) -> Watches {
    let labels = watch_filter.map(|value| format!("{WATCH_LABEL}={value}"));
    let selected = watcher::Config { label_selector: labels, ..watcher::Config::default() };
    let (clusters, writer) = store();
    let events = watcher(api::<ClusterGuard>(client, namespace), selected).default_backoff();
    let events = changes(events.reflect(writer), infra_print);
    let controller = Controller::for_stream(events, clusters.clone())
        .with_config(Config::default().concurrency(concurrency.max(1)));
    let (machines, writer) = store();
    let machine_events =
        watcher(api::<MachineGuard>(client, namespace), watcher::Config::default())
            .default_backoff()
            .modify(prune)
            .reflect(writer);
    let (owners, writer) = store();
    let lead_events = watcher(api::<OwnerMeta>(client, namespace), watcher::Config::default())
        .default_backoff()
        .modify(keep_labels)
        .reflect(writer);
    let held = Held::default();
    let noted = held.clone();
    let secret_events =
        watch::<SecretMeta>(client, namespace).inspect_ok(move |event| noted.note(event));
    let owner_events = watch::<DeserializeGuard<Cluster>>(client, namespace);
    let pool_events = watch::<DeserializeGuard<InClusterIPPool>>(client, namespace);

    let (of_machine, of_lead, of_secret) = (clusters.clone(), clusters.clone(), clusters.clone());
    let of_change = clusters.clone();
    let credential_changes = connections.changes().flat_map(move |change| {
        stream::iter(find(&of_change, |cluster| change.concerns(&Source::of(cluster))))
    });
    let clusters_of = |clusters: &Store<ClusterGuard>, machine: &ObjectMeta| {
        stream::iter(find(clusters, |cluster| has_machine(cluster, machine)))
    };
    let machine_changes = changes(machine_events, machine_print)
        .filter_map(async |machine| machine.ok())
        .flat_map(move |machine| clusters_of(&of_machine, machine.meta()));
    let lead_changes = changes(lead_events, role_print)
        .filter_map(async |machine| machine.ok())
        .flat_map(move |machine| clusters_of(&of_lead, machine.meta()));
    let controller = controller
        .reconcile_on(credential_changes)
        .watches_stream(changes(owner_events, cluster_print), |cluster| owned_by(&cluster))
        .reconcile_on(paced(stream::select(machine_changes, lead_changes), MACHINES_PAUSE))
        .watches_stream(changes(pool_events, pool_print), |pool| controller_of(pool.meta()))
        .watches_stream(changes(secret_events, secret_print), move |secret| {
            let secret = key(&secret.metadata);
            find(&of_secret, |cluster| credentials(cluster).as_ref() == Some(&secret))
        });
    Watches { controller, clusters, machines, owners, held }
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn watch<K>(
    client: &Client,
    namespace: Option<&str>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + 'static,
{
    watcher(api::<K>(client, namespace), watcher::Config::default()).default_backoff()
}

/// Keeps of a machine what is asked of it.
fn prune(machine: &mut MachineGuard) {
    if let Ok(machine) = &mut machine.0 {
        machine.spec = ProxmoxMachineSpec::default();
        let node = machine.status.take().and_then(|status| status.proxmox_node);
        machine.status = Some(crate::api::ProxmoxMachineStatus {
            proxmox_node: node,
            ..crate::api::ProxmoxMachineStatus::default()
        });
    }
    machine.meta_mut().managed_fields = None;
}

/// Keeps of a Machine what is asked of it.
fn keep_labels(machine: &mut OwnerMeta) {
    let metadata = std::mem::take(&mut machine.metadata);
    machine.metadata = ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        labels: metadata.labels,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    };
}

/// Status is written by the controller itself, and does not start another pass.
fn infra_print(cluster: &ClusterGuard) -> impl Serialize + use<> {
    let meta = cluster.meta();
    (
        (meta.uid.clone(), meta.generation, meta.deletion_timestamp.is_some()),
        (meta.labels.clone(), meta.annotations.clone()),
        (meta.owner_references.clone(), meta.finalizers.clone()),
    )
}

fn machine_print(machine: &MachineGuard) -> impl Serialize + use<> {
    let status = machine.0.as_ref().ok().and_then(|machine| machine.status.clone());
    let meta = machine.meta();
    (
        status.and_then(|status| status.proxmox_node),
        capi::cluster_name(meta).map(ToOwned::to_owned),
        capi::is_control_plane(meta),
    )
}

/// Cluster and role; the role of a machine is looked for at its Machine too.
fn role_print(machine: &OwnerMeta) -> impl Serialize + use<> {
    let cluster = capi::cluster_name(&machine.metadata).map(ToOwned::to_owned);
    (cluster, capi::is_control_plane(&machine.metadata))
}

fn cluster_print(cluster: &DeserializeGuard<Cluster>) -> impl Serialize + use<> {
    let spec = cluster.0.as_ref().ok().map(|cluster| cluster.spec.clone());
    let meta = cluster.meta();
    (spec, meta.deletion_timestamp.is_some(), meta.annotations.clone())
}

fn pool_print(pool: &DeserializeGuard<InClusterIPPool>) -> impl Serialize + use<> {
    let meta = pool.meta();
    let known = pool.0.as_ref().ok();
    let has_status = known.is_some_and(|pool| pool.status.is_some());
    (
        known.map(|pool| pool.spec.clone()),
        has_status,
        (meta.labels.clone(), meta.annotations.clone(), meta.owner_references.clone()),
        meta.deletion_timestamp.is_some(),
    )
}

/// Of a Secret any change may be one of its data, which the metadata do not show.
fn secret_print(secret: &SecretMeta) -> impl Serialize + use<> {
    secret.metadata.resource_version.clone()
}

/// The ProxmoxCluster that a Cluster names.
fn owned_by(cluster: &DeserializeGuard<Cluster>) -> Option<ObjectRef<ClusterGuard>> {
    let known = cluster.0.as_ref().ok()?;
    let reference = known.spec.infrastructure_ref.as_ref()?;
    let group = reference.api_version.as_deref()?.split('/').next()?;
    let is_ours = group == GROUP && reference.kind.as_deref() == Some("ProxmoxCluster");
    let name = reference.name.as_deref().filter(|_| is_ours)?;
    Some(ObjectRef::new(name).within(&known.namespace()?))
}

fn controller_of(meta: &ObjectMeta) -> Option<ObjectRef<ClusterGuard>> {
    let owner = meta.owner_references.iter().flatten().find(|owner| {
        owner.kind == "ProxmoxCluster" && owner.api_version.split('/').next() == Some(GROUP)
    })?;
    Some(ObjectRef::new(&owner.name).within(meta.namespace.as_deref()?))
}

fn has_machine(cluster: &ProxmoxCluster, machine: &ObjectMeta) -> bool {
    let name = super::facts::cluster_name(cluster);
    cluster.metadata.namespace == machine.namespace
        && name.is_some()
        && name == capi::cluster_name(machine)
}

fn find(
    clusters: &Store<ClusterGuard>,
    concerns: impl Fn(&ProxmoxCluster) -> bool,
) -> Vec<ObjectRef<ClusterGuard>> {
    let clusters = clusters.state();
    let known = clusters.iter().filter_map(|guard| guard.0.as_ref().ok());
    known.filter(|cluster| concerns(cluster)).map(reference_to).collect()
}

fn reference_to(cluster: &ProxmoxCluster) -> ObjectRef<ClusterGuard> {
    let key = key(&cluster.metadata);
    ObjectRef::new(&key.name).within(&key.namespace)
}

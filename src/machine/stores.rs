//! What is watched in the management cluster: the copies that [`super::observe`] reads, and which
//! machine each change concerns.

use std::fmt::Debug;

use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher;
use kube::runtime::{Controller, WatchStreamExt};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::quiet::Bell;
use crate::api::capi::{self, Cluster, Machine};
use crate::api::ipam::{IPAddress, IPAddressClaim};
use crate::api::{GROUP, ProxmoxCluster, ProxmoxMachine, reasons};
use crate::hypervisor::ObjectKey;

/// A ProxmoxMachine as the API server stores it, which need not be one that can be read.
pub(super) type Stored = DeserializeGuard<ProxmoxMachine>;

/// Copies of all that is watched.
#[derive(Clone)]
pub(super) struct Stores {
    pub(super) machines: Store<Stored>,
    pub(super) owners: Store<Machine>,
    pub(super) clusters: Store<Cluster>,
    pub(super) infra: Store<DeserializeGuard<ProxmoxCluster>>,
    pub(super) claims: Store<IPAddressClaim>,
    pub(super) addresses: Store<IPAddress>,
}

impl Stores {
    /// Whether all that a pass rests on was read once. Before that, an object that is not in its
    /// copy says nothing.
    pub(super) fn know_clusters(&self) -> bool {
        filled(&self.owners) && filled(&self.clusters) && filled(&self.infra)
    }

    /// Whether claims and addresses were read once.
    pub(super) fn know_ipam(&self) -> bool {
        filled(&self.claims) && filled(&self.addresses)
    }
}

fn filled<K>(store: &Store<K>) -> bool
where
    K: reflector::Lookup<DynamicType = ()> + Clone + 'static,
{
    store.wait_until_ready().now_or_never().is_some()
}

/// Which objects are looked at.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    /// The only namespace; all when none.
    pub(super) namespace: Option<String>,
    /// Value of the watch label of ProxmoxMachines; any when none.
    pub(super) watch_filter: Option<String>,
}

impl Selection {
    fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }

    fn own(&self) -> watcher::Config {
        match &self.watch_filter {
            Some(value) => {
                watcher::Config::default().labels(&format!("{}={value}", capi::WATCH_LABEL))
            }
            None => watcher::Config::default(),
        }
    }
}

/// One kind that is watched: its copy, and the stream that keeps it up to date.
fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
) -> (Store<K>, impl Stream<Item = Result<K, watcher::Error>> + Send)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = reflector::store();
    let stream = watcher(api, config)
        .default_backoff()
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer)
        .touched_objects()
        // The controller would pause for all kinds when one of them cannot be read.
        .filter_map(|read| async move {
            match read {
                Ok(object) => Some(Ok(object)),
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted");
                    None
                }
            }
        });
    (reader, stream)
}

/// Watches everything and starts the controller of ProxmoxMachines on it.
pub(super) fn start(
    client: &Client,
    selection: &Selection,
    bell: &Bell,
) -> (Stores, Controller<Stored>) {
    let all = watcher::Config::default;
    let (machines, machine_stream) = watch::<Stored>(selection.api(client), selection.own());
    let (owners, owner_stream) = watch::<Machine>(selection.api(client), all());
    let (clusters, cluster_stream) = watch::<Cluster>(selection.api(client), all());
    let (infra, infra_stream) =
        watch::<DeserializeGuard<ProxmoxCluster>>(selection.api(client), all());
    let (claims, claim_stream) = watch::<IPAddressClaim>(selection.api(client), all());
    let (addresses, address_stream) = watch::<IPAddress>(selection.api(client), all());

    let (by_cluster, by_infra) = (machines.clone(), machines.clone());
    let infra_clusters = clusters.clone();
    let rings = || {
        let bell = bell.clone();
        move |woken: &ObjectRef<Stored>| bell.ring(key_of(woken))
    };
    let (by_owner, by_cluster_too, by_infra_too) = (rings(), rings(), rings());
    let (by_claim, by_address) = (rings(), rings());
    let controller = Controller::for_stream(machine_stream, machines.clone())
        .watches_stream(owner_stream, move |machine: Machine| {
            machine
                .spec
                .infrastructure_ref
                .as_ref()
                .filter(|reference| reference.kind.as_deref() == Some("ProxmoxMachine"))
                .and_then(|reference| reference.name.as_deref())
                .map(|name| reference(name, &machine.metadata))
                .inspect(&by_owner)
        })
        .watches_stream(cluster_stream, move |cluster: Cluster| {
            let paused = cluster.spec.paused == Some(true);
            let woken = of_cluster(&by_cluster, &cluster.metadata, &cluster.name_any(), paused);
            woken.into_iter().inspect(&by_cluster_too).collect::<Vec<_>>()
        })
        .watches_stream(infra_stream, move |infra: DeserializeGuard<ProxmoxCluster>| {
            let owner = cluster_of(infra.meta(), &infra_clusters);
            let woken = owner.map(|name| of_cluster(&by_infra, infra.meta(), &name, false));
            woken.into_iter().flatten().inspect(&by_infra_too).collect::<Vec<_>>()
        })
        .watches_stream(claim_stream, move |claim: IPAddressClaim| {
            owner_of(&claim.metadata).inspect(&by_claim)
        })
        .watches_stream(address_stream, move |address: IPAddress| {
            machine_of_claim(&address.spec.claim_ref.name)
                .map(|machine| reference(machine, &address.metadata))
                .inspect(&by_address)
        });
    (Stores { machines, owners, clusters, infra, claims, addresses }, controller)
}

fn reference(name: &str, beside: &ObjectMeta) -> ObjectRef<Stored> {
    ObjectRef::new(name).within(beside.namespace.as_deref().unwrap_or_default())
}

/// Machines of a cluster that may wait for it. Those that are provisioned have no use for its
/// every change.
fn of_cluster(
    machines: &Store<Stored>,
    beside: &ObjectMeta,
    name: &str,
    paused: bool,
) -> Vec<ObjectRef<Stored>> {
    machines
        .state()
        .iter()
        .filter(|machine| {
            machine.meta().namespace == beside.namespace
                && capi::cluster_name(machine.meta()) == Some(name)
                && waits_for_its_cluster(machine, paused)
        })
        .map(|machine| ObjectRef::from_obj(machine.as_ref()))
        .collect()
}

fn waits_for_its_cluster(machine: &Stored, paused: bool) -> bool {
    let Some(status) = machine.0.as_ref().ok().and_then(|machine| machine.status.as_ref()) else {
        return true;
    };
    let told = status
        .v1beta2_conditions()
        .iter()
        .any(|condition| condition.type_ == reasons::PAUSED && condition.status == "True");
    !status.ready || told != paused || machine.meta().deletion_timestamp.is_some()
}

/// The name of the Cluster whose infrastructure a ProxmoxCluster is.
fn cluster_of(infra: &ObjectMeta, clusters: &Store<Cluster>) -> Option<String> {
    let owner = capi::owner(infra, "Cluster").map(|owner| owner.name.clone());
    owner.or_else(|| {
        let refers = |cluster: &Cluster| {
            cluster.metadata.namespace == infra.namespace
                && cluster.spec.infrastructure_ref.as_ref().is_some_and(|r| r.name == infra.name)
        };
        clusters.find(refers).map(|cluster| cluster.name_any())
    })
}

fn owner_of(claim: &ObjectMeta) -> Option<ObjectRef<Stored>> {
    let owner = claim.owner_references.iter().flatten().find(|owner| {
        owner.kind == "ProxmoxMachine"
            && owner.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
    })?;
    Some(reference(&owner.name, claim))
}

/// The machine in the name of a claim: `<machine>-<device>-inet` or `…-inet6`.
fn machine_of_claim(claim: &str) -> Option<&str> {
    let rest = claim.strip_suffix("-inet").or_else(|| claim.strip_suffix("-inet6"))?;
    rest.rsplit_once('-').map(|(machine, _)| machine)
}

/// The woken machines as the controller wants them.
pub(super) fn woken(
    wakes: impl Stream<Item = ObjectKey> + Send + 'static,
    bell: Bell,
) -> impl Stream<Item = ObjectRef<Stored>> + Send + 'static {
    wakes.map(move |key| {
        let woken = ObjectRef::new(&key.name).within(&key.namespace);
        bell.ring(key);
        woken
    })
}

fn key_of(woken: &ObjectRef<Stored>) -> ObjectKey {
    ObjectKey { namespace: woken.namespace.clone().unwrap_or_default(), name: woken.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::machine_of_claim;

    #[test]
    fn a_claim_names_its_machine() {
        assert_eq!(machine_of_claim("lab-cp-0-net0-inet"), Some("lab-cp-0"));
        assert_eq!(machine_of_claim("w-net12-inet6"), Some("w"));
        assert_eq!(machine_of_claim("something-else"), None);
    }
}

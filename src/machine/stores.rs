//! What is watched in the management cluster: the copies that [`super::observe`] reads, and which
//! machine each change concerns.

use std::fmt::Debug;

use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::watcher;
use kube::runtime::{Controller, WatchStreamExt};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::quiet::Bell;
use super::traces::Traces;
use crate::api::capi::{self, Cluster, Machine};
use crate::api::ipam::{IPAddress, IPAddressClaim};
use crate::api::{GROUP, ProxmoxCluster, ProxmoxMachine, reasons};
use crate::changes::changes;
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

/// One kind that is watched: its copy, and the stream that keeps it up to date. `told` gets what
/// the API server tells when the copy has it.
fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    told: impl Fn(&Store<K>, &watcher::Event<K>) + Send + 'static,
) -> (Store<K>, impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (reader, writer) = reflector::store();
    let copy = reader.clone();
    let stream = watcher(api, config)
        .default_backoff()
        .modify(|object| object.managed_fields_mut().clear())
        .reflect(writer)
        .inspect_ok(move |event| told(&copy, event));
    (reader, stream)
}

fn unheard<K>(_: &Store<K>, _: &watcher::Event<K>)
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
}

/// Rings for machines that are there. What belonged to one that is gone goes after it, and nobody
/// would hear.
#[derive(Clone)]
pub(super) struct Ringer {
    pub(super) bell: Bell,
    pub(super) machines: Store<Stored>,
}

impl Ringer {
    fn ring(&self, woken: &ObjectRef<Stored>) {
        if self.machines.get(woken).is_some() {
            self.bell.ring(key_of(woken));
        }
    }
}

/// Watches everything and starts the controller of ProxmoxMachines on it.
pub(super) fn start(
    client: &Client,
    selection: &Selection,
    traces: &Traces,
) -> (Stores, Controller<Stored>) {
    let all = watcher::Config::default;
    let gone = traces.clone();
    let told = move |copy: &Store<Stored>, event: &watcher::Event<Stored>| match event {
        watcher::Event::Delete(machine) => {
            let key = key_of(&ObjectRef::from_obj(machine));
            if let Ok(machine) = &machine.0 {
                gone.tell_departed(machine);
            }
            gone.forget(&key, machine.meta().uid.as_deref().unwrap_or_default());
        }
        watcher::Event::InitDone => gone.sweep(copy),
        _ => {}
    };
    let (machines, machine_stream) = watch(selection.api(client), selection.own(), told);
    let (owners, owner_stream) = watch::<Machine>(selection.api(client), all(), unheard);
    let (clusters, cluster_stream) = watch::<Cluster>(selection.api(client), all(), unheard);
    let (infra, infra_stream) =
        watch::<DeserializeGuard<ProxmoxCluster>>(selection.api(client), all(), unheard);
    let (claims, claim_stream) = watch::<IPAddressClaim>(selection.api(client), all(), unheard);
    let (addresses, address_stream) = watch::<IPAddress>(selection.api(client), all(), unheard);

    let (by_cluster, by_infra) = (machines.clone(), machines.clone());
    let infra_clusters = clusters.clone();
    let ringer = Ringer { bell: traces.bell.clone(), machines: machines.clone() };
    let rings = || {
        let ringer = ringer.clone();
        move |woken: &ObjectRef<Stored>| ringer.ring(woken)
    };
    let (by_owner, by_cluster_too, by_infra_too) = (rings(), rings(), rings());
    let (by_claim, by_address) = (rings(), rings());
    let controller = Controller::for_stream(changes(machine_stream, version), machines.clone())
        .watches_stream(changes(owner_stream, owner_print), move |machine: Machine| {
            machine
                .spec
                .infrastructure_ref
                .as_ref()
                .filter(|reference| reference.kind.as_deref() == Some("ProxmoxMachine"))
                .and_then(|reference| reference.name.as_deref())
                .map(|name| reference(name, &machine.metadata))
                .inspect(&by_owner)
        })
        .watches_stream(changes(cluster_stream, cluster_print), move |cluster: Cluster| {
            let paused = cluster.spec.paused == Some(true);
            let woken = of_cluster(&by_cluster, &cluster.metadata, &cluster.name_any(), paused);
            woken.into_iter().inspect(&by_cluster_too).collect::<Vec<_>>()
        })
        .watches_stream(
            changes(infra_stream, infra_print),
            move |infra: DeserializeGuard<ProxmoxCluster>| {
                let owner = cluster_of(infra.meta(), &infra_clusters);
                let woken = owner.map(|name| of_cluster(&by_infra, infra.meta(), &name, false));
                woken.into_iter().flatten().inspect(&by_infra_too).collect::<Vec<_>>()
            },
        )
        .watches_stream(changes(claim_stream, claim_print), move |claim: IPAddressClaim| {
            owner_of(&claim.metadata).inspect(&by_claim)
        })
        .watches_stream(changes(address_stream, address_print), move |address: IPAddress| {
            machine_of_claim(&address.spec.claim_ref.name)
                .map(|machine| reference(machine, &address.metadata))
                .inspect(&by_address)
        });
    (Stores { machines, owners, clusters, infra, claims, addresses }, controller)
}

/// Every change of a machine itself is looked at; [`super::quiet`] leaves out its own writes.
fn version(machine: &Stored) -> impl Serialize + use<> {
    machine.meta().resource_version.clone()
}

/// What is read of the metadata of what a machine belongs to.
fn belonging(meta: &ObjectMeta) -> impl Serialize + use<> {
    let deleted = meta.deletion_timestamp.is_some();
    (meta.labels.clone(), meta.annotations.clone(), meta.owner_references.clone(), deleted)
}

fn owner_print(owner: &Machine) -> impl Serialize + use<> {
    let status = owner.status.as_ref();
    let joined = status.map(|status| (status.bootstrap_ready, status.node_ref.clone()));
    (belonging(&owner.metadata), owner.spec.clone(), joined)
}

fn cluster_print(cluster: &Cluster) -> impl Serialize + use<> {
    let ready = cluster.status.as_ref().and_then(|status| status.infrastructure_ready);
    (belonging(&cluster.metadata), cluster.spec.clone(), ready)
}

/// Not its status, which changes with every machine that is placed.
fn infra_print(infra: &DeserializeGuard<ProxmoxCluster>) -> impl Serialize + use<> {
    let spec = infra.0.as_ref().map(|infra| infra.spec.clone());
    (belonging(infra.meta()), spec.map_err(|wrong| wrong.error.clone()))
}

fn claim_print(claim: &IPAddressClaim) -> impl Serialize + use<> {
    (belonging(&claim.metadata), claim.spec.clone(), claim.status.clone())
}

fn address_print(address: &IPAddress) -> impl Serialize + use<> {
    (belonging(&address.metadata), address.spec.clone())
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
    ringer: Ringer,
) -> impl Stream<Item = ObjectRef<Stored>> + Send + 'static {
    wakes.map(move |key| {
        let woken = ObjectRef::new(&key.name).within(&key.namespace);
        ringer.ring(&woken);
        woken
    })
}

fn key_of(woken: &ObjectRef<Stored>) -> ObjectKey {
    ObjectKey { namespace: woken.namespace.clone().unwrap_or_default(), name: woken.name.clone() }
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;

    use super::super::fixture::fresh;
    use super::*;

    #[test]
    fn the_bell_rings_for_machines_that_are_there() {
        let (machines, mut copies) = reflector::store::<Stored>();
        let ringer = Ringer { bell: Bell::default(), machines };
        let machine = DeserializeGuard(Ok(fresh().machine));
        let woken = ObjectRef::from_obj(&machine);
        let rings = || {
            ringer.ring(&woken);
            ringer.bell.rang(&key_of(&woken))
        };
        assert!(!rings());
        copies.apply_watcher_event(&watcher::Event::Apply(machine.clone()));
        assert!(rings());
        copies.apply_watcher_event(&watcher::Event::Delete(machine.clone()));
        assert!(!rings(), "its claims go after it");
    }

    #[test]
    fn a_claim_names_its_machine() {
        assert_eq!(machine_of_claim("lab-cp-0-net0-inet"), Some("lab-cp-0"));
        assert_eq!(machine_of_claim("w-net12-inet6"), Some("w"));
        assert_eq!(machine_of_claim("something-else"), None);
    }
}

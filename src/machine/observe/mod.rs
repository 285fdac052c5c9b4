//! Facts about one machine: from the copies of watched objects at once, from Proxmox when asked.

mod claims;
mod guest;
mod placement;
mod proxmox;
mod sharers;
mod turn;

pub(super) use placement::group;
pub(super) use turn::Crowd;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Resource, ResourceExt};
use tokio::time::Instant;

use self::claims::{addresses, is_ours};
use super::decision::Look;
use super::facts::{BootstrapData, Facts, Past};
use super::pass::Pass;
use super::stores::Stores;
use crate::api::capi::{self, Cluster, Machine};
use crate::api::ipam::{GlobalInClusterIPPool, InClusterIPPool};
use crate::api::{
    NodeLocation, NodeLocations, ProxmoxCluster, ProxmoxClusterStatus, ProxmoxMachine,
};
use crate::connections::{self, Source};
use crate::fault::{Class, Fault};
use crate::hypervisor::{Admission, Endpoint, ObjectKey, Operation};
use crate::ipam::{self, GLOBAL_IN_CLUSTER_POOL, IN_CLUSTER_POOL, METRIC_ANNOTATION};
use crate::pve::{self, ErrorKind, Upid};
use crate::seen::Seen;

/// The object of this name in a namespace, from its copy.
fn read<K>(store: &Store<K>, namespace: &str, name: &str) -> Option<Arc<K>>
where
    K: kube::runtime::reflector::Lookup<DynamicType = ()> + Clone + 'static,
{
    store.get(&ObjectRef::new(name).within(namespace))
}

/// The Machine that an object belongs to, from its copy.
fn owner(stores: &Stores, machine: &ProxmoxMachine) -> Option<Arc<Machine>> {
    let owner = capi::owner(machine.meta(), "Machine")?;
    read(&stores.owners, &machine.namespace().unwrap_or_default(), &owner.name)
}

/// What is known without a call.
pub(super) fn gather(stores: &Stores, machine: ProxmoxMachine) -> Facts {
    let namespace = machine.namespace().unwrap_or_default();
    let owner = owner(stores, &machine).map(|owner| owner.as_ref().clone());
    let cluster_name = owner
        .as_ref()
        .and_then(|owner| capi::cluster_name(&owner.metadata))
        .or_else(|| capi::cluster_name(machine.meta()))
        .map(str::to_owned);
    let cluster = cluster_name
        .as_deref()
        .and_then(|name| read(&stores.clusters, &namespace, name))
        .map(|cluster| cluster.as_ref().clone());
    let infra = infra(stores, &namespace, cluster.as_ref(), cluster_name.as_deref())
        .and_then(|infra| Some(pared(infra.0.as_ref().ok()?, &machine.name_any())));
    let claims = stores
        .claims
        .state()
        .iter()
        .filter(|claim| is_ours(claim, &machine) && claim.metadata.deletion_timestamp.is_none())
        .map(|claim| claim.name_any())
        .collect();
    let mut facts = Facts {
        machine,
        owner,
        cluster,
        infra,
        connection: None,
        addresses: Vec::new(),
        claims,
        ipam_trouble: None,
        task: None,
        listed: Seen::Unknown("not read".to_owned()),
        vm: None,
        absence_confirmed: false,
        vmid_shared: false,
        others_ids: Vec::new(),
        double: None,
        guest_looks: 0,
        guest_wait: None,
        power: None,
        placement: None,
        bootstrap: None,
        iso_storages: None,
        stray: None,
        guest: None,
        grown: None,
        template: None,
        seed_shared: None,
        seed_deleted: false,
        records_lost: false,
        clone_refused: false,
        vmid_foreign: false,
        stored: None,
        in_ha: false,
        past: Past::default(),
    };
    facts.addresses = addresses(stores, &facts);
    let sharers = sharers::all(stores, &facts.machine);
    facts.vmid_shared = !sharers.is_empty();
    facts.double = sharers::double(&facts.machine, &sharers);
    facts.others_ids = sharers.into_iter().filter_map(|other| other.spec.provider_id).collect();
    if !stores.know_ipam() {
        facts.ipam_trouble = Some(
            "the API server does not list IPAddressClaims and IPAddresses of \
             ipam.cluster.x-k8s.io/v1beta1, which come with Cluster API core"
                .to_owned(),
        );
    }
    facts
}

/// The ProxmoxCluster that the Cluster refers to; without a Cluster, the one that carries its name
/// as a label, so that a machine can be deleted after its Cluster.
fn infra(
    stores: &Stores,
    namespace: &str,
    cluster: Option<&Cluster>,
    cluster_name: Option<&str>,
) -> Option<Arc<DeserializeGuard<ProxmoxCluster>>> {
    if let Some(cluster) = cluster {
        let reference = cluster.spec.infrastructure_ref.as_ref()?;
        return read(&stores.infra, namespace, reference.name.as_deref()?);
    }
    let cluster_name = cluster_name?;
    stores.infra.find(|infra| {
        infra.meta().namespace.as_deref() == Some(namespace)
            && capi::cluster_name(infra.meta()) == Some(cluster_name)
    })
}

/// Without the places of other machines, of which there may be a thousand.
fn pared(infra: &ProxmoxCluster, machine: &str) -> ProxmoxCluster {
    let ProxmoxCluster { metadata, spec, status } = infra;
    let status = status.as_ref().map(|status| {
        let of = |list: &[NodeLocation]| {
            list.iter().filter(|location| location.machine.name == machine).cloned().collect()
        };
        let locations = status.node_locations.as_ref().map(|locations| NodeLocations {
            control_plane: of(&locations.control_plane),
            workers: of(&locations.workers),
        });
        ProxmoxClusterStatus {
            ready: status.ready,
            node_locations: locations,
            ..ProxmoxClusterStatus::default()
        }
    });
    ProxmoxCluster { metadata: metadata.clone(), spec: spec.clone(), status }
}

/// Whose credentials a machine is served with, as far as objects tell.
fn source(stores: &Stores, machine: &ProxmoxMachine) -> Option<Source> {
    let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
    let owner = owner(stores, machine);
    let of_owner = owner.as_ref().and_then(|owner| capi::cluster_name(&owner.metadata));
    let name = of_owner.or_else(|| capi::cluster_name(&machine.metadata));
    let cluster = name.and_then(|name| read(&stores.clusters, namespace, name));
    let infra = infra(stores, namespace, cluster.as_deref(), name)?;
    infra.0.as_ref().ok().map(Source::of)
}

impl Pass<'_> {
    /// Looks one thing up.
    pub(super) async fn look(&mut self, look: Look) {
        match look {
            Look::Connection => self.connect().await,
            Look::Vm => {
                let asked = Instant::now();
                let seen = self.find_vm().await;
                self.confirm_absence(&seen);
                self.keep(&seen, asked);
                self.facts.vm = Some(seen);
                self.leave_out_other_clusters();
            }
            Look::Pools => self.look_at_pools().await,
            Look::Power => {
                let power = self.read_power().await;
                self.facts.power = Some(power);
            }
            Look::Placement => self.facts.placement = Some(self.survey().await),
            Look::Template(template) => {
                let seen = self.read_template(&template).await;
                self.facts.template = Some((template, seen));
            }
            Look::Bootstrap => self.facts.bootstrap = Some(self.read_bootstrap().await),
            Look::IsoStorages => self.facts.iso_storages = Some(self.list_iso_storages().await),
            Look::Stray => self.facts.stray = Some(self.find_stray_seed().await),
            Look::SeedShared => self.facts.seed_shared = Some(self.find_seed_shared().await),
            Look::Stored(volume) => self.facts.stored = Some(self.find_seed(&volume).await),
            Look::Guest => {
                self.facts.guest_looks = self.shared.memory.with(&self.key, |remembered| {
                    remembered.guest_looks = remembered.guest_looks.saturating_add(1);
                    remembered.guest_looks
                });
                let fact = self.ask_guest().await;
                self.note_guest(&fact);
                self.facts.guest = Some(fact);
            }
        }
        // What else was to be looked up could not be either.
        if let Some(fault) = self.lost.take() {
            self.facts.connection = Some(Err(fault));
        }
    }

    /// What to say when a look got no answer.
    fn unanswered(&self, error: &pve::Error) -> String {
        if error.is_endpoint_lost()
            && let (Some(infra), Some(endpoint)) = (&self.facts.infra, &self.endpoint)
        {
            endpoint.note_refusal(error);
            // The first one tells enough.
            let _ = self.lost.set(connections::unreachable(infra, endpoint, error));
        }
        match error.kind() {
            ErrorKind::Forbidden => {
                format!("{error}; check the token and its privileges on this path")
            }
            _ => error.to_string(),
        }
    }

    async fn connect(&mut self) {
        let connected = if let Some(infra) = &self.facts.infra {
            self.shared.connections.of(infra).await
        } else {
            let cluster = self.facts.cluster_name().unwrap_or("(no cluster label)");
            Err(Fault::new(
                Class::Blocked,
                format!(
                    "the ProxmoxCluster of Cluster {cluster} was not found, so Proxmox cannot be \
                     talked to: restore it, or remove the finalizer of this ProxmoxMachine after \
                     its VM is gone"
                ),
            ))
        };
        let connected = match connected {
            Ok(endpoint) => self.enter(&endpoint).await.map(|()| endpoint),
            Err(fault) => Err(fault),
        };
        if self.crowded {
            return;
        }
        self.facts.connection = Some(connected.as_ref().map(|_| ()).map_err(Clone::clone));
        if let Ok(endpoint) = connected {
            self.adopt(&endpoint).await;
            self.endpoint = Some(endpoint);
            self.leave_out_other_clusters();
        }
    }

    /// Waits for its turn at an endpoint. One that was of no use has to show first that it is again.
    async fn enter(&mut self, endpoint: &Arc<Endpoint>) -> Result<(), Fault> {
        let lost = match endpoint.admit(self.shared.at_one_endpoint).await {
            Admission::Granted(pass) => {
                let probed = if pass.is_probe {
                    endpoint.view(Instant::now()).await.err().filter(pve::Error::is_endpoint_lost)
                } else {
                    None
                };
                self.leave = Some(pass);
                probed
            }
            Admission::Lost(error) => Some(error),
            Admission::Full => {
                self.crowded = true;
                return Ok(());
            }
        };
        self.not_turned_away();
        match (lost, &self.facts.infra) {
            (Some(error), Some(infra)) => Err(connections::unreachable(infra, endpoint, &error)),
            _ => Ok(()),
        }
    }

    /// Takes up at an endpoint what the object records: promise, task and watch.
    async fn adopt(&mut self, endpoint: &Arc<Endpoint>) {
        let key = &self.key.clone();
        let recorded = self.facts.machine.status.as_ref().and_then(|s| s.task_ref.as_deref());
        if endpoint.task(key).is_none()
            && let Some(upid) = recorded.and_then(|upid| upid.parse::<Upid>().ok())
        {
            let operation = operation_of(&upid);
            self.follow_recorded(endpoint, upid, operation);
        }
        self.facts.task = endpoint.task(key);
        self.note_boot(endpoint);
        let Some(vmid) = self.facts.vmid() else { return };
        endpoint.watch(vmid, key.clone());
        let provisioned = self.facts.machine.status.as_ref().is_some_and(|s| s.ready);
        if provisioned {
            // The listing tells as much as a look of each machine's own would.
            endpoint.ledger().release(vmid, self.facts.uid());
            if let Ok(view) = endpoint.recent_view().await {
                self.facts.listed = view.guests.get(&vmid).cloned().into();
            }
            return;
        }
        let held = endpoint.held_view();
        if let Some(view) = &held {
            self.facts.listed = view.guests.get(&vmid).cloned().into();
        }
        let known = endpoint.ledger().promises().get(&vmid).cloned();
        let memory = placement::promised_memory(&self.facts, held.as_deref());
        let promise = placement::promise(&self.facts, memory);
        if let Some(promise) = promise
            .filter(|new| known.is_none_or(|old| old.owner != new.owner || old.node != new.node))
        {
            // Refused: the number is another machine's too; whose VM it is shows at the VM.
            let _ = endpoint.ledger().restore(vmid, promise);
        }
    }

    /// What may be wrong with the pools of claims that nobody answers.
    async fn look_at_pools(&mut self) {
        for index in 0..self.facts.addresses.len() {
            let fact = &self.facts.addresses[index];
            if fact.address.is_some() || fact.pool_trouble.is_some() {
                continue;
            }
            let pool = fact.slot.pool.clone();
            let text = pool_trouble(&self.shared.client, &self.key.namespace, &pool).await;
            self.facts.addresses[index].pool_trouble = Some(text);
        }
    }

    /// The bootstrap Secret, and the metrics of the pools that the seed names.
    async fn read_bootstrap(&mut self) -> Seen<BootstrapData> {
        if let Err(why) = self.read_metrics().await {
            // Of the addresses, not of the Secret.
            self.facts.ipam_trouble = Some(why.clone());
            return Seen::Unknown(why);
        }
        let name =
            self.facts.owner.as_ref().and_then(|o| o.spec.bootstrap.data_secret_name.clone());
        let Some(name) = name else { return Seen::Absent };
        let api: Api<Secret> = Api::namespaced(self.shared.client.clone(), &self.key.namespace);
        match api.get_opt(&name).await {
            Ok(None) => Seen::Absent,
            Err(error) => Seen::Unknown(format!("Secret {name} cannot be read: {error}")),
            Ok(Some(secret)) => {
                let mut data = secret.data.unwrap_or_default();
                match data.remove("value") {
                    None => Seen::Unknown(format!("Secret {name} has no key \"value\"")),
                    Some(value) => Seen::Present(BootstrapData {
                        format: data.remove("format").map(|format| format.0),
                        value: value.0.into(),
                    }),
                }
            }
        }
    }

    async fn read_metrics(&mut self) -> Result<(), String> {
        let mut read: Vec<(ipam::PoolRef, Option<u32>)> = Vec::new();
        for index in 0..self.facts.addresses.len() {
            let pool = self.facts.addresses[index].slot.pool.clone();
            let known = read.iter().find(|(other, _)| *other == pool).map(|(_, metric)| *metric);
            let metric = if let Some(metric) = known {
                metric
            } else {
                let metric = self.metric_of(&pool).await?;
                read.push((pool, metric));
                metric
            };
            if let Some(address) = &mut self.facts.addresses[index].address {
                address.metric = metric;
            }
        }
        Ok(())
    }

    /// The metric of a pool's gateway; a pool that is gone names none.
    async fn metric_of(&self, pool: &ipam::PoolRef) -> Result<Option<u32>, String> {
        let client = self.shared.client.clone();
        let read = match pool.kind.as_str() {
            IN_CLUSTER_POOL => {
                let api: Api<InClusterIPPool> = Api::namespaced(client, &self.key.namespace);
                api.get_metadata_opt(&pool.name).await.map(|found| found.map(|it| it.metadata))
            }
            GLOBAL_IN_CLUSTER_POOL => {
                let api: Api<GlobalInClusterIPPool> = Api::all(client);
                api.get_metadata_opt(&pool.name).await.map(|found| found.map(|it| it.metadata))
            }
            _ => Ok(None),
        };
        let found = read.map_err(|error| format!("{pool} cannot be read: {error}"))?;
        let Some(text) = found
            .and_then(|pool| pool.annotations)
            .and_then(|mut annotations| annotations.remove(METRIC_ANNOTATION))
        else {
            return Ok(None);
        };
        ipam::metric(&text).map(Some).ok_or_else(|| {
            format!(
                "annotation {METRIC_ANNOTATION} of {pool} is {text:?}: expected a number from 0 to \
                 4294967295"
            )
        })
    }
}

/// Why a claim on a pool may be without an answer, to be appended to a sentence; empty when nothing
/// is wrong with the pool.
async fn pool_trouble(client: &kube::Client, namespace: &str, pool: &ipam::PoolRef) -> String {
    let client = client.clone();
    let status = match pool.kind.as_str() {
        IN_CLUSTER_POOL => {
            let api: Api<InClusterIPPool> = Api::namespaced(client, namespace);
            api.get_opt(&pool.name).await.map(|found| found.map(|pool| pool.status))
        }
        GLOBAL_IN_CLUSTER_POOL => {
            let api: Api<GlobalInClusterIPPool> = Api::all(client);
            api.get_opt(&pool.name).await.map(|found| found.map(|pool| pool.status))
        }
        other => return format!(": no provider is known for pools of kind {other}"),
    };
    match status {
        Err(error) => format!(": the pool cannot be read: {error}"),
        Ok(None) => format!(": there is no {pool}; create it"),
        Ok(Some(None)) => format!(
            ": no IPAM provider has taken note of {pool} yet. Is the in-cluster provider \
             (clusterctl init --ipam in-cluster), or capmox with --embedded-ipam, running?"
        ),
        Ok(Some(Some(status))) => match status.ip_addresses {
            Some(usage) if usage.free <= 0 => format!(
                ": {pool} has no free address of the {} that it hands out; add addresses to it",
                usage.total
            ),
            _ => String::new(),
        },
    }
}

/// What a task in `status.taskRef` was started for.
fn operation_of(upid: &Upid) -> Operation {
    match upid.kind() {
        "qmclone" => Operation::Clone,
        "qmstart" | "qmresume" => Operation::Start,
        "qmshutdown" => Operation::Shutdown,
        "qmstop" => Operation::Stop,
        "qmdestroy" => Operation::Destroy,
        "resize" => Operation::Resize,
        "qmconfig" => Operation::Configure,
        _ => Operation::Recorded,
    }
}

/// The key of an object.
pub(super) fn key_of(machine: &ProxmoxMachine) -> ObjectKey {
    ObjectKey { namespace: machine.namespace().unwrap_or_default(), name: machine.name_any() }
}

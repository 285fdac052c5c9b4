//! Reads what [`super::decide`] needs. Chooses nothing.
//!
//! The object, its owner, its pools and its Secret are read from the apiserver in every pass, so
//! that no decision rests on a cache that lags; of Secrets the metadata only. Machines come from a
//! watch while the cluster lives, and from a fresh list when it goes.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Desk;
use super::decide;
use super::facts::{
    MachineFact, Owner, PoolFact, PoolSeen, Remains, SecretFact, Surroundings, User, cluster_name,
    credentials, key,
};
use super::watches::{ClusterGuard, MachineGuard};
use crate::api::ipam::{IPAddressClaim, InClusterIPPool};
use crate::api::{ProxmoxCluster, ProxmoxMachine, capi};
use crate::connections::unreachable;
use crate::fault::{Class, Fault};
use crate::hypervisor::ObjectKey;
use crate::ipam::{Family, desired_pools, pool_name};
use crate::seen::Seen;

/// The watches of machines begin with a list, which is there within a moment unless the apiserver
/// is busy; without it node locations stay as they are.
const MACHINES_LISTED: Duration = Duration::from_secs(10);

/// The ProxmoxCluster as it is now; `None` when it is gone.
pub(super) async fn cluster(
    client: &Client,
    key: &ObjectKey,
) -> Result<Option<ClusterGuard>, kube::Error> {
    Api::<ClusterGuard>::namespaced(client.clone(), &key.namespace).get_opt(&key.name).await
}

/// The Cluster that the owner reference names.
pub(super) async fn owner(client: &Client, cluster: &ProxmoxCluster) -> Owner {
    let Some(reference) = capi::owner(&cluster.metadata, "Cluster") else { return Owner::Unset };
    let seen = get(&in_namespace::<capi::Cluster>(client, cluster), &reference.name).await;
    let cluster = match seen {
        // Another Cluster of the name is not the owner.
        Seen::Present(found) if found.uid().as_deref() != Some(reference.uid.as_str()) => {
            Seen::Absent
        }
        seen => seen.map(Box::new),
    };
    Owner::Named { name: reference.name.clone(), cluster }
}

/// All that a live cluster is judged by; `proxmox` when it was asked in this pass already.
pub(super) async fn surroundings(
    desk: &Desk,
    cluster: &ProxmoxCluster,
    cluster_name: &str,
    proxmox: Option<Result<String, Fault>>,
    now: Timestamp,
) -> Surroundings {
    let ask = async {
        match proxmox {
            Some(known) => known,
            None => ask_proxmox(desk, cluster).await,
        }
    };
    let (secret, abandoned, pools, machines, proxmox) = tokio::join!(
        named_secret(desk, cluster),
        abandoned_secrets(desk, cluster),
        pools(&desk.client, cluster, cluster_name),
        machines(desk, cluster, cluster_name),
        ask,
    );
    let is_any_silent = pools.iter().any(|pool| decide::is_silent(pool, now));
    let is_any_claim_answered =
        is_any_silent && is_any_claim_answered(&desk.client, cluster, cluster_name).await;
    let insecure = desk.connections.insecure(cluster);
    let passed_over = desk.connections.passed_over(cluster);
    Surroundings {
        secret,
        abandoned,
        pools,
        is_any_claim_answered,
        machines,
        proxmox,
        insecure,
        passed_over,
    }
}

/// All that is left of a cluster that is being deleted.
pub(super) async fn remains(desk: &Desk, cluster: &ProxmoxCluster) -> Remains {
    let machines = match cluster_name(cluster) {
        Some(name) => machines_now(&desk.client, cluster, name).await,
        // Nobody ever said which machines would be its own.
        None => Seen::Present(Vec::new()),
    };
    let infra_name = cluster.name_any();
    let api = in_namespace::<InClusterIPPool>(&desk.client, cluster);
    let names = [Family::V4, Family::V6].map(|family| pool_name(&infra_name, family));
    let (first, second) = tokio::join!(pool(&api, &names[0]), pool(&api, &names[1]));
    let mut secrets = Vec::new();
    for key in decide::held_secrets(cluster, &desk.secrets_held_by(cluster)) {
        secrets.push(secret(desk, cluster, &key).await);
    }
    let is_alone = machines.present().is_some_and(Vec::is_empty);
    let object = key(&cluster.metadata);
    let alone_since = desk.alone_since(&object, is_alone);
    Remains { machines, pools: vec![first, second], alone_since, secrets }
}

/// Asks Proxmox for its version, which shows that it answers and takes the credentials.
async fn ask_proxmox(desk: &Desk, cluster: &ProxmoxCluster) -> Result<String, Fault> {
    let endpoint = desk.connections.of(cluster).await?;
    endpoint.version().await.map_err(|error| unreachable(cluster, &endpoint, &error))
}

async fn named_secret(desk: &Desk, cluster: &ProxmoxCluster) -> Option<Seen<SecretFact>> {
    let key = credentials(cluster)?;
    Some(secret(desk, cluster, &key).await)
}

async fn abandoned_secrets(desk: &Desk, cluster: &ProxmoxCluster) -> Vec<SecretFact> {
    let mut found = Vec::new();
    for key in desk.secrets_held_by(cluster) {
        // One that cannot be read now is looked at again in the next pass.
        if let Seen::Present(fact) = secret(desk, cluster, &key).await {
            found.push(fact);
        }
    }
    found.retain(|fact| decide::is_abandoned(cluster, fact));
    found
}

/// The metadata of a Secret, and who else uses it.
async fn secret(desk: &Desk, cluster: &ProxmoxCluster, secret: &ObjectKey) -> Seen<SecretFact> {
    let api: Api<Secret> = Api::namespaced(desk.client.clone(), &secret.namespace);
    let metadata = match api.get_metadata_opt(&secret.name).await {
        Ok(Some(found)) => found.metadata,
        Ok(None) => return Seen::Absent,
        Err(error) => return Seen::Unknown(error.to_string()),
    };
    let clusters = desk.clusters.state();
    let others = clusters.iter().filter_map(|guard| guard.0.as_ref().ok());
    let users = others
        .filter(|other| other.metadata.uid != cluster.metadata.uid)
        .filter(|other| credentials(other).as_ref() == Some(secret))
        .map(|other| User {
            uid: other.uid().unwrap_or_default(),
            is_deleting: other.metadata.deletion_timestamp.is_some(),
        });
    Seen::Present(SecretFact { metadata, users: users.collect() })
}

async fn pools(client: &Client, cluster: &ProxmoxCluster, cluster_name: &str) -> Vec<PoolFact> {
    let api = in_namespace::<InClusterIPPool>(client, cluster);
    let mut facts = Vec::new();
    for wanted in desired_pools(cluster, cluster_name) {
        let seen = pool(&api, &wanted.name_any()).await;
        facts.push(PoolFact { wanted, seen });
    }
    facts
}

async fn pool(api: &Api<InClusterIPPool>, name: &str) -> PoolSeen {
    match api.get(name).await {
        Ok(pool) => PoolSeen::Present(Box::new(pool)),
        Err(error) if is_kind_unknown(&error) => PoolSeen::NotServed,
        Err(kube::Error::Api(status)) if status.code == 404 => PoolSeen::Absent,
        Err(error) => PoolSeen::Unknown(error.to_string()),
    }
}

/// Whether an error says that the kind is not served: a 404 that names no object, because the
/// apiserver has no such page.
pub(super) fn is_kind_unknown(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let names_an_object = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !names_an_object
}

/// Whether anybody answered a claim of the cluster; also false when that cannot be told.
async fn is_any_claim_answered(
    client: &Client,
    cluster: &ProxmoxCluster,
    cluster_name: &str,
) -> bool {
    let api = in_namespace::<IPAddressClaim>(client, cluster);
    let claims = api.list(&of_cluster(cluster_name)).await;
    claims.is_ok_and(|claims| {
        let statuses = claims.items.iter().filter_map(|claim| claim.status.as_ref());
        statuses.filter_map(|status| status.address_ref.as_ref()).count() > 0
    })
}

async fn machines(
    desk: &Desk,
    cluster: &ProxmoxCluster,
    cluster_name: &str,
) -> Seen<Vec<MachineFact>> {
    let listed = async {
        tokio::try_join!(desk.machines.wait_until_ready(), desk.owners.wait_until_ready())
    };
    if !matches!(timeout(MACHINES_LISTED, listed).await, Ok(Ok(_))) {
        return Seen::Unknown("the machines are not listed yet".to_owned());
    }
    let namespace = cluster.metadata.namespace.as_deref();
    let machines = desk.machines.state_filter(|machine| {
        machine.meta().namespace.as_deref() == namespace
            && capi::cluster_name(machine.meta()) == Some(cluster_name)
    });
    let owner = |machine: &MachineGuard| {
        let reference = capi::owner(machine.meta(), "Machine")?;
        desk.owners.get(&ObjectRef::new(&reference.name).within(namespace?))
    };
    let fact = |machine: &MachineGuard| {
        machine_fact(machine, owner(machine).as_ref().map(|owner| &owner.metadata))
    };
    Seen::Present(machines.iter().map(|machine| fact(machine)).collect())
}

fn machine_fact(machine: &MachineGuard, owner: Option<&ObjectMeta>) -> MachineFact {
    let status = machine.0.as_ref().ok().and_then(|machine| machine.status.as_ref());
    MachineFact {
        name: machine.name_any(),
        node: status.and_then(|status| status.proxmox_node.clone()).filter(|node| !node.is_empty()),
        is_control_plane: capi::is_of_control_plane(machine.meta(), owner),
    }
}

/// The names of the machines that exist now.
async fn machines_now(
    client: &Client,
    cluster: &ProxmoxCluster,
    cluster_name: &str,
) -> Seen<Vec<String>> {
    let api = in_namespace::<ProxmoxMachine>(client, cluster);
    match api.list_metadata(&of_cluster(cluster_name)).await {
        Ok(list) => Seen::Present(list.items.iter().map(ResourceExt::name_any).collect()),
        Err(error) => Seen::Unknown(error.to_string()),
    }
}

fn of_cluster(cluster_name: &str) -> ListParams {
    ListParams::default().labels(&format!("{}={cluster_name}", capi::CLUSTER_NAME_LABEL))
}

fn in_namespace<K>(client: &Client, cluster: &ProxmoxCluster) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &key(&cluster.metadata).namespace)
}

async fn get<K>(api: &Api<K>, name: &str) -> Seen<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.get_opt(name).await {
        Ok(found) => found.into(),
        Err(error) => Seen::Unknown(error.to_string()),
    }
}

/// A request to the apiserver that failed.
pub(super) fn fault(what: &str, error: &kube::Error) -> Fault {
    let class = match error {
        kube::Error::Api(status) => match status.code {
            401 | 403 => Class::Denied,
            404 | 409 => Class::Conflict,
            400 | 422 => Class::Invalid,
            _ => Class::Transient,
        },
        _ => Class::Transient,
    };
    Fault::new(class, format!("cannot {what}: {error}"))
}

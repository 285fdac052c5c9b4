//! What to do for a ProxmoxCluster. Pure: the same facts lead to the same decision.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::decision::{
    Approach, Decision, EndpointPart, Remainder, Standing, Step, Target, Trouble, Wake,
};
use super::desired;
use super::facts::{
    Owner, PoolFact, PoolSeen, Remains, SecretFact, Surroundings, cluster_name, credentials,
    has_finalizer,
};
use crate::api::capi::{Cluster, is_externally_managed, is_paused};
use crate::api::{
    CLUSTER_FINALIZER, Endpoint, NodeLocation, NodeLocations, ObjectName, ProxmoxCluster,
};
use crate::hypervisor::ObjectKey;
use crate::seen::Seen;

/// A regular look, in case a change was missed.
const REGULAR: Duration = Duration::from_mins(2);
/// Pause before the first repetition of something that failed …
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// … and between later ones.
const RETRY_LAST: Duration = Duration::from_mins(1);
/// Pause before a pool that would not go is asked to go again.
const POOL_RETRY: Duration = Duration::from_secs(1);
/// A provider writes the status of a pool within a second or two.
const POOL_SILENCE: Duration = Duration::from_secs(30);

/// How to go about a cluster, as far as object and owner tell.
pub(super) fn approach(cluster: &ProxmoxCluster, owner: &Owner) -> Approach {
    let meta = &cluster.metadata;
    let settled = |standing| Approach::Settled(Decision::standing(standing));
    let troubled = |trouble| settled(Standing::Live(vec![trouble]));
    let is_deleting = meta.deletion_timestamp.is_some();
    if is_externally_managed(meta) || (is_deleting && !has_finalizer(meta, CLUSTER_FINALIZER)) {
        return Approach::HandsOff;
    }
    if is_paused(meta, owner.cluster()) {
        return settled(Standing::Paused);
    }
    if is_deleting {
        return match owner {
            Owner::Named { name, cluster: Seen::Present(cluster) }
                if cluster.metadata.deletion_timestamp.is_none() =>
            {
                settled(Standing::Deleting(vec![Remainder::OwnerLives(name.clone())]))
            }
            // A Cluster that cannot be read may be paused.
            Owner::Named { name, cluster: Seen::Unknown(why) } => {
                let unknown = Remainder::Unknown(format!("cannot read Cluster {name}: {why}"));
                settled(Standing::Deleting(vec![unknown]))
            }
            Owner::Named { cluster: Seen::Present(_) | Seen::Absent, .. } | Owner::Unset => {
                Approach::Gone
            }
        };
    }
    match owner {
        Owner::Unset => troubled(Trouble::OwnerUnset),
        Owner::Named { name, cluster: Seen::Absent } => {
            troubled(Trouble::OwnerAbsent(name.clone()))
        }
        Owner::Named { name, cluster: Seen::Unknown(why) } => {
            troubled(Trouble::OwnerUnknown(name.clone(), why.clone()))
        }
        Owner::Named { name, cluster: Seen::Present(owner) } => {
            if !has_finalizer(meta, CLUSTER_FINALIZER) {
                let step = desired::add_finalizer(cluster);
                return Approach::Settled(Decision::step(step, Standing::Live(Vec::new())));
            }
            match missing_endpoint(cluster, owner) {
                Some(trouble) => troubled(trouble),
                None => Approach::Live(name.clone()),
            }
        }
    }
}

/// What the endpoint lacks. One that the Cluster has already is as good: Cluster API reads ours
/// only as long as it has none.
fn missing_endpoint(cluster: &ProxmoxCluster, owner: &Cluster) -> Option<Trouble> {
    let lacks = |endpoint: Option<&Endpoint>| match endpoint {
        None => Some(EndpointPart::Whole),
        Some(endpoint) if endpoint.host.is_empty() => Some(EndpointPart::Host),
        Some(endpoint) if endpoint.port == 0 => Some(EndpointPart::Port),
        Some(_) => None,
    };
    let part = lacks(cluster.spec.control_plane_endpoint.as_ref())?;
    lacks(owner.spec.control_plane_endpoint.as_ref())?;
    let is_external = cluster.spec.external_managed_control_plane.unwrap_or_default();
    Some(Trouble::Endpoint { part, is_external })
}

/// What a live cluster needs.
pub(super) fn live(
    cluster: &ProxmoxCluster,
    owner: &Owner,
    around: &Surroundings,
    now: Timestamp,
) -> Decision {
    let mut steps = Vec::new();
    let mut troubles = Vec::new();
    match secret(cluster, around) {
        Ok(step) => steps.extend(step),
        Err(trouble) => troubles.push(trouble),
    }
    // Without its Secret there is nothing else to say of Proxmox.
    if let (true, Err(fault)) = (troubles.is_empty(), &around.proxmox) {
        troubles.push(Trouble::Proxmox(fault.clone()));
    }
    let pools: Vec<_> = around.pools.iter().map(|fact| desired::pool(cluster, fact)).collect();
    for pool in pools {
        match pool {
            Ok(step) => steps.extend(step),
            Err(trouble) if troubles.contains(&trouble) => {}
            Err(trouble) => troubles.push(trouble),
        }
    }
    troubles.extend(silent_pools(around, now).map(Trouble::PoolSilent));
    if !troubles.iter().any(keeps_from_service) {
        steps.extend(owner.cluster().and_then(desired::forget_failure));
    }
    steps.extend(around.abandoned.iter().filter_map(|held| desired::release(cluster, held, true)));
    Decision {
        steps,
        standing: Standing::Live(troubles),
        pools: Some(existing_pools(&around.pools)),
        locations: locations(cluster, around),
        insecure: around.insecure.clone(),
        passed_over: around.passed_over.clone(),
    }
}

fn secret(cluster: &ProxmoxCluster, around: &Surroundings) -> Result<Option<Step>, Trouble> {
    let (Some(key), Some(secret)) = (credentials(cluster), &around.secret) else { return Ok(None) };
    match secret {
        Seen::Present(secret) => Ok(desired::hold(cluster, secret)),
        Seen::Absent => Err(Trouble::SecretAbsent(key)),
        Seen::Unknown(why) => Err(Trouble::SecretUnknown(key, why.clone())),
    }
}

fn existing_pools(pools: &[PoolFact]) -> Vec<String> {
    let existing = pools.iter().filter(|fact| matches!(fact.seen, PoolSeen::Present(_)));
    existing.filter_map(|fact| fact.wanted.metadata.name.clone()).collect()
}

/// Pools that nobody looks after, unless a claim was answered all the same.
fn silent_pools(around: &Surroundings, now: Timestamp) -> impl Iterator<Item = String> {
    let silent = around.pools.iter().filter(move |fact| is_silent(fact, now));
    let silent = silent.filter(|_| !around.is_any_claim_answered);
    silent.filter_map(|fact| fact.wanted.metadata.name.clone())
}

/// How long a pool has been there without a status.
fn age_of_silence(fact: &PoolFact, now: Timestamp) -> Option<Duration> {
    let PoolSeen::Present(pool) = &fact.seen else { return None };
    let has_status = pool.status.as_ref().is_some_and(|status| status.ip_addresses.is_some());
    let made = pool.metadata.creation_timestamp.as_ref()?.0;
    (!has_status && pool.metadata.deletion_timestamp.is_none()).then(|| since(made, now))
}

/// Whether a pool has been there for a while without a status.
pub(super) fn is_silent(fact: &PoolFact, now: Timestamp) -> bool {
    age_of_silence(fact, now).is_some_and(|age| age >= POOL_SILENCE)
}

fn since(earlier: Timestamp, now: Timestamp) -> Duration {
    let seconds = now.as_second().saturating_sub(earlier.as_second());
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Where the machines are. A machine that has no node in its own status keeps the one that was
/// known before: after `clusterctl move`, or under capmox in mid-clone, only that one is left. So does
/// one that capmox, which goes by the Machine's label, listed with the control planes.
fn locations(cluster: &ProxmoxCluster, around: &Surroundings) -> Option<NodeLocations> {
    let machines = around.machines.present()?;
    let old = cluster.status.as_ref().and_then(|status| status.node_locations.as_ref());
    let known: BTreeMap<&str, &str> = old
        .iter()
        .flat_map(|old| old.control_plane.iter().chain(&old.workers))
        .map(|location| (location.machine.name.as_str(), location.node.as_str()))
        .collect();
    let led: BTreeSet<&str> = old
        .iter()
        .flat_map(|old| &old.control_plane)
        .map(|location| location.machine.name.as_str())
        .collect();
    let mut new = NodeLocations::default();
    for machine in machines {
        let node = machine.node.as_deref().or_else(|| known.get(machine.name.as_str()).copied());
        let Some(node) = node else { continue };
        let is_control_plane = machine.is_control_plane || led.contains(machine.name.as_str());
        let list = if is_control_plane { &mut new.control_plane } else { &mut new.workers };
        let machine = ObjectName { name: machine.name.clone() };
        list.push(NodeLocation { machine, node: node.to_owned() });
    }
    for list in [&mut new.control_plane, &mut new.workers] {
        list.sort_by(|a, b| a.machine.name.cmp(&b.machine.name));
    }
    Some(new)
}

/// How long a pool may take to go before the cluster goes without it. An IPAM provider refuses to
/// let go of a pool whose last addresses it is still taking back, which takes it a second or two;
/// later the garbage collector deletes the pool, whose owner the cluster is.
const POOL_PATIENCE: Duration = Duration::from_secs(10);

/// How a cluster goes: after its machines, and with its pools and its hold on Secrets. Pools are
/// not insisted on, since everything else of the cluster is gone by then.
pub(super) fn gone(cluster: &ProxmoxCluster, remains: &Remains, now: Timestamp) -> Decision {
    let waits = |remainder| Decision::standing(Standing::Deleting(vec![remainder]));
    let cluster_name = cluster_name(cluster).unwrap_or_default();
    match &remains.machines {
        Seen::Present(names) if !names.is_empty() => {
            return waits(Remainder::Machines(names.clone()));
        }
        Seen::Unknown(why) => {
            let why = format!("cannot list the ProxmoxMachines of Cluster {cluster_name}: {why}");
            return waits(Remainder::Unknown(why));
        }
        Seen::Present(_) | Seen::Absent => {}
    }
    let mut steps = Vec::new();
    let is_patient = remains.alone_since.is_none_or(|then| since(then, now) < POOL_PATIENCE);
    for pool in remains.pools.iter().filter(|_| is_patient) {
        match pool {
            PoolSeen::Present(pool) => steps.extend(desired::delete_pool(cluster, pool)),
            PoolSeen::Absent | PoolSeen::NotServed => {}
            PoolSeen::Unknown(why) => {
                return waits(Remainder::Pool(format!("cannot read an InClusterIPPool: {why}")));
            }
        }
    }
    for secret in &remains.secrets {
        match secret {
            Seen::Present(secret) => steps.extend(desired::release(cluster, secret, false)),
            Seen::Absent => {}
            Seen::Unknown(why) => {
                return waits(Remainder::Unknown(format!("cannot read a Secret: {why}")));
            }
        }
    }
    if steps.is_empty() {
        steps.push(desired::remove_finalizer(cluster));
    }
    Decision { steps, ..Decision::standing(Standing::Deleting(Vec::new())) }
}

/// When to look again.
///
/// `before` is when the cluster's condition last changed: what has been failing for long is tried
/// less often.
pub(super) fn wake(
    standing: &Standing,
    pools: &[PoolFact],
    before: Option<Timestamp>,
    now: Timestamp,
) -> Wake {
    let growing = || {
        let age = before.map_or(Duration::ZERO, |before| since(before, now));
        Wake::After(age.clamp(RETRY_FIRST, RETRY_LAST))
    };
    match standing {
        Standing::Paused => Wake::After(REGULAR),
        Standing::Live(troubles) if troubles.iter().all(is_watched) => {
            let silences = pools.iter().filter_map(|fact| age_of_silence(fact, now));
            let pending = silences.filter_map(|age| POOL_SILENCE.checked_sub(age));
            // A second more: a creation time is cut to whole seconds.
            let pending = pending.filter(|left| !left.is_zero()).min();
            Wake::After(pending.map_or(REGULAR, |left| left + Duration::from_secs(1)))
        }
        Standing::Deleting(remains)
            if remains.iter().any(|remainder| matches!(remainder, Remainder::Pool(_))) =>
        {
            Wake::After(POOL_RETRY)
        }
        Standing::Live(_) | Standing::Deleting(_) => growing(),
    }
}

/// Whether the end of a trouble is noticed by a watch, so that there is nothing to try again.
fn is_watched(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::OwnerUnset
        | Trouble::OwnerAbsent(_)
        | Trouble::Endpoint { .. }
        | Trouble::PoolForeign { .. }
        | Trouble::PoolDeleting(_)
        | Trouble::PoolSilent(_) => true,
        // The Secret may lie in a namespace that is not watched.
        Trouble::SecretAbsent(_)
        | Trouble::OwnerUnknown(..)
        | Trouble::SecretUnknown(..)
        | Trouble::Proxmox(_)
        | Trouble::PoolsNotServed
        | Trouble::PoolUnknown(..)
        | Trouble::Failed { .. } => false,
    }
}

/// Whether a trouble keeps a new cluster from taking machines. One that is ready stays ready.
pub(super) fn keeps_from_service(trouble: &Trouble) -> bool {
    !matches!(
        trouble,
        Trouble::PoolSilent(_) | Trouble::Failed { target: Target::OwnerStatus(_), .. }
    )
}

/// The Secrets whose state matters to a cluster that goes: the one it names, and those it holds.
pub(super) fn held_secrets(cluster: &ProxmoxCluster, holding: &[ObjectKey]) -> Vec<ObjectKey> {
    let named = credentials(cluster);
    let mut all: Vec<ObjectKey> = named.into_iter().chain(holding.iter().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

/// Whether the cluster holds a Secret that it does not name.
pub(super) fn is_abandoned(cluster: &ProxmoxCluster, secret: &SecretFact) -> bool {
    let named = credentials(cluster);
    named.as_ref() != Some(&super::facts::key(&secret.metadata))
}

#[cfg(test)]
mod tests;

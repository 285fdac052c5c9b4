//! What is said of a ProxmoxCluster: its status and its events, as differences to what was said
//! before. Pure.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::decide::keeps_from_service;
use super::decision::{Decision, EndpointPart, Remainder, Standing, Target, Trouble};
use super::desired::is_failure_of_capmox;
use crate::api::conditions::{self, Condition, Severity, State, V1Beta2Conditions, Wanted};
use crate::api::{
    FailureDomain, FailureDomainStatus, NodeLocations, ObjectName, ProxmoxCluster,
    ProxmoxClusterStatus, merge_patch, reasons,
};
use crate::connections::{PassedOver, Source};
use crate::hypervisor::ObjectKey;
use crate::seen::Seen;

/// Machines that are named in a message; of more, the number is told.
const NAMED: usize = 5;

/// The status that a cluster should have.
pub(super) fn status(
    cluster: &ProxmoxCluster,
    decision: &Decision,
    now: Timestamp,
) -> ProxmoxClusterStatus {
    let mut status = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let state = match &decision.standing {
        Standing::Paused => {
            let paused =
                conditions::v1beta2_paused(status.v1beta2_conditions(), true, generation, now);
            status.v1beta2 = Some(V1Beta2Conditions { conditions: paused });
            return status;
        }
        Standing::Live(troubles) => {
            // Contract of Cluster API: once true, always true; conditions tell the rest.
            status.ready |= !troubles.iter().any(keeps_from_service);
            if !troubles.iter().any(keeps_from_service) {
                forget_failure(&mut status);
            }
            live(cluster, troubles)
        }
        Standing::Deleting(remains) => deleting(remains),
    };
    let wanted: [Wanted; 1] = [(reasons::CLUSTER_READY, state)];
    let v1beta2 = conditions::v1beta2(status.v1beta2_conditions(), &wanted, false, generation, now);
    status.v1beta2 = Some(V1Beta2Conditions { conditions: v1beta2 });
    status.conditions = conditions::v1beta1(&status.conditions, &wanted, now);
    if matches!(decision.standing, Standing::Live(_)) {
        if tell_of_credentials(cluster, &mut status, &decision.passed_over, now) {
            status.credentials = Some(Source::of(cluster).in_use());
        }
        status.failure_domains = failure_domains(cluster);
        warn_of_certificate(&mut status, decision.insecure.as_deref(), generation, now);
    }
    if let Some(pools) = &decision.pools {
        add_pools(&mut status.in_cluster_ip_pool_ref, pools);
    }
    if let Some(locations) = &decision.locations {
        status.node_locations =
            Some(locations.clone()).filter(|new| *new != NodeLocations::default());
    }
    status
}

/// The failure domains as Cluster API's contract has them.
fn failure_domains(cluster: &ProxmoxCluster) -> BTreeMap<String, FailureDomainStatus> {
    let told = |domain: &FailureDomain| {
        let attributes = BTreeMap::from([("nodes".to_owned(), domain.nodes.join(","))]);
        let control_plane = domain.control_plane.unwrap_or(true);
        (domain.name.clone(), FailureDomainStatus { control_plane, attributes })
    };
    cluster.spec.failure_domains.iter().flatten().map(told).collect()
}

/// Certificates that are not checked are no reason not to be ready: it is capmox's default.
fn warn_of_certificate(
    status: &mut ProxmoxClusterStatus,
    insecure: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let type_ = reasons::CERTIFICATE_CHECKED;
    let state = insecure.map(|ways| {
        let text = format!(
            "the certificate of Proxmox is not checked, so anybody on the way can read the \
             credentials. {ways}"
        );
        State::not(Severity::Warning, reasons::CERTIFICATE_NOT_CHECKED, text)
    });
    let v1beta2 = status.v1beta2.get_or_insert_default();
    conditions::beside(&mut status.conditions, type_, state.as_ref(), now);
    conditions::beside_v1beta2(&mut v1beta2.conditions, type_, state.as_ref(), generation, now);
}

/// Where capmox used other credentials, which it takes before those of `spec.credentialsRef`. A cluster
/// that it never served surprises nobody, and is left alone. False while that is not known of one whose
/// status is still capmox's.
fn tell_of_credentials(
    cluster: &ProxmoxCluster,
    status: &mut ProxmoxClusterStatus,
    passed_over: &Seen<PassedOver>,
    now: Timestamp,
) -> bool {
    let type_ = reasons::MANAGER_CREDENTIALS_USED;
    let old = cluster.status.as_ref();
    let is_told = old.is_some_and(|old| conditions::find(&old.conditions, type_).is_some());
    // Whoever makes a status here says in it which credentials are used.
    let was_served = |old: &ProxmoxClusterStatus| old.ready || !old.conditions.is_empty();
    let is_new_here = old.is_some_and(|old| old.credentials.is_none() && was_served(old));
    let state = match passed_over {
        Seen::Unknown(_) => return !is_new_here,
        Seen::Present(PassedOver { used, own }) if is_told || is_new_here => {
            let text = format!(
                "{} ({used}) of spec.credentialsRef is used; the manager's own credentials ({own}), which \
                 capmox took first, are not. If the VMs of this cluster are where those lead, take \
                 spec.credentialsRef out of this ProxmoxCluster; else nothing is to be done",
                Source::of(cluster)
            );
            Some(State::waiting(reasons::CREDENTIALS_REF_USED, text))
        }
        Seen::Present(_) | Seen::Absent => None,
    };
    let generation = cluster.metadata.generation;
    let v1beta2 = status.v1beta2.get_or_insert_default();
    conditions::beside(&mut status.conditions, type_, state.as_ref(), now);
    conditions::beside_v1beta2(&mut v1beta2.conditions, type_, state.as_ref(), generation, now);
    true
}

/// Other failures stay; nobody here sets any.
fn forget_failure(status: &mut ProxmoxClusterStatus) {
    let (reason, message) = (status.failure_reason.as_deref(), status.failure_message.as_deref());
    if is_failure_of_capmox(reason, message) {
        status.failure_reason = None;
        status.failure_message = None;
    }
}

/// Pools are only ever added: one whose configuration was removed may still serve machines.
fn add_pools(refs: &mut Vec<ObjectName>, pools: &[String]) {
    for name in pools {
        if !refs.iter().any(|known| known.name == *name) {
            refs.push(ObjectName { name: name.clone() });
        }
    }
}

/// The JSON merge patch for `/status` that makes `new` of `old`; `None` when they are equal.
pub(super) fn status_patch(
    cluster: &ProxmoxCluster,
    new: &ProxmoxClusterStatus,
) -> Result<Option<Value>, serde_json::Error> {
    let old = cluster.status.as_ref().map_or(Ok(Value::Null), serde_json::to_value)?;
    let new = serde_json::to_value(new)?;
    let Some(difference) = merge_patch(&old, &new) else { return Ok(None) };
    let version = cluster.metadata.resource_version.as_deref();
    Ok(Some(serde_json::json!({
        "metadata": { "resourceVersion": version },
        "status": difference,
    })))
}

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    /// Whether it deserves attention.
    pub(super) is_warning: bool,
    /// In one word.
    pub(super) reason: String,
    /// In a sentence.
    pub(super) note: String,
}

/// The events that a change of status is worth.
pub(super) fn notices(old: Option<&ProxmoxClusterStatus>, new: &[Condition]) -> Vec<Notice> {
    let before = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let other = conditions::changed(before, new)
        .into_iter()
        .find(|one| one.type_ == reasons::MANAGER_CREDENTIALS_USED);
    let other = other.map(|one| Notice {
        is_warning: true,
        reason: reasons::CREDENTIALS_REF_USED.to_owned(),
        note: one.message.clone().unwrap_or_default(),
    });
    notice(old, new).into_iter().chain(other).collect()
}

/// The event that a change of status is worth, if any. What every cluster passes through in its
/// first moments is not worth one.
fn notice(old: Option<&ProxmoxClusterStatus>, new: &[Condition]) -> Option<Notice> {
    let old = old.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let changed = conditions::changed(old, new);
    let condition = changed.into_iter().find(|one| one.type_ == reasons::CLUSTER_READY)?;
    let reason = condition.reason.as_deref();
    if reason == Some(reasons::WAITING_FOR_OWNER_CLUSTER) {
        return None;
    }
    let note = condition.message.clone();
    Some(Notice {
        is_warning: condition.status != "True"
            && condition.severity.as_deref() != Some(Severity::Info.as_str()),
        reason: reason.unwrap_or(reasons::CLUSTER_READY).to_owned(),
        note: note.unwrap_or_else(|| "Proxmox answers, and the cluster takes machines".to_owned()),
    })
}

fn live(cluster: &ProxmoxCluster, troubles: &[Trouble]) -> State {
    let states: Vec<State> = troubles.iter().map(|trouble| state(cluster, trouble)).collect();
    together(states)
}

/// One state of several: severity and reason of the worst, and what all of them say.
fn together(states: Vec<State>) -> State {
    let texts: Vec<String> = states
        .iter()
        .filter_map(|state| match state {
            State::True => None,
            State::False { message, .. } | State::Unknown { message, .. } => Some(message.clone()),
        })
        .collect();
    let all: Vec<Wanted> =
        states.into_iter().map(|state| (reasons::CLUSTER_READY, state)).collect();
    let mut worst = conditions::summary(&all);
    if let State::False { message, .. } | State::Unknown { message, .. } = &mut worst {
        *message = texts.join(". ");
    }
    worst
}

fn state(cluster: &ProxmoxCluster, trouble: &Trouble) -> State {
    let text = text(cluster, trouble);
    match trouble {
        Trouble::OwnerUnset => State::waiting(reasons::WAITING_FOR_OWNER_CLUSTER, text),
        Trouble::OwnerAbsent(_) => {
            State::not(Severity::Warning, reasons::WAITING_FOR_OWNER_CLUSTER, text)
        }
        Trouble::OwnerUnknown(..) => State::Unknown { reason: reasons::UNKNOWN, message: text },
        Trouble::Endpoint { .. } => {
            State::not(Severity::Warning, reasons::MISSING_CONTROL_PLANE_ENDPOINT, text)
        }
        Trouble::Proxmox(fault) if fault.reason == Some(reasons::CONNECTION_NOT_ALLOWED) => {
            State::not(Severity::Error, reasons::CONNECTION_NOT_ALLOWED, text)
        }
        Trouble::SecretAbsent(_)
        | Trouble::SecretUnknown(..)
        | Trouble::Proxmox(_)
        | Trouble::Failed { target: Target::Secret(_), .. } => {
            State::not(Severity::Error, reasons::PROXMOX_UNREACHABLE, text)
        }
        Trouble::PoolsNotServed | Trouble::PoolSilent(_) => {
            State::not(Severity::Warning, reasons::IPAM_PROVIDER_UNAVAILABLE, text)
        }
        Trouble::PoolForeign { .. }
        | Trouble::PoolDeleting(_)
        | Trouble::PoolUnknown(..)
        | Trouble::Failed { target: Target::Pool(_), .. } => {
            State::not(Severity::Warning, reasons::IP_POOL_FAILED, text)
        }
        Trouble::Failed { target: Target::Itself | Target::OwnerStatus(_), .. } => {
            State::Unknown { reason: reasons::UNKNOWN, message: text }
        }
    }
}

/// How to get an IPAM provider.
const IPAM_REMEDY: &str = "install the in-cluster IPAM provider (clusterctl init --ipam \
                           in-cluster), or start the manager with --embedded-ipam";

fn text(cluster: &ProxmoxCluster, trouble: &Trouble) -> String {
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    match trouble {
        Trouble::OwnerUnset => "waits for Cluster API to set the owner reference, which it does \
                                for a Cluster whose spec.infrastructureRef names this \
                                ProxmoxCluster"
            .to_owned(),
        Trouble::OwnerAbsent(name) => format!(
            "Cluster {namespace}/{name}, the owner, does not exist: create it again, or delete \
             this ProxmoxCluster"
        ),
        Trouble::OwnerUnknown(name, why) => {
            format!("cannot read Cluster {namespace}/{name}: {why}")
        }
        Trouble::Endpoint { part, is_external } => endpoint(*part, *is_external),
        Trouble::SecretAbsent(ObjectKey { namespace, name }) => format!(
            "Secret {namespace}/{name} of spec.credentialsRef does not exist: create it with \
             {SECRET_KEYS}"
        ),
        Trouble::SecretUnknown(secret, why) => {
            format!("cannot read Secret {secret} of spec.credentialsRef: {why}")
        }
        Trouble::Proxmox(fault) | Trouble::Failed { fault, .. } => fault.message.clone(),
        Trouble::PoolsNotServed => format!(
            "no one answers claims of kind InClusterIPPool: the API server does not know \
             ipam.cluster.x-k8s.io/v1alpha2; {IPAM_REMEDY}"
        ),
        Trouble::PoolSilent(pool) => format!(
            "no one answers claims of kind InClusterIPPool: {namespace}/{pool} is there for more \
             than half a minute and has no status; see if the IPAM provider runs, {IPAM_REMEDY}"
        ),
        Trouble::PoolForeign { pool, controller } => format!(
            "InClusterIPPool {namespace}/{pool} belongs to {controller}: delete it, or give this \
             ProxmoxCluster another name"
        ),
        Trouble::PoolDeleting(pool) => format!(
            "InClusterIPPool {namespace}/{pool} is being deleted, and is made again once it is \
             gone: delete the IPAddressClaims that it waits for"
        ),
        Trouble::PoolUnknown(pool, why) => {
            format!("cannot read InClusterIPPool {namespace}/{pool}: {why}")
        }
    }
}

/// What a Secret with credentials has to hold.
const SECRET_KEYS: &str = "the keys url (https://HOST:8006), token (USER@REALM!NAME) and secret \
                           (the UUID of the token)";

fn endpoint(part: EndpointPart, is_external: bool) -> String {
    let (what, remedy) = match part {
        EndpointPart::Whole => ("spec.controlPlaneEndpoint is not set", "set host and port"),
        EndpointPart::Host => ("spec.controlPlaneEndpoint.host is empty", "set it"),
        EndpointPart::Port => ("spec.controlPlaneEndpoint.port is 0", "set it"),
    };
    if is_external {
        format!(
            "{what}: waits for the control plane provider to fill it in, as \
             spec.externalManagedControlPlane says"
        )
    } else {
        format!("{what}: {remedy}")
    }
}

fn deleting(remains: &[Remainder]) -> State {
    let states = remains.iter().map(|remainder| match remainder {
        Remainder::OwnerLives(name) => State::not(
            Severity::Warning,
            reasons::DELETING,
            format!(
                "waits for Cluster {name}, which is not being deleted: delete the Cluster, and \
                 this ProxmoxCluster goes with it"
            ),
        ),
        Remainder::Machines(names) => {
            let some = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let text = format!("waits for ProxmoxMachines to be deleted: {some}{more}");
            State::waiting(reasons::DELETING, text)
        }
        Remainder::Pool(why) => State::waiting(
            reasons::DELETING,
            format!(
                "{why}. This is waited for a few seconds; a pool that is left is deleted by the \
                 garbage collector once its addresses are free"
            ),
        ),
        Remainder::Unknown(why) => {
            State::not(Severity::Warning, reasons::DELETION_FAILED, why.clone())
        }
        Remainder::Failed(fault) => {
            State::not(Severity::Warning, reasons::DELETION_FAILED, fault.message.clone())
        }
    });
    let states: Vec<State> = states.collect();
    if states.is_empty() {
        return State::waiting(reasons::DELETING, "lets go of pools and credentials");
    }
    together(states)
}

#[cfg(test)]
mod tests;

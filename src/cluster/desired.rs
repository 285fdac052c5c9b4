//! How finalizers, pools and Secrets should be, as the patches that make them so. Pure.
//!
//! Only what is ours is compared and written: labels, annotations, finalizers, owner references and
//! pool settings of others stay.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::{Map, Value, json};

use super::decision::{Step, Target, Trouble};
use super::facts::{PoolFact, PoolSeen, SecretFact, has_finalizer, key};
use crate::api::capi::Cluster;
use crate::api::ipam::InClusterIPPool;
use crate::api::{CLUSTER_FINALIZER, ProxmoxCluster, SECRET_FINALIZER, reasons};
use crate::ipam::{CLUSTER_NAME_LABEL, METRIC_ANNOTATION};

/// Puts our finalizer on the cluster.
pub(super) fn add_finalizer(cluster: &ProxmoxCluster) -> Step {
    let mut finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(CLUSTER_FINALIZER.to_owned());
    set_finalizers(cluster, &finalizers, "add the finalizer")
}

/// Takes our finalizer off the cluster, which lets it go.
pub(super) fn remove_finalizer(cluster: &ProxmoxCluster) -> Step {
    let mut finalizers = cluster.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|one| one != CLUSTER_FINALIZER);
    set_finalizers(cluster, &finalizers, "remove the finalizer")
}

fn set_finalizers(cluster: &ProxmoxCluster, finalizers: &[String], what: &'static str) -> Step {
    let metadata = Map::from_iter([("finalizers".to_owned(), json!(finalizers))]);
    patch(Target::Itself, what, &cluster.metadata, metadata, None)
}

fn patch(
    target: Target,
    what: &'static str,
    old: &ObjectMeta,
    mut metadata: Map<String, Value>,
    spec: Option<Value>,
) -> Step {
    metadata.insert("resourceVersion".to_owned(), json!(old.resource_version));
    let mut patch = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    if let Some(spec) = spec {
        patch.insert("spec".to_owned(), spec);
    }
    Step::Patch { target, what, patch: Value::Object(patch) }
}

/// The failure that capmox marks a cluster with while it has no credentials. Once there are some it
/// takes the mark off again, and so it is done here.
pub(super) fn is_failure_of_capmox(reason: Option<&str>, message: Option<&str>) -> bool {
    let marks = ["No credentials found", "credentials secret not found"];
    reason == Some(reasons::FAILURE_INVALID_CONFIGURATION)
        && message.is_some_and(|message| marks.iter().any(|mark| message.contains(mark)))
}

/// Takes that mark off the owner, where Cluster API copied it to.
pub(super) fn forget_failure(owner: &Cluster) -> Option<Step> {
    let status = owner.status.as_ref()?;
    let (reason, message) = (status.failure_reason.as_deref(), status.failure_message.as_deref());
    is_failure_of_capmox(reason, message).then(|| Step::Patch {
        target: Target::OwnerStatus(key(&owner.metadata).name),
        what: "clear the failure",
        patch: json!({ "status": { "failureReason": null, "failureMessage": null } }),
    })
}

/// What a pool needs to be as wanted: nothing, a step, or somebody's help.
pub(super) fn pool(cluster: &ProxmoxCluster, fact: &PoolFact) -> Result<Option<Step>, Trouble> {
    let name = fact.wanted.metadata.name.clone().unwrap_or_default();
    match &fact.seen {
        PoolSeen::Absent => Ok(Some(Step::CreatePool(Box::new(fact.wanted.clone())))),
        PoolSeen::NotServed => Err(Trouble::PoolsNotServed),
        PoolSeen::Unknown(why) => Err(Trouble::PoolUnknown(name, why.clone())),
        PoolSeen::Present(pool) if pool.metadata.deletion_timestamp.is_some() => {
            Err(Trouble::PoolDeleting(name))
        }
        PoolSeen::Present(pool) => match stranger(cluster, &pool.metadata) {
            Some(controller) => Err(Trouble::PoolForeign { pool: name, controller }),
            None => Ok(pool_patch(cluster, &fact.wanted, pool)),
        },
    }
}

/// The controller of an object, if that is somebody else than this cluster or its predecessor.
fn stranger(cluster: &ProxmoxCluster, meta: &ObjectMeta) -> Option<String> {
    let owners = meta.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    let stranger = controllers.find(|owner| !is_ours(cluster, meta, owner))?;
    Some(format!("{} {}", stranger.kind, stranger.name))
}

fn pool_patch(
    cluster: &ProxmoxCluster,
    wanted: &InClusterIPPool,
    pool: &InClusterIPPool,
) -> Option<Step> {
    let mut metadata = Map::new();
    let ours = wanted.metadata.owner_references.iter().flatten().next();
    if let Some(owners) = ours.and_then(|ours| owners_with(cluster, &pool.metadata, ours)) {
        metadata.insert("ownerReferences".to_owned(), json!(owners));
    }
    let differs = |field: &str, key: &str, new: Option<&BTreeMap<_, _>>, old: Option<&_>| {
        let new = new.and_then(|map| map.get(key));
        let old: Option<&String> = old.and_then(|map: &BTreeMap<_, _>| map.get(key));
        (new != old).then(|| (field.to_owned(), json!({ key: new })))
    };
    metadata.extend(differs(
        "labels",
        CLUSTER_NAME_LABEL,
        wanted.metadata.labels.as_ref(),
        pool.metadata.labels.as_ref(),
    ));
    metadata.extend(differs(
        "annotations",
        METRIC_ANNOTATION,
        wanted.metadata.annotations.as_ref(),
        pool.metadata.annotations.as_ref(),
    ));
    let (new, old) = (&wanted.spec, &pool.spec);
    let is_same =
        new.addresses == old.addresses && new.prefix == old.prefix && new.gateway == old.gateway;
    let spec = (!is_same).then(
        || json!({ "addresses": new.addresses, "prefix": new.prefix, "gateway": new.gateway }),
    );
    (!metadata.is_empty() || spec.is_some()).then(|| {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        patch(Target::Pool(name), "update", &pool.metadata, metadata, spec)
    })
}

/// Deletes a pool that is ours and not on its way out.
pub(super) fn delete_pool(cluster: &ProxmoxCluster, pool: &InClusterIPPool) -> Option<Step> {
    let meta = &pool.metadata;
    let mut controllers =
        meta.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let is_controlled = controllers.any(|owner| is_me(cluster, owner));
    let step = || Some(Step::DeletePool { name: meta.name.clone()?, uid: meta.uid.clone()? });
    (is_controlled && meta.deletion_timestamp.is_none()).then(step).flatten()
}

/// Keeps a Secret as long as the cluster uses it: by a finalizer, and by an owner reference, which
/// also lets `clusterctl move` take it along.
///
/// No owner reference is set across namespaces: the garbage collector would take it for one to an
/// owner that is gone, and delete the Secret.
pub(super) fn hold(cluster: &ProxmoxCluster, secret: &SecretFact) -> Option<Step> {
    let meta = &secret.metadata;
    if meta.deletion_timestamp.is_some() {
        // Finalizers can no longer be added; the Secret serves until it is gone.
        return None;
    }
    let mut changes = Map::new();
    let is_near = meta.namespace == cluster.metadata.namespace;
    let owners = if is_near {
        let ours = cluster.owner_ref(&())?;
        owners_with(cluster, meta, &ours)
    } else {
        owners_without(cluster, meta)
    };
    if let Some(owners) = owners {
        changes.insert("ownerReferences".to_owned(), json!(owners));
    }
    if !has_finalizer(meta, SECRET_FINALIZER) {
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.push(SECRET_FINALIZER.to_owned());
        changes.insert("finalizers".to_owned(), json!(finalizers));
    }
    let target = Target::Secret(key(meta));
    (!changes.is_empty()).then(|| patch(target, "hold the credentials", meta, changes, None))
}

/// Lets go of a Secret that the cluster does not use any more.
///
/// The finalizer goes with the last user. A cluster that is deleted as the last owner stays on as
/// the owner, so that the Secret is deleted with it, which is what capmox does; one that merely
/// uses other credentials from now on (`is_leaving`) does not take the Secret along.
pub(super) fn release(
    cluster: &ProxmoxCluster,
    secret: &SecretFact,
    is_leaving: bool,
) -> Option<Step> {
    let meta = &secret.metadata;
    let owners: Vec<&OwnerReference> = meta.owner_references.iter().flatten().collect();
    let is_owner = |uid: &str| owners.iter().any(|owner| owner.uid == uid);
    // Of two clusters that go at once, each would see the other. Owner references settle it: the
    // first one drops its own and counts no more. Across namespaces there are none.
    let is_near = meta.namespace == cluster.metadata.namespace;
    let is_used =
        secret.users.iter().any(|user| !user.is_deleting || !is_near || is_owner(&user.uid));
    let has_others = owners.iter().any(|owner| !is_ours(cluster, meta, owner));
    let mut changes = Map::new();
    if let Some(owners) = owners_without(cluster, meta)
        && (is_leaving || is_used || has_others)
    {
        changes.insert("ownerReferences".to_owned(), json!(owners));
    }
    if !is_used && has_finalizer(meta, SECRET_FINALIZER) {
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.retain(|one| one != SECRET_FINALIZER);
        changes.insert("finalizers".to_owned(), json!(finalizers));
    }
    let target = Target::Secret(key(meta));
    (!changes.is_empty()).then(|| patch(target, "release the credentials", meta, changes, None))
}

/// The owners with `ours` among them, if that is a change. A reference to an earlier ProxmoxCluster
/// of the same name goes: its UID leads nowhere.
fn owners_with(
    cluster: &ProxmoxCluster,
    meta: &ObjectMeta,
    ours: &OwnerReference,
) -> Option<Vec<OwnerReference>> {
    let old: Vec<OwnerReference> = meta.owner_references.clone().unwrap_or_default();
    let mut new: Vec<OwnerReference> =
        old.iter().filter(|owner| !is_ours(cluster, meta, owner)).cloned().collect();
    let known = old.iter().find(|owner| is_me(cluster, owner));
    // What the reference says beyond whose it is, stays: another version may have written it.
    new.push(match known {
        Some(known) => OwnerReference {
            controller: ours.controller.or(known.controller),
            block_owner_deletion: ours.block_owner_deletion.or(known.block_owner_deletion),
            ..known.clone()
        },
        None => ours.clone(),
    });
    let is_same = new.len() == old.len() && new.iter().all(|owner| old.contains(owner));
    (!is_same).then_some(new)
}

/// The owners without this cluster, if that is a change.
fn owners_without(cluster: &ProxmoxCluster, meta: &ObjectMeta) -> Option<Vec<OwnerReference>> {
    let old = meta.owner_references.as_deref().unwrap_or_default();
    let new: Vec<OwnerReference> =
        old.iter().filter(|owner| !is_ours(cluster, meta, owner)).cloned().collect();
    (new.len() != old.len()).then_some(new)
}

fn is_me(cluster: &ProxmoxCluster, owner: &OwnerReference) -> bool {
    cluster.metadata.uid.as_deref() == Some(owner.uid.as_str())
}

/// Whether an owner reference of the object of `meta` names this cluster or an earlier one of its
/// name. In another namespace the name may be somebody else's.
fn is_ours(cluster: &ProxmoxCluster, meta: &ObjectMeta, owner: &OwnerReference) -> bool {
    is_me(cluster, owner)
        || (meta.namespace == cluster.metadata.namespace
            && owner.kind == "ProxmoxCluster"
            && owner.api_version.split('/').next() == Some(crate::api::GROUP)
            && cluster.metadata.name.as_deref() == Some(owner.name.as_str()))
}

#[cfg(test)]
mod tests;

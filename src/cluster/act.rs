//! Takes the steps that were decided. Chooses nothing.
//!
//! A step that comes too late for the state it was decided on is refused by the apiserver; the next
//! look then decides anew.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::FIELD_MANAGER;
use super::decision::{Step, Target};
use super::facts::key;
use super::observe::{fault, is_kind_unknown};
use crate::api::ProxmoxCluster;
use crate::api::capi::Cluster;
use crate::api::ipam::InClusterIPPool;
use crate::fault::{Class, Fault};

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is done.
    Done,
    /// The object changed or went since it was read.
    Outdated,
}

/// Takes one step for `cluster`.
pub(super) async fn perform(
    client: &Client,
    cluster: &ProxmoxCluster,
    step: &Step,
) -> Result<Outcome, Fault> {
    let namespace = key(&cluster.metadata).namespace;
    let pools: Api<InClusterIPPool> = Api::namespaced(client.clone(), &namespace);
    let result = match step {
        Step::Patch { target, patch, .. } => {
            let parameters = parameters();
            let patch = Patch::Merge(patch);
            match target {
                Target::Itself => {
                    let api: Api<ProxmoxCluster> = Api::namespaced(client.clone(), &namespace);
                    api.patch_metadata(&cluster.name_any(), &parameters, &patch).await.map(drop)
                }
                Target::OwnerStatus(name) => {
                    let api: Api<Cluster> = Api::namespaced(client.clone(), &namespace);
                    api.patch_status(name, &parameters, &patch).await.map(drop)
                }
                Target::Pool(name) => {
                    pools.patch_metadata(name, &parameters, &patch).await.map(drop)
                }
                // Metadata only: the answer carries no data either.
                Target::Secret(secret) => {
                    let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace);
                    api.patch_metadata(&secret.name, &parameters, &patch).await.map(drop)
                }
            }
        }
        Step::CreatePool(pool) => {
            let parameters =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), dry_run: false };
            pools.create(&parameters, pool).await.map(drop)
        }
        Step::DeletePool { name, uid } => {
            let parameters = DeleteParams::default()
                .preconditions(Preconditions { uid: Some(uid.clone()), resource_version: None });
            pools.delete(name, &parameters).await.map(drop)
        }
    };
    judge(result, &describe(cluster, step))
}

/// Writes the status.
pub(super) async fn write_status(
    client: &Client,
    cluster: &ProxmoxCluster,
    patch: &Value,
) -> Result<Outcome, Fault> {
    let meta = key(&cluster.metadata);
    let api: Api<ProxmoxCluster> = Api::namespaced(client.clone(), &meta.namespace);
    let result = api.patch_status(&meta.name, &parameters(), &Patch::Merge(patch)).await;
    judge(result.map(drop), &format!("write the status of ProxmoxCluster {meta}"))
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

fn judge(result: Result<(), kube::Error>, what: &str) -> Result<Outcome, Fault> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(error) if is_kind_unknown(&error) => {
            Err(Fault::new(Class::Blocked, format!("cannot {what}: {error}")))
        }
        // 404: it went; 409: it changed, or the name was taken a moment ago.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Outdated),
        Err(error) => Err(fault(what, &error)),
    }
}

/// What a step does, as the end of "cannot …".
pub(super) fn describe(cluster: &ProxmoxCluster, step: &Step) -> String {
    let me = key(&cluster.metadata);
    let namespace = &me.namespace;
    match step {
        Step::Patch { target: Target::Itself, what, .. } => {
            format!("{what} of ProxmoxCluster {me}")
        }
        Step::Patch { target: Target::OwnerStatus(owner), what, .. } => {
            format!("{what} of Cluster {namespace}/{owner}")
        }
        Step::Patch { target: Target::Pool(pool), what, .. } => {
            format!("{what} InClusterIPPool {namespace}/{pool}")
        }
        Step::Patch { target: Target::Secret(secret), what, .. } => {
            format!("{what} in Secret {secret}")
        }
        Step::CreatePool(pool) => {
            format!("create InClusterIPPool {namespace}/{}", pool.name_any())
        }
        Step::DeletePool { name, .. } => format!("delete InClusterIPPool {namespace}/{name}"),
    }
}

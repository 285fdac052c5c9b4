//! Writes what was decided. Chooses nothing.
//!
//! Every write carries the version it was decided on, or a name that can be taken once. A write
//! that comes too late is refused by the apiserver; the next look then decides anew.

use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::FIELD_MANAGER;
use super::decide::{Step, Target};
use super::facts::{Key, PoolKey, PoolKind};
use super::report::Report;
use crate::api::ipam::{GlobalInClusterIPPool, IPAddress, IPAddressClaim, InClusterIPPool};

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The object changed or went since it was read.
    Outdated,
}

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub(super) struct Failed {
    what: String,
    source: Box<kube::Error>,
}

/// Takes one step.
pub(super) async fn perform(client: &Client, step: &Step) -> Result<Outcome, Failed> {
    let result = match step {
        Step::SetFinalizers { target, version, finalizers } => {
            let metadata = json!({ "resourceVersion": version, "finalizers": finalizers });
            merge(client, target, &json!({ "metadata": metadata })).await
        }
        Step::CreateAddress(address) => {
            let namespace = address.metadata.namespace.as_deref().unwrap_or_default();
            let api: Api<IPAddress> = Api::namespaced(client.clone(), namespace);
            let parameters =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), dry_run: false };
            api.create(&parameters, address).await.map(drop)
        }
        Step::CompleteAddress { address, version, metadata } => {
            let metadata = json!({
                "resourceVersion": version,
                "finalizers": metadata.finalizers,
                "labels": metadata.labels,
                "ownerReferences": metadata.owner_references,
            });
            let target = Target::Address(address.clone());
            merge(client, &target, &json!({ "metadata": metadata })).await
        }
        Step::DeleteAddress { address: (namespace, name), uid, version } => {
            let api: Api<IPAddress> = Api::namespaced(client.clone(), namespace);
            let parameters = DeleteParams::default().preconditions(Preconditions {
                uid: Some(uid.clone()),
                resource_version: Some(version.clone()),
            });
            api.delete(name, &parameters).await.map(drop)
        }
    };
    judge(result, || describe(step))
}

/// Writes the status of a claim or pool.
pub(super) async fn write_status(client: &Client, report: &Report) -> Result<Outcome, Failed> {
    let Report { target, uid, status, .. } = report;
    let metadata = |name: &str| json!({ "name": name, "uid": uid });
    let result = match target {
        Target::Claim(key) => {
            let api = in_namespace::<IPAddressClaim>(client, key);
            apply_status(api, &metadata(&key.1), status).await
        }
        Target::Pool(PoolKey { kind: PoolKind::InCluster, namespace, name }) => {
            let api = Api::<InClusterIPPool>::namespaced(client.clone(), namespace);
            apply_status(api, &metadata(name), status).await
        }
        Target::Pool(PoolKey { kind: PoolKind::Global, name, .. }) => {
            let api = Api::<GlobalInClusterIPPool>::all(client.clone());
            apply_status(api, &metadata(name), status).await
        }
        // An IPAddress has no status.
        Target::Address(_) => Ok(()),
    };
    judge(result, || format!("write the status of {}", name_of(target)))
}

fn in_namespace<K>(client: &Client, key: &Key) -> Api<K>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &key.0)
}

async fn merge(client: &Client, target: &Target, patch: &Value) -> Result<(), kube::Error> {
    match target {
        Target::Claim(key) => {
            merge_in::<IPAddressClaim>(in_namespace(client, key), &key.1, patch).await
        }
        Target::Address(key) => {
            merge_in::<IPAddress>(in_namespace(client, key), &key.1, patch).await
        }
        Target::Pool(PoolKey { kind: PoolKind::InCluster, namespace, name }) => {
            let api = Api::<InClusterIPPool>::namespaced(client.clone(), namespace);
            merge_in(api, name, patch).await
        }
        Target::Pool(PoolKey { kind: PoolKind::Global, name, .. }) => {
            merge_in(Api::<GlobalInClusterIPPool>::all(client.clone()), name, patch).await
        }
    }
}

async fn merge_in<K>(api: Api<K>, name: &str, patch: &Value) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch_metadata(name, &parameters, &Patch::Merge(patch)).await.map(drop)
}

/// The status belongs to this provider as a whole, so it is applied with force.
async fn apply_status<K>(api: Api<K>, metadata: &Value, status: &Value) -> Result<(), kube::Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": metadata,
        "status": status,
    });
    let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    api.patch_status(name, &parameters, &Patch::Apply(object)).await.map(drop)
}

fn judge(
    result: Result<(), kube::Error>,
    what: impl FnOnce() -> String,
) -> Result<Outcome, Failed> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        // 404: it went; 409: it changed, or the name is taken.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Outcome::Outdated),
        Err(source) => Err(Failed { what: what(), source: Box::new(source) }),
    }
}

fn describe(step: &Step) -> String {
    match step {
        Step::SetFinalizers { target, .. } => format!("set the finalizers of {}", name_of(target)),
        Step::CreateAddress(address) => {
            let key = super::facts::key(&address.metadata);
            format!("create {}", name_of(&Target::Address(key)))
        }
        Step::CompleteAddress { address, .. } => {
            format!("complete {}", name_of(&Target::Address(address.clone())))
        }
        Step::DeleteAddress { address, .. } => {
            format!("delete {}", name_of(&Target::Address(address.clone())))
        }
    }
}

pub(super) fn name_of(target: &Target) -> String {
    match target {
        Target::Claim((namespace, name)) => format!("IPAddressClaim {namespace}/{name}"),
        Target::Address((namespace, name)) => format!("IPAddress {namespace}/{name}"),
        Target::Pool(pool) => pool.to_string(),
    }
}

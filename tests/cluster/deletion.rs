//! The way out: after the machines, and with everything that was made or held.

use std::time::Duration;

use capmox::api::capi::Cluster;
use capmox::api::{ProxmoxCluster, ProxmoxMachine, conditions};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::stage::Stage;

async fn gone(stage: &Stage) {
    let is_gone = |cluster: Option<&ProxmoxCluster>| cluster.is_none();
    stage.until(&stage.clusters(), "infra", is_gone).await;
}

#[tokio::test]
async fn a_cluster_goes_after_its_owner_and_its_machines() {
    let stage = Stage::set().await;
    stage.in_service().await;
    stage.machine("worker", "pve1", false).await;
    let delete = DeleteParams::default();
    stage.clusters().delete("infra", &delete).await.unwrap();
    stage.until_says("False", "Deleting", "delete the Cluster").await;
    stage.api::<Cluster>().delete("workload", &delete).await.unwrap();
    stage.until_says("False", "Deleting", "ProxmoxMachines to be deleted: worker").await;
    assert!(stage.pools().get_opt("infra-v4-icip").await.unwrap().is_some());
    stage.api::<ProxmoxMachine>().delete("worker", &delete).await.unwrap();
    gone(&stage).await;
    assert!(stage.pools().get_opt("infra-v4-icip").await.unwrap().is_none());
    let secret = stage.api::<Secret>().get("creds").await.unwrap();
    assert_eq!(secret.finalizers(), Vec::<String>::new());
    // The garbage collector, which is not at work here, takes the Secret along.
    assert_eq!(secret.owner_references().len(), 1);
}

#[tokio::test]
async fn a_cluster_goes_without_credentials_and_without_proxmox() {
    let stage = Stage::set().await;
    stage.in_service().await;
    let secrets = stage.api::<Secret>();
    stage.merge(&secrets, "creds", json!({"metadata": {"finalizers": null}})).await;
    let delete = DeleteParams::default();
    // The finalizer may be back before the deletion; then it is held until the cluster is gone.
    secrets.delete("creds", &delete).await.unwrap();
    stage.api::<Cluster>().delete("workload", &delete).await.unwrap();
    stage.clusters().delete("infra", &delete).await.unwrap();
    gone(&stage).await;
    let is_gone = |secret: Option<&Secret>| secret.is_none();
    stage.until(&secrets, "creds", is_gone).await;
}

#[tokio::test]
async fn a_secret_is_kept_for_another_cluster_that_uses_it() {
    let stage = Stage::set().await;
    let first = stage.in_service().await;
    let other: ProxmoxCluster = serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxCluster",
        "metadata": {
            "name": "other", "labels": first.labels(),
            "ownerReferences": first.owner_references(),
        },
        "spec": first.spec,
    }))
    .unwrap();
    let other = stage.clusters().create(&PostParams::default(), &other).await.unwrap();
    let secrets = stage.api::<Secret>();
    let owners = |count: usize| {
        move |secret: Option<&Secret>| {
            secret.is_some_and(|secret| secret.owner_references().len() == count)
        }
    };
    stage.until(&secrets, "creds", owners(2)).await;
    let delete = DeleteParams::default();
    stage.api::<Cluster>().delete("workload", &delete).await.unwrap();
    stage.clusters().delete("infra", &delete).await.unwrap();
    gone(&stage).await;
    let secret = stage.until(&secrets, "creds", owners(1)).await.unwrap();
    assert_eq!(secret.owner_references()[0].uid, other.uid().unwrap());
    assert_eq!(secret.finalizers().len(), 1);
}

/// What the in-cluster IPAM provider says of a pool in use.
const IN_USE: &str = "Pool has IPAddresses allocated. Cannot delete Pool until all IPAddresses have \
                      been removed.";

/// Lets nobody delete pools of the namespace, as the webhook of the IPAM provider does.
async fn refuse_to_delete_pools(stage: &Stage) {
    let name = &stage.namespace;
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["*"],
                "operations": ["DELETE"], "resources": ["inclusterippools"],
            }]},
            "validations": [{"expression": "false", "message": IN_USE}],
        },
    }))
    .unwrap();
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": name},
            }},
        },
    }))
    .unwrap();
    let parameters = PostParams::default();
    Api::all(stage.client.clone()).create(&parameters, &policy).await.unwrap();
    Api::all(stage.client.clone()).create(&parameters, &binding).await.unwrap();
    // The API server takes a moment to heed it.
    let trial = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let mut ticks = interval(Duration::from_millis(100));
    while stage.pools().delete("infra-v4-icip", &trial).await.is_ok() {
        ticks.tick().await;
    }
}

#[tokio::test]
async fn a_pool_that_is_in_use_keeps_a_cluster_for_a_moment_only() {
    let stage = Stage::set().await;
    stage.in_service().await;
    refuse_to_delete_pools(&stage).await;
    let delete = DeleteParams::default();
    stage.api::<Cluster>().delete("workload", &delete).await.unwrap();
    stage.clusters().delete("infra", &delete).await.unwrap();
    let cluster = stage.until_says("False", "Deleting", IN_USE).await;
    let conditions = &cluster.status.as_ref().unwrap().conditions;
    let told = conditions::find(conditions, "ClusterReady").unwrap();
    assert_eq!(told.severity.as_deref(), Some("Info"));
    let began = Instant::now();
    gone(&stage).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // The garbage collector, which is not at work here, takes it later.
    let pool = stage.pools().get("infra-v4-icip").await.unwrap();
    assert_eq!(pool.owner_references()[0].uid, cluster.uid().unwrap());
}

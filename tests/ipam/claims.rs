//! What happens to claims.

use std::collections::BTreeSet;

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::json;

use crate::stage::Stage;

const POOL: &str = "InClusterIPPool";

#[tokio::test]
async fn a_claim_is_answered_as_the_in_cluster_provider_does() {
    let stage = Stage::set().await;
    let allocator = stage.start();
    let spec = json!({"addresses": ["10.0.0.0/28"], "prefix": 24, "gateway": "10.0.0.1"});
    let pool = stage.pool("p", spec).await;
    let claim = stage.claim("c", POOL, "p").await;

    let address = stage.address_of("c").await;
    assert_eq!(address.name_any(), "c");
    let spec = serde_json::to_value(&address.spec).unwrap();
    assert_eq!(
        spec,
        json!({
            "address": "10.0.0.2",
            "prefix": 24,
            "gateway": "10.0.0.1",
            "claimRef": {"name": "c"},
            "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": POOL, "name": "p"},
        })
    );
    assert_eq!(address.finalizers(), ["ipam.cluster.x-k8s.io/ProtectAddress"]);
    let owners: Vec<_> = address
        .owner_references()
        .iter()
        .map(|o| (o.kind.as_str(), o.uid.clone(), o.controller, o.block_owner_deletion))
        .collect();
    assert_eq!(
        owners,
        [
            ("IPAddressClaim", claim.uid().unwrap(), Some(true), Some(true)),
            (POOL, pool.uid().unwrap(), Some(false), Some(true)),
        ]
    );
    let claim = stage.claims().get("c").await.unwrap();
    assert_eq!(claim.finalizers(), ["ipam.cluster.x-k8s.io/ReleaseAddress"]);

    stage.delete(&stage.claims(), "c").await;
    stage.gone(&stage.claims(), "c").await;
    stage.gone(&stage.addresses(), "c").await;
    allocator.stop().await;
}

#[tokio::test]
async fn an_exhausted_pool_is_told_on_the_claim_and_serves_it_when_there_is_room() {
    let stage = Stage::set().await;
    let allocator = stage.start();
    stage.pool("p", json!({"addresses": ["10.0.0.5"], "prefix": 24})).await;
    stage.claim("first", POOL, "p").await;
    assert_eq!(stage.address_of("first").await.spec.address, "10.0.0.5");
    for late in ["second", "third"] {
        stage.claim(late, POOL, "p").await;
        let text = stage.complaint_of(late, "PoolExhausted").await;
        assert!(text.contains(&format!("{POOL} {}/p has no free", stage.namespace)), "{text}");
    }
    // Room by release, then by a bigger pool.
    stage.delete(&stage.claims(), "first").await;
    assert_eq!(stage.address_of("second").await.spec.address, "10.0.0.5");
    stage.complaint_of("third", "PoolExhausted").await;
    let bigger = json!({"spec": {"addresses": ["10.0.0.5-10.0.0.6"]}});
    stage.merge(&stage.pools(), "p", bigger).await;
    assert_eq!(stage.address_of("third").await.spec.address, "10.0.0.6");
    allocator.stop().await;
}

#[tokio::test]
async fn a_claim_waits_for_its_pool_and_says_so() {
    let stage = Stage::set().await;
    let allocator = stage.start();
    stage.claim("c", POOL, "later").await;
    let text = stage.complaint_of("c", "PoolNotReady").await;
    assert!(text.contains("does not exist: create it or correct spec.poolRef"), "{text}");

    stage.pool("later", json!({"addresses": ["10.0.0.300"], "prefix": 24})).await;
    stage
        .until(&stage.claims(), "c", |claim: Option<&capmox::api::ipam::IPAddressClaim>| {
            let text = serde_json::to_string(&claim.map(|claim| &claim.status)).unwrap();
            text.contains("10.0.0.300")
        })
        .await;
    let good = json!({"spec": {"addresses": ["10.0.0.30"]}});
    stage.merge(&stage.pools(), "later", good).await;
    assert_eq!(stage.address_of("c").await.spec.address, "10.0.0.30");
    allocator.stop().await;
}

#[tokio::test]
async fn fifty_claims_at_once_get_fifty_addresses_though_the_allocator_is_killed_again_and_again() {
    let stage = Stage::set().await;
    stage.pool("p", json!({"addresses": ["fd00::/64"], "prefix": 64})).await;
    let mut allocator = stage.start();
    let names: Vec<String> = (0..50).map(|n| format!("c{n}")).collect();
    let claims = names.iter().map(|name| stage.claim(name, POOL, "p"));
    futures::future::join_all(claims).await;
    for killed_at in [1, 5, 15, 30, 45] {
        let enough = async {
            while stage.handed_out().await.len() < killed_at {
                tokio::task::yield_now().await;
            }
        };
        crate::stage::within("more addresses are handed out", enough).await;
        allocator.kill().await;
        allocator = stage.start();
    }
    let mut unique = BTreeSet::new();
    for name in &names {
        unique.insert(stage.address_of(name).await.spec.address);
    }
    assert_eq!(unique.len(), 50);
    assert_eq!(stage.addresses().list(&ListParams::default()).await.unwrap().items.len(), 50);
    allocator.stop().await;
}

#[tokio::test]
async fn a_release_that_was_cut_off_is_ended_after_a_restart() {
    let stage = Stage::set().await;
    stage.pool("p", json!({"addresses": ["10.0.0.5"], "prefix": 24})).await;
    let allocator = stage.start();
    stage.claim("c", POOL, "p").await;
    stage.address_of("c").await;
    allocator.stop().await;

    // Deleted while nobody serves; then as if the finalizer of the address had just been removed.
    stage.delete(&stage.claims(), "c").await;
    stage.merge(&stage.addresses(), "c", json!({"metadata": {"finalizers": null}})).await;
    let allocator = stage.start();
    stage.gone(&stage.claims(), "c").await;
    stage.gone(&stage.addresses(), "c").await;
    allocator.stop().await;
}

#[tokio::test]
async fn claims_of_a_paused_cluster_wait() {
    let stage = Stage::set().await;
    let clusters = clusters(&stage);
    let cluster: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": "workload"},
        "spec": {"paused": true},
    }))
    .unwrap();
    clusters.create(&PostParams::default(), &cluster).await.unwrap();
    stage.pool("p", json!({"addresses": ["10.0.0.5-10.0.0.6"], "prefix": 24})).await;
    let allocator = stage.start();
    stage.claim("of-workload", POOL, "p").await;
    let label = json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "workload"}}});
    stage.merge(&stage.claims(), "of-workload", label).await;
    // Made later, served first: the other one was looked at and left alone.
    stage.claim("of-nobody", POOL, "p").await;
    stage.address_of("of-nobody").await;
    assert_eq!(stage.handed_out().await.len(), 1);

    stage.merge(&clusters, "workload", json!({"spec": {"paused": false}})).await;
    let address = stage.address_of("of-workload").await;
    assert_eq!(address.labels()["cluster.x-k8s.io/cluster-name"], "workload");
    allocator.stop().await;
}

fn clusters(stage: &Stage) -> Api<DynamicObject> {
    let kind = kube::core::GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta1", "Cluster");
    let resource = kube::api::ApiResource::from_gvk(&kind);
    Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource)
}

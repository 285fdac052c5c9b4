//! The allocator does not work beside another one.

use capmox::embedded_ipam::{Error, Evidence};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::stage::Stage;

#[tokio::test]
async fn it_does_not_start_where_the_provider_is_installed() {
    let stage = Stage::set().await;
    let deployments: Api<Deployment> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let labels = json!({"cluster.x-k8s.io/provider": "ipam-in-cluster"});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "manager", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "manager", "image": "none"}]},
            },
        },
    }))
    .unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let refusal = stage.start().end().await.unwrap_err();
    let expected = format!("Deployment {}/manager runs it", stage.namespace);
    assert!(refusal.to_string().contains(&expected), "{refusal}");
    assert!(refusal.to_string().contains("--embedded-ipam"), "{refusal}");

    // Scaled to zero it is out of the way.
    stage.merge(&deployments, "manager", json!({"spec": {"replicas": 0}})).await;
    let allocator = stage.start();
    stage.pool("p", json!({"addresses": ["10.0.0.5"], "prefix": 24})).await;
    stage.claim("c", "InClusterIPPool", "p").await;
    stage.address_of("c").await;
    allocator.stop().await;
    stage.delete(&deployments, "manager").await;
}

#[tokio::test]
async fn it_stops_when_another_one_takes_charge_of_a_claim() {
    let stage = Stage::set().await;
    let allocator = stage.start();
    stage.pool("p", json!({"addresses": ["10.0.0.5-10.0.0.6"], "prefix": 24})).await;
    stage.claim("ours", "InClusterIPPool", "p").await;
    stage.address_of("ours").await;

    // A claim made paused, so that the other one is faster for certain.
    let claim = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
        "kind": "IPAddressClaim",
        "metadata": {"name": "theirs", "annotations": {"cluster.x-k8s.io/paused": ""}},
        "spec": {"poolRef": {
            "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p",
        }},
    });
    let claim = serde_json::from_value(claim).unwrap();
    stage.claims().create(&PostParams::default(), &claim).await.unwrap();
    let other = PatchParams { field_manager: Some("manager".to_owned()), ..Default::default() };
    let finalizers = json!({"metadata": {"finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"]}});
    stage.claims().patch("theirs", &other, &Patch::Merge(finalizers)).await.unwrap();

    let Error::Rival(evidence) = allocator.end().await.unwrap_err();
    let expected = Evidence::Answer {
        claim: format!("{}/theirs", stage.namespace),
        manager: "manager".into(),
    };
    assert_eq!(evidence, expected);
    assert_eq!(stage.handed_out().await, ["10.0.0.5"]);
}

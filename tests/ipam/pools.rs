//! What happens to pools.

use capmox::api::ipam::{GlobalInClusterIPPool, InClusterIPPool};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::stage::Stage;

/// The figures that a pool shows.
fn figures<K: serde::Serialize>(pool: &K) -> Value {
    serde_json::to_value(pool).unwrap()["status"]["ipAddresses"].clone()
}

#[tokio::test]
async fn a_pool_shows_its_figures_and_is_kept_while_it_is_in_use() {
    let stage = Stage::set().await;
    let allocator = stage.start();
    let spec = json!({"addresses": ["10.0.0.5-10.0.0.8"], "prefix": 24});
    stage.pool("p", spec).await;
    stage.claim("c", "InClusterIPPool", "p").await;
    stage.address_of("c").await;
    let shows = |expected: Value| {
        move |pool: Option<&InClusterIPPool>| pool.is_some_and(|pool| figures(pool) == expected)
    };
    let used = json!({"total": 4, "used": 1, "free": 3, "outOfRange": 0});
    stage.until(&stage.pools(), "p", shows(used)).await;
    let smaller = json!({"spec": {"excludedAddresses": ["10.0.0.4-10.0.0.6"]}});
    stage.merge(&stage.pools(), "p", smaller).await;
    let beyond = json!({"total": 2, "used": 1, "free": 2, "outOfRange": 1});
    stage.until(&stage.pools(), "p", shows(beyond)).await;

    stage.delete(&stage.pools(), "p").await;
    stage.claim("late", "InClusterIPPool", "p").await;
    let text = stage.complaint_of("late", "PoolNotReady").await;
    assert!(text.ends_with("is being deleted"), "{text}");
    let pool = stage.pools().get("p").await.unwrap();
    assert_eq!(pool.finalizers(), ["ipam.cluster.x-k8s.io/ProtectPool"]);

    stage.delete(&stage.claims(), "c").await;
    stage.gone(&stage.pools(), "p").await;
    allocator.stop().await;
}

#[tokio::test]
async fn a_global_pool_serves_claims_of_every_namespace_without_giving_an_address_twice() {
    let name = {
        let stage = Stage::set().await;
        let allocator = stage.start();
        let name = format!("shared-{}", stage.namespace);
        stage.global_pool(&name, json!({"addresses": ["10.9.0.5-10.9.0.6"], "prefix": 24})).await;
        stage.claim("c", "GlobalInClusterIPPool", &name).await;
        assert_eq!(stage.address_of("c").await.spec.address, "10.9.0.5");
        allocator.stop().await;
        name
    };
    // The same name in another namespace.
    let stage = Stage::set().await;
    let allocator = stage.start();
    stage.claim("c", "GlobalInClusterIPPool", &name).await;
    let address = stage.address_of("c").await;
    assert_eq!(address.spec.address, "10.9.0.6");
    let full = json!({"total": 2, "used": 2, "free": 0, "outOfRange": 0});
    let shows =
        move |pool: Option<&GlobalInClusterIPPool>| pool.is_some_and(|pool| figures(pool) == full);
    stage.until(&stage.global_pools(), &name, shows).await;
    allocator.stop().await;
}

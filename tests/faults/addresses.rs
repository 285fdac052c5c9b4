//! Pools without addresses, and without being.

use capmox::api::ipam::{IPAddressClaim, InClusterIPPool};
use serde_json::{Value, json};

use crate::case::Case;
use crate::objects;

const WAITING: &str = "False Info WaitingForStaticIPAllocation";

pub(crate) async fn an_exhausted_pool_is_named_and_a_freed_address_is_taken() {
    let case = Case::with(
        pve_fake::Config::default(),
        json!({"ipv4Config": {"addresses": ["10.10.10.10-10.10.10.10"]}}),
    )
    .await;
    case.machine("m1", json!({})).await;
    case.ready("m1").await;
    case.machine("m2", json!({})).await;
    let words = ["IPAddressClaim m2-net0-inet", "lab-v4-icip has no free address"];
    let said = case.says("m2", WAITING, &words).await;
    assert!(said.contains("dd addresses to it"), "{said}");
    assert!(!case.vm_of("m2").running, "it does not start without an address");
    case.delete("m1").await;
    case.gone("m1").await;
    case.ready("m2").await;
    case.end().await;
}

fn by_pool(kind: &str) -> Value {
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "storage-net"});
    let device = json!([{"name": "net1", "bridge": "vmbr1", "ipv4PoolRef": pool}]);
    json!({"network": {"additionalDevices": device}})
}

pub(crate) async fn a_pool_that_does_not_exist_is_named_and_waited_for() {
    let case = Case::sound().await;
    case.machine("m", by_pool("InClusterIPPool")).await;
    let words = ["IPAddressClaim m-net1-inet at InClusterIPPool storage-net", "not exist"];
    case.says("m", WAITING, &words).await;
    case.create(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2",
        "kind": "InClusterIPPool",
        "metadata": {"name": "storage-net"},
        "spec": {"addresses": ["10.20.0.10-10.20.0.20"], "prefix": 24},
    }))
    .await;
    let ready = case.ready("m").await;
    let addresses = &ready.status.unwrap().ip_addresses;
    assert_eq!(addresses["net1"].ipv4.as_deref(), Some("10.20.0.10"));
    case.end().await;
}

pub(crate) async fn a_metric_that_is_no_number_is_told_with_its_pool() {
    let case = Case::sound().await;
    let pool = |metric: &str| {
        json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2",
            "kind": "InClusterIPPool",
            "metadata": {"name": "storage-net", "annotations": {"metric": metric}},
            "spec": {
                "addresses": ["10.20.0.10-10.20.0.20"], "prefix": 24, "gateway": "10.20.0.1",
            },
        })
    };
    case.create(pool("high")).await;
    case.machine("m", by_pool("InClusterIPPool")).await;
    let words = ["annotation metric of InClusterIPPool storage-net", "\"high\"", "a number"];
    case.says("m", WAITING, &words).await;
    case.change::<InClusterIPPool>("storage-net", pool("0xc8")).await;
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_kind_of_pool_that_does_not_exist_is_refused_by_the_api_server() {
    let case = Case::sound().await;
    let owner = case.create(objects::machine("m", &case.namespace)).await;
    let machine = objects::infra_machine(&owner, &by_pool("NoSuchPool"));
    let refusal = case.try_create(machine).await.unwrap_err().to_string();
    assert!(refusal.contains("InClusterIPPool or GlobalInClusterIPPool"), "{refusal}");
    assert_eq!(case.list::<IPAddressClaim>().await.len(), 0);
    case.machine_without_secret_of(&owner, json!({})).await;
    case.create(objects::bootstrap_secret("m")).await;
    case.ready("m").await;
    case.end().await;
}

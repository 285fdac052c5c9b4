//! From a new object to one in service, and what keeps it from there.

use capmox::api::capi::Machine;
use capmox::api::ipam::InClusterIPPool;
use capmox::api::{ProxmoxCluster, ProxmoxMachine};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::{Options, World};

use crate::stage::{Stage, owned_by};

fn status(cluster: &ProxmoxCluster) -> Value {
    serde_json::to_value(cluster.status.as_ref().unwrap()).unwrap()
}

#[tokio::test]
async fn a_new_cluster_waits_for_its_owner_and_then_gets_into_service() {
    let stage = Stage::set().await;
    stage.secret("creds", json!({})).await;
    stage.infra(json!({}), json!({})).await;
    let waiting = stage.until_says("False", "WaitingForOwnerCluster", "owner reference").await;
    assert_eq!(waiting.finalizers(), Vec::<String>::new());
    let owner = stage.owner(json!({})).await;
    stage.merge(&stage.clusters(), "infra", json!({"metadata": owned_by(&owner)})).await;

    let ready = stage.until_ready().await;
    assert_eq!(ready.finalizers(), ["proxmoxcluster.infrastructure.cluster.x-k8s.io"]);
    let status = status(&ready);
    assert_eq!(status["ready"], true);
    assert_eq!(status["inClusterIpPoolRef"], json!([{"name": "infra-v4-icip"}]));
    let types = |conditions: &Value| -> Vec<String> {
        let all = conditions.as_array().unwrap().iter();
        all.map(|one| format!("{}={}", one["type"], one["status"]).replace('"', "")).collect()
    };
    // The Secret does not ask for a check of certificates, which keeps nothing from being ready.
    let wanted = ["Ready=True", "CertificateChecked=False", "ClusterReady=True"];
    assert_eq!(types(&status["conditions"]), wanted);
    let v1beta2 = types(&status["v1beta2"]["conditions"]);
    assert_eq!(v1beta2, [&wanted[..], &["Paused=False"]].concat());
    let secret = json!({"kind": "Secret", "namespace": stage.namespace, "name": "creds"});
    assert_eq!(status["credentials"], secret);

    let pool = stage.pools().get("infra-v4-icip").await.unwrap();
    assert_eq!(pool.spec.addresses, ["10.0.0.10-10.0.0.20"]);
    assert_eq!(pool.annotations()["metric"], "100");
    assert_eq!(pool.labels()["cluster.x-k8s.io/cluster-name"], "workload");
    assert_eq!(pool.owner_references()[0].uid, ready.uid().unwrap());
    assert_eq!(stage.reasons_of_events(1).await, ["ClusterReady"]);
}

#[tokio::test]
async fn pools_are_kept_in_step_with_the_cluster() {
    let stage = Stage::set().await;
    stage.in_service().await;
    let change = json!({"spec": {
        "ipv4Config": {"addresses": ["10.0.0.30"], "metric": 7},
        "ipv6Config": {"addresses": ["fd00::/120"], "prefix": 120},
    }});
    stage.merge(&stage.clusters(), "infra", change).await;
    let pools = stage.pools();
    let is_there = |pool: Option<&InClusterIPPool>| pool.is_some();
    stage.until(&pools, "infra-v6-icip", is_there).await;
    let pool = stage
        .until(&pools, "infra-v4-icip", |pool: Option<&InClusterIPPool>| {
            pool.is_some_and(|pool| pool.spec.addresses == ["10.0.0.30"])
        })
        .await
        .unwrap();
    assert_eq!(pool.annotations()["metric"], "7");

    // One that was deleted by hand is made again.
    let before = pool.uid();
    pools.delete("infra-v4-icip", &DeleteParams::default()).await.unwrap();
    let is_new = |pool: Option<&InClusterIPPool>| pool.is_some_and(|pool| pool.uid() != before);
    stage.until(&pools, "infra-v4-icip", is_new).await;
}

#[tokio::test]
async fn node_locations_follow_the_machines() {
    let stage = Stage::set().await;
    stage.in_service().await;
    stage.machine("cp", "pve1", true).await;
    stage.machine("worker", "pve2", false).await;
    let at = |expected: Value| {
        move |cluster: Option<&ProxmoxCluster>| {
            cluster.is_some_and(|cluster| status(cluster)["nodeLocations"] == expected)
        }
    };
    let control_plane = json!([{"machine": {"name": "cp"}, "node": "pve1"}]);
    let both = json!({
        "controlPlane": control_plane,
        "workers": [{"machine": {"name": "worker"}, "node": "pve2"}],
    });
    stage.until(&stage.clusters(), "infra", at(both)).await;
    let machines = stage.api::<ProxmoxMachine>();
    machines.delete("worker", &DeleteParams::default()).await.unwrap();
    let one = json!({"controlPlane": control_plane});
    stage.until(&stage.clusters(), "infra", at(one)).await;
    // Written by hand: only its Machine says that it leads, and not from the start.
    stage.machine_of("led", "pve3").await;
    let led = json!([{"machine": {"name": "led"}, "node": "pve3"}]);
    let works = json!({"controlPlane": control_plane, "workers": led});
    stage.until(&stage.clusters(), "infra", at(works)).await;
    let leads = json!({"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}});
    stage.merge(&stage.api::<Machine>(), "led", leads).await;
    let leading = json!({"controlPlane": [control_plane[0], led[0]]});
    stage.until(&stage.clusters(), "infra", at(leading)).await;
}

#[tokio::test]
async fn failure_domains_are_told_to_cluster_api() {
    let stage = Stage::set().await;
    stage.in_service().await;
    let told = |expected: Value| {
        move |cluster: Option<&ProxmoxCluster>| {
            cluster.is_some_and(|cluster| status(cluster)["failureDomains"] == expected)
        }
    };
    let racks = json!([
        {"name": "rack-1", "nodes": ["pve1", "pve2"]},
        {"name": "rack-2", "nodes": ["pve3"], "controlPlane": false},
    ]);
    stage.merge(&stage.clusters(), "infra", json!({"spec": {"failureDomains": racks}})).await;
    let both = json!({
        "rack-1": {"controlPlane": true, "attributes": {"nodes": "pve1,pve2"}},
        "rack-2": {"controlPlane": false, "attributes": {"nodes": "pve3"}},
    });
    stage.until(&stage.clusters(), "infra", told(both)).await;
    stage.merge(&stage.clusters(), "infra", json!({"spec": {"failureDomains": null}})).await;
    stage.until(&stage.clusters(), "infra", told(Value::Null)).await;
}

#[tokio::test]
async fn a_paused_cluster_is_not_touched() {
    let stage = Stage::set().await;
    stage.secret("creds", json!({})).await;
    let owner = stage.owner(json!({"paused": true})).await;
    stage.infra(owned_by(&owner), json!({})).await;
    let is_paused = |cluster: Option<&ProxmoxCluster>| {
        let conditions = cluster
            .and_then(|cluster| cluster.status.as_ref())
            .map(capmox::api::ProxmoxClusterStatus::v1beta2_conditions)
            .unwrap_or_default();
        conditions.iter().any(|one| one.type_ == "Paused" && one.status == "True")
    };
    let paused = stage.until(&stage.clusters(), "infra", is_paused).await.unwrap();
    assert_eq!(paused.finalizers(), Vec::<String>::new());
    assert_eq!(stage.pools().list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(stage.fake.journal().count("GET", "version"), 0);

    let clusters = stage.api::<capmox::api::capi::Cluster>();
    stage.merge(&clusters, "workload", json!({"spec": {"paused": false}})).await;
    stage.until_ready().await;
}

#[tokio::test]
async fn a_cluster_that_is_managed_by_others_is_left_alone() {
    let stage = Stage::set().await;
    let owner = stage.owner(json!({})).await;
    let mut metadata = owned_by(&owner);
    metadata["annotations"] = json!({"cluster.x-k8s.io/managed-by": "somebody"});
    let made = stage.infra(metadata, json!({})).await;
    // Another cluster gets into service meanwhile, so the controller is at work.
    let other = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "ProxmoxCluster", "metadata": {"name": "other"}, "spec": made.spec});
    let other: ProxmoxCluster = serde_json::from_value(other).unwrap();
    stage.clusters().create(&kube::api::PostParams::default(), &other).await.unwrap();
    let has_status =
        |cluster: Option<&ProxmoxCluster>| cluster.is_some_and(|cluster| cluster.status.is_some());
    stage.until(&stage.clusters(), "other", has_status).await;
    let left = stage.clusters().get("infra").await.unwrap();
    assert_eq!(left.resource_version(), made.resource_version());
}

#[tokio::test]
async fn a_cluster_waits_for_the_endpoint_of_its_control_plane_provider() {
    let stage = Stage::set().await;
    stage.secret("creds", json!({})).await;
    let owner = stage.owner(json!({})).await;
    let spec = json!({"controlPlaneEndpoint": null, "externalManagedControlPlane": true});
    stage.infra(owned_by(&owner), spec).await;
    let text = "waits for the control plane provider";
    let waiting = stage.until_says("False", "MissingControlPlaneEndpoint", text).await;
    assert_eq!(status(&waiting)["ready"], false);
    let endpoint = json!({"spec": {"controlPlaneEndpoint": {"host": "h.example", "port": 6443}}});
    stage.merge(&stage.clusters(), "infra", endpoint).await;
    stage.until_ready().await;
}

#[tokio::test]
async fn without_an_ipam_provider_a_cluster_says_so_until_there_is_one() {
    let world = World::start(Options { crds: false, ..Options::default() }).await.unwrap();
    let client = world.client().await.unwrap();
    let root = testbed::root();
    let all = testbed::crds::cluster_api(&root)
        .unwrap()
        .into_iter()
        .chain(testbed::crds::ours(&root).unwrap());
    let (pools, others): (Vec<Value>, Vec<Value>) = all.partition(|definition| {
        definition["spec"]["names"]["kind"].as_str().is_some_and(|kind| kind.ends_with("IPPool"))
    });
    assert_eq!(pools.len(), 2);
    testbed::crds::install(&client, others).await.unwrap();

    let stage = Stage::set_in(&world).await;
    stage.secret("creds", json!({})).await;
    let owner = stage.owner(json!({})).await;
    stage.infra(owned_by(&owner), json!({})).await;
    let cluster = stage.until_says("False", "IPAMProviderUnavailable", "--embedded-ipam").await;
    assert_eq!(status(&cluster)["ready"], false);
    testbed::crds::install(&client, pools).await.unwrap();
    stage.until_ready().await;
}

#[tokio::test]
async fn a_cluster_whose_claims_nobody_answers_says_so_within_a_minute() {
    let stage = Stage::set().await;
    stage.secret("creds", json!({})).await;
    let owner = stage.owner(json!({})).await;
    stage.infra(owned_by(&owner), json!({})).await;
    let text = "no one answers claims of kind InClusterIPPool: ";
    let cluster = stage.until_says("False", "IPAMProviderUnavailable", text).await;
    // It may be only the provider's pods that are missing: what runs is not stopped for it.
    assert_eq!(status(&cluster)["ready"], true);
}

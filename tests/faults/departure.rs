//! Deletion in a world that lacks something, or in which others had a hand.

use std::time::Duration;

use capmox::api::ipam::IPAddressClaim;
use capmox::api::{ProxmoxCluster, ProxmoxMachine};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use pve_fake::{Action, Change, Config, FaultRule, Seed, VmSeed, VmView};
use serde_json::json;

use crate::case::Case;
use crate::objects::{CLUSTER, CREDENTIALS, infra_cluster};

const DELETING: &str = "False Warning Deleting";

async fn up() -> (Case, VmView) {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let vm = case.vm_of("m");
    (case, vm)
}

pub(crate) async fn without_credentials_says_so_and_goes_on_when_they_are_back() {
    let (case, vm) = up().await;
    let secrets = case.api::<Secret>();
    // Somebody tears it away from the cluster that holds it.
    case.change::<Secret>(CREDENTIALS, json!({"metadata": {"finalizers": null}})).await;
    secrets.delete(CREDENTIALS, &DeleteParams::background()).await.unwrap();
    if secrets.get_opt(CREDENTIALS).await.unwrap().is_some() {
        case.change::<Secret>(CREDENTIALS, json!({"metadata": {"finalizers": null}})).await;
    }
    case.end_of::<Secret>(CREDENTIALS).await;
    case.delete("m").await;
    case.says("m", DELETING, &["Secret", CREDENTIALS, "create it"]).await;
    assert_eq!(case.vm_of("m"), vm, "it was touched");
    case.write_credentials(&case.credentials()).await;
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn without_a_template_and_with_a_broken_spec_goes_its_way() {
    let (case, _) = up().await;
    case.fake.change(Change::VmGone { vmid: 9000 });
    let broken = json!({
        "sourceNode": "no such/node", "templateID": 77_777, "target": "pve9",
        "network": {"default": {"bridge": "vmbr0,link_down=1", "model": "virtio"}},
    });
    case.edit("m", broken).await;
    case.delete("m").await;
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn of_a_vm_with_snapshots_spare_disks_and_replication_leaves_none_of_them() {
    let (case, vm) = up().await;
    case.fake.change(Change::VmLaden { vmid: vm.vmid });
    case.fake.change(Change::VmInHa { vmid: vm.vmid });
    assert_eq!(case.fake.model().tended(), [vm.vmid, vm.vmid]);
    case.delete("m").await;
    case.gone("m").await;
    // Volumes, jobs and entries are looked for at the end.
    case.end().await;
}

pub(crate) async fn of_a_guest_that_does_not_heed_the_shutdown_pulls_the_plug() {
    let (case, _) = up().await;
    let wish = json!({"metadata": {"annotations": {
        capmox::api::SHUTDOWN_TIMEOUT_ANNOTATION: "3s",
    }}});
    case.change::<ProxmoxMachine>("m", wish).await;
    let text = "VM quit/powerdown failed - got timeout".to_owned();
    let fails = Action::FailTask { text, with_effect: false };
    let shutdown = "/nodes/*/qemu/*/status/shutdown";
    case.fake.faults().add(FaultRule::always("POST", shutdown, fails));
    case.delete("m").await;
    case.gone("m").await;
    let journal = case.fake.journal();
    assert_eq!(journal.count("POST", shutdown), 1, "asked once");
    assert_eq!(journal.count("POST", "/nodes/*/qemu/*/status/stop"), 1);
    drop(journal);
    case.end().await;
}

/// Takes all finalizers off.
async fn let_go(case: &Case) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    case.api::<ProxmoxMachine>().patch("m", &PatchParams::default(), &patch).await.unwrap();
}

pub(crate) async fn by_other_hands_is_told_with_the_vm_that_is_left() {
    let (case, vm) = up().await;
    case.join_without_seed("m").await;
    // Nothing can be done about the VM meanwhile, which is when people lose their patience.
    case.fake.change(Change::VmLocked { vmid: vm.vmid, lock: Some("backup".into()) });
    case.delete("m").await;
    case.says("m", "False Info Deleting", &["locked (backup)"]).await;
    let_go(&case).await;
    case.end_of::<ProxmoxMachine>("m").await;
    let left = format!("VM {} on node {}", vm.vmid, vm.node);
    case.event("VMLeft", &[&left, "nobody looks after it"]).await;
    assert!(case.vm_of("m").running, "nobody asked for its end");
    // Somebody sees to it.
    case.fake.change(Change::VmGone { vmid: vm.vmid });
    let claims = case.api::<IPAddressClaim>();
    for claim in case.list::<IPAddressClaim>().await {
        let name = claim.metadata.name.unwrap();
        claims.delete(&name, &DeleteParams::background()).await.unwrap();
    }
    case.end().await;
}

pub(crate) async fn does_not_begin_with_a_finalizer_that_was_taken_off() {
    let (case, vm) = up().await;
    let_go(&case).await;
    case.until("m", "held again", |found| {
        found.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())
    })
    .await;
    assert_eq!(case.vm_of("m").vmid, vm.vmid);
    case.end().await;
}

pub(crate) async fn of_a_machine_whose_node_was_removed_says_what_releases_it() {
    let template = VmSeed::new(9002, "pve3", "template", "shared").template();
    let seed = Seed::three_nodes().with_vm(template);
    let case = Case::with(Config::default().with_seed(seed), json!({})).await;
    let spec = json!({"sourceNode": "pve3", "templateID": 9002, "target": "pve2"});
    case.machine("m", spec).await;
    case.ready("m").await;
    let vm = case.vm_of("m");
    case.fake.change(Change::NodeGone { node: "pve2".into() });
    let words = ["was on node pve2", "no such node", "remove the finalizer"];
    case.says("m", "False Error NotFound", &words).await;
    case.delete("m").await;
    case.says("m", DELETING, &words).await;
    assert_eq!(case.list::<IPAddressClaim>().await.len(), 1, "its address is not given back");
    // Its VM is restored from a backup, on another node.
    let VmView { vmid, mut config, .. } = vm;
    config.remove("ide0");
    let node = "pve3".to_owned();
    case.fake.change(Change::VmAppears {
        vm: VmSeed { vmid, node, config, running: true, foreign: false },
    });
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn of_a_machine_whose_cluster_was_torn_away_waits_for_its_return() {
    let (case, vm) = up().await;
    let clusters = case.api::<ProxmoxCluster>();
    clusters.delete(CLUSTER, &DeleteParams::background()).await.unwrap();
    case.change::<ProxmoxCluster>(CLUSTER, json!({"metadata": {"finalizers": null}})).await;
    case.end_of::<ProxmoxCluster>(CLUSTER).await;
    case.stays(Duration::from_secs(2), "the VM is left alone", |fake| {
        fake.model().vm_view(vm.vmid).is_some_and(|now| now == vm)
    })
    .await;
    let up = case.api::<ProxmoxMachine>().get("m").await.unwrap();
    assert!(up.status.unwrap().ready, "the contract: once ready, always ready");
    case.delete("m").await;
    let words = ["ProxmoxCluster of Cluster lab was not found", "restore it"];
    case.says("m", DELETING, &words).await;
    assert_eq!(case.vm_of("m"), vm, "it was touched");
    let owner = case.dynamic("cluster.x-k8s.io", "v1beta1", "Cluster").get(CLUSTER).await.unwrap();
    case.create(infra_cluster(&owner, &json!({}))).await;
    case.gone("m").await;
    case.end().await;
}

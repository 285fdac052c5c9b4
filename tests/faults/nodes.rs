//! Nodes that are not there, not up, or full; VMIDs that are all taken.

use pve_fake::{Change, Config, NodeSeed, Seed, VmSeed};
use serde_json::json;

use crate::case::Case;

const FAILED: &str = "False Warning CloningFailed";
const GIB: u64 = 1 << 30;

pub(crate) async fn an_unknown_target_is_told_with_the_nodes_there_are() {
    let case = Case::sound().await;
    case.machine("m", json!({"target": "pve9"})).await;
    case.says("m", FAILED, &["no node pve9", "spec.target", "pve1, pve2, pve3"]).await;
    assert!(case.is_untouched());
    case.edit("m", json!({"target": "pve3"})).await;
    case.ready("m").await;
    assert_eq!(case.vm_of("m").node, "pve3");
    case.end().await;
}

pub(crate) async fn unknown_allowed_nodes_are_named() {
    let case = Case::sound().await;
    case.machine("m", json!({"allowedNodes": ["pve8", "pve9"]})).await;
    let words = ["pve8 is not a node", "pve9 is not a node", "spec.allowedNodes"];
    case.says("m", FAILED, &words).await;
    assert!(case.is_untouched());
    case.edit("m", json!({"allowedNodes": ["pve9", "pve2"]})).await;
    case.ready("m").await;
    assert_eq!(case.vm_of("m").node, "pve2");
    case.end().await;
}

pub(crate) async fn a_node_that_is_offline_is_waited_for() {
    let case = Case::sound().await;
    case.fake.change(Change::NodeOffline { node: "pve2".into() });
    case.machine("m1", json!({"target": "pve2"})).await;
    case.machine("m2", json!({"allowedNodes": ["pve2"]})).await;
    case.says("m1", FAILED, &["pve2", "spec.target", "offline", "bring it back"]).await;
    case.says("m2", FAILED, &["pve2 is offline", "Bring a node back"]).await;
    assert!(case.is_untouched());
    case.fake.change(Change::NodeOnline { node: "pve2".into() });
    case.ready("m1").await;
    case.ready("m2").await;
    case.end().await;
}

pub(crate) async fn a_node_in_maintenance_is_waited_for() {
    let case = Case::sound().await;
    let maintenance = |on| Change::NodeMaintenance { node: "pve2".into(), on };
    case.fake.change(maintenance(true));
    case.machine("m1", json!({"target": "pve2"})).await;
    case.machine("m2", json!({"allowedNodes": ["pve2"]})).await;
    case.says("m1", FAILED, &["pve2", "spec.target", "end the maintenance"]).await;
    case.says("m2", FAILED, &["pve2 is in maintenance", "spec.allowedNodes"]).await;
    assert!(case.is_untouched());
    case.fake.change(maintenance(false));
    case.ready("m1").await;
    case.ready("m2").await;
    case.end().await;
}

pub(crate) async fn a_range_with_nothing_free_is_told() {
    let foreign = |vmid| VmSeed::new(vmid, "pve3", "other", "shared").foreign();
    let seed = Seed::three_nodes().with_vm(foreign(200)).with_vm(foreign(201));
    let case = Case::with(Config::default().with_seed(seed), json!({})).await;
    case.machine("m", json!({"vmIDRange": {"start": 200, "end": 201}})).await;
    case.says("m", FAILED, &["no free VMID", "spec.vmIDRange 200-201", "Widen"]).await;
    assert!(case.is_untouched());
    case.fake.change(Change::VmGone { vmid: 201 });
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, 201);
    case.end().await;
}

pub(crate) async fn numbers_of_guests_that_the_credentials_do_not_show_are_passed_over() {
    let (first, hidden) = (7600, 30);
    let mut seed = Seed::three_nodes();
    for vmid in first..first + hidden {
        // Another tenant's. A clone is refused for the number alone.
        seed = seed.with_vm(VmSeed::new(vmid, "pve3", "tenant", "shared").foreign()).with_acl(
            &format!("/vms/{vmid}"),
            "capmox@pve",
            &["VM.Allocate"],
        );
    }
    let case = Case::with(Config::default().with_seed(seed), json!({})).await;
    case.machine("m", json!({"vmIDRange": {"start": first, "end": first + 99}})).await;
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, first + hidden);
    let clones = case.fake.journal().count("POST", "/nodes/*/qemu/*/clone");
    assert_eq!(clones, 1, "none is tried that is taken");
    case.end().await;
}

pub(crate) async fn nodes_without_room_are_told_with_what_they_have() {
    let small = |name| NodeSeed::new(name).with_memory(8 * GIB);
    let other = VmSeed::new(200, "pve3", "other", "shared").with("memory", "6144").foreign();
    let seed = Seed::three_nodes().with_node(small("pve2")).with_node(small("pve3")).with_vm(other);
    let case = Case::with(Config::default().with_seed(seed), json!({})).await;
    case.machine("m", json!({"allowedNodes": ["pve2", "pve3"], "memoryMiB": 8200})).await;
    let words = ["no node has room for 8200 MiB", "pve2 has", "pve3 has", "8192 MiB"];
    case.says("m", FAILED, &words).await;
    assert!(case.is_untouched());
    case.edit("m", json!({"memoryMiB": 4096})).await;
    case.ready("m").await;
    assert_eq!(case.vm_of("m").node, "pve2");
    case.end().await;
}

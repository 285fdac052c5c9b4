//! What to clone, and what the clone has to have.

use pve_fake::{Change, VmSeed};
use serde_json::json;

use crate::case::Case;

const FAILED: &str = "False Warning CloningFailed";
const INVALID: &str = "False Warning VMProvisionFailed";

fn template(vmid: u32, node: &str) -> VmSeed {
    VmSeed::new(vmid, node, &format!("template-{vmid}"), "shared").template()
}

pub(crate) async fn a_template_that_does_not_exist_is_waited_for() {
    let case = Case::sound().await;
    case.machine("m", json!({"templateID": 9999})).await;
    case.says("m", FAILED, &["no VM 9999", "spec.templateID"]).await;
    assert!(case.is_untouched());
    case.fake.change(Change::VmAppears { vm: template(9999, "pve1") });
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_wrong_source_node_is_told_with_the_right_one() {
    let case = Case::sound().await;
    case.machine("m", json!({"sourceNode": "pve2"})).await;
    let words = ["template 9000", "is on node pve1", "set spec.sourceNode to pve1"];
    case.says("m", FAILED, &words).await;
    assert!(case.is_untouched());
    case.edit("m", json!({"sourceNode": "pve1"})).await;
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn an_unknown_source_node_is_told_with_those_there_are() {
    let case = Case::sound().await;
    case.machine("m", json!({"sourceNode": "pve9"})).await;
    case.says("m", FAILED, &["no node pve9", "spec.sourceNode", "pve1, pve2, pve3"]).await;
    assert!(case.is_untouched());
    case.edit("m", json!({"sourceNode": "pve1"})).await;
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_selector_needs_exactly_one_template() {
    let case = Case::sound().await;
    let selector = json!({"matchTags": ["k8s", "v1.33"]});
    let by_selector = json!({"sourceNode": null, "templateID": null, "templateSelector": selector});
    case.machine("m", by_selector).await;
    case.says("m", FAILED, &["no VM template", "k8s, v1.33", "matchTags"]).await;
    for vmid in [9100, 9101] {
        let vm = template(vmid, "pve2").with("tags", "k8s;v1.33");
        case.fake.change(Change::VmAppears { vm });
    }
    case.says("m", FAILED, &["2 VM templates", "9100 on pve2, 9101 on pve2", "matchTags"]).await;
    assert!(case.is_untouched());
    case.fake.change(Change::VmGone { vmid: 9100 });
    let ready = case.ready("m").await;
    assert_eq!(ready.status.unwrap().template_ref.unwrap().vmid, 9101);
    case.end().await;
}

pub(crate) async fn a_disk_that_the_template_lacks_is_told_with_those_it_has() {
    let case = Case::sound().await;
    case.machine("m", json!({"disks": {"bootVolume": {"disk": "virtio0", "sizeGb": 12}}})).await;
    let words = ["no disk virtio0", "spec.disks.bootVolume.disk", "it has scsi0"];
    case.says("m", INVALID, &words).await;
    let vmid = case.vm_of("m").vmid;
    // The volume cannot be changed, only be taken away and set again.
    case.edit("m", json!({"disks": {"bootVolume": null}})).await;
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, vmid);
    case.end().await;
}

pub(crate) async fn a_device_that_proxmox_cannot_have_is_told_with_its_field() {
    let case = Case::sound().await;
    case.create(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2",
        "kind": "InClusterIPPool",
        "metadata": {"name": "storage-net"},
        "spec": {"addresses": ["10.20.0.10-10.20.0.20"], "prefix": 24},
    }))
    .await;
    let pool = json!({
        "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "storage-net",
    });
    let device = |name: &str| json!([{"name": name, "bridge": "vmbr1", "ipv4PoolRef": pool}]);
    case.machine("m", json!({"network": {"additionalDevices": device("eth1")}})).await;
    let words = ["spec.network.additionalDevices", "\"eth1\"", "net1 to net31"];
    case.says("m", INVALID, &words).await;
    case.edit("m", json!({"network": {"additionalDevices": device("net1")}})).await;
    case.ready("m").await;
    assert!(case.vm_of("m").config["net1"].contains("bridge=vmbr1"));
    case.end().await;
}

//! Storages without room, and without content.

use pve_fake::Change;
use serde_json::json;

use crate::case::Case;

fn full(storage: &str, full: bool) -> Change {
    Change::StorageFull { storage: storage.to_owned(), full }
}

pub(crate) async fn a_full_storage_at_the_clone_is_told() {
    let case = Case::sound().await;
    case.fake.change(full("shared", true));
    case.machine("m", json!({})).await;
    let said = case.says("m", "False Info TaskFailure", &["clone the template", "shared"]).await;
    assert!(said.contains("free space") && said.contains("spec.storage"), "{said}");
    assert!(case.vms_of("m").is_empty());
    case.fake.change(full("shared", false));
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_full_storage_at_the_upload_is_told() {
    let case = Case::sound().await;
    case.fake.change(full("local", true));
    case.machine("m", json!({})).await;
    let said = case.says("m", "False Info TaskFailure", &["store the bootstrap ISO"]).await;
    assert!(said.contains("free space on storage local of node pve1"), "{said}");
    let vmid = case.vm_of("m").vmid;
    case.fake.change(full("local", false));
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, vmid);
    case.end().await;
}

pub(crate) async fn a_node_without_storage_for_the_seed_is_told() {
    let case = Case::sound().await;
    let disabled = |disabled| Change::StorageDisabled { storage: "local".to_owned(), disabled };
    case.fake.change(disabled(true));
    case.machine("m", json!({})).await;
    let words = ["node pve1", "content type iso", "add iso to the content"];
    case.says("m", "False Warning VMProvisionFailed", &words).await;
    let vmid = case.vm_of("m").vmid;
    case.fake.change(disabled(false));
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, vmid);
    case.end().await;
}

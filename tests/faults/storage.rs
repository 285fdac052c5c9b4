//! Storages without room, and without content.

use capmox::api::ProxmoxMachine;
use pve_fake::{Action, Change, Config, FaultRule, Seed, StorageSeed};
use serde_json::json;

use crate::case::{Case, said, text};

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

pub(crate) async fn a_full_storage_is_left_for_one_that_takes_the_seed() {
    let more = ["images-and-iso", "zz"].map(|name| StorageSeed::new(name, "dir", false, "iso"));
    let seed = more.into_iter().fold(Seed::three_nodes(), Seed::with_storage);
    let case = Case::with(Config::default().with_seed(seed), json!({})).await;
    for storage in ["images-and-iso", "local"] {
        case.fake.change(full(storage, true));
    }
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let drive = case.vm_of("m").config.get("ide0").cloned().unwrap_or_default();
    assert!(drive.starts_with("zz:iso/"), "{drive}");
    case.end().await;
}

/// Seeds on a node.
fn seeds(case: &Case, node: &str) -> usize {
    let volumes = case.fake.model().volumes();
    volumes.iter().filter(|(at, id, _)| at == node && id.contains("user-data")).count()
}

pub(crate) async fn a_seed_that_went_before_its_drive_is_stored_anew_whatever_the_words() {
    let case = Case::sound().await;
    let words = Action::Reply { status: 500, text: "no such image here".to_owned() };
    case.fake.faults().add(FaultRule::always("POST", "/nodes/*/qemu/*/config", words));
    case.machine("m", json!({})).await;
    let told = |found: &ProxmoxMachine| {
        said(found).is_some_and(|condition| text(condition).contains("no such image here"))
    };
    case.until("m", "the refusal is told", told).await;
    let node = case.vm_of("m").node;
    case.fake.change(Change::VolumeGone { node, volume: "local:iso/user-data-100.iso".to_owned() });
    let upload = "/nodes/*/storage/*/upload";
    case.sees("the seed is stored anew", |fake| {
        (fake.journal().count("POST", upload) >= 2).then_some(())
    })
    .await;
    case.fake.faults().clear();
    case.ready("m").await;
    assert_eq!(case.fake.journal().count("POST", upload), 2, "what is there is not stored again");
    case.end().await;
}

pub(crate) async fn a_seed_is_deleted_where_it_was_put_though_its_vm_moved() {
    let case = Case::sound().await;
    for name in ["joins", "goes"] {
        case.machine(name, json!({})).await;
    }
    for name in ["joins", "goes"] {
        case.ready(name).await;
        let vmid = case.vm_of(name).vmid;
        // As by an edit of the cluster's file system, which takes no ISO along.
        case.fake.change(Change::VmMoved { vmid, node: "pve3".to_owned() });
        case.until(name, "on pve3", |found| {
            found.status.as_ref().is_some_and(|s| s.proxmox_node.as_deref() == Some("pve3"))
        })
        .await;
    }
    assert_eq!(seeds(&case, "pve1"), 2);
    case.join_without_seed("joins").await;
    assert_eq!(seeds(&case, "pve1"), 1);
    case.delete("goes").await;
    case.gone("goes").await;
    assert_eq!(seeds(&case, "pve1"), 0);
    case.end().await;
}

//! What a machine rests on goes away: its template in the middle of the clone, the storage of its
//! bootstrap data, its claim, its Secret.

use capmox::api::ipam::{IPAddress, IPAddressClaim};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use pve_fake::{Action, Change, Config, FaultRule, Seed, StorageSeed, VmSeed};
use serde_json::json;

use crate::case::Case;
use crate::objects;

const CLONE: &str = "/nodes/*/qemu/*/clone";

pub(crate) async fn of_the_template_in_mid_clone() {
    let case = Case::sound().await;
    let gone = Change::VmGone { vmid: 9000 };
    case.fake.fail_next("POST", CLONE, Action::ChangeAfter(gone));
    case.machine("m", json!({"full": true})).await;
    case.says("m", "False Info TaskFailure", &["clone the template", "9000"]).await;
    assert!(case.vms_of("m").is_empty(), "nothing is left of the clone");
    case.says("m", "False Warning CloningFailed", &["9000"]).await;
    let back = VmSeed::new(9000, "pve1", "template", "shared").template();
    case.fake.change(Change::VmAppears { vm: back });
    case.ready("m").await;
    case.end().await;
}

/// Two storages take seeds on each node; the first one goes for good at a call.
async fn of_the_iso_storage_at(method: &str, path: &str) -> Case {
    let spare = StorageSeed::new("zz", "dir", false, "iso");
    let seed = Seed::three_nodes().with_storage(spare);
    let case = Case::with(Config::default().with_seed(seed), json!({})).await;
    let gone = Change::StorageGone { storage: "local".into() };
    case.fake.faults().add(FaultRule::once(method, path, Action::Change(gone)));
    case.machine("m", json!({})).await;
    case
}

/// The seed is stored on the other one.
async fn comes_up_from_the_other(case: Case) {
    case.ready("m").await;
    let drive = case.vm_of("m").config.get("ide0").cloned().unwrap_or_default();
    assert!(drive.starts_with("zz:iso/"), "{drive}");
    case.end().await;
}

pub(crate) async fn of_the_iso_storage_at_the_upload() {
    comes_up_from_the_other(of_the_iso_storage_at("POST", "/nodes/*/storage/*/upload").await).await;
}

pub(crate) async fn of_the_iso_storage_before_the_drive() {
    let at = of_the_iso_storage_at("POST", "/nodes/*/qemu/*/config").await;
    comes_up_from_the_other(at).await;
}

pub(crate) async fn of_the_iso_storage_before_the_start() {
    let case = of_the_iso_storage_at("POST", "/nodes/*/qemu/*/status/start").await;
    let words = ["start the VM", "local:iso/user-data-100.iso", "delete the Machine"];
    case.says("m", "False Info TaskFailure", &words).await;
    case.delete("m").await;
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn of_the_iso_storage_of_machines_that_are_up() {
    let case = Case::sound().await;
    for name in ["joins", "goes"] {
        case.machine(name, json!({"memoryMiB": 2048})).await;
    }
    case.ready("joins").await;
    case.ready("goes").await;
    case.fake.change(Change::StorageGone { storage: "local".into() });
    case.join_without_seed("joins").await;
    case.delete("goes").await;
    case.gone("goes").await;
    case.end().await;
}

pub(crate) async fn of_a_claim_under_a_guest_is_told() {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    let ready = case.ready("m").await;
    let address = ready.status.unwrap().ip_addresses["net0"].ipv4.clone().unwrap();
    let claim = "m-net0-inet";
    let claims = case.api::<IPAddressClaim>();
    claims.delete(claim, &DeleteParams::background()).await.unwrap();
    case.event("AddressAstray", &[claim, &address, "delete the Machine"]).await;
    case.ready("m").await;
    assert!(case.vm_of("m").running);
    let calls = case.fake.journal();
    assert_eq!(calls.count("POST", "/nodes/*/qemu/*/status/stop"), 0);
    drop(calls);
    case.end().await;
}

pub(crate) async fn of_the_address_that_a_guest_was_given_is_told() {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let other = json!({"spec": {"address": "10.10.10.29"}});
    case.change::<IPAddress>("m-net0-inet", other).await;
    case.event("AddressAstray", &["m-net0-inet", "10.10.10.29"]).await;
    let now = case.ready("m").await;
    let address = now.status.unwrap().ip_addresses["net0"].ipv4.clone();
    assert_ne!(address.as_deref(), Some("10.10.10.29"), "the guest does not have it");
    case.end().await;
}

pub(crate) async fn of_the_bootstrap_secret_after_its_use_harms_nobody() {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    case.sees("the start", |fake| {
        (fake.journal().count("POST", "/nodes/*/qemu/*/status/start") > 0).then_some(())
    })
    .await;
    let secrets = case.api::<Secret>();
    secrets.delete(&objects::bootstrap_name("m"), &DeleteParams::background()).await.unwrap();
    case.ready("m").await;
    // It is started again without it.
    let vmid = case.vm_of("m").vmid;
    case.fake.change(Change::VmCrashed { vmid });
    case.sees("it runs again", |fake| fake.model().vm_view(vmid)?.running.then_some(())).await;
    case.ready("m").await;
    case.end().await;
}

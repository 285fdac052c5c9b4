//! Storages, uploads and volumes.

use pve_fake::{Change, Release, Seed, StorageSeed};

use crate::world::{World, error_of, refusal, world};

#[test]
fn uploads_are_checked_and_named_as_proxmox_names_them() {
    let mut world = world();
    let bad = world.upload("pve1", "local", "a.txt", "x");
    assert_eq!(error_of(&bad, "filename"), "wrong file extension");
    let bad = world.upload("pve1", "local-lvm", "a.iso", "x");
    assert_eq!(refusal(&bad), (500, "can't upload to storage type 'lvmthin'"));
    let bad = world.upload("pve1", "nope", "a.iso", "x");
    assert_eq!(refusal(&bad), (500, "storage 'nope' does not exist"));
    let done = world.upload("pve2", "local", "dir/a b.iso", "x");
    let upid = done.data().as_str().unwrap().to_owned();
    assert!(upid.starts_with("UPID:pve1:"), "the task is the talked-to node's: {upid}");
    assert_eq!(world.exit(&done), "OK");
    let list = world.data("/nodes/pve2/storage/local/content");
    assert_eq!(list[0]["volid"], "local:iso/a_b.iso");
    assert_eq!(world.data("/nodes/pve1/storage/local/content"), serde_json::json!([]));
}

#[test]
fn a_file_is_overwritten_read_and_deleted() {
    let mut world = world();
    for data in ["x", "longer"] {
        let done = world.upload("pve1", "local", "a.iso", data);
        assert_eq!(world.exit(&done), "OK");
    }
    let path = "/nodes/pve1/storage/local/content/local:iso/a.iso";
    assert_eq!(world.data(path)["size"], 6);
    let done = world.delete(path, &[]);
    assert_eq!(world.exit(&done), "OK");
    let text = "volume_size_info on 'local:iso/a.iso' failed - no format";
    assert_eq!(refusal(&world.get(path)), (500, text));
    let again = world.delete(path, &[]);
    assert_eq!(world.exit(&again), "OK", "a missing file is no failure");
    let other = world.get("/nodes/pve1/storage/local/content/shared:iso/a.iso");
    assert_eq!(error_of(&other, "volume"), "storage ID mismatch (local != shared)");
}

#[test]
fn a_vm_whose_iso_is_gone_does_not_start() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let done = world.upload("pve1", "local", "user-data-101.iso", "x");
    world.exit(&done);
    let iso = "local:iso/user-data-101.iso";
    world.put(&format!("{vm}/config"), &[("ide0", &format!("{iso},media=cdrom"))]);
    world.model.change(Change::VolumeGone { node: "pve1".into(), volume: iso.into() });
    let response = world.post(&format!("{vm}/status/start"), &[]);
    assert_eq!(world.exit(&response), format!("volume '{iso}' does not exist"));
}

#[test]
fn a_full_storage_fails_the_upload_in_its_task() {
    let mut world = world();
    world.model.change(Change::StorageFull { storage: "local".into(), full: true });
    let done = world.upload("pve1", "local", "a.iso", "x");
    assert_eq!(world.exit(&done), "import failed: No space left on device");
}

#[test]
fn storages_are_listed_by_node_and_content() {
    let seed = Seed::three_nodes()
        .with_storage(StorageSeed::new("only2", "dir", false, "iso").on(&["pve2"]));
    let mut world = World::of(seed, Release::V9);
    let mut names = |path: &str| {
        let list = world.data(path);
        let names = list.as_array().unwrap().iter().map(|item| item["storage"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names("/nodes/pve1/storage"), ["local", "local-lvm", "shared"]);
    assert_eq!(names("/nodes/pve2/storage"), ["local", "local-lvm", "only2", "shared"]);
    let isos = world.send(http::Method::GET, "/nodes/pve2/storage", &[("content", "iso")]);
    let entry = &isos.data()[0];
    assert_eq!((&entry["storage"], &entry["enabled"]), (&"local".into(), &1.into()));
    let used = world.data("/nodes/pve1/storage")[2]["used"].as_u64();
    assert_eq!(used, Some(8 << 30), "the template's disk");
}

//! Rules of clones.

use pve_fake::{Release, Seed, VmSeed};

use crate::world::{Sent, World, error_of, refusal, world};

const CLONE: &str = "/nodes/pve1/qemu/9000/clone";
const LOCAL: &str = "/nodes/pve1/qemu/9001/clone";

#[test]
fn what_cannot_be_cloned_is_refused_in_proxmoxs_words() {
    let table: &[(&str, Sent, u16, &str)] = &[
        (CLONE, &[("storage", "shared")], 500, "parameter 'storage' not allowed for linked clones"),
        (CLONE, &[("format", "raw")], 500, "parameter 'format' not allowed for linked clones"),
        (
            LOCAL,
            &[("full", "1"), ("target", "pve2")],
            500,
            "can't clone VM to node 'pve2' (VM uses local storage)",
        ),
        (
            CLONE,
            &[("full", "1"), ("target", "pve2"), ("storage", "local-lvm")],
            500,
            "can't clone to non-shared storage 'local-lvm'",
        ),
        (CLONE, &[("target", "pve9")], 500, "no such cluster node 'pve9'"),
        (CLONE, &[("full", "1"), ("storage", "nope")], 500, "storage 'nope' does not exist"),
        (CLONE, &[("snapname", "s1")], 500, "snapshot 's1' does not exist"),
        (CLONE, &[("pool", "p1")], 403, "Permission check failed (pool 'p1' does not exist)"),
        (
            "/nodes/pve2/qemu/9000/clone",
            &[],
            500,
            "unable to find configuration file for VM 9000 on node 'pve2'",
        ),
        (
            "/nodes/pve9/qemu/9000/clone",
            &[],
            500,
            "hostname lookup 'pve9' failed - failed to get address info for: pve9: Name or service \
             not known",
        ),
    ];
    for (path, params, status, text) in table {
        let mut world = world();
        let params = [&[("newid", "101")], *params].concat();
        let response = world.post(path, &params);
        assert_eq!(refusal(&response), (*status, *text), "{path} {params:?}");
        assert_eq!(world.model.vms().len(), 2);
    }
}

#[test]
fn bad_parameters_of_a_clone_are_named() {
    let mut world = world();
    let response = world.post(CLONE, &[("name", "a_b"), ("full", "yes"), ("x", "1")]);
    assert_eq!(refusal(&response), (400, "Parameter verification failed."));
    assert_eq!(error_of(&response, "newid"), "property is missing and it is not optional");
    assert_eq!(error_of(&response, "full"), "type check ('boolean') failed - got 'yes'");
    assert!(error_of(&response, "name").contains("valid DNS name"));
    assert!(error_of(&response, "x").contains("not defined in schema"));
    assert_eq!(response.body["message"], "Parameter verification failed.\n");
    let response = world.post(CLONE, &[("newid", "101"), ("full", "1"), ("storage", "local")]);
    assert_eq!(error_of(&response, "storage"), "storage 'local' does not support vm images");
}

#[test]
fn a_clone_is_locked_and_nameless_until_it_is_done() {
    let mut world = world();
    let response = world.post(CLONE, &[("newid", "101"), ("name", "m1"), ("full", "1")]);
    let config = world.data("/nodes/pve1/qemu/101/config");
    assert_eq!(config["lock"], "clone");
    assert_eq!(config.get("name"), None);
    let refused = world.post("/nodes/pve1/qemu/101/config", &[("cores", "1")]);
    assert_eq!(refusal(&refused), (500, "VM is locked (clone)"));
    assert_eq!(world.exit(&response), "OK");
    let config = world.data("/nodes/pve1/qemu/101/config");
    assert_eq!(config.get("lock"), None);
    assert_eq!(config["name"], "m1");
    assert_eq!(config["scsi0"], "shared:vm-101-disk-0,size=8G");
}

#[test]
fn a_clone_has_its_own_mac_uuid_and_linked_volume() {
    let mut world = world();
    let template = world.data("/nodes/pve1/qemu/9000/config");
    let vm = world.cloned("101", "m1");
    let config = world.data(&format!("{vm}/config"));
    assert_eq!(config["scsi0"], "shared:base-9000-disk-0/vm-101-disk-0,size=8G");
    assert_ne!(config["net0"], template["net0"]);
    assert_ne!(config["smbios1"], template["smbios1"]);
    assert_eq!(config["boot"], template["boot"]);
    assert!(world.delete("/nodes/pve1/qemu/9000", &[]).status == 200);
    let exit = world.model.tasks().pop().unwrap().exit.unwrap();
    assert_eq!(exit, "base volume 'shared:base-9000-disk-0' is still in use by linked cloned");
}

#[test]
fn a_clone_with_a_target_ends_up_there() {
    let mut world = world();
    let params = [("newid", "101"), ("name", "m1"), ("full", "1"), ("target", "pve3")];
    let response = world.post(CLONE, &params);
    assert_eq!(world.exit(&response), "OK");
    assert_eq!(world.get("/nodes/pve1/qemu/101/config").status, 500);
    assert_eq!(world.data("/nodes/pve3/qemu/101/config")["name"], "m1");
}

#[test]
fn a_taken_id_is_told_at_once_on_the_same_node_and_by_the_task_on_another() {
    let seed = Seed::three_nodes()
        .with_vm(VmSeed::new(101, "pve1", "here", "shared"))
        .with_vm(VmSeed::new(102, "pve2", "there", "shared"));
    let mut world = World::of(seed, Release::V9);
    let here = world.post(CLONE, &[("newid", "101")]);
    let text = "unable to create VM 101: config file already exists";
    assert_eq!(refusal(&here), (500, text));
    let there = world.post(CLONE, &[("newid", "102")]);
    let exit = world.exit(&there);
    assert!(exit.ends_with("/102.conf' failed: File exists"), "{exit}");
    assert_eq!(world.model.vm_view(102).unwrap().name.as_deref(), Some("there"));
    let taken = world.send(http::Method::GET, "/cluster/nextid", &[("vmid", "102")]);
    assert_eq!(error_of(&taken, "vmid"), "VM 102 already exists");
    assert_eq!(world.data("/cluster/nextid"), "100");
}

#[test]
fn too_many_clones_at_once_fail_at_the_storage_lock() {
    let mut world = world();
    let seed = Seed::three_nodes();
    let timings = pve_fake::Timings {
        allocate: std::time::Duration::from_secs(6),
        ..pve_fake::Timings::default()
    };
    let kind = pve_fake::GuestKind::BuiltIn;
    world.model = pve_fake::Model::new(&seed, Release::V9, timings, kind, world.now);
    let upids: Vec<_> = (101..104)
        .map(|id| world.post(LOCAL, &[("newid", &format!("{id}")), ("full", "1")]))
        .collect();
    let exits: Vec<String> = upids.iter().map(|response| world.exit(response)).collect();
    let text = "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got \
                timeout";
    assert_eq!(exits, ["OK", "OK", text]);
    assert!(world.model.vm_view(103).is_none(), "a failed clone leaves no VM");
    assert_eq!(world.model.peak_clones("local-lvm"), 2);
}

#[test]
fn a_full_storage_fails_the_clone_and_leaves_nothing() {
    let mut world = world();
    world.model.change(pve_fake::Change::StorageFull { storage: "shared".into(), full: true });
    let response = world.post(CLONE, &[("newid", "101"), ("full", "1")]);
    assert!(world.exit(&response).starts_with("clone failed: unable to create image"));
    assert!(world.model.vm_view(101).is_none());
}

#[test]
fn a_fresh_clone_is_unknown_to_the_cluster_view_for_a_while() {
    let mut world = world();
    world.cloned("101", "m1");
    let find = |world: &mut World| {
        let list = world.data("/cluster/resources");
        list.as_array().unwrap().iter().find(|entry| entry["vmid"] == 101).unwrap().clone()
    };
    let entry = find(&mut world);
    assert_eq!(entry["status"], "unknown");
    assert_eq!(entry.get("name"), None);
    assert_eq!(entry["node"], "pve1");
    world.pass(11);
    let entry = find(&mut world);
    assert_eq!((&entry["status"], &entry["name"]), (&"stopped".into(), &"m1".into()));
}

#[test]
fn a_clone_into_a_pool_is_a_member() {
    let mut world = World::of(Seed::three_nodes().with_pool("capi", &[]), Release::V9);
    let response = world.post(CLONE, &[("newid", "101"), ("pool", "capi")]);
    assert_eq!(world.exit(&response), "OK");
    let pool = world.send(http::Method::GET, "/pools", &[("poolid", "capi")]);
    assert_eq!(pool.data()[0]["members"][0]["vmid"], 101);
}

//! One machine's whole life.

use crate::world::{World, world};

#[test]
fn a_vm_is_cloned_configured_seeded_started_and_destroyed() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let config = world.data(&format!("{vm}/config"));
    assert_eq!(config["name"], "m1");
    assert_eq!(config.get("template"), None);
    assert_eq!(config["cores"], 2, "numbers are numbers");
    assert_eq!(config["memory"], "2048", "memory is a text from 8.1 on");

    let done = world.post(
        &format!("{vm}/config"),
        &[("cores", "4"), ("memory", "4096"), ("tags", "b,A"), ("net0", "virtio,bridge=vmbr0")],
    );
    assert_eq!(world.exit(&done), "OK");
    let done = world.put(&format!("{vm}/resize"), &[("disk", "scsi0"), ("size", "20G")]);
    assert_eq!(world.exit(&done), "OK");
    let done = world.upload("pve1", "local", "user-data-101.iso", "SEED");
    assert_eq!(world.exit(&done), "OK");
    let iso = "local:iso/user-data-101.iso,media=cdrom";
    let done = world.post(&format!("{vm}/config"), &[("ide0", iso)]);
    assert_eq!(world.exit(&done), "OK");
    let config = world.data(&format!("{vm}/config"));
    assert_eq!(config["tags"], "a;b");
    assert_eq!(config["ide0"], "local:iso/user-data-101.iso,media=cdrom,size=4");
    assert!(config["scsi0"].as_str().unwrap().ends_with("size=20G"));
    let net = config["net0"].as_str().unwrap();
    assert!(net.starts_with("virtio=BC:24:11:"), "a MAC address is made up: {net}");

    let done = world.post(&format!("{vm}/status/start"), &[]);
    assert_eq!(world.exit(&done), "OK");
    let status = world.data(&format!("{vm}/status/current"));
    assert_eq!((&status["status"], &status["qmpstatus"]), (&"running".into(), &"running".into()));
    world.pass(60);
    let pid = world
        .post(&format!("{vm}/agent/exec"), &[("command", "cloud-init"), ("command", "status")]);
    let pid = pid.data()["pid"].as_u64().unwrap();
    world.pass(1);
    let status = world.send(
        http::Method::GET,
        &format!("{vm}/agent/exec-status"),
        &[("pid", &pid.to_string())],
    );
    assert_eq!(status.data()["out-data"], "status: done\n");

    let done = world.post(&format!("{vm}/status/stop"), &[]);
    assert_eq!(world.exit(&done), "OK");
    let done = world.delete("/nodes/pve1/storage/local/content/local:iso/user-data-101.iso", &[]);
    assert_eq!(world.exit(&done), "OK");
    let done = world.delete(&vm, &[("purge", "1")]);
    assert_eq!(world.exit(&done), "OK");
    assert_eq!(world.get(&format!("{vm}/config")).status, 500);
    assert_eq!(world.model.vms().len(), 2, "only the templates are left");
    assert!(world.model.volumes().iter().all(|(_, volid, _)| !volid.contains("101")));
    world.model.check_no_leaks();
    assert_eq!(world.model.violations(), []);
}

#[test]
fn a_clone_of_the_model_goes_its_own_way_and_equal_calls_have_equal_answers() {
    let mut first = world();
    let mut second =
        World { model: first.model.clone(), now: first.now, token: first.token.clone() };
    let path = "/nodes/pve1/qemu/9000/clone";
    let params = [("newid", "101"), ("name", "m1")];
    let bodies = [first.post(path, &params).body, second.post(path, &params).body];
    assert_eq!(bodies[0], bodies[1]);
    first.pass(60);
    assert_eq!(first.data("/nodes/pve1/qemu/101/config")["name"], "m1");
    assert_eq!(second.data("/nodes/pve1/qemu/101/config")["lock"], "clone");
    second.pass(60);
    let configs = [first, second].map(|mut world| world.data("/nodes/pve1/qemu/101/config"));
    assert_eq!(configs[0], configs[1]);
}

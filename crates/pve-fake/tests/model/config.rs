//! Configuration: what is refused, what is rewritten, what waits.

use pve_fake::Release;
use pve_fake::Seed;

use crate::world::{Sent, World, error_of, refusal, world};

#[test]
fn what_is_wrong_with_a_configuration_is_told() {
    let table: &[(Sent, u16, &str)] = &[
        (&[], 500, "no options specified"),
        (&[("cores", "2"), ("digest", "0")], 500, "checksum mismatch (file change by other user?)"),
        (
            &[("ide0", "local:iso/x.iso,media=cdrom")],
            500,
            "volume 'local:iso/x.iso' does not exist",
        ),
        (&[("ide0", "nope:iso/x.iso,media=cdrom")], 500, "storage 'nope' does not exist"),
        (&[("args", "-x")], 500, "only root can set 'args' config"),
    ];
    for (params, status, text) in table {
        let mut world = world();
        let vm = world.cloned("101", "m1");
        let response = world.post(&format!("{vm}/config"), params);
        assert_eq!(refusal(&response), (*status, *text), "{params:?}");
        let response = world.put(&format!("{vm}/config"), params);
        assert_eq!(refusal(&response), (*status, *text), "PUT {params:?}");
    }
}

#[test]
fn bad_values_are_named() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    for (key, value, text) in [
        ("tags", "fd00::1", "invalid characters in tag"),
        ("net0", "virtio=01:00:00:00:00:00,bridge=vmbr0", "format error"),
        ("boot", "c;ide0", "boot.legacy: value does not match the regex pattern"),
        ("cores", "0", "minimum value of 1"),
        ("delete", "nope", "unknown option 'nope'"),
        ("skiplock", "1", "Only root may use this option."),
        ("frobnicate", "1", "not defined in schema"),
    ] {
        let params = [("onboot", "1"), (key, value)];
        let response = world.post(&format!("{vm}/config"), &params);
        assert_eq!(response.status, 400, "{key}");
        assert!(error_of(&response, key).contains(text), "{key}: {}", response.body);
    }
}

#[test]
fn a_boot_order_with_a_missing_device_fails_in_the_task() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let response = world.post(&format!("{vm}/config"), &[("boot", "order=scsi0;ide2")]);
    assert_eq!(world.exit(&response), "invalid bootorder: device 'ide2' does not exist'");
    let response = world.put(&format!("{vm}/config"), &[("boot", "order=scsi0;ide2")]);
    assert_eq!(response.status, 500);
}

#[test]
fn a_synchronous_change_is_there_when_answered_and_changes_the_digest() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let before = world.data(&format!("{vm}/config"));
    let response = world.put(&format!("{vm}/config"), &[("description", "x\n")]);
    assert_eq!((response.status, response.data().is_null()), (200, true));
    let after = world.data(&format!("{vm}/config"));
    assert_eq!(after["description"], "x");
    assert_ne!(before["digest"], after["digest"]);
}

#[test]
fn a_net_without_a_mac_gets_a_new_one_and_one_with_keeps_it() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let first = world.data(&format!("{vm}/config"))["net0"].clone();
    world.put(&format!("{vm}/config"), &[("net0", "virtio,bridge=vmbr0,tag=5")]);
    let second = world.data(&format!("{vm}/config"))["net0"].clone();
    assert_ne!(first, second);
    let kept = "virtio=aa:bb:cc:00:00:01,bridge=vmbr0,firewall=1";
    world.put(&format!("{vm}/config"), &[("net0", kept)]);
    assert_eq!(world.data(&format!("{vm}/config"))["net0"], kept);
}

#[test]
fn a_detached_disk_is_kept_unused_and_a_cdrom_is_not() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let response = world.post(&format!("{vm}/config"), &[("scsi1", "local-lvm:4")]);
    assert_eq!(world.exit(&response), "OK");
    assert_eq!(world.data(&format!("{vm}/config"))["scsi1"], "local-lvm:vm-101-disk-0,size=4G");
    world.put(&format!("{vm}/config"), &[("delete", "scsi1")]);
    let config = world.data(&format!("{vm}/config"));
    assert_eq!(config["unused0"], "local-lvm:vm-101-disk-0");
    world.put(&format!("{vm}/config"), &[("ide0", "none,media=cdrom")]);
    assert_eq!(world.data(&format!("{vm}/config"))["ide0"], "none,media=cdrom");
    world.put(&format!("{vm}/config"), &[("delete", "ide0")]);
    assert_eq!(world.data(&format!("{vm}/config")).get("unused1"), None);
}

#[test]
fn a_running_vm_takes_some_options_at_once_and_others_at_its_next_start() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let started = world.post(&format!("{vm}/status/start"), &[]);
    world.exit(&started);
    world.put(
        &format!("{vm}/config"),
        &[("tags", "a"), ("balloon", "0"), ("ostype", "l26"), ("numa", "1")],
    );
    let pending = world.data(&format!("{vm}/pending"));
    let numa = pending.as_array().unwrap().iter().find(|item| item["key"] == "numa").unwrap();
    assert_eq!((numa.get("value"), &numa["pending"]), (None, &1.into()));
    let current = world.send(http::Method::GET, &format!("{vm}/config"), &[("current", "1")]);
    assert_eq!(current.data().get("numa"), None);
    assert_eq!(current.data()["tags"], "a");
    assert_eq!(world.data(&format!("{vm}/config"))["numa"], 1, "pending values are merged in");
    let stopped = world.post(&format!("{vm}/status/stop"), &[]);
    world.exit(&stopped);
    assert_eq!(
        world.send(http::Method::GET, &format!("{vm}/config"), &[("current", "1")]).data()["numa"],
        1
    );
}

#[test]
fn resize_grows_only_and_is_synchronous_on_7() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    for (size, exit) in
        [("4G", "shrinking disks is not supported"), ("8G", "OK"), ("+2G", "OK"), ("12G", "OK")]
    {
        let response = world.put(&format!("{vm}/resize"), &[("disk", "scsi0"), ("size", size)]);
        assert_eq!(world.exit(&response), exit, "{size}");
    }
    let response = world.put(&format!("{vm}/resize"), &[("disk", "scsi7"), ("size", "9G")]);
    assert_eq!(world.exit(&response), "disk 'scsi7' does not exist");
    let mut world = World::of(Seed::three_nodes(), Release::V7);
    let vm = world.cloned("101", "m1");
    let response = world.put(&format!("{vm}/resize"), &[("disk", "scsi0"), ("size", "12G")]);
    assert!(response.data().is_null());
    let scsi = world.data(&format!("{vm}/config"))["scsi0"].clone();
    assert!(scsi.as_str().unwrap().ends_with("size=12G"));
    let response = world.put(&format!("{vm}/resize"), &[("disk", "scsi0"), ("size", "1G")]);
    assert_eq!(refusal(&response), (500, "shrinking disks is not supported"));
    assert_eq!(response.body.get("message"), None, "no message in bodies before 9");
}

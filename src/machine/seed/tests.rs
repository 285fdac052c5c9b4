//! The seed's content and its way into the drive and out of it.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::json;

use super::super::fixture::*;
use super::*;
use crate::seen::Seen;

fn rendered(facts: &Facts, config: &VmConfig) -> Result<SeedFiles, String> {
    let Seen::Present(data) = bootstrap() else { panic!("there is data") };
    files(facts, config, &data)
}

#[test]
fn where_the_seed_is_going_to_be_is_recorded_with_the_task_of_the_clone() {
    let foreseen = |facts: &Facts| {
        let mut status = facts.machine.status.clone().unwrap();
        foresee(facts, &mut status);
        (status.bootstrap_iso, status.bootstrap_iso_node)
    };
    let storages = |names: &[&str]| {
        Some(Seen::Present(names.iter().map(|name| name.parse().unwrap()).collect()))
    };
    let mut facts = reserved();
    facts.iso_storages = storages(&["local", "cephfs"]);
    assert_eq!(foreseen(&facts), (None, None), "no clone has been taken yet");
    facts.task = Some(running(Operation::Clone));
    let told = (Some("local:iso/user-data-105.iso".to_owned()), Some("pve2".to_owned()));
    assert_eq!(foreseen(&facts), told);
    for unknown in [None, Some(Seen::Unknown("no answer".to_owned())), storages(&[])] {
        facts.iso_storages = unknown;
        assert_eq!(foreseen(&facts), (None, None));
    }
    facts.iso_storages = storages(&["cephfs"]);
    facts.status().bootstrap_iso = Some("local:iso/user-data-105.iso".to_owned());
    assert_eq!(foreseen(&facts).0, told.0, "it stays where it was recorded");
}

#[test]
fn the_guest_is_told_its_name_its_addresses_and_its_servers() {
    let mut facts = cloned();
    facts.addresses[0].address.as_mut().unwrap().metric = Some(50);
    let seed = rendered(&facts, &config()).unwrap();
    assert!(seed.meta_data.contains("hostname: w-1"));
    assert!(seed.meta_data.contains(UUID));
    assert!(seed.meta_data.contains("kubernetes-version: v1.34.4"));
    assert!(!seed.meta_data.contains("provider-id"));
    for part in ["10.0.0.10/24", "bc:24:11:00:00:01", "10.0.0.1", "metric: 50"] {
        assert!(seed.network_config.contains(part), "{part} in {}", seed.network_config);
    }
    facts.machine.spec.metadata_settings =
        Some(serde_json::from_value(json!({"providerIDInjection": true})).unwrap());
    let seed = rendered(&facts, &config()).unwrap();
    assert!(seed.meta_data.contains(&format!("provider-id: proxmox://{UUID}")));
}

#[test]
fn the_guest_is_told_where_it_is_only_if_its_bootstrap_data_asks() {
    let mut facts = cloned();
    assert!(!rendered(&facts, &config()).unwrap().meta_data.contains("pve2"));
    let asking = BootstrapData {
        format: None,
        value: b"#cloud-config\n# {{ ds.meta_data.zone }}\n".to_vec().into(),
    };
    let seed = files(&facts, &config(), &asking).unwrap();
    assert!(seed.meta_data.contains("proxmox-node: pve2\nzone: pve2\n"), "{}", seed.meta_data);
    facts.owner.as_mut().unwrap().spec.failure_domain = Some("rack-1".to_owned());
    let seed = files(&facts, &config(), &asking).unwrap();
    assert!(seed.meta_data.contains("proxmox-node: pve2\nzone: rack-1\n"), "{}", seed.meta_data);
}

#[test]
fn name_servers_of_a_device_win_over_those_of_the_cluster() {
    let mut facts = cloned();
    let network = json!({"default": {"bridge": "vmbr0", "dnsServers": ["9.9.9.9"], "mtu": 1}});
    facts.machine.spec.network = Some(serde_json::from_value(network).unwrap());
    let seed = rendered(&facts, &config()).unwrap();
    assert!(seed.network_config.contains("9.9.9.9"));
    assert!(!seed.network_config.contains("mtu"), "an MTU of 1 is for Proxmox alone");
}

#[test]
fn a_template_without_a_device_is_told_by_name() {
    let why = rendered(&cloned(), &config_with(&[("net0", "")])).unwrap_err();
    assert!(why.contains("net0"), "{why}");
}

#[test]
fn a_seed_is_known_by_the_vm_in_its_name() {
    let at = volume(&"nfs-iso".parse().unwrap(), vmid());
    assert_eq!(at, "nfs-iso:iso/user-data-105.iso");
    assert!(is_for(&at, vmid()));
    assert!(!is_for(&at, "106".parse().unwrap()));
    assert!(!is_for("local:iso/debian.iso", vmid()));
    assert_eq!(storage_of(&at).unwrap().as_str(), "nfs-iso");
}

#[test]
fn attaching_and_detaching_leave_everything_else_as_it_is() {
    let at = "local:iso/user-data-105.iso";
    let config = config_with(&[("tags", "prod")]);
    let attached = attach(at, &config, None);
    assert_eq!(attached["ide0"], format!("{at},media=cdrom"));
    assert_eq!(attached["tags"], format!("{TAG};prod"));
    assert_eq!(attached["boot"], "order=scsi0;net0;ide0");
    let with: Vec<(&str, &str)> =
        attached.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let config = config_with(&with);
    assert_eq!(super::attached(&config, vmid()).as_deref(), Some(at));
    assert!(!attach(at, &config, None).contains_key("boot"), "appended once");
    let detached = detach(&config);
    assert_eq!(detached["ide0"], "none,media=cdrom");
    assert_eq!(detached["tags"], "prod");
}

#[test]
fn tags_about_to_be_written_are_kept() {
    let attached = attach("local:iso/user-data-105.iso", &config(), Some("a;b"));
    assert_eq!(attached["tags"], format!("a;b;{TAG}"));
}

#[test]
fn a_boot_order_in_the_old_form_is_left_alone() {
    for old in ["cdn", "c", "dcn", ""] {
        let attached = attach("local:iso/user-data-105.iso", &config_with(&[("boot", old)]), None);
        assert!(!attached.contains_key("boot"), "{old:?}: {attached:?}");
    }
}

/// The order that Proxmox gives a new VM has the drive which people make cloud-init's.
#[test]
fn a_boot_order_names_no_device_that_goes_or_is_not_there() {
    for (drive, order, wanted) in [
        (
            "local-lvm:vm-105-cloudinit,media=cdrom",
            "order=scsi0;ide2;net0",
            "order=scsi0;net0;ide0",
        ),
        ("", "order=scsi0;ide2;net0", "order=scsi0;net0;ide0"),
        ("none,media=cdrom", "order=scsi0;ide2;net0", "order=scsi0;ide2;net0;ide0"),
        ("local:iso/tools.iso,media=cdrom", "order=ide2;scsi0", "order=ide2;scsi0;ide0"),
    ] {
        let config = config_with(&[("ide2", drive), ("boot", order)]);
        let attached = attach("local:iso/user-data-105.iso", &config, None);
        assert_eq!(attached["boot"], wanted, "{drive:?}");
    }
}

#[test]
fn a_cloud_init_drive_of_proxmox_goes_when_the_seed_comes() {
    let config = config_with(&[
        ("ide2", "local-lvm:vm-105-cloudinit,media=cdrom"),
        ("sata0", "local:iso/tools.iso,media=cdrom"),
        ("scsi1", "local-lvm:vm-105-cloudinit-cache,size=1G"),
    ]);
    let attached = attach("local:iso/user-data-105.iso", &config, None);
    assert_eq!(attached["ide2"], "", "taken off");
    assert!(!attached.contains_key("sata0") && !attached.contains_key("scsi1"), "{attached:?}");
    assert_eq!(attached["boot"], "order=scsi0;net0;ide0");
    let same = config_with(&[("ide0", "local-lvm:vm-105-cloudinit,media=cdrom")]);
    let attached = attach("local:iso/user-data-105.iso", &same, None);
    assert_eq!(attached["ide0"], "local:iso/user-data-105.iso,media=cdrom");
}

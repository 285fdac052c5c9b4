//! What is written to the VM's configuration, and what is left alone.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde_json::json;

use super::super::decide::mark;
use super::super::facts::{ClaimFact, Facts};
use super::super::fixture::*;
use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn asking(spec: &serde_json::Value) -> Facts {
    let mut facts = cloned();
    let mut whole = serde_json::to_value(&facts.machine.spec).unwrap();
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    facts.machine.spec = serde_json::from_value(whole).unwrap();
    facts
}

#[test]
fn a_bridge_that_would_bring_in_other_options_is_refused() {
    for bridge in ["vmbr0,link_down=1", "vmbr 0", "vmbr0=1", ""] {
        let mut facts = cloned();
        facts.machine.spec.network.as_mut().unwrap().default.as_mut().unwrap().bridge =
            bridge.to_owned();
        let why = options(&facts, &facts.vm().unwrap().config).unwrap_err();
        assert!(why.contains("net0") && why.contains(&format!("{bridge:?}")), "{why}");
    }
}

#[test]
fn a_vm_that_is_as_asked_is_left_alone() {
    assert_eq!(options(&cloned(), &config()).unwrap(), map(&[]));
}

#[test]
fn only_what_differs_is_written() {
    let facts = asking(&json!({"numCores": 8, "memoryMiB": 8192}));
    assert_eq!(options(&facts, &config()).unwrap(), map(&[("cores", "8"), ("memory", "8192")]));
}

#[test]
fn a_network_device_keeps_its_mac_and_flags() {
    let facts = asking(&json!({"network": {"default": {
        "bridge": "vmbr-1.lan", "model": "virtio", "vlan": 12, "mtu": 1
    }}}));
    let written = options(&facts, &config()).unwrap();
    assert_eq!(written.keys().collect::<Vec<_>>(), ["net0"]);
    let net0 = &written["net0"];
    for part in ["virtio=BC:24:11:00:00:01", "bridge=vmbr-1.lan", "firewall=1", "tag=12", "mtu=1"] {
        assert!(net0.split(',').any(|found| found == part), "{part} in {net0}");
    }
    let done = config_with(&[("net0", net0)]);
    assert_eq!(options(&facts, &done).unwrap(), map(&[]));
}

/// VLAN 30 of the template's bridge would keep the guest out of the machine's network.
#[test]
fn mtu_and_vlan_of_the_template_go_with_its_bridge() {
    let old = "virtio=BC:24:11:00:00:01,bridge=vmbr9,firewall=1,mtu=1450,tag=30";
    let written = options(&cloned(), &config_with(&[("net0", old)])).unwrap();
    assert_eq!(written, map(&[("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1")]));
    assert_eq!(options(&cloned(), &config_with(&[("net0", &written["net0"])])).unwrap(), map(&[]));
}

#[test]
fn mtu_and_vlan_of_the_template_stay_while_no_device_differs() {
    let tagged = "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,mtu=1450,tag=30";
    assert_eq!(options(&cloned(), &config_with(&[("net0", tagged)])).unwrap(), map(&[]));
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"});
    let facts = asking(&json!({"network": {
        "default": {"bridge": "vmbr0", "model": "virtio"},
        "additionalDevices": [{"name": "net1", "bridge": "vmbr1", "vlan": 7, "ipv4PoolRef": pool}],
    }}));
    assert_eq!(
        options(&facts, &config_with(&[("net0", tagged)])).unwrap(),
        map(&[
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"),
            ("net1", "virtio,bridge=vmbr1,tag=7"),
        ])
    );
}

#[test]
fn a_cable_that_is_unplugged_in_the_template_is_plugged_in() {
    let plain = "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1";
    for old in [
        "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,link_down=1",
        "virtio=BC:24:11:00:00:01,bridge=vmbr9,firewall=1,link_down=1,tag=30",
    ] {
        let written = options(&cloned(), &config_with(&[("net0", old)])).unwrap();
        assert_eq!(written, map(&[("net0", plain)]));
    }
    // VLAN and MTU are not touched for that.
    let tagged = "virtio=BC:24:11:00:00:01,bridge=vmbr0,link_down=1,tag=30";
    let written = options(&cloned(), &config_with(&[("net0", tagged)])).unwrap();
    assert_eq!(written, map(&[("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=30")]));
    // A device that the machine does not name is the template's.
    let other = [("net1", "virtio=BC:24:11:00:00:02,bridge=vmbr0,link_down=1")];
    assert_eq!(options(&cloned(), &config_with(&other)).unwrap(), map(&[]));
}

#[test]
fn a_new_model_keeps_the_mac() {
    let facts = asking(&json!({"network": {"default": {"bridge": "vmbr0", "model": "e1000"}}}));
    let written = options(&facts, &config()).unwrap();
    assert!(written["net0"].starts_with("e1000=BC:24:11:00:00:01,"), "{written:?}");
}

#[test]
fn a_device_that_the_template_lacks_gets_its_mac_from_proxmox() {
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"});
    let mut facts = asking(&json!({"network": {
        "default": {"bridge": "vmbr0", "model": "virtio"},
        "additionalDevices": [{"name": "net1", "bridge": "vmbr1", "ipv4PoolRef": pool}],
    }}));
    wish(&mut facts);
    let written = options(&facts, &config()).unwrap();
    assert_eq!(written, map(&[("net1", "virtio,bridge=vmbr1")]));
    assert_eq!(lacks_mac(&facts, &config()).as_deref(), Some("net1"));
    let config = config_with(&[("net1", "virtio=BC:24:11:00:00:02,bridge=vmbr1")]);
    assert_eq!(lacks_mac(&facts, &config), None);
}

#[test]
fn a_device_name_that_proxmox_does_not_have_is_refused() {
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"});
    let facts = asking(&json!({"network": {
        "default": {"bridge": "vmbr0"},
        "additionalDevices": [{"name": "eth1", "bridge": "vmbr1", "ipv4PoolRef": pool}],
    }}));
    assert!(options(&facts, &config()).unwrap_err().contains("\"eth1\""));
}

#[test]
fn tags_are_added_and_compared_as_proxmox_keeps_them() {
    let facts = asking(&json!({"tags": ["Prod", "k8s"]}));
    let written = options(&facts, &config_with(&[("tags", "rack7")])).unwrap();
    assert_eq!(written, map(&[("tags", "ip_net0_10.0.0.10;k8s;Prod;rack7")]));
    let done = config_with(&[("tags", "ip_net0_10.0.0.10;k8s;prod;rack7")]);
    assert_eq!(options(&facts, &done).unwrap(), map(&[]));
}

#[test]
fn the_mark_gives_way_to_the_description_once_the_uuid_is_recorded() {
    let marked = format!("rack 7\n{}", mark("lab", "w-1", "m-uid"));
    let config = config_with(&[("description", &marked)]);
    assert_eq!(options(&cloned(), &config).unwrap(), map(&[("description", "rack 7")]));
    let mut early = cloned();
    early.machine.spec.provider_id = None;
    assert_eq!(options(&early, &config).unwrap(), map(&[]));
    let only = config_with(&[("description", &mark("lab", "w-1", "m-uid"))]);
    assert_eq!(options(&cloned(), &only).unwrap(), map(&[("description", "")]));
    let facts = asking(&json!({"description": "mine"}));
    assert_eq!(options(&facts, &config).unwrap(), map(&[("description", "mine")]));
}

#[test]
fn a_boot_volume_only_grows() {
    let facts = cloned();
    let volume = facts.machine.spec.disks.as_ref().unwrap().boot_volume.as_ref().unwrap();
    let sized = |size: &str| config_with(&[("scsi0", &format!("l:d,size={size}"))]);
    assert_eq!(growth(volume, &sized("10G")), Ok(Some(20)));
    assert_eq!(growth(volume, &sized("20G")), Ok(None));
    assert_eq!(growth(volume, &sized("2252M")), Ok(Some(20)));
    assert_eq!(growth(volume, &sized("1T")), Ok(None));
    let other = config_with(&[("scsi0", ""), ("virtio0", "l:d,size=1G")]);
    let why = growth(volume, &other).unwrap_err();
    assert!(why.contains("no disk scsi0") && why.contains("virtio0"), "{why}");
}

#[test]
fn what_is_missing_of_the_addresses_names_claim_pool_and_the_providers_word() {
    let mut facts = reserved();
    assert_eq!(missing_addresses(&cloned()), None);
    let text = missing_addresses(&facts).unwrap();
    assert!(text.contains("w-1-net0-inet at InClusterIPPool one-v4-icip"), "{text}");
    facts.addresses[0].claim =
        Some(ClaimFact { ours: true, message: Some("pool is full".to_owned()) });
    assert!(missing_addresses(&facts).unwrap().contains("pool is full"));
    facts.addresses[0].claim = Some(ClaimFact { ours: false, message: None });
    assert!(missing_addresses(&facts).unwrap().contains("belongs to another"));
}

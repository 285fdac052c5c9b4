#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::api::ProxmoxMachineSpec;
use crate::check::facts::{guests, shared};
use crate::check::report::Verdict::{self, Failed, Good, Unknown};
use crate::ids::{NodeName, VmId};
use crate::pve::{Bridge, Resource, StorageStatus, VmConfig};
use crate::seen::Seen;

const GIB: u64 = 1 << 30;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn template_id() -> VmId {
    "9000".parse().unwrap()
}

fn wanted(spec: Value) -> Wanted {
    let spec: ProxmoxMachineSpec = read(spec);
    Wanted::of([&spec], &[])
}

fn usual() -> Wanted {
    wanted(json!({
        "templateID": 9000, "pool": "lab", "vmIDRange": {"start": 200, "end": 209},
        "network": {"default": {"bridge": "vmbr0", "vlan": 7}},
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
    }))
}

fn config(changes: &[(&str, Option<&str>)]) -> VmConfig {
    let mut options = BTreeMap::from([
        ("name", "kube"),
        ("template", "1"),
        ("agent", "enabled=1"),
        ("boot", "order=scsi0;net0"),
        ("scsi0", "shared:base-9000-disk-0,size=8G"),
        ("ide2", "shared:vm-9000-cloudinit,media=cdrom"),
        ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
    ]);
    for (key, value) in changes {
        match value {
            Some(value) => options.insert(key, value),
            None => options.remove(key),
        };
    }
    options.into_iter().collect()
}

fn storages(changes: &Value) -> Vec<StorageStatus> {
    let mut list = json!({
        "local": {"storage": "local", "type": "dir", "content": "iso,backup", "avail": 40 * GIB},
        "shared": {
            "storage": "shared", "type": "rbd", "content": "images", "avail": 400 * GIB,
            "shared": 1,
        },
    });
    for (name, change) in changes.as_object().unwrap() {
        match change {
            Value::Null => drop(list.as_object_mut().unwrap().remove(name)),
            change => {
                for (key, value) in change.as_object().unwrap() {
                    list[name][key] = value.clone();
                }
            }
        }
    }
    list.as_object().unwrap().values().map(|value| read(value.clone())).collect()
}

fn bridge(changes: &Value) -> Vec<Bridge> {
    let mut bridge = json!({
        "iface": "vmbr0", "type": "bridge", "active": 1, "bridge_vlan_aware": 1,
        "bridge_ports": "eno1",
    });
    for (key, value) in changes.as_object().unwrap() {
        bridge[key] = value.clone();
    }
    vec![read(bridge)]
}

/// A Proxmox where all is well.
fn facts() -> Facts {
    let resources: Vec<Resource> = [
        json!({"type": "qemu", "vmid": 9000, "node": "pve1", "template": 1, "tags": "kube"}),
        json!({"type": "qemu", "vmid": 200, "node": "pve2"}),
        json!({"type": "storage", "storage": "shared", "node": "pve1", "shared": 1}),
        json!({"type": "storage", "storage": "local", "node": "pve1", "shared": 0}),
    ]
    .into_iter()
    .map(read)
    .collect();
    let mut facts = Facts {
        version: read(json!({"version": "9.1.4"})),
        skew: Seen::Present(SignedDuration::from_secs(2)),
        nodes: Seen::Present(vec![
            read(json!({"node": "pve1", "status": "online"})),
            read(json!({"node": "pve2", "status": "online"})),
        ]),
        guests: Seen::Present(guests(&resources)),
        shared: shared(&resources),
        templates: [(template_id(), Seen::Present(config(&[])))].into(),
        storages: BTreeMap::new(),
        bridges: BTreeMap::new(),
        vnets: Seen::Absent,
        pools: Seen::Present(vec!["lab".to_owned()]),
        free: [((200, 209), Seen::Present("201".parse().unwrap()))].into(),
        permissions: Seen::Absent,
    };
    for name in ["pve1", "pve2"] {
        facts.storages.insert(node(name), Seen::Present(storages(&json!({}))));
        facts.bridges.insert(node(name), Seen::Present(bridge(&json!({}))));
    }
    let needs = crate::check::facts::needs(&usual(), &facts);
    let all = needs.iter().map(|need| (need.privilege.to_owned(), json!(1)));
    let all: serde_json::Map<_, _> = all.chain([("Pool.Audit".to_owned(), json!(1))]).collect();
    facts.permissions = Seen::Present(read(json!({"/": all})));
    facts
}

/// Findings that are not good.
fn bad(wanted: &Wanted, facts: &Facts) -> Vec<(Verdict, &'static str, String, String)> {
    let bad = judge(wanted, facts).into_iter().filter(|finding| finding.result != Good);
    bad.map(|finding| {
        let remedy = finding.remedy.map(|remedy| format!(" → {remedy}")).unwrap_or_default();
        (finding.result, finding.check, finding.subject, finding.found + &remedy)
    })
    .collect()
}

/// Exactly one finding is bad, and says all of the words.
fn only(wanted: &Wanted, facts: &Facts, verdict: Verdict, check: &str, words: &[&str]) {
    let found = bad(wanted, facts);
    let [(result, kind, subject, text)] = &found[..] else { panic!("{check}: {found:#?}") };
    assert_eq!((*result, *kind), (verdict, check), "{subject} {text}");
    for word in words {
        assert!(format!("{subject} {text}").contains(word), "no {word:?} in {subject} {text}");
    }
}

#[test]
fn where_all_is_well_nothing_is_said_to_be_wrong() {
    let found = judge(&usual(), &facts());
    assert!(found.iter().all(|finding| finding.result == Good), "{found:#?}");
    for check in ["clock", "node", "privilege", "template", "storage", "bridge", "pool", "vmid"] {
        assert!(found.iter().any(|finding| finding.check == check), "{check}");
    }
    let nothing = Wanted::of([], &[]);
    assert_eq!(bad(&nothing, &facts()), []);
}

#[test]
fn what_is_wrong_with_a_template_is_told_with_the_command_that_cures_it() {
    for (changes, words) in [
        (&[("template", None)][..], &["is no template", "qm template 9000"][..]),
        (&[("agent", None)], &["guest agent", "qm set 9000 --agent enabled=1"]),
        (&[("agent", Some("0"))], &["guest agent"]),
        (&[("agent", Some("enabled=0,type=virtio"))], &["guest agent"]),
        (&[("boot", Some("order=net0;ide2"))], &["boots from no disk", "scsi0", "--boot"]),
        (&[("ide0", Some("shared:base-9000-disk-1,size=4G"))], &["ide0", "cloud-init"]),
    ] {
        let mut facts = facts();
        if let Seen::Present(guests) = &mut facts.guests {
            guests[0].is_template = !changes.contains(&("template", None));
        }
        facts.templates.insert(template_id(), Seen::Present(config(changes)));
        only(&usual(), &facts, Failed, "template", words);
    }
    for changes in [
        &[("agent", Some("1"))][..],
        &[("agent", Some("1,fstrim_cloned_disks=1"))],
        &[("boot", None)],
        &[("ide0", Some("none,media=cdrom"))],
    ] {
        let mut facts = facts();
        facts.templates.insert(template_id(), Seen::Present(config(changes)));
        assert_eq!(bad(&usual(), &facts), [], "{changes:?}");
    }
}

#[test]
fn a_disk_that_the_machine_names_and_the_template_has_not_is_named() {
    let wanted = wanted(json!({
        "templateID": 9000, "disks": {"bootVolume": {"disk": "virtio0", "sizeGb": 20}}
    }));
    only(&wanted, &facts(), Failed, "template", &["no disk virtio0", "scsi0", "bootVolume"]);
}

#[test]
fn a_template_is_looked_for_as_the_machine_names_it() {
    for (spec, verdict, words) in [
        (json!({"templateID": 9009}), Failed, &["9009", "no VM"][..]),
        (json!({"templateID": 9000, "sourceNode": "pve2"}), Failed, &["is on node pve1"]),
        (json!({"templateSelector": {"matchTags": ["other"]}}), Failed, &["other", "matchTags"]),
        (json!({"templateID": 5}), Failed, &["VMID"]),
    ] {
        only(&wanted(spec), &facts(), verdict, "template", words);
    }
    let tagged = wanted(json!({"templateSelector": {"matchTags": ["KUBE"]}}));
    assert_eq!(bad(&tagged, &facts()), []);
}

#[test]
fn a_template_that_may_be_hidden_or_on_a_silent_node_is_not_called_missing() {
    let elsewhere = wanted(json!({"templateID": 9009, "sourceNode": "pve2"}));
    let mut down = facts();
    down.nodes = Seen::Present(vec![
        read(json!({"node": "pve1", "status": "online"})),
        read(json!({"node": "pve2", "status": "offline"})),
    ]);
    let found = bad(&elsewhere, &down);
    assert!(found.iter().all(|(verdict, ..)| *verdict == Unknown), "{found:#?}");
    assert!(found.iter().any(|(_, check, _, text)| *check == "template" && text.contains("pve2")));

    let mut blind = facts();
    let Seen::Present(held) = &mut blind.permissions else { panic!() };
    held.extend(read(json!({"/vms/9009": {"VM.Clone": 1}})));
    let found = bad(&wanted(json!({"templateID": 9009})), &blind);
    let verdict_of = |check| found.iter().find(|(_, kind, ..)| *kind == check).map(|f| f.0);
    assert_eq!(verdict_of("template"), Some(Unknown), "{found:#?}");
    assert_eq!(verdict_of("privilege"), Some(Failed), "{found:#?}");
}

#[test]
fn a_template_on_local_storage_has_to_be_on_an_allowed_node() {
    let mut facts = facts();
    facts.shared.insert("shared".parse().unwrap(), false);
    assert_eq!(bad(&usual(), &facts), []);
    let elsewhere = wanted(json!({"templateID": 9000, "allowedNodes": ["pve2"]}));
    only(&elsewhere, &facts, Failed, "template", &["not shared", "pve1 only", "pve2"]);
}

#[test]
fn what_ties_clones_to_the_node_of_their_template_is_named_disks_and_discs_alike() {
    let elsewhere = |storage: Option<&str>| {
        wanted(json!({"templateID": 9000, "allowedNodes": ["pve2"], "storage": storage}))
    };
    let disc = ("ide2", Some("local:iso/debian.iso,media=cdrom"));
    let cloud_init = ("ide2", Some("local:vm-9000-cloudinit,media=cdrom"));
    let firmware = ("efidisk0", Some("local:base-9000-disk-1,size=4M"));
    for (change, storage, why, remedy) in [
        (disc, None, "its disc ide2 is on local", "qm set 9000 --delete ide2"),
        (cloud_init, None, "its disc ide2 is on local", "qm set 9000 --delete ide2"),
        (firmware, None, "its efidisk0 is on local", "put it on shared storage"),
        (("ide2", None), Some("local"), "its clones go to local (spec.storage)", "spec.storage"),
    ] {
        let mut facts = facts();
        facts.templates.insert(template_id(), Seen::Present(config(&[change])));
        let found = bad(&elsewhere(storage), &facts);
        let told = found.iter().find(|(_, check, ..)| *check == "template").unwrap();
        let text = &told.3;
        assert!(text.contains(why) && text.contains(remedy), "{text}");
        assert!(text.contains("pve1 only") && text.contains("or allow pve1"), "{text}");
        // Where its own node is allowed too, it is said, and is no failure.
        let both = wanted(json!({"templateID": 9000, "storage": storage}));
        let all = judge(&both, &facts);
        let said = all.iter().find(|finding| finding.check == "template").unwrap();
        assert_eq!(said.result, Good, "{said:?}");
        assert!(said.found.contains("cloned there only, since "), "{said:?}");
        assert!(said.found.contains(why), "{said:?}");
        assert!(said.remedy.as_ref().is_some_and(|text| text.contains(remedy)), "{said:?}");
    }
}

#[test]
fn bootstrap_data_goes_to_the_storages_that_the_manager_was_told() {
    let told = |names: &[&str]| {
        let mut wanted = usual();
        wanted.iso_storages = names.iter().map(|name| name.parse().unwrap()).collect();
        wanted
    };
    let mut facts = facts();
    for name in ["pve1", "pve2"] {
        let both = storages(&json!({"shared": {"content": "images,iso"}}));
        facts.storages.insert(node(name), Seen::Present(both));
    }
    let takes = |wanted: &Wanted, facts: &Facts| {
        let all = judge(wanted, facts).into_iter();
        let mut iso = all.filter(|finding| finding.found.contains("takes ISO images for"));
        iso.next().map(|finding| finding.subject)
    };
    assert_eq!(takes(&usual(), &facts).as_deref(), Some("local"));
    assert_eq!(takes(&told(&["shared"]), &facts).as_deref(), Some("shared"));
    assert_eq!(takes(&told(&["shared", "local"]), &facts).as_deref(), Some("shared"));
    facts.storages.insert(node("pve2"), Seen::Present(storages(&json!({}))));
    let words = ["ISO on pve2", "shared (--iso-storage)", "others: local"];
    only(&told(&["shared"]), &facts, Failed, "storage", &words);
    assert_eq!(bad(&told(&["shared", "local"]), &facts), []);
}

#[test]
fn storages_are_judged_by_content_state_and_room() {
    for (change, verdict, words) in [
        (json!({"local": {"content": "backup"}}), Failed, &["ISO on pve2", "--content iso"][..]),
        (json!({"local": {"active": 0}}), Failed, &["local takes ISO", "not active"]),
        (json!({"local": {"enabled": 0}}), Failed, &["disabled"]),
        (json!({"local": {"avail": 1 << 20}}), Failed, &["no room", "1 MiB"]),
        (json!({"shared": null}), Failed, &["does not exist on pve2", "allowedNodes"]),
        (json!({"shared": {"content": "rootdir"}}), Failed, &["takes no disks", "rootdir,images"]),
        (json!({"shared": {"active": 0}}), Failed, &["not active on pve2"]),
        (json!({"shared": {"avail": 10 * GIB}}), Unknown, &["10.0 GiB free", "20.0 GiB"]),
        (json!({"shared": {"avail": 10 * GIB, "type": "lvm"}}), Failed, &["10.0 GiB free"]),
        (json!({"shared": {"avail": 0}}), Failed, &["0 MiB free"]),
    ] {
        let mut facts = facts();
        facts.storages.insert(node("pve2"), Seen::Present(storages(&change)));
        only(&usual(), &facts, verdict, "storage", words);
    }
}

#[test]
fn a_linked_clone_needs_no_room_and_a_storage_that_is_named_is_the_one_that_counts() {
    let mut facts = facts();
    let full = storages(&json!({"shared": {"avail": 10 * GIB}}));
    facts.storages.insert(node("pve2"), Seen::Present(full));
    assert_eq!(bad(&wanted(json!({"templateID": 9000, "full": false})), &facts), []);
    let named = wanted(json!({"templateID": 9000, "storage": "fast", "allowedNodes": ["pve1"]}));
    facts.storages.remove(&node("pve2"));
    only(&named, &facts, Failed, "storage", &["fast", "does not exist on pve1"]);
}

#[test]
fn bridges_are_judged_on_each_node_with_their_vlan() {
    for (change, verdict, words) in [
        (json!({"iface": "vmbr1"}), Failed, &["pve2 has no bridge vmbr0"][..]),
        (json!({"active": null}), Failed, &["not up"]),
        (json!({"bridge_vlan_aware": null, "bridge_ports": ""}), Failed, &["no port", "VLAN 7"]),
    ] {
        let mut facts = facts();
        facts.bridges.insert(node("pve2"), Seen::Present(bridge(&change)));
        // The template is on the same bridge without the VLAN.
        let found = bad(&usual(), &facts);
        assert!(!found.is_empty());
        for (result, check, subject, text) in &found {
            assert_eq!((*result, *check), (verdict, "bridge"), "{text}");
            assert!(subject.starts_with("vmbr0"), "{subject}");
        }
        let said = format!("{found:?}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
    for change in [
        json!({"bridge_vlan_aware": null}),
        json!({"type": "OVSBridge", "bridge_vlan_aware": null, "bridge_ports": null}),
    ] {
        let mut facts = facts();
        facts.bridges.insert(node("pve2"), Seen::Present(bridge(&change)));
        assert_eq!(bad(&usual(), &facts), []);
    }
}

#[test]
fn a_virtual_network_has_its_own_word_on_vlans_and_its_own_path() {
    let mut facts = facts();
    facts.vnets = Seen::Present(vec![read(json!({"vnet": "vmbr0", "zone": "lab"}))]);
    let found = bad(&usual(), &facts);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|(_, _, subject, text)| {
        subject == "vmbr0 VLAN 7" && text.contains("VNet takes no VLAN")
    }));
    let Seen::Present(held) = &mut facts.permissions else { panic!() };
    held.extend(read(json!({"/sdn/zones/lab": {}})));
    let found = bad(&usual(), &facts);
    assert!(found.iter().any(|(_, check, subject, text)| {
        *check == "privilege" && subject == "/sdn/zones/lab/vmbr0" && text.contains("SDN.Use")
    }));
}

#[test]
fn pools_and_vmids_that_are_not_there_are_told_from_those_that_are_not_shown() {
    let mut gone = facts();
    gone.pools = Seen::Present(Vec::new());
    only(&usual(), &gone, Failed, "pool", &["lab", "pveum pool add lab"]);
    let Seen::Present(held) = &mut gone.permissions else { panic!() };
    let mut at_pool = held.by_path()["/"].clone();
    at_pool.remove("Pool.Audit");
    held.extend(read(json!({"/pool/lab": at_pool})));
    only(&usual(), &gone, Unknown, "pool", &["Pool.Audit on /pool/lab"]);

    let mut full = facts();
    full.free.insert((200, 209), Seen::Absent);
    only(&usual(), &full, Failed, "vmid", &["200-209", "vmIDRange"]);
    full.free.insert((200, 209), Seen::Unknown("no answer".to_owned()));
    only(&usual(), &full, Unknown, "vmid", &["no answer"]);
    for (start, end) in [(50, 60), (300, 200)] {
        let wanted = wanted(json!({"vmIDRange": {"start": start, "end": end}}));
        only(&wanted, &facts(), Failed, "vmid", &["correct spec.vmIDRange"]);
    }
}

#[test]
fn clocks_that_differ_are_told_in_both_directions() {
    for (skew, verdict, words) in [
        (Seen::Present(SignedDuration::from_secs(3600)), Failed, "3600 s ahead"),
        (Seen::Present(SignedDuration::from_secs(-90)), Failed, "90 s behind"),
        (Seen::Absent, Unknown, "does not tell"),
    ] {
        let facts = Facts { skew, ..facts() };
        only(&usual(), &facts, verdict, "clock", &[words]);
    }
}

#[test]
fn nodes_that_are_down_or_unknown_are_named() {
    let mut facts = facts();
    facts.nodes = Seen::Present(vec![
        read(json!({"node": "pve1", "status": "online"})),
        read(json!({"node": "pve2", "status": "offline"})),
    ]);
    only(&usual(), &facts, Unknown, "node", &["pve2", "offline", "allowedNodes"]);
    let named = wanted(json!({"templateID": 9000, "allowedNodes": ["pve1", "pve2", "pve9"]}));
    let found = bad(&named, &facts);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found.iter().all(|(verdict, check, ..)| (*verdict, *check) == (Failed, "node")));
}

#[test]
fn each_privilege_that_is_missing_is_a_finding_of_its_own() {
    let mut facts = facts();
    let Seen::Present(held) = &mut facts.permissions else { panic!() };
    let mut less = held.by_path()["/"].clone();
    less.remove("VM.Config.Disk");
    held.extend(read(json!({"/vms": less.clone(), "/pool/lab": less})));
    only(&usual(), &facts, Failed, "privilege", &["/pool/lab", "VM.Config.Disk", "grow"]);
    facts.version = read(json!({"version": "8.4.1"}));
    let found = bad(&usual(), &facts);
    assert!(found.iter().any(|(_, _, _, text)| text.contains("VM.Monitor")), "{found:#?}");
}

#[test]
fn what_nobody_answers_is_unknown() {
    let silent = || "no answer".to_owned();
    let facts = Facts {
        version: read(json!({"version": "9.1.4"})),
        skew: Seen::Unknown(silent()),
        nodes: Seen::Unknown(silent()),
        guests: Seen::Unknown(silent()),
        shared: BTreeMap::new(),
        templates: BTreeMap::new(),
        storages: [(node("pve1"), Seen::Unknown(silent()))].into(),
        bridges: [(node("pve1"), Seen::Unknown(silent()))].into(),
        vnets: Seen::Unknown(silent()),
        pools: Seen::Unknown(silent()),
        free: BTreeMap::new(),
        permissions: Seen::Unknown(silent()),
    };
    let found = judge(&usual(), &facts);
    for finding in &found {
        assert_eq!(finding.result, Unknown, "{finding:?}");
    }
    for check in ["clock", "node", "privilege", "template", "storage", "bridge", "pool", "vmid"] {
        assert!(found.iter().any(|finding| finding.check == check), "{check}");
    }
}

//! The choice of template, node and VMID.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use serde_json::json;

use super::super::fixture::{fresh, reserved};
use super::*;
use crate::hypervisor::{GuestEntry, StorageEntry};
use crate::ids::StorageName;

const GIB: u64 = 1 << 30;

fn node_fact(gib: u64) -> NodeFact {
    NodeFact {
        state: hypervisor::NodeState::Online,
        memory: Some(gib * GIB),
        committed: 0,
        same_role: 0,
    }
}

fn world() -> PlacementFacts {
    let template = GuestEntry {
        kind: GuestKind::Vm,
        node: "pve1".parse().unwrap(),
        name: Some("debian".to_owned()),
        status: Some("stopped".to_owned()),
        template: true,
        tags: vec!["debian".to_owned(), "v1.34".to_owned()],
        lock: None,
        memory: Some(2 * GIB),
    };
    PlacementFacts {
        ledger_version: 7,
        taken: ["9000", "100", "101"].iter().map(|id| id.parse().unwrap()).collect(),
        next_id: Some("101".parse().unwrap()),
        guests: BTreeMap::from([("9000".parse().unwrap(), template)]),
        nodes: ["pve1", "pve2"].iter().map(|name| (name.parse().unwrap(), node_fact(64))).collect(),
        storages: storages(),
    }
}

fn storages() -> BTreeMap<StorageName, StorageEntry> {
    [("shared", true, "pve1 pve2"), ("local-lvm", false, "pve1 pve2"), ("fast", true, "pve1")]
        .into_iter()
        .map(|(name, shared, nodes)| {
            let nodes = nodes.split(' ').map(|node| node.parse().unwrap()).collect();
            let content = vec!["images".to_owned()];
            (name.parse().unwrap(), StorageEntry { shared: Some(shared), nodes, content })
        })
        .collect()
}

fn facts(spec: &serde_json::Value) -> Facts {
    let mut facts = fresh();
    let mut whole = serde_json::to_value(&facts.machine.spec).unwrap();
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    facts.machine.spec = serde_json::from_value(whole).unwrap();
    facts
}

/// The choice for a template whose disk is on this storage.
fn on(storage: &str, facts: &Facts, world: &PlacementFacts) -> Result<Decision, String> {
    let mut facts = facts.clone();
    let template = TemplateRef { node: "pve1".parse().unwrap(), vmid: "9000".parse().unwrap() };
    let disk = format!("{storage}:base-9000-disk-0,size=4G");
    let config = [("scsi0", disk.as_str())].into_iter().collect();
    facts.template = Some((template, Seen::Present(config)));
    choose(&facts, world, None)
}

fn choose_shared(facts: &Facts, world: &PlacementFacts) -> Result<Decision, String> {
    on("shared", facts, world)
}

fn chosen(facts: &Facts, world: &PlacementFacts) -> (String, String) {
    match choose_shared(facts, world).unwrap() {
        Decision::Do(Step::Reserve { vmid, node, ledger_version: 7, .. }) => {
            (vmid.to_string(), node.to_string())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_template_on_local_storage_is_cloned_on_its_own_node_only() {
    let anywhere = facts(&json!({"allowedNodes": ["pve2", "pve1"]}));
    let mut world = world();
    world.nodes.get_mut(&"pve1".parse().unwrap()).unwrap().same_role = 5;
    match on("local-lvm", &anywhere, &world).unwrap() {
        Decision::Do(Step::Reserve { node, .. }) => assert_eq!(node.as_str(), "pve1"),
        other => panic!("{other:?}"),
    }
    for spec in [json!({"allowedNodes": ["pve2"]}), json!({"target": "pve2"})] {
        let why = on("local-lvm", &facts(&spec), &world).unwrap_err();
        assert!(why.contains("local-lvm") && why.contains("not shared"), "{why}");
    }
    let elsewhere = facts(&json!({"storage": "fast", "allowedNodes": ["pve2"]}));
    let why = choose_shared(&elsewhere, &world).unwrap_err();
    assert!(why.contains("pve2 has no storage fast"), "{why}");
    let linked = facts(&json!({"storage": "fast", "full": false}));
    assert!(choose_shared(&linked, &world).unwrap_err().contains("full clone"));
}

/// Proxmox's own rules: discs count as volumes, and the target storage has to be shared.
#[test]
fn a_local_disc_or_a_local_target_storage_keep_the_clone_on_the_templates_node() {
    let mut world = world();
    world.nodes.get_mut(&"pve1".parse().unwrap()).unwrap().same_role = 5;
    let choose_with = |spec: &serde_json::Value, drive: &str| {
        let mut facts = facts(spec);
        let template = TemplateRef { node: "pve1".parse().unwrap(), vmid: "9000".parse().unwrap() };
        let config = [("scsi0", "shared:base-9000-disk-0"), ("ide2", drive)].into_iter().collect();
        facts.template = Some((template, Seen::Present(config)));
        choose(&facts, &world, None)
    };
    for (storage, drive, node) in [
        ("shared", "none,media=cdrom", "pve2"),
        ("shared", "shared:vm-9000-cloudinit,media=cdrom", "pve2"),
        ("shared", "local-lvm:vm-9000-cloudinit,media=cdrom", "pve1"),
        ("shared", "local-lvm:iso/debian.iso,media=cdrom", "pve1"),
        ("local-lvm", "none,media=cdrom", "pve1"),
        // What the credentials do not show is Proxmox's to judge.
        ("hidden", "hidden:iso/debian.iso,media=cdrom", "pve2"),
    ] {
        let spec = json!({"storage": storage, "allowedNodes": ["pve2", "pve1"]});
        match choose_with(&spec, drive).unwrap() {
            Decision::Do(Step::Reserve { node: found, .. }) => {
                assert_eq!(found.as_str(), node, "{storage} {drive}");
            }
            other => panic!("{other:?}"),
        }
    }
    let why = choose_with(&json!({"target": "pve2"}), "local-lvm:iso/debian.iso,media=cdrom");
    let why = why.unwrap_err();
    assert!(why.contains("ide2") && why.contains("take the disc"), "{why}");
    let why = choose_with(&json!({"target": "pve2", "storage": "local-lvm"}), "").unwrap_err();
    assert!(why.contains("local-lvm (spec.storage) is not shared"), "{why}");
}

#[test]
fn after_a_failed_clone_node_and_template_are_chosen_again_under_the_same_number() {
    let mut facts = reserved();
    facts.placement = Some(Seen::Present(world()));
    let template = TemplateRef { node: "pve1".parse().unwrap(), vmid: "9000".parse().unwrap() };
    facts.template = Some((template, Seen::Absent));
    match again(&facts, "105".parse().unwrap()) {
        Decision::Do(Step::Reserve { vmid, node, .. }) => {
            assert_eq!((vmid.to_string().as_str(), node.as_str()), ("105", "pve1"));
        }
        other => panic!("{other:?}"),
    }
    facts.status().proxmox_node = Some("pve1".to_owned());
    let same = again(&facts, "105".parse().unwrap());
    assert!(matches!(same, Decision::Do(Step::Clone { .. })), "{same:?}");
}

#[test]
fn nothing_is_chosen_before_the_cluster_was_read() {
    let mut facts = fresh();
    assert_eq!(decide(&facts), Decision::Look(Look::Placement));
    facts.placement = Some(Seen::Unknown("no route".to_owned()));
    assert!(matches!(decide(&facts), Decision::Wait(Waiting::Unknown(_), _)));
}

#[test]
fn without_a_wish_the_vm_is_made_beside_its_template_under_the_next_free_number() {
    assert_eq!(chosen(&fresh(), &world()), ("102".to_owned(), "pve1".to_owned()));
}

#[test]
fn a_target_wins_over_allowed_nodes() {
    let facts = facts(&json!({"target": "pve2", "allowedNodes": ["pve1"]}));
    assert_eq!(chosen(&facts, &world()).1, "pve2");
}

#[test]
fn allowed_nodes_of_the_machine_win_over_those_of_the_cluster() {
    let mut facts = facts(&json!({"allowedNodes": ["pve2"]}));
    facts.infra.as_mut().unwrap().spec.allowed_nodes = Some(vec!["pve1".to_owned()]);
    assert_eq!(chosen(&facts, &world()).1, "pve2");
    facts.machine.spec.allowed_nodes = None;
    assert_eq!(chosen(&facts, &world()).1, "pve1");
}

#[test]
fn machines_of_one_role_are_spread() {
    let mut world = world();
    world.nodes.get_mut(&"pve1".parse().unwrap()).unwrap().same_role = 1;
    let facts = facts(&json!({"allowedNodes": ["pve1", "pve2"]}));
    assert_eq!(chosen(&facts, &world).1, "pve2");
}

#[test]
fn what_does_not_fit_is_waited_for_with_the_figures() {
    let facts = facts(&json!({"allowedNodes": ["pve1"], "memoryMiB": 131_072}));
    let why = choose_shared(&facts, &world()).unwrap_err();
    assert!(why.contains("pve1"), "{why}");
}

#[test]
fn a_number_comes_from_the_range_or_is_waited_for() {
    let asking = facts(&json!({"vmIDRange": {"start": 500, "end": 501}}));
    assert_eq!(chosen(&asking, &world()).0, "500");
    let mut full = world();
    full.taken.extend(["500", "501"].iter().map(|id| id.parse::<VmId>().unwrap()));
    assert!(choose_shared(&asking, &full).unwrap_err().contains("500-501"));
}

#[test]
fn a_node_or_template_that_is_not_there_is_named_with_the_remedy() {
    let why = choose_shared(&facts(&json!({"target": "pve9"})), &world()).unwrap_err();
    assert!(why.contains("pve9") && why.contains("pve1, pve2"), "{why}");
    let why = choose_shared(&facts(&json!({"sourceNode": "pve9"})), &world()).unwrap_err();
    assert!(why.contains("pve9") && why.contains("spec.sourceNode"), "{why}");
    let why = choose_shared(&facts(&json!({"templateID": 9999})), &world()).unwrap_err();
    assert!(why.contains("9999"), "{why}");
    let mut down = world();
    down.guests.clear();
    down.nodes.get_mut(&"pve1".parse().unwrap()).unwrap().state = hypervisor::NodeState::Offline;
    let why = choose_shared(&fresh(), &down).unwrap_err();
    assert!(why.contains("does not answer"), "{why}");
}

#[test]
fn a_template_is_found_by_its_tags() {
    let mut facts = fresh();
    facts.machine.spec.template_id = None;
    facts.machine.spec.source_node = None;
    let selector = json!({"matchTags": ["V1.34", "debian"]});
    facts.machine.spec.template_selector = Some(serde_json::from_value(selector).unwrap());
    assert_eq!(chosen(&facts, &world()).1, "pve1");
}

#[test]
fn without_a_size_of_its_own_a_machine_takes_what_its_template_has() {
    let reserved = |facts: &Facts, world: &PlacementFacts, memory: &str| {
        let mut facts = facts.clone();
        let template = TemplateRef { node: "pve1".parse().unwrap(), vmid: "9000".parse().unwrap() };
        let config = [("scsi0", "shared:d"), ("memory", memory)].into_iter().collect();
        facts.template = Some((template, Seen::Present(config)));
        match choose(&facts, world, None).unwrap() {
            Decision::Do(Step::Reserve { memory, .. }) => memory,
            other => panic!("{other:?}"),
        }
    };
    let mut unlisted = world();
    unlisted.guests.values_mut().for_each(|guest| guest.memory = None);
    for (asked, listed, config, wanted) in [
        (json!(4096), world(), "8192", 4 * GIB),
        (json!(null), world(), "current=8192", 8 * GIB),
        (json!(0), world(), "8192", 8 * GIB),
        (json!(null), unlisted.clone(), "8192", 8 * GIB),
        (json!(null), world(), "", 2 * GIB),
        (json!(null), unlisted, "", 0),
    ] {
        let facts = facts(&json!({"memoryMiB": asked}));
        assert_eq!(reserved(&facts, &listed, config), wanted, "{asked} {config}");
    }
}

#[test]
fn memory_that_nobody_asked_for_ranks_the_nodes_and_keeps_none_away() {
    let mut full = world();
    for (name, committed) in [("pve1", 64 * GIB), ("pve2", 63 * GIB)] {
        full.nodes.get_mut(&name.parse().unwrap()).unwrap().committed = committed;
    }
    let spec = |memory: serde_json::Value| {
        facts(&json!({"allowedNodes": ["pve1", "pve2"], "memoryMiB": memory}))
    };
    for unasked in [json!(null), json!(0)] {
        assert_eq!(chosen(&spec(unasked), &full).1, "pve2");
    }
    let why = choose_shared(&spec(json!(2048)), &full).unwrap_err();
    assert!(why.contains("no node has room for 2048 MiB"), "{why}");
    // With more machines of its role, the one node with room is taken all the same.
    full.nodes.get_mut(&"pve2".parse().unwrap()).unwrap().committed = 0;
    full.nodes.get_mut(&"pve2".parse().unwrap()).unwrap().same_role = 3;
    assert_eq!(chosen(&spec(json!(null)), &full).1, "pve2");
    for node in full.nodes.values_mut() {
        node.state = hypervisor::NodeState::Offline;
    }
    let why = choose_shared(&spec(json!(null)), &full).unwrap_err();
    assert!(why.contains("pve1 is offline; pve2 is offline"), "{why}");
}

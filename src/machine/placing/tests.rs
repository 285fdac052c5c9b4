//! The choice of template, node and VMID.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use serde_json::json;

use super::super::fixture::fresh;
use super::*;
use crate::hypervisor::GuestEntry;

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
    }
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

fn chosen(facts: &Facts, world: &PlacementFacts) -> (String, String) {
    match choose(facts, world).unwrap() {
        Step::Reserve { vmid, node, ledger_version: 7, .. } => (vmid.to_string(), node.to_string()),
        other => panic!("{other:?}"),
    }
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
    let why = choose(&facts, &world()).unwrap_err();
    assert!(why.contains("pve1"), "{why}");
}

#[test]
fn a_number_comes_from_the_range_or_is_waited_for() {
    let asking = facts(&json!({"vmIDRange": {"start": 500, "end": 501}}));
    assert_eq!(chosen(&asking, &world()).0, "500");
    let mut full = world();
    full.taken.extend(["500", "501"].iter().map(|id| id.parse::<VmId>().unwrap()));
    assert!(choose(&asking, &full).unwrap_err().contains("500-501"));
}

#[test]
fn a_node_or_template_that_is_not_there_is_named_with_the_remedy() {
    let why = choose(&facts(&json!({"target": "pve9"})), &world()).unwrap_err();
    assert!(why.contains("pve9") && why.contains("pve1, pve2"), "{why}");
    let why = choose(&facts(&json!({"sourceNode": "pve9"})), &world()).unwrap_err();
    assert!(why.contains("pve9") && why.contains("spec.sourceNode"), "{why}");
    let why = choose(&facts(&json!({"templateID": 9999})), &world()).unwrap_err();
    assert!(why.contains("9999"), "{why}");
    let mut down = world();
    down.guests.clear();
    down.nodes.get_mut(&"pve1".parse().unwrap()).unwrap().state = hypervisor::NodeState::Offline;
    let why = choose(&fresh(), &down).unwrap_err();
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

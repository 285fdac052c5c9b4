//! The choice of a node: a table of cases, and what holds for any facts.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn node(name: &str, total_gib: u64, committed_gib: u64, role_count: usize) -> NodeFacts {
    NodeFacts {
        name: name.parse().unwrap(),
        state: NodeState::Online,
        memory_total: Some(total_gib * GIB),
        memory_committed: committed_gib * GIB,
        role_count,
    }
}

fn request(memory_gib: u64) -> Request {
    Request { memory: memory_gib * GIB, adjustment_percent: None }
}

fn chosen(request: &Request, nodes: &[NodeFacts]) -> Option<String> {
    choose_node(request, nodes).ok().map(String::from)
}

#[test]
fn the_choice_is_that_of_the_peer() {
    let table: [(&str, Request, Vec<NodeFacts>, Option<&str>); 9] = [
        (
            "fewest of the role first, even with less memory",
            request(8),
            vec![node("a", 64, 0, 1), node("b", 32, 0, 0)],
            Some("b"),
        ),
        (
            "then most free memory",
            request(8),
            vec![node("a", 64, 40, 0), node("b", 32, 0, 0)],
            Some("b"),
        ),
        ("then the name", request(8), vec![node("b", 32, 0, 0), node("a", 32, 0, 0)], Some("a")),
        (
            "a full node is passed over though it has the fewest",
            request(8),
            vec![node("a", 64, 60, 0), node("b", 32, 0, 5)],
            Some("b"),
        ),
        (
            "exactly full is not preferred",
            request(8),
            vec![node("a", 8, 0, 0), node("b", 16, 0, 3)],
            Some("b"),
        ),
        (
            "exactly full is taken when nothing else fits",
            request(8),
            vec![node("a", 8, 0, 4), node("b", 8, 1, 0)],
            Some("a"),
        ),
        ("nothing fits", request(8), vec![node("a", 16, 9, 0), node("b", 4, 0, 0)], None),
        (
            "more committed than there is counts as nothing free",
            request(1),
            vec![node("a", 16, 90, 0)],
            None,
        ),
        (
            "no request still spreads",
            Request::default(),
            vec![node("a", 64, 0, 1), node("b", 16, 8, 0)],
            Some("b"),
        ),
    ];
    for (case, request, nodes, expected) in table {
        assert_eq!(chosen(&request, &nodes).as_deref(), expected, "{case}");
    }
}

#[test]
fn the_adjustment_scales_the_memory_and_zero_does_not_count_guests() {
    let nodes = [node("a", 10, 8, 0)];
    for (percent, gib, fits) in [
        (100, 2, true),
        (100, 3, false),
        (95, 2, false),
        (300, 22, true),
        (0, 10, true),
        (0, 11, false),
    ] {
        let request = Request { memory: gib * GIB, adjustment_percent: Some(percent) };
        assert_eq!(choose_node(&request, &nodes).is_ok(), fits, "{percent} % {gib} GiB");
    }
}

#[test]
fn one_node_down_does_not_stop_placement() {
    for state in [NodeState::Offline, NodeState::Maintenance, NodeState::Unknown, NodeState::Absent]
    {
        let down = NodeFacts { state, ..node("a", 512, 0, 0) };
        assert_eq!(chosen(&request(8), &[down, node("b", 16, 0, 9)]).as_deref(), Some("b"));
    }
}

#[test]
fn unknown_memory_is_not_guessed() {
    let unknown = NodeFacts { memory_total: None, ..node("a", 0, 0, 0) };
    for adjustment_percent in [None, Some(0)] {
        let request = Request { memory: 0, adjustment_percent };
        let error = choose_node(&request, std::slice::from_ref(&unknown)).unwrap_err();
        assert_eq!(error.refusals[0].why, Why::MemoryUnknown);
        assert!(error.to_string().contains("Sys.Audit"), "{error}");
    }
}

#[test]
fn the_message_names_every_node_the_sum_and_the_remedy() {
    let nodes = [
        NodeFacts { state: NodeState::Offline, ..node("pve3", 1, 0, 0) },
        node("pve1", 64, 60, 0),
        NodeFacts { state: NodeState::Absent, ..node("typo", 1, 0, 0) },
    ];
    let error = choose_node(&request(8), &nodes).unwrap_err();
    let text = error.to_string();
    for part in [
        "no node has room for 8192 MiB: ",
        "pve1 has 4096 MiB free (100 % of 65536 MiB less 61440 MiB promised to guests)",
        "pve3 is offline",
        "typo is not a node of this Proxmox cluster",
        "spec.schedulerHints.memoryAdjustment",
        "spec.allowedNodes",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert_eq!(Fault::from(error).class, Class::Blocked);
}

#[test]
fn the_message_stays_short_with_many_nodes() {
    let nodes: Vec<NodeFacts> = (0..500).map(|n| node(&format!("node-{n}"), 1, 1, 0)).collect();
    let text = choose_node(&request(8), &nodes).unwrap_err().to_string();
    assert!(text.contains("and 476 more") && text.len() < 4000, "{} {text}", text.len());
}

#[test]
fn no_nodes_at_all_asks_for_some() {
    let text = choose_node(&request(1), &[]).unwrap_err().to_string();
    assert!(text.contains("spec.allowedNodes"), "{text}");
}

fn any_state() -> impl Strategy<Value = NodeState> {
    prop_oneof![
        6 => Just(NodeState::Online),
        1 => Just(NodeState::Offline),
        1 => Just(NodeState::Maintenance),
        1 => Just(NodeState::Unknown),
        1 => Just(NodeState::Absent),
    ]
}

prop_compose! {
    fn any_node()(
        state in any_state(),
        memory_total in proptest::option::weighted(0.9, 0_u64..100),
        memory_committed in 0_u64..120,
        role_count in 0_usize..5,
    ) -> NodeFacts {
        NodeFacts { state, memory_total, memory_committed, role_count, ..node("x", 0, 0, 0) }
    }
}

fn named(nodes: Vec<NodeFacts>) -> Vec<NodeFacts> {
    nodes
        .into_iter()
        .enumerate()
        .map(|(n, facts)| NodeFacts { name: format!("pve{n}").parse().unwrap(), ..facts })
        .collect()
}

fn any_request() -> impl Strategy<Value = Request> {
    (0_u64..120, proptest::option::of(prop_oneof![Just(0), 1_u64..300]))
        .prop_map(|(memory, adjustment_percent)| Request { memory, adjustment_percent })
}

/// Whether the node can take the request, said independently of the code under test.
fn fits(request: &Request, node: &NodeFacts) -> bool {
    let Some(total) = node.memory_total.filter(|_| node.state == NodeState::Online) else {
        return false;
    };
    match request.adjustment_percent.unwrap_or(100) {
        0 => request.memory <= total,
        percent => (request.memory + node.memory_committed) * 100 <= total * percent,
    }
}

proptest! {
    #[test]
    fn it_never_over_commits_and_never_waits_without_need(
        request in any_request(),
        nodes in prop::collection::vec(any_node(), 0..7).prop_map(named),
    ) {
        // A request of nothing may go to a node that is over-committed already, as the peer does.
        prop_assume!(request.memory > 0);
        match choose_node(&request, &nodes) {
            Ok(name) => {
                let node = nodes.iter().find(|n| n.name == name).unwrap();
                prop_assert!(fits(&request, node), "{node:?}");
            }
            Err(refused) => {
                prop_assert!(!nodes.iter().any(|n| fits(&request, n)));
                prop_assert_eq!(refused.refusals.len(), nodes.len());
            }
        }
    }

    #[test]
    fn the_order_of_the_facts_does_not_matter(
        request in any_request(),
        (nodes, shuffled) in prop::collection::vec(any_node(), 0..7).prop_map(named)
            .prop_flat_map(|nodes| (Just(nodes.clone()), Just(nodes).prop_shuffle())),
    ) {
        prop_assert_eq!(choose_node(&request, &nodes), choose_node(&request, &shuffled));
    }

    #[test]
    fn placed_one_after_the_other_machines_spread_as_evenly_as_memory_permits(
        memory in 1_u64..40,
        mut nodes in prop::collection::vec(any_node(), 1..6).prop_map(named),
        machines in 1_usize..20,
    ) {
        for node in &mut nodes { node.role_count = 0; }
        let request = Request { memory, adjustment_percent: None };
        for _ in 0..machines {
            let Ok(name) = choose_node(&request, &nodes) else { break };
            let fewest = nodes
                .iter()
                .filter(|n| fits(&Request { memory: memory + 1, ..request }, n))
                .map(|n| n.role_count)
                .min();
            let node = nodes.iter_mut().find(|n| n.name == name).unwrap();
            if let Some(fewest) = fewest {
                prop_assert_eq!(node.role_count, fewest);
            }
            node.role_count += 1;
            node.memory_committed += memory;
            prop_assert!(node.memory_committed <= node.memory_total.unwrap());
        }
    }
}

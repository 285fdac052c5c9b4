//! What the list of the cluster leaves open, and a choice of node rests on: it is asked for where it
//! is missing, and only there.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::super::facts::Facts;
use super::super::super::placing::asked::{Asked, asked};
use crate::hypervisor::{Endpoint, GuestKind, NodeEntry, NodeState, View};
use crate::ids::{NodeName, VmId};

/// The reading with state and memory of the nodes in question, and with the memory of the guests
/// that are on them.
pub(super) async fn complete(facts: &Facts, endpoint: &Endpoint, view: Arc<View>) -> Arc<View> {
    let Question { nodes, counts_memory } = question(facts, &view);
    let mut open: Vec<NodeName> =
        nodes.iter().filter(|node| is_open(&view, node, counts_memory)).cloned().collect();
    let unsized_guests =
        if counts_memory { guests_without_memory(endpoint, &view) } else { vec![] };
    if open.is_empty() && unsized_guests.is_empty() {
        return view;
    }
    let mut view = View::clone(&view);
    if !open.is_empty()
        && let Ok(listed) = endpoint.client().nodes().await
    {
        for node in listed.iter().filter(|node| open.contains(&node.node)) {
            let state = NodeState::of(node.status.as_deref());
            fill_in(&mut view, &node.node, state, node.maxmem);
        }
        open.retain(|node| is_open(&view, node, counts_memory));
    }
    for node in open {
        // A node that is none says so here; one that answers is online, whatever the list says.
        if let Ok(status) = endpoint.client().node_status(&node).await {
            fill_in(&mut view, &node, NodeState::Online, status.memory.total);
        }
    }
    let asked: BTreeSet<(NodeName, bool)> = unsized_guests
        .into_iter()
        .filter_map(|vmid| view.guests.get(&vmid))
        .filter(|guest| nodes.contains(&guest.node))
        .map(|guest| (guest.node.clone(), guest.kind == GuestKind::Vm))
        .collect();
    for (node, are_vms) in asked {
        let client = endpoint.client();
        let listed = if are_vms {
            client.node_vms(&node).await
        } else {
            client.node_containers(&node).await
        };
        for found in listed.unwrap_or_default() {
            if let Some(guest) = view.guests.get_mut(&found.vmid) {
                guest.memory = guest.memory.or(found.maxmem);
            }
        }
    }
    Arc::new(view)
}

/// What a choice is made among.
struct Question {
    nodes: BTreeSet<NodeName>,
    counts_memory: bool,
}

fn question(facts: &Facts, view: &View) -> Question {
    let spec = &facts.machine.spec;
    let names = |names: &[String]| names.iter().filter_map(|name| name.parse().ok()).collect();
    match asked(facts) {
        Ok(Asked::Target(target)) => {
            return Question { nodes: names(&[target]), counts_memory: false };
        }
        Ok(Asked::OneOf { nodes, .. }) => {
            return Question { nodes: names(&nodes), counts_memory: true };
        }
        Ok(Asked::BesideTemplate) | Err(_) => {}
    }
    let templates = view.guests.values().filter(|guest| guest.template);
    let mut nodes: BTreeSet<NodeName> = templates.map(|guest| guest.node.clone()).collect();
    nodes.extend(spec.source_node.as_ref().and_then(|name| name.parse().ok()));
    Question { nodes, counts_memory: false }
}

/// Whether the list does not tell what is needed of a node.
fn is_open(view: &View, node: &NodeName, counts_memory: bool) -> bool {
    match view.nodes.get(node) {
        None | Some(NodeEntry { state: NodeState::Unknown, .. }) => true,
        Some(NodeEntry { state: NodeState::Online, memory: None }) => counts_memory,
        Some(_) => false,
    }
}

/// What was known stays.
fn fill_in(view: &mut View, node: &NodeName, state: NodeState, memory: Option<u64>) {
    let unknown = NodeEntry { state: NodeState::Unknown, memory: None };
    let entry = view.nodes.entry(node.clone()).or_insert(unknown);
    if entry.state == NodeState::Unknown {
        entry.state = state;
    }
    entry.memory = entry.memory.or(memory);
}

/// Guests that are listed without their memory and that no promise counts.
fn guests_without_memory(endpoint: &Endpoint, view: &View) -> Vec<VmId> {
    let ledger = endpoint.ledger();
    let online =
        |node| matches!(view.nodes.get(node), Some(found) if found.state == NodeState::Online);
    let guests = view.guests.iter();
    guests
        .filter(|(vmid, guest)| {
            let counts = !guest.template && guest.memory.is_none() && online(&guest.node);
            counts && !ledger.promises().contains_key(vmid)
        })
        .map(|(vmid, _)| *vmid)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::machine::fixture::fresh;

    fn view(resources: &serde_json::Value) -> View {
        View::new(Instant::now(), serde_json::from_value(resources.clone()).unwrap())
    }

    #[test]
    fn only_what_a_choice_needs_is_open() {
        let view = view(&json!([
            {"type": "node", "node": "a", "status": "online", "maxmem": 1},
            {"type": "node", "node": "b", "status": "online"},
            {"type": "node", "node": "c"},
            {"type": "node", "node": "d", "status": "offline"},
        ]));
        for (node, with_memory, without) in [
            ("a", false, false),
            ("b", true, false),
            ("c", true, true),
            ("d", false, false),
            ("e", true, true),
        ] {
            let node = node.parse().unwrap();
            assert_eq!(is_open(&view, &node, true), with_memory, "{node}");
            assert_eq!(is_open(&view, &node, false), without, "{node}");
        }
    }

    #[test]
    fn what_the_list_says_is_not_replaced() {
        let mut view = view(&json!([
            {"type": "node", "node": "a", "status": "offline"},
            {"type": "node", "node": "b", "maxmem": "7"},
        ]));
        for node in ["a", "b", "c"] {
            fill_in(&mut view, &node.parse().unwrap(), NodeState::Online, Some(9));
        }
        let told = |node: &str| {
            let found = &view.nodes[&node.parse::<NodeName>().unwrap()];
            (found.state, found.memory)
        };
        assert_eq!(told("a"), (NodeState::Offline, Some(9)));
        assert_eq!(told("b"), (NodeState::Online, Some(7)));
        assert_eq!(told("c"), (NodeState::Online, Some(9)));
    }

    #[test]
    fn the_nodes_in_question_are_those_that_may_be_chosen() {
        let view = view(&json!([
            {"type": "qemu", "vmid": 9000, "node": "pve7", "template": "1"},
            {"type": "qemu", "vmid": 100, "node": "pve8"},
        ]));
        let asked = |change: &dyn Fn(&mut Facts)| {
            let mut facts = fresh();
            change(&mut facts);
            let question = question(&facts, &view);
            let nodes: Vec<String> = question.nodes.into_iter().map(String::from).collect();
            (nodes.join(" "), question.counts_memory)
        };
        assert_eq!(asked(&|_| {}), ("pve1 pve7".to_owned(), false));
        let of_cluster = |facts: &mut Facts| {
            facts.infra.as_mut().unwrap().spec.allowed_nodes = Some(vec!["b".to_owned()]);
        };
        assert_eq!(asked(&of_cluster), ("b".to_owned(), true));
        let both = |facts: &mut Facts| {
            of_cluster(facts);
            facts.machine.spec.allowed_nodes = Some(vec!["c".to_owned()]);
        };
        assert_eq!(asked(&both), ("c".to_owned(), true));
        let target = |facts: &mut Facts| {
            both(facts);
            facts.machine.spec.target = Some("d".to_owned());
        };
        assert_eq!(asked(&target), ("d".to_owned(), false));
    }
}

//! What `cluster/resources` said last: every guest with its node, every node with its memory.
//!
//! `node`, `tags`, `lock` and the presence of a guest are current in that list. Name, status and
//! memory come from a broadcast and lag by ten to twenty seconds, so no step rests on them alone.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use crate::ids::{NodeName, StorageName, VmId};
use crate::pve::{NodeSummary, Resource};

/// Virtual machine or container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestKind {
    /// `qemu`.
    Vm,
    /// `lxc`.
    Container,
}

/// A guest as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestEntry {
    /// Virtual machine or container.
    pub kind: GuestKind,
    /// Node that holds its configuration.
    pub node: NodeName,
    /// Name, once broadcast.
    pub name: Option<String>,
    /// `running`, `stopped`, `unknown`, once broadcast.
    pub status: Option<String>,
    /// Whether it is a template, once broadcast.
    pub template: bool,
    /// Tags as listed.
    pub tags: Vec<String>,
    /// Lock of its configuration, such as `clone` or `backup`.
    pub lock: Option<String>,
    /// Configured memory in bytes, once broadcast.
    pub memory: Option<u64>,
}

/// Whether a node takes guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NodeState {
    /// Online.
    Online,
    /// In maintenance by the HA manager's word.
    Maintenance,
    /// Offline.
    Offline,
    /// The cluster does not say.
    #[default]
    Unknown,
}

impl NodeState {
    /// From the field `status` of a node, whatever list it is in.
    pub fn of(status: Option<&str>) -> Self {
        match status {
            Some("online") => Self::Online,
            Some("offline") => Self::Offline,
            _ => Self::Unknown,
        }
    }
}

/// A node as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// Whether it takes guests.
    pub state: NodeState,
    /// Physical memory in bytes, where the credentials may see it.
    pub memory: Option<u64>,
}

/// A storage as listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageEntry {
    /// Whether all its nodes see the same volumes, where Proxmox says so.
    pub shared: Option<bool>,
    /// Nodes that have it.
    pub nodes: BTreeSet<NodeName>,
    /// What it may hold: `images`, `iso` …
    pub content: Vec<String>,
}

/// One reading of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// When the reading was asked for; what happened later may be missing.
    pub asked: Instant,
    /// Guests by VMID.
    pub guests: BTreeMap<VmId, GuestEntry>,
    /// Nodes by name.
    pub nodes: BTreeMap<NodeName, NodeEntry>,
    /// Storages by name; those that the credentials may not see are missing.
    pub storages: BTreeMap<StorageName, StorageEntry>,
}

impl View {
    /// Takes a reading apart; entries that cannot be placed are left out.
    pub fn new(asked: Instant, resources: Vec<Resource>) -> Self {
        let mut guests = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        let mut storages: BTreeMap<StorageName, StorageEntry> = BTreeMap::new();
        for resource in resources {
            match resource {
                Resource::Vm(guest) => {
                    guests.insert(guest.vmid, GuestEntry::new(GuestKind::Vm, guest));
                }
                Resource::Container(guest) => {
                    guests.insert(guest.vmid, GuestEntry::new(GuestKind::Container, guest));
                }
                Resource::Node(node) => {
                    let maintenance = node.hastate.as_deref() == Some("maintenance");
                    let state = match NodeState::of(node.status.as_deref()) {
                        NodeState::Online if maintenance => NodeState::Maintenance,
                        state => state,
                    };
                    nodes.insert(node.node, NodeEntry { state, memory: node.maxmem });
                }
                Resource::Storage(found) => {
                    let entry = storages.entry(found.storage).or_default();
                    entry.shared = found.shared.or(entry.shared);
                    entry.nodes.insert(found.node);
                    if entry.content.is_empty() {
                        entry.content = found.content;
                    }
                }
                Resource::Other => {}
            }
        }
        Self { asked, guests, nodes, storages }
    }

    /// Adds nodes that were listed by themselves.
    pub fn add_nodes(&mut self, nodes: Vec<NodeSummary>) {
        for node in nodes {
            let state = NodeState::of(node.status.as_deref());
            self.nodes.insert(node.node, NodeEntry { state, memory: node.maxmem });
        }
    }

    /// Whether a storage is known to be the same one on all nodes that have it, this one among them.
    pub fn is_shared(&self, storage: &StorageName, node: &NodeName) -> bool {
        let is_there =
            |known: &StorageEntry| known.shared == Some(true) && known.nodes.contains(node);
        self.storages.get(storage).is_some_and(is_there)
    }

    /// VMIDs in use.
    pub fn vmids(&self) -> impl Iterator<Item = VmId> {
        self.guests.keys().copied()
    }

    /// Guests that appeared, went, moved, started, stopped or changed their lock since `before`.
    pub fn changed_since(&self, before: &Self) -> BTreeSet<VmId> {
        let telling =
            |entry: &GuestEntry| (entry.node.clone(), entry.status.clone(), entry.lock.clone());
        self.vmids()
            .chain(before.vmids())
            .filter(|vmid| {
                self.guests.get(vmid).map(telling) != before.guests.get(vmid).map(telling)
            })
            .collect()
    }
}

impl GuestEntry {
    fn new(kind: GuestKind, guest: crate::pve::GuestResource) -> Self {
        Self {
            kind,
            node: guest.node,
            name: guest.name,
            status: guest.status,
            template: guest.template,
            tags: guest.tags,
            lock: guest.lock,
            memory: guest.maxmem,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_storage_is_shared_with_a_node_that_has_it() {
        let on = |storage: &str, node: &str, shared: u8| {
            json!({"id": format!("storage/{node}/{storage}"), "type": "storage",
                "storage": storage, "node": node, "shared": shared})
        };
        let listed = json!([on("nfs", "pve1", 1), on("nfs", "pve2", 1), on("local", "pve1", 0)]);
        let view = View::new(Instant::now(), serde_json::from_value(listed).unwrap());
        let is_shared = |storage: &str, node: &str| {
            view.is_shared(&storage.parse().unwrap(), &node.parse().unwrap())
        };
        assert!(is_shared("nfs", "pve2"));
        assert!(!is_shared("nfs", "pve3"), "restricted to the other nodes");
        assert!(!is_shared("local", "pve1") && !is_shared("gone", "pve1"));
    }
}

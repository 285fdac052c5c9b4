//! Which node takes a machine: spread by role as long as memory permits, never over-commit.
//!
//! The choice is that of capmox v0.7 wherever that one does not fail: among the nodes whose
//! uncommitted memory exceeds the request, the one with the fewest machines of the same role of
//! the cluster, then the one with the most uncommitted memory, then the first by name. Different
//! on purpose: a node that does not answer is left out instead of failing the choice for all, and
//! too little memory is something to wait for, not a final failure.

use std::cmp::Reverse;
use std::fmt;

use crate::fault::{Class, Fault};
use crate::ids::NodeName;

/// Nodes listed in the text of a [`NoNode`]; a condition's message has room for 10240 characters.
const NODES_IN_MESSAGE: usize = 24;
const MIB: u64 = 1 << 20;

/// What the cluster says about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// Member of the quorum and answering.
    Online,
    /// Known to the Proxmox cluster and not running.
    Offline,
    /// Being drained by the HA stack.
    Maintenance,
    /// No usable answer about it.
    Unknown,
    /// The Proxmox cluster answered and has no node of this name.
    Absent,
}

/// What is known about one node that the machine may be placed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name.
    pub name: NodeName,
    /// Whether it can take anything now.
    pub state: NodeState,
    /// Physical memory in bytes; `None` when the answer had none (no `Sys.Audit` privilege).
    pub memory_total: Option<u64>,
    /// Bytes promised to guests: `maxmem` of every VM that is not a template and of every
    /// container, running or stopped, and of machines placed a moment ago that are not visible yet.
    pub memory_committed: u64,
    /// Machines of the same role (control plane or worker) of the same cluster on it.
    pub role_count: usize,
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Memory of the machine in bytes. Zero reserves nothing.
    pub memory: u64,
    /// `spec.schedulerHints.memoryAdjustment`: the per cent of a node's memory that may be promised
    /// to guests. `None` is 100; 0 does not count what is promised already.
    pub adjustment_percent: Option<u64>,
}

impl Request {
    fn adjustment(&self) -> u64 {
        self.adjustment_percent.unwrap_or(100)
    }

    /// Bytes that may still be promised on a node with this much memory.
    fn free(&self, total: u64, committed: u64) -> u64 {
        match self.adjustment() {
            0 => total,
            percent => {
                let allowed = u128::from(total) * u128::from(percent) / 100;
                u64::try_from(allowed).unwrap_or(u64::MAX).saturating_sub(committed)
            }
        }
    }
}

/// Why a node was not chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is offline.
    Offline,
    /// It is in maintenance.
    Maintenance,
    /// Nothing usable is known about it.
    Unknown,
    /// The Proxmox cluster has no such node.
    Absent,
    /// It is online and its memory is not known.
    MemoryUnknown,
    /// The request does not fit; all in bytes.
    Full {
        /// Physical memory.
        total: u64,
        /// Promised to guests.
        committed: u64,
        /// What may still be promised under the adjustment.
        free: u64,
    },
}

/// A node that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The node.
    pub node: NodeName,
    /// The reason.
    pub why: Why,
}

/// No node takes the machine now. Something to wait for: memory is freed, nodes come back.
///
/// `Display` is one message for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoNode {
    /// What was asked for.
    pub request: Request,
    /// Every node that was looked at, by name.
    pub refusals: Vec<Refusal>,
}

impl std::error::Error for NoNode {}

impl From<NoNode> for Fault {
    fn from(value: NoNode) -> Self {
        Self::new(Class::Blocked, value.to_string())
    }
}

/// Chooses the node for a machine. The order of `nodes` does not matter.
///
/// # Errors
///
/// [`NoNode`], with a reason for each node, when none of them is known to have room.
pub fn choose_node(request: &Request, nodes: &[NodeFacts]) -> Result<NodeName, NoNode> {
    let free: Vec<(&NodeFacts, u64)> = nodes
        .iter()
        .filter_map(|node| assess(request, node).ok().map(|free| (node, free)))
        .collect();
    // A request that equals what is free only takes the node with the most memory, as capmox does:
    // a node with room to spare is preferred to one that would be filled to the last byte.
    let chosen = free
        .iter()
        .filter(|(_, free)| *free > request.memory)
        .min_by_key(|(node, free)| (node.role_count, Reverse(*free), &node.name))
        .or_else(|| free.iter().min_by_key(|(node, free)| (Reverse(*free), &node.name)));
    chosen.map(|(node, _)| node.name.clone()).ok_or_else(|| refuse(request, nodes))
}

fn refuse(request: &Request, nodes: &[NodeFacts]) -> NoNode {
    let mut refusals: Vec<Refusal> = nodes
        .iter()
        .filter_map(|node| {
            let why = assess(request, node).err()?;
            Some(Refusal { node: node.name.clone(), why })
        })
        .collect();
    refusals.sort_by(|a, b| a.node.cmp(&b.node));
    NoNode { request: *request, refusals }
}

/// The free bytes of a node that has room for the request.
fn assess(request: &Request, node: &NodeFacts) -> Result<u64, Why> {
    match node.state {
        NodeState::Offline => return Err(Why::Offline),
        NodeState::Maintenance => return Err(Why::Maintenance),
        NodeState::Unknown => return Err(Why::Unknown),
        NodeState::Absent => return Err(Why::Absent),
        NodeState::Online => {}
    }
    let total = node.memory_total.ok_or(Why::MemoryUnknown)?;
    let committed = node.memory_committed;
    let free = request.free(total, committed);
    if request.memory <= free { Ok(free) } else { Err(Why::Full { total, committed, free }) }
}

impl fmt::Display for NoNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refusals.is_empty() {
            return f.write_str(
                "no node to place the machine on: name the nodes of the Proxmox cluster in \
                 spec.allowedNodes of the ProxmoxCluster or of the ProxmoxMachine",
            );
        }
        let percent = self.request.adjustment();
        write!(f, "no node has room for {}: ", Mib(self.request.memory))?;
        for (index, refusal) in self.refusals.iter().take(NODES_IN_MESSAGE).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{} {}", refusal.node, Reason(refusal.why, percent))?;
        }
        if let Some(more) = self.refusals.len().checked_sub(NODES_IN_MESSAGE).filter(|n| *n > 0) {
            write!(f, "; and {more} more")?;
        }
        f.write_str(remedy(&self.refusals))
    }
}

fn remedy(refusals: &[Refusal]) -> &'static str {
    if refusals.iter().any(|r| matches!(r.why, Why::Full { .. })) {
        ". Counted is the configured memory of all VMs and containers, running or stopped. Free \
         memory, allow more nodes in spec.allowedNodes, or raise \
         spec.schedulerHints.memoryAdjustment of the ProxmoxCluster (the per cent of a node's \
         memory that may be promised to guests; default 100, 0 does not count other guests)"
    } else if refusals.iter().any(|r| r.why == Why::MemoryUnknown) {
        ". Give the API token the privilege Sys.Audit on /nodes"
    } else {
        ". Bring a node back or change spec.allowedNodes of the ProxmoxCluster or ProxmoxMachine"
    }
}

struct Reason(Why, u64);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Why::Offline => f.write_str("is offline"),
            Why::Maintenance => f.write_str("is in maintenance"),
            Why::Unknown => f.write_str("does not answer"),
            Why::Absent => f.write_str("is not a node of this Proxmox cluster"),
            Why::MemoryUnknown => f.write_str("does not tell its memory"),
            Why::Full { total, .. } if self.1 == 0 => write!(f, "has {} in all", Mib(total)),
            Why::Full { total, committed, free } => write!(
                f,
                "has {} free ({} % of {} less {} promised to guests)",
                Mib(free),
                self.1,
                Mib(total),
                Mib(committed)
            ),
        }
    }
}

/// Bytes, shown in MiB; rounded down, so that "free" is never more than there is.
struct Mib(u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 && self.0 < MIB {
            write!(f, "{} bytes", self.0)
        } else {
            write!(f, "{} MiB", self.0 / MIB)
        }
    }
}

#[cfg(test)]
mod tests;

//! How much is asked of a Proxmox cluster at the same time, and for how long an answer is awaited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ids::NodeName;

/// Bounds of one client, shared by its clones.
///
/// A node answers with three single-threaded workers, so a few slow calls stall its API for
/// everybody; an agent call to a booting guest holds a worker for three seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls under way at the endpoint; default 16.
    pub per_endpoint: usize,
    /// Calls under way that concern one node; default 4.
    pub per_node: usize,
    /// Guest agent calls under way on one node, within `per_node`; default 1.
    pub agent_per_node: usize,
    /// For TCP and TLS; default 10 s.
    pub connect_timeout: Duration,
    /// Silence that is borne while an answer is awaited; default 60 s. Proxmox itself gives up on
    /// a node after 30 s, so less than that hides its word about it.
    pub read_timeout: Duration,
    /// Two minutes in all, whatever trickles in; queueing for a permit does not count.
    pub total_timeout: Duration,
    /// Age at which a ticket is replaced; default 90 minutes. Proxmox refuses it after two hours.
    pub ticket_age: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_endpoint: 16,
            per_node: 4,
            agent_per_node: 1,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_mins(1),
            total_timeout: Duration::from_mins(2),
            ticket_age: Duration::from_mins(90),
        }
    }
}

/// What a call takes a slot of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane<'a> {
    /// Answered by the endpoint itself.
    Endpoint,
    /// Answered by a node.
    Node(&'a NodeName),
    /// Answered by a guest on a node.
    Agent(&'a NodeName),
}

#[derive(Debug, Clone)]
struct NodeSlots {
    all: Arc<Semaphore>,
    agent: Arc<Semaphore>,
}

/// The slots themselves.
#[derive(Debug)]
pub(super) struct Slots {
    limits: Limits,
    endpoint: Arc<Semaphore>,
    nodes: Mutex<HashMap<NodeName, NodeSlots>>,
}

/// Held while a call is under way.
#[derive(Debug, Default)]
pub(super) struct Slot {
    _held: [Option<OwnedSemaphorePermit>; 3],
}

impl Slots {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            endpoint: Arc::new(Semaphore::new(limits.per_endpoint.max(1))),
            nodes: Mutex::default(),
        }
    }

    /// Waits for a slot. The narrowest comes first, so that callers queued for a slow node hold
    /// nothing that others need.
    pub(super) async fn take(&self, lane: Lane<'_>) -> Slot {
        let (node, agent) = match lane {
            Lane::Endpoint => (None, false),
            Lane::Node(node) => (Some(node), false),
            Lane::Agent(node) => (Some(node), true),
        };
        let slots = node.map(|node| self.of_node(node));
        let guest = match &slots {
            Some(slots) if agent => permit(&slots.agent).await,
            _ => None,
        };
        let on_node = match &slots {
            Some(slots) => permit(&slots.all).await,
            None => None,
        };
        Slot { _held: [guest, on_node, permit(&self.endpoint).await] }
    }

    fn of_node(&self, node: &NodeName) -> NodeSlots {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes
            .entry(node.clone())
            .or_insert_with(|| NodeSlots {
                all: Arc::new(Semaphore::new(self.limits.per_node.max(1))),
                agent: Arc::new(Semaphore::new(self.limits.agent_per_node.max(1))),
            })
            .clone()
    }
}

/// The semaphores are never closed, so this always gives a permit.
async fn permit(semaphore: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(semaphore).acquire_owned().await.ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_full_node_holds_up_neither_the_endpoint_nor_other_nodes() {
        let limits = Limits { per_endpoint: 3, per_node: 2, ..Limits::default() };
        let slots = Slots::new(limits);
        let (a, b) = ("a".parse().unwrap(), "b".parse().unwrap());
        let first = slots.take(Lane::Node(&a)).await;
        let _second = slots.take(Lane::Node(&a)).await;
        let mut third = Box::pin(slots.take(Lane::Node(&a)));
        assert!((&mut third).now_or_never().is_none());
        let other = slots.take(Lane::Node(&b)).now_or_never();
        assert!(other.is_some());
        drop(other);
        assert!(slots.take(Lane::Endpoint).now_or_never().is_some());
        drop(first);
        assert!(third.now_or_never().is_some());
    }

    #[tokio::test]
    async fn silent_guests_leave_a_node_free_for_other_calls() {
        let slots = Slots::new(Limits::default());
        let node = "a".parse().unwrap();
        let _talking = slots.take(Lane::Agent(&node)).await;
        assert!(slots.take(Lane::Agent(&node)).now_or_never().is_none());
        assert!(slots.take(Lane::Node(&node)).now_or_never().is_some());
    }
}

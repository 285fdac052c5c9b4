//! `/nodes` and the tasks of a node.

use std::time::Duration;

use tokio::time::Instant;

use super::{Client, Exchange};
use crate::ids::NodeName;
use crate::pve::error::Error;
use crate::pve::limits::Lane;
use crate::pve::task::{TaskExit, TaskStatus};
use crate::pve::transport::Verb;
use crate::pve::types::{
    Bridge, GuestResource, NodeStatus, NodeSummary, TaskLogLine, TaskRecord, guests_of,
};
use crate::pve::upid::Upid;

/// A task can be seen ended a moment before its last line is written.
const LAST_LINE: Duration = Duration::from_millis(250);

impl Client {
    /// Nodes of the cluster: `GET nodes`.
    pub async fn nodes(&self) -> Result<Vec<NodeSummary>, Error> {
        self.run(Exchange::new(Verb::Get, "nodes", ["nodes"], Lane::Endpoint)).await?.list()
    }

    /// Memory and version of a node: `GET nodes/{node}/status`.
    pub async fn node_status(&self, node: &NodeName) -> Result<NodeStatus, Error> {
        let segments = ["nodes", node.as_str(), "status"];
        let call = Exchange::new(Verb::Get, "nodes/{node}/status", segments, Lane::Node(node));
        self.run(call).await?.object()
    }

    /// Bridges and VNets of a node: `GET nodes/{node}/network?type=any_bridge`. Since release 8,
    /// those that the credentials may not use are missing without a word.
    pub async fn node_bridges(&self, node: &NodeName) -> Result<Vec<Bridge>, Error> {
        let segments = ["nodes", node.as_str(), "network"];
        let call = Exchange::new(Verb::Get, "nodes/{node}/network", segments, Lane::Node(node));
        self.run(call.set("type", "any_bridge")).await?.list()
    }

    /// VMs and templates of a node, live: `GET nodes/{node}/qemu`. Reads every configuration there.
    pub async fn node_vms(&self, node: &NodeName) -> Result<Vec<GuestResource>, Error> {
        self.node_guests(node, "nodes/{node}/qemu", "qemu").await
    }

    /// Containers of a node, live: `GET nodes/{node}/lxc`.
    pub async fn node_containers(&self, node: &NodeName) -> Result<Vec<GuestResource>, Error> {
        self.node_guests(node, "nodes/{node}/lxc", "lxc").await
    }

    async fn node_guests(
        &self,
        node: &NodeName,
        endpoint: &'static str,
        kind: &str,
    ) -> Result<Vec<GuestResource>, Error> {
        let segments = ["nodes", node.as_str(), kind];
        let call = Exchange::new(Verb::Get, endpoint, segments, Lane::Node(node));
        let mut reply = self.run(call).await?;
        guests_of(node, reply.data.take()).map_err(|why| reply.refuse(&why))
    }

    /// How a task stands: `GET nodes/{node}/tasks/{upid}/status`, on the node inside the id. An end
    /// without a recorded exit is looked at once more.
    pub async fn task_status(&self, upid: &Upid) -> Result<TaskStatus, Error> {
        let first = self.task_status_now(upid).await?;
        if matches!(first, TaskStatus::Stopped { exit: TaskExit::Unknown(_) }) {
            tokio::time::sleep_until(Instant::now() + LAST_LINE).await;
            return self.task_status_now(upid).await;
        }
        Ok(first)
    }

    async fn task_status_now(&self, upid: &Upid) -> Result<TaskStatus, Error> {
        let node = upid.node();
        let segments = ["nodes", node.as_str(), "tasks", upid.as_str(), "status"];
        let endpoint = "nodes/{node}/tasks/{upid}/status";
        let call = Exchange::new(Verb::Get, endpoint, segments, Lane::Node(node));
        let record: TaskRecord = self.run(call).await?.object()?;
        Ok(TaskStatus::of(record.status.as_deref(), record.exitstatus.as_deref()))
    }

    /// The first `limit` lines of a task's log, all for 0: `GET nodes/{node}/tasks/{upid}/log`.
    pub async fn task_log(&self, upid: &Upid, limit: u32) -> Result<Vec<TaskLogLine>, Error> {
        let node = upid.node();
        let segments = ["nodes", node.as_str(), "tasks", upid.as_str(), "log"];
        let endpoint = "nodes/{node}/tasks/{upid}/log";
        let call = Exchange::new(Verb::Get, endpoint, segments, Lane::Node(node));
        self.run(call.set("limit", limit)).await?.list()
    }
}

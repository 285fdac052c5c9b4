//! `/version` and `/cluster`: answered by the endpoint itself, cheaply.

use super::{Client, Exchange};
use crate::ids::VmId;
use crate::pve::error::{Error, ErrorKind};
use crate::pve::limits::Lane;
use crate::pve::transport::Verb;
use crate::pve::types::{ClusterStatusEntry, Pool, Resource, TaskSummary, Version, Vnet};
use crate::pve::wire;

impl Client {
    /// Version of Proxmox VE: `GET version`.
    pub async fn version(&self) -> Result<Version, Error> {
        let call = Exchange::new(Verb::Get, "version", ["version"], Lane::Endpoint);
        self.run(call).await?.object()
    }

    /// Guests, nodes and storages in one list: `GET cluster/resources`. What the credentials may
    /// not see is missing without a word.
    pub async fn cluster_resources(&self) -> Result<Vec<Resource>, Error> {
        let segments = ["cluster", "resources"];
        let call = Exchange::new(Verb::Get, "cluster/resources", segments, Lane::Endpoint);
        self.run(call).await?.list()
    }

    /// Guests alone: `GET cluster/resources?type=vm`.
    pub async fn cluster_guests(&self) -> Result<Vec<Resource>, Error> {
        let segments = ["cluster", "resources"];
        let call = Exchange::new(Verb::Get, "cluster/resources", segments, Lane::Endpoint);
        self.run(call.set("type", "vm")).await?.list()
    }

    /// Quorum and members: `GET cluster/status`.
    pub async fn cluster_status(&self) -> Result<Vec<ClusterStatusEntry>, Error> {
        let segments = ["cluster", "status"];
        let call = Exchange::new(Verb::Get, "cluster/status", segments, Lane::Endpoint);
        self.run(call).await?.list()
    }

    /// Resource pools that the credentials may see: `GET pools`.
    pub async fn pools(&self) -> Result<Vec<Pool>, Error> {
        self.run(Exchange::new(Verb::Get, "pools", ["pools"], Lane::Endpoint)).await?.list()
    }

    /// Virtual networks of SDN that the credentials may see: `GET cluster/sdn/vnets`. A Proxmox
    /// without SDN has no such endpoint.
    pub async fn vnets(&self) -> Result<Vec<Vnet>, Error> {
        let segments = ["cluster", "sdn", "vnets"];
        let call = Exchange::new(Verb::Get, "cluster/sdn/vnets", segments, Lane::Endpoint);
        self.run(call).await?.list()
    }

    /// The latest tasks of every node that the credentials may see: `GET cluster/tasks`.
    pub async fn cluster_tasks(&self) -> Result<Vec<TaskSummary>, Error> {
        let segments = ["cluster", "tasks"];
        let call = Exchange::new(Verb::Get, "cluster/tasks", segments, Lane::Endpoint);
        self.run(call).await?.list()
    }

    /// Takes a VM out of HA: `DELETE cluster/ha/resources/vm:{vmid}`.
    pub async fn leave_ha(&self, vmid: VmId) -> Result<(), Error> {
        let sid = format!("vm:{vmid}");
        let segments = ["cluster", "ha", "resources", &sid];
        let endpoint = "cluster/ha/resources/{sid}";
        let call = Exchange::new(Verb::Delete, endpoint, segments, Lane::Endpoint);
        self.run(call).await.map(drop)
    }

    /// The lowest free VMID in the datacenter's range: `GET cluster/nextid`. It is not reserved.
    pub async fn next_id(&self) -> Result<VmId, Error> {
        let segments = ["cluster", "nextid"];
        let call = Exchange::new(Verb::Get, "cluster/nextid", segments, Lane::Endpoint);
        let reply = self.run(call).await?;
        let id = wire::text_of(&reply.data).and_then(|id| id.trim().parse().ok());
        id.ok_or_else(|| reply.refuse("data is no VMID (a number from 100 to 999999999)"))
    }

    /// Whether no guest has this VMID: `GET cluster/nextid?vmid=`.
    pub async fn vmid_is_free(&self, vmid: VmId) -> Result<bool, Error> {
        let segments = ["cluster", "nextid"];
        let call = Exchange::new(Verb::Get, "cluster/nextid", segments, Lane::Endpoint);
        match self.run(call.set("vmid", vmid.get())).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_vmid_taken() => Ok(false),
            // In whatever words: of all parameters this number is refused.
            Err(error) if matches!(error.kind(), ErrorKind::BadRequest { errors } if errors.contains_key("vmid")) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

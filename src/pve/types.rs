//! What the endpoints give and take. Everything that Proxmox may leave out is an `Option`.

mod agent;
mod cluster;
mod network;
mod node;
mod storage;
mod vm;

pub use agent::{AgentAddress, AgentExecStatus, AgentInterface, AgentOsInfo};
pub(super) use cluster::guests_of;
pub use cluster::{
    ClusterStatusEntry, GuestResource, NodeResource, Permissions, Resource, StorageResource,
    TaskSummary, Version,
};
pub use network::{Bridge, Pool, Vnet};
pub(super) use node::TaskRecord;
pub use node::{Memory, NodeStatus, NodeSummary, TaskLogLine};
pub use storage::{StorageStatus, Volume, VolumeInfo};
pub use vm::{CloneOptions, ConfigUpdate, DestroyOptions, DriveVolume, VmConfig, VmStatus};

#[cfg(test)]
mod tests;

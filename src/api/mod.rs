//! Wire types: what users write and what is stored in the API server.
//!
//! Serves `infrastructure.cluster.x-k8s.io/v1alpha1` as capmox v0.7 does, as a superset, and the
//! slices of Cluster API and of the IPAM contract that are read. Everything here is plain data and
//! pure functions on it: no IO, no clock, nothing of Proxmox's API. A second version of the group
//! would be a module beside these.

pub mod capi;
mod cluster;
mod cluster_template;
pub mod conditions;
mod connection;
pub mod crd;
pub mod ipam;
mod machine;
mod machine_template;
mod merge_patch;
mod network;
pub mod reasons;
mod schema;

pub use cluster::{
    CloneSpec, ConnectionRef, CredentialsInUse, Endpoint, FailureDomain, FailureDomainStatus,
    IpConfig, NodeLocation, NodeLocations, ObjectName, ProxmoxCluster, ProxmoxClusterSpec,
    ProxmoxClusterStatus, SchedulerHints, SecretRef,
};
pub use cluster_template::{
    ProxmoxClusterTemplate, ProxmoxClusterTemplateResource, ProxmoxClusterTemplateSpec,
    TemplateMetadata,
};
pub use connection::{
    AdditionalEndpoint, CONNECTION_GROUP, MissingPrivilege, ObservedSecret, Plain,
    ProxmoxConnection, ProxmoxConnectionSpec, ProxmoxConnectionStatus, SecretKeyRef,
};
pub use machine::{
    BootVolume, Checks, DiskFormat, Disks, IpAddresses, MachineAddress, MachineAddressType,
    MetadataSettings, NetworkStatus, ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineStatus,
    TemplateRef, TemplateSelector, VmIdRange,
};
pub use machine_template::{
    ProxmoxMachineTemplate, ProxmoxMachineTemplateResource, ProxmoxMachineTemplateSpec,
};
pub use merge_patch::merge_patch;
pub use network::{
    AdditionalNetworkDevice, NetworkDevice, NetworkModel, NetworkSpec, Policy, Route, TypedRef,
    VrfDevice,
};

/// API group of the infrastructure kinds.
pub const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// Version of the infrastructure kinds.
pub const VERSION: &str = "v1alpha1";

/// Finalizer of a ProxmoxMachine, the same as in capmox.
pub const MACHINE_FINALIZER: &str = "proxmoxmachine.infrastructure.cluster.x-k8s.io";
/// Annotation of a ProxmoxMachine: how long its guest may take to shut down before the VM is
/// deleted, in seconds (`90`, `90s`) or minutes (`2m`). Without it the VM is stopped at once.
pub const SHUTDOWN_TIMEOUT_ANNOTATION: &str =
    "proxmoxmachine.infrastructure.cluster.x-k8s.io/shutdown-timeout";
/// Finalizer of a ProxmoxCluster, the same as in capmox.
pub const CLUSTER_FINALIZER: &str = "proxmoxcluster.infrastructure.cluster.x-k8s.io";
/// Finalizer that keeps a credentials Secret while a ProxmoxCluster uses it.
pub const SECRET_FINALIZER: &str = "proxmoxcluster.infrastructure.cluster.x-k8s.io/secret";

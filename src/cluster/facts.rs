//! What was seen of a ProxmoxCluster and of all that belongs to it. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use crate::api::ProxmoxCluster;
use crate::api::capi::Cluster;
use crate::api::ipam::InClusterIPPool;
use crate::connections::{PassedOver, Source};
use crate::fault::Fault;
use crate::hypervisor::ObjectKey;
use crate::seen::Seen;

/// The Cluster that owns a ProxmoxCluster.
#[derive(Debug, Clone)]
pub(super) enum Owner {
    /// There is no owner reference yet.
    Unset,
    /// The owner reference names a Cluster.
    Named {
        /// Its name; it is in the namespace of the ProxmoxCluster.
        name: String,
        /// The Cluster itself.
        cluster: Seen<Box<Cluster>>,
    },
}

impl Owner {
    /// The Cluster, when it was seen.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Unset => None,
            Self::Named { cluster, .. } => cluster.present().map(|cluster| &**cluster),
        }
    }
}

/// The name of the Cluster that the machines and pools of a ProxmoxCluster belong to: that of the
/// owner, else that of the label, which outlives an owner reference.
pub(super) fn cluster_name(cluster: &ProxmoxCluster) -> Option<&str> {
    let owner = crate::api::capi::owner(&cluster.metadata, "Cluster");
    owner
        .map(|owner| owner.name.as_str())
        .or_else(|| crate::api::capi::cluster_name(&cluster.metadata))
}

/// The Secret of `spec.credentialsRef`, when that is what the cluster uses.
pub(super) fn credentials(cluster: &ProxmoxCluster) -> Option<ObjectKey> {
    match Source::of(cluster) {
        Source::Secret(key) => Some(key),
        Source::Connection(_) | Source::Manager => None,
    }
}

/// Namespace and name of an object.
pub(super) fn key(metadata: &ObjectMeta) -> ObjectKey {
    ObjectKey {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

/// Whether the finalizer is on the object.
pub(super) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

/// What was seen of an InClusterIPPool.
#[derive(Debug, Clone)]
pub(super) enum PoolSeen {
    /// It exists.
    Present(Box<InClusterIPPool>),
    /// The kind is served, and no pool of that name exists.
    Absent,
    /// The apiserver does not know the kind.
    NotServed,
    /// No usable answer; the text says why.
    Unknown(String),
}

/// A pool that a ProxmoxCluster wants.
#[derive(Debug, Clone)]
pub(super) struct PoolFact {
    /// As it should be.
    pub(super) wanted: InClusterIPPool,
    /// As it is.
    pub(super) seen: PoolSeen,
}

/// A ProxmoxMachine of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MachineFact {
    /// Its name.
    pub(super) name: String,
    /// The Proxmox node that it was placed on.
    pub(super) node: Option<String>,
    /// Whether it is part of the control plane.
    pub(super) is_control_plane: bool,
}

/// A Secret, without its data.
#[derive(Debug, Clone)]
pub(super) struct SecretFact {
    /// Its metadata.
    pub(super) metadata: ObjectMeta,
    /// Other ProxmoxClusters that use it.
    pub(super) users: Vec<User>,
}

/// A ProxmoxCluster that uses a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    /// Its UID.
    pub(super) uid: String,
    /// Whether it is being deleted.
    pub(super) is_deleting: bool,
}

/// What a live cluster is judged by.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// The Secret of `spec.credentialsRef`; `None` when there is no such reference.
    pub(super) secret: Option<Seen<SecretFact>>,
    /// Secrets that the cluster still holds and does not name any more.
    pub(super) abandoned: Vec<SecretFact>,
    /// The pools, IPv4 first.
    pub(super) pools: Vec<PoolFact>,
    /// Whether a claim of the cluster was answered; looked up only where a pool has no status.
    pub(super) is_any_claim_answered: bool,
    /// The machines.
    pub(super) machines: Seen<Vec<MachineFact>>,
    /// The version of Proxmox, or why it does not say.
    pub(super) proxmox: Result<String, Fault>,
    /// How to have the certificate of Proxmox checked, when any is believed.
    pub(super) insecure: Option<String>,
    /// The manager's own credentials, where capmox would use them instead of the cluster's.
    pub(super) passed_over: Seen<PassedOver>,
}

/// What is left of a cluster that is being deleted.
#[derive(Debug, Clone)]
pub(super) struct Remains {
    /// Names of its machines.
    pub(super) machines: Seen<Vec<String>>,
    /// Its pools.
    pub(super) pools: Vec<PoolSeen>,
    /// Since when there is nothing left but pools and Secrets.
    pub(super) alone_since: Option<Timestamp>,
    /// Secrets that it holds.
    pub(super) secrets: Vec<Seen<SecretFact>>,
}

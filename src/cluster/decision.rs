//! The words in which [`super::decide`] speaks: what to do, and what is waited for.

use std::time::Duration;

use serde_json::Value;

use crate::api::NodeLocations;
use crate::api::ipam::InClusterIPPool;
use crate::connections::PassedOver;
use crate::fault::Fault;
use crate::hypervisor::ObjectKey;
use crate::seen::Seen;

/// How a ProxmoxCluster is gone about, from the object and its owner alone.
#[derive(Debug, Clone)]
pub(super) enum Approach {
    /// Somebody else's business: nothing is written, not even status.
    HandsOff,
    /// Decided already.
    Settled(Decision),
    /// To be brought up and kept up, for the Cluster of this name.
    Live(String),
    /// To be taken down.
    Gone,
}

/// What one look at the facts leads to.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    /// What to do now; independent of each other.
    pub(super) steps: Vec<Step>,
    /// Where the cluster stands before these steps.
    pub(super) standing: Standing,
    /// Names of the pools that exist; `None` leaves the status as it is.
    pub(super) pools: Option<Vec<String>>,
    /// Where the machines are; `None` leaves the status as it is.
    pub(super) locations: Option<NodeLocations>,
    /// How to have the certificate of Proxmox checked, when any is believed.
    pub(super) insecure: Option<String>,
    /// The manager's own credentials, where capmox would use them instead of the cluster's; Unknown
    /// leaves the status as it is.
    pub(super) passed_over: Seen<PassedOver>,
}

impl Decision {
    /// Nothing to do, and nothing new but `standing`.
    pub(super) fn standing(standing: Standing) -> Self {
        let passed_over = Seen::Unknown("not looked at".to_owned());
        let steps = Vec::new();
        Self { steps, standing, pools: None, locations: None, insecure: None, passed_over }
    }

    /// One thing to do.
    pub(super) fn step(step: Step, standing: Standing) -> Self {
        Self { steps: vec![step], ..Self::standing(standing) }
    }
}

/// Where a cluster stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing may be changed.
    Paused,
    /// In service when there is no trouble.
    Live(Vec<Trouble>),
    /// On its way out.
    Deleting(Vec<Remainder>),
}

/// One thing to do. Each is safe to do twice.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Change metadata or spec of an object by a JSON merge patch, which carries the
    /// resourceVersion that it was decided on.
    Patch {
        /// The object.
        target: Target,
        /// What it is for, for logs: a verb and its object.
        what: &'static str,
        /// The merge patch.
        patch: Value,
    },
    /// Create a pool.
    CreatePool(Box<InClusterIPPool>),
    /// Delete a pool, this one and no other of its name.
    DeletePool {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

/// An object that is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The ProxmoxCluster itself.
    Itself,
    /// An InClusterIPPool in its namespace.
    Pool(String),
    /// A Secret.
    Secret(ObjectKey),
    /// The status of the Cluster that owns the ProxmoxCluster.
    OwnerStatus(String),
}

/// What keeps a cluster from being in service. `report` turns it into reason, severity and text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Cluster API has not set the owner reference yet.
    OwnerUnset,
    /// The Cluster that is named as the owner does not exist.
    OwnerAbsent(String),
    /// It is not known whether the owner exists.
    OwnerUnknown(String, String),
    /// The endpoint lacks something.
    Endpoint {
        /// Which part.
        part: EndpointPart,
        /// Whether a control plane provider is to fill it in.
        is_external: bool,
    },
    /// The Secret of `spec.credentialsRef` does not exist.
    SecretAbsent(ObjectKey),
    /// It is not known whether it exists.
    SecretUnknown(ObjectKey, String),
    /// Credentials are not as they should be, or Proxmox does not answer.
    Proxmox(Fault),
    /// The apiserver does not know InClusterIPPool.
    PoolsNotServed,
    /// A pool of the name belongs to somebody else.
    PoolForeign {
        /// Its name.
        pool: String,
        /// Kind and name of its controller.
        controller: String,
    },
    /// A pool of the name is being deleted.
    PoolDeleting(String),
    /// It is not known whether a pool exists.
    PoolUnknown(String, String),
    /// Nobody looks after a pool.
    PoolSilent(String),
    /// A step failed.
    Failed {
        /// At what.
        target: Target,
        /// How.
        fault: Fault,
    },
}

/// A part of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndpointPart {
    /// All of it.
    Whole,
    /// The host.
    Host,
    /// The port.
    Port,
}

/// What a deletion waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Remainder {
    /// The Cluster of this name is not being deleted.
    OwnerLives(String),
    /// These machines exist.
    Machines(Vec<String>),
    /// A pool does not go yet, which is waited for a moment only.
    Pool(String),
    /// Something is not known.
    Unknown(String),
    /// A step failed.
    Failed(Fault),
}

/// When to look again if nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// At once: the object changed in between.
    Now,
    /// At this much later, unless woken.
    After(Duration),
    /// Never: the object is gone or none of ours.
    OnChange,
}

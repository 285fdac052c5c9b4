//! One Proxmox cluster as all controllers share it: its client, what was last seen of it, the
//! tasks in flight, and the promises made to machines.
//!
//! Observation is shared so that its cost does not grow with the number of machines: one read of
//! `cluster/resources` serves everybody, and the end of a task wakes the machine it concerns. This
//! module reports facts; it decides nothing and knows nothing of Kubernetes.

mod boots;
mod endpoint;
mod gate;
mod kept;
mod ledger;
mod lists;
mod looks;
mod queue;
mod readings;
mod seeds;
mod tasks;
mod view;

pub use boots::{Boots, Kind};
pub use endpoint::{Endpoint, Health, Wakes, Watch};
pub use gate::{Admission, Leave};
pub use ledger::{Ledger, Promise, Refused};
pub use queue::{CloneLimits, Place, Position};
pub use seeds::for_seeds;
pub use tasks::{Ended, Exit, Operation, TaskState};
pub use view::{GuestEntry, GuestKind, NodeEntry, NodeState, StorageEntry, View};

/// Namespace and name of the object that waits for something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

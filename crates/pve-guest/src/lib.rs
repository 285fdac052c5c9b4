//! The simulated guest: what happens inside of a VM of `pve-fake` when it starts.
//!
//! A guest mounts the CD-ROM as Linux does, takes the seed apart as cloud-init does, applies the
//! network to its NICs, and plays the node that kubeadm's bootstrap data describes: at the
//! [workload-cluster program](../../../tools/workload-cluster), which serves an API server and an
//! etcd at the cluster's own endpoint. A guest whose data is broken does not come up, and says why
//! through its agent and in its [`Record`].
//!
//! It is the second opinion on everything that the provider writes into a VM, so it must not share
//! code with the provider.

#![warn(missing_docs)]

mod boot;
pub mod fault;
mod guests;
pub mod iso9660;
pub mod kubeadm;
pub mod meta_data;
pub mod network;
mod node;
pub mod seed;
pub mod user_data;
mod workload;

pub use fault::{Fault, Stage};
pub use guests::{Config, Guests, Progress, Record};
pub use workload::{CallError, ClusterView, NodeView, Workload, WorkloadProcess};

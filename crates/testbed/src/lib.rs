//! The control plane for demo and tests: a real etcd, kube-apiserver and, where asked for, Cluster
//! API's own managers, as child processes on free ports of 127.0.0.1.
//!
//! [`World::start`] gives all of it; [`Binaries`] finds the programs or builds them. Knows nothing
//! of Proxmox and of capmox's inside: the provider is one more child process
//! ([`World::start_manager`]). Children never outlive this process, however it ends.

#![warn(missing_docs)]

pub mod apply;
mod binaries;
mod capi;
mod clusterctl;
mod control_plane;
pub mod crds;
mod dump;
mod gobuild;
mod kubeconfig;
mod pki;
pub mod ports;
mod process;
mod provider;
pub mod say;
mod watchdog;
mod webhooks;
mod world;

pub use binaries::{Binaries, root};
pub use clusterctl::{ClusterRequest, Clusterctl};
pub use process::Process;
pub use provider::ManagerProcess;
pub use world::{Options, World};

//! The controller of ProxmoxCluster on a real apiserver and a simulated Proxmox. Cluster API's part,
//! owner references and machines, is played by the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod credentials;
mod deletion;
mod life;
mod stage;

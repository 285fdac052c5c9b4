//! A machine's whole life through the real program: against a real API server, a simulated Proxmox
//! cluster, and a test that plays Cluster API's core.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calls;
mod core;
mod gate;
mod kills;
mod lane;
mod peer;
mod relay;
mod releases;
mod site;
mod takeover;

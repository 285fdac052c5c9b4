//! ProxmoxConnections on a real API server and the simulator: what their status says as Secrets,
//! tokens and rights come, change and go, and machines that are made meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod kubemox;
#[allow(dead_code)]
#[path = "../faults/objects.rs"]
mod objects;
mod rollout;
mod stage;
mod status;

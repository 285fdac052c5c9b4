//! A machine's whole life through the real program: against a real API server, a simulated Proxmox
//! cluster, and a test that plays Cluster API's core.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::print_stdout, reason = "which deaths took how long is of use when one fails")]
#![allow(clippy::large_futures, reason = "a life is one future, of which there are a handful")]

mod calls;
#[path = "../crds/capmox_crds.rs"]
mod capmox_crds;
mod core;
#[path = "../parity/facts.rs"]
mod facts;
mod gate;
mod handover;
mod kills;
mod lane;
mod options;
mod outage;
mod peer;
mod relay;
mod releases;
mod rotation;
mod site;
mod soak;
mod swapped;
mod takeover;

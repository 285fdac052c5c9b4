//! The CRDs on a real API server: what it accepts, refuses, fills in and shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capmox_crds;
mod cluster_cases;
mod connection_cases;
#[path = "../parity/facts.rs"]
mod facts;
mod installed;
mod machine_cases;
mod stage;
mod stored;
mod upgrade;

//! The CRDs on a real API server: what it accepts, refuses, fills in and shows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cluster_cases;
mod connection_cases;
mod installed;
mod machine_cases;
mod stage;
mod stored;

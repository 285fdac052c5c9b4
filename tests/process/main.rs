//! The program as a process beside a real API server, and its credentials as they change there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod credentials;
mod diagnostics;
mod election;
mod life;
mod shards;
mod stage;

//! Guests in VMs of the simulator, with the workload-cluster program beside it. The seeds are made
//! by genisoimage, which has to be installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod capi;
mod guests;
mod nodes;
mod seeds;
mod world;

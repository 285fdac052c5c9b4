//! Guests in VMs of the simulator, with the workload-cluster program beside it. The seeds are made
//! by genisoimage, which has to be installed; the program is built by `go build`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod guests;
mod nodes;
mod seeds;
mod world;

//! The server over real sockets: status lines, connections, faults, hooks, guests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod faults;
mod guests;
mod transport;

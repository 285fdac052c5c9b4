//! The Proxmox client over real HTTP(S): every endpoint against two simulators that share no code,
//! and the transport's habits against a server that is scripted byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod access;
mod failover;
mod faults;
mod life;
mod lost;
mod peer;
mod reads;
mod refusals;
mod script;
mod secrets;
mod session;
mod tls;
mod transport;
mod watch;

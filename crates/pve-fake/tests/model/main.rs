//! The model by itself, without a server: behaviour call by call, time step by step.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod clone;
mod config;
mod guest;
mod invariants;
mod life;
mod random;
mod storage;
mod tasks;
mod world;

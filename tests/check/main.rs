//! The command `check` as people run it: the real program against simulators, with a management
//! cluster and without.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod command;
mod documented;
mod findings;
mod objects;
mod shape;

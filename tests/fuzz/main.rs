//! Whatever comes from outside: it never makes a panic, and what is printed again is what was read.
//!
//! `PROPTEST_CASES=100000` searches longer. What a module keeps to itself is put to the same test
//! beside it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod addresses;
mod answers;
mod images;
mod near;
mod options;
mod secrets;

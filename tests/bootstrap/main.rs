//! The seed as real readers see it: xorriso, isoinfo, bsdtar, blkid, cloud-init and netplan.
//!
//! Nothing here uses the network or another process of ours. A tool that is not installed fails
//! its test and names its package.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cloud_init;
mod image;
mod nocloud;
mod plans;
mod talos;
mod tools;

//! The embedded IPAM against a real apiserver, with the CRDs of Cluster API and of the in-cluster
//! IPAM provider.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod claims;
mod pools;
mod rivals;
mod stage;

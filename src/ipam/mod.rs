//! Addresses: which ones a machine needs, how the objects are named, what a pool hands out.
//!
//! Pure: builds and judges objects of the IPAM contract and does not talk to the apiserver.

pub mod pool;
pub mod ranges;

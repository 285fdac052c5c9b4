//! Addresses: which ones a machine needs, how the objects are named, what a pool hands out.
//!
//! Pure: builds and judges objects of the IPAM contract and does not talk to the apiserver.

mod objects;
pub mod pool;
pub mod ranges;
mod slots;

pub use objects::{
    Assigned, CLUSTER_NAME_LABEL, METRIC_ANNOTATION, WrongAddress, desired_claim, desired_pools,
    metric, read_address,
};
pub use ranges::Family;
pub use slots::{
    DEFAULT_DEVICE, GLOBAL_IN_CLUSTER_POOL, GROUP, IN_CLUSTER_POOL, PoolRef, Slot, pool_name,
    wanted_slots,
};

//! What a new guest is given at its first boot, and the disc image that carries it.
//!
//! The guest reads a NoCloud seed: an ISO 9660 image labelled `cidata` whose root holds
//! `user-data`, `meta-data` and `network-config`. [`seed`] puts the three together, [`user_data`]
//! judges the bootstrap Secret's format, [`mod@metadata`] and [`network`] render the other two, and
//! [`iso9660`] writes the image. [`cloud_init`] reads what the guest says of it afterwards.
//!
//! Pure: the same input gives the same bytes. Nothing here reads a clock, the environment, a file
//! or the network, and nothing here knows how the image reaches the guest. What it handles
//! contains join tokens and private keys, so nothing here puts payload into an error or `Debug`.

pub mod cloud_init;
mod ignition;
pub mod iso9660;
pub mod metadata;
pub mod network;
mod problem;
pub mod seed;
pub mod user_data;
mod yaml;

pub use metadata::{Metadata, Place, asks_for_place, metadata};
pub use network::{NetworkPlan, network_config};
pub use problem::Problem;
pub use seed::SeedFiles;
pub use user_data::Format;

//! Why bootstrap data cannot be rendered, in words that name the device and the field.

use crate::bootstrap::iso9660::ImageError;
use crate::fault::{Class, Fault};

/// A reason why the seed of a machine cannot be made. None of them goes away by itself: the
/// machine, its pools or its bootstrap Secret must be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The network plan names no ethernet device.
    #[error("the machine has no network device; set spec.network.default or give the template one")]
    NoDevices,
    /// One field of one network device or VRF.
    #[error("network device {device}: {field}: {reason}")]
    Network {
        /// Proxmox' name of the device with the guest's, such as `net0 (eth0)`, or the VRF's name.
        device: String,
        /// Path of the field below the device, such as `routes[0].via`.
        field: String,
        /// What is wrong with it and what is expected.
        reason: String,
    },
    /// A line of meta-data without which the guest does not take the seed.
    #[error("meta-data: {field}: {reason}")]
    Metadata {
        /// The key in meta-data.
        field: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The bootstrap Secret names a format that nobody here can enrich.
    #[error(
        "bootstrap data format {format:?} is not supported; expected \"cloud-config\" or \
         \"ignition\" under the key \"format\" of the bootstrap Secret"
    )]
    UnknownFormat {
        /// The text under `format`.
        format: String,
    },
    /// The Ignition config in the bootstrap Secret cannot be extended.
    #[error("Ignition config in the bootstrap Secret: {0}")]
    Ignition(String),
    /// The image cannot hold a file.
    #[error("seed image: {0}")]
    Image(#[from] ImageError),
}

impl Problem {
    pub(super) fn network(
        device: impl Into<String>,
        field: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Network { device: device.into(), field: field.into(), reason: reason.into() }
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self::new(Class::Invalid, problem.to_string())
    }
}

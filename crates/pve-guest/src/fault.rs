//! Why a guest does not come up.

use std::fmt;

/// Where a boot came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Finding and mounting the seed.
    Seed,
    /// Understanding meta-data.
    MetaData,
    /// Applying network-config.
    Network,
    /// Understanding user-data.
    UserData,
    /// kubeadm with its own configuration.
    Kubeadm,
    /// The cluster's answer to kubeadm.
    Join,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seed => "seed",
            Self::MetaData => "meta-data",
            Self::Network => "network-config",
            Self::UserData => "user-data",
            Self::Kubeadm | Self::Join => "kubeadm",
        })
    }
}

/// A boot that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {text}")]
pub struct Fault {
    /// Where.
    pub stage: Stage,
    /// Why, in a sentence.
    pub text: String,
}

impl Fault {
    pub(crate) fn new(stage: Stage, text: impl Into<String>) -> Self {
        Self { stage, text: text.into() }
    }
}

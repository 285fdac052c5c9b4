//! What concerns storages and their volumes.

use serde::Deserialize;

use crate::ids::StorageName;
use crate::pve::wire;

/// An entry of `nodes/{node}/storage`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StorageStatus {
    /// Its name.
    pub storage: StorageName,
    /// `dir`, `lvmthin` …
    #[serde(rename = "type", default, deserialize_with = "wire::text")]
    pub kind: Option<String>,
    /// `iso`, `images` …
    #[serde(default, deserialize_with = "wire::text_list")]
    pub content: Vec<String>,
    /// Whether it is switched on.
    #[serde(default, deserialize_with = "wire::boolean")]
    pub enabled: Option<bool>,
    /// Whether it works at present.
    #[serde(default, deserialize_with = "wire::boolean")]
    pub active: Option<bool>,
    /// Whether all nodes see the same volumes.
    #[serde(default, deserialize_with = "wire::boolean")]
    pub shared: Option<bool>,
    /// Size in bytes.
    #[serde(default, deserialize_with = "wire::number")]
    pub total: Option<u64>,
    /// Bytes in use.
    #[serde(default, deserialize_with = "wire::number")]
    pub used: Option<u64>,
    /// Bytes available.
    #[serde(default, deserialize_with = "wire::number")]
    pub avail: Option<u64>,
}

impl StorageStatus {
    /// Whether it may hold `content` and nothing says that it is off or broken.
    pub fn takes(&self, content: &str) -> bool {
        self.enabled.unwrap_or(true)
            && self.active.unwrap_or(true)
            && self.content.iter().any(|kind| kind == content)
    }
}

/// An entry of `storage/{storage}/content`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Such as `local:iso/x.iso`.
    pub volid: String,
    /// `iso`, `images` …
    #[serde(default, deserialize_with = "wire::text")]
    pub content: Option<String>,
    /// `raw`, `qcow2`, `iso` …
    #[serde(default, deserialize_with = "wire::text")]
    pub format: Option<String>,
    /// Bytes.
    #[serde(default, deserialize_with = "wire::number")]
    pub size: Option<u64>,
    /// Made at, in seconds since 1970.
    #[serde(default, deserialize_with = "wire::number")]
    pub ctime: Option<u64>,
    /// Guest that owns it.
    #[serde(default, deserialize_with = "wire::number")]
    pub vmid: Option<u64>,
}

/// Answer of `storage/{storage}/content/{volume}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeInfo {
    /// Path on the node.
    #[serde(deserialize_with = "wire::text")]
    pub path: Option<String>,
    /// Bytes.
    #[serde(deserialize_with = "wire::number")]
    pub size: Option<u64>,
    /// Bytes in use.
    #[serde(deserialize_with = "wire::number")]
    pub used: Option<u64>,
    /// `raw`, `qcow2`, `iso` …
    #[serde(deserialize_with = "wire::text")]
    pub format: Option<String>,
}

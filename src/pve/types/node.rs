//! What concerns one node and its tasks.

use serde::Deserialize;

use crate::ids::NodeName;
use crate::pve::wire;

/// An entry of `nodes`. Figures only with the privilege Sys.Audit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NodeSummary {
    /// Its name.
    pub node: NodeName,
    /// `online`, `offline`, `unknown`.
    #[serde(default, deserialize_with = "wire::text")]
    pub status: Option<String>,
    /// Physical memory in bytes.
    #[serde(default, deserialize_with = "wire::number")]
    pub maxmem: Option<u64>,
    /// Memory in use in bytes.
    #[serde(default, deserialize_with = "wire::number")]
    pub mem: Option<u64>,
    /// Number of CPUs.
    #[serde(default, deserialize_with = "wire::number")]
    pub maxcpu: Option<u64>,
}

/// Answer of `nodes/{node}/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Memory.
    #[serde(deserialize_with = "memory")]
    pub memory: Memory,
    /// Such as `pve-manager/9.1.4/…`.
    #[serde(deserialize_with = "wire::text")]
    pub pveversion: Option<String>,
    /// Seconds since its start.
    #[serde(deserialize_with = "wire::number")]
    pub uptime: Option<u64>,
}

/// Memory of a node in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Physical.
    #[serde(deserialize_with = "wire::number")]
    pub total: Option<u64>,
    /// In use.
    #[serde(deserialize_with = "wire::number")]
    pub used: Option<u64>,
    /// Free.
    #[serde(deserialize_with = "wire::number")]
    pub free: Option<u64>,
}

/// Null and other forms give no figures.
fn memory<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Memory, D::Error> {
    let value = serde_json::Value::deserialize(d)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Answer of `tasks/{upid}/status`, as far as it is needed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::pve) struct TaskRecord {
    #[serde(deserialize_with = "wire::text")]
    pub(in crate::pve) status: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    pub(in crate::pve) exitstatus: Option<String>,
}

/// A line of a task's log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TaskLogLine {
    /// Number, from 1.
    #[serde(rename = "n", deserialize_with = "wire::number")]
    pub number: Option<u64>,
    /// Text.
    #[serde(rename = "t", deserialize_with = "wire::text")]
    pub text: Option<String>,
}

//! What the guest agent tells.

use serde::{Deserialize, Deserializer};

use crate::pve::wire;

/// Answer of `agent/get-osinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AgentOsInfo {
    /// Such as `ubuntu`.
    #[serde(deserialize_with = "wire::text")]
    pub id: Option<String>,
    /// Such as `Ubuntu`.
    #[serde(deserialize_with = "wire::text")]
    pub name: Option<String>,
    /// Such as `Ubuntu 24.04 LTS`.
    #[serde(rename = "pretty-name", deserialize_with = "wire::text")]
    pub pretty_name: Option<String>,
    /// Such as `24.04`.
    #[serde(rename = "version-id", deserialize_with = "wire::text")]
    pub version_id: Option<String>,
    /// Version of the kernel.
    #[serde(rename = "kernel-release", deserialize_with = "wire::text")]
    pub kernel_release: Option<String>,
    /// Architecture.
    #[serde(deserialize_with = "wire::text")]
    pub machine: Option<String>,
}

/// Answer of `agent/exec-status`. The agent gives a result once: ask again and it is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct AgentExecStatus {
    /// Whether the process has ended, where it says so; see [`Self::has_ended`].
    #[serde(deserialize_with = "wire::boolean")]
    pub exited: Option<bool>,
    /// Exit code, if it ended by itself.
    #[serde(rename = "exitcode", deserialize_with = "wire::signed")]
    pub exit_code: Option<i64>,
    /// Signal that ended it.
    #[serde(deserialize_with = "signal")]
    pub signal: Option<i64>,
    /// Standard output.
    #[serde(deserialize_with = "wire::text")]
    pub out_data: Option<String>,
    /// Standard error.
    #[serde(deserialize_with = "wire::text")]
    pub err_data: Option<String>,
}

/// There is no signal 0; some servers give it where there was none.
fn signal<'de, D: Deserializer<'de>>(d: D) -> Result<Option<i64>, D::Error> {
    Ok(wire::signed(d)?.filter(|signal| *signal != 0))
}

impl AgentExecStatus {
    /// Whether the process has ended: where the answer does not say so, an exit code or a signal
    /// tells it. Some servers give an exit code of 0 with a process that runs.
    pub fn has_ended(&self) -> bool {
        self.exited.unwrap_or(self.exit_code.is_some() || self.signal.is_some())
    }
}

/// An interface as the guest sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct AgentInterface {
    /// Name in the guest.
    #[serde(deserialize_with = "wire::text")]
    pub name: Option<String>,
    /// MAC address, mostly in lower case.
    #[serde(deserialize_with = "wire::text")]
    pub hardware_address: Option<String>,
    /// Its addresses.
    #[serde(deserialize_with = "wire::option_list")]
    pub ip_addresses: Vec<AgentAddress>,
}

/// An address of an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct AgentAddress {
    /// The address; link-local ones are among them.
    #[serde(deserialize_with = "wire::text")]
    pub ip_address: Option<String>,
    /// Length of the prefix in bits.
    #[serde(deserialize_with = "wire::number")]
    pub prefix: Option<u64>,
}

//! What concerns bridges, virtual networks and pools.

use serde::Deserialize;

use crate::pve::wire;

/// An entry of `nodes/{node}/network`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Bridge {
    /// Its name.
    pub iface: String,
    /// `bridge`, `OVSBridge`, `vnet`.
    #[serde(rename = "type", default, deserialize_with = "wire::text")]
    pub kind: Option<String>,
    /// Whether it is up; missing when it is not.
    #[serde(default, deserialize_with = "wire::flag")]
    pub active: bool,
    /// Whether it tells VLANs apart itself.
    #[serde(default, deserialize_with = "wire::flag")]
    pub bridge_vlan_aware: bool,
    /// Interfaces of the node that are connected to it, with spaces between. None if the server
    /// does not say.
    #[serde(default)]
    pub bridge_ports: Option<String>,
}

/// An entry of `cluster/sdn/vnets`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Vnet {
    /// Its name, which is that of the bridge on each node.
    pub vnet: String,
    /// Zone that it is in.
    #[serde(default, deserialize_with = "wire::text")]
    pub zone: Option<String>,
    /// Whether VMs may set VLANs in it.
    #[serde(default, deserialize_with = "wire::flag")]
    pub vlanaware: bool,
}

/// An entry of `pools`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Pool {
    /// Its name.
    pub poolid: String,
}

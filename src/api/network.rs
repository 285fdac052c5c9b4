//! Network devices of a machine, and what the guest is told about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{Int32, Integer, Ipv4PoolRef, Ipv6PoolRef, Mtu, RulePriority, VrfTable};

/// Network devices of the VM and the routing set up in the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    /// The first network device, `net0` in Proxmox and `eth0` in the guest. It carries the node's
    /// default route and its internal addresses. Required as soon as `network` is set. Its
    /// addresses come from the cluster's pools unless it names pools of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<NetworkDevice>,

    /// Further network devices, `net1`, `net2` and so on. Each needs at least one pool to take
    /// addresses from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-kubernetes-list-type" = "map"),
        extend("x-kubernetes-list-map-keys" = ["name"])
    )]
    pub additional_devices: Option<Vec<AdditionalNetworkDevice>>,

    /// Virtual routing and forwarding domains that the guest sets up, each with a routing table of
    /// its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-kubernetes-list-type" = "map"),
        extend("x-kubernetes-list-map-keys" = ["name"])
    )]
    pub vrfs: Option<Vec<VrfDevice>>,
}

/// Model of the network card that the guest sees.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NetworkModel {
    E1000,
    #[default]
    Virtio,
    Rtl8139,
    Vmxnet3,
}

impl NetworkModel {
    /// As Proxmox writes it in a `net<N>` option.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::E1000 => "e1000",
            Self::Virtio => "virtio",
            Self::Rtl8139 => "rtl8139",
            Self::Vmxnet3 => "vmxnet3",
        }
    }
}

impl std::fmt::Display for NetworkModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn virtio() -> Option<NetworkModel> {
    Some(NetworkModel::Virtio)
}

/// The first network device of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkDevice {
    /// Proxmox bridge (or SDN VNet) that the device is plugged into, for example `vmbr0`.
    #[schemars(length(min = 1))]
    pub bridge: String,

    /// Model of the network card. Defaults to `virtio`.
    #[serde(default = "virtio", skip_serializing_if = "Option::is_none")]
    pub model: Option<NetworkModel>,

    /// MTU of the virtual network card in bytes: 1280 to 65520, or 1 to use the bridge's. When it
    /// is not set, Proxmox gives the card an MTU of 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Mtu>")]
    pub mtu: Option<u16>,

    /// VLAN tag that the bridge puts on the device's traffic, 1 to 4094. No tag when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Integer>", range(min = 1, max = 4094))]
    pub vlan: Option<u16>,

    /// Name servers of this device. When not set, those of the ProxmoxCluster are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub dns_servers: Option<Vec<String>>,

    /// Pool to take the device's IPv4 address from. When not set, the pool that is made from
    /// the ProxmoxCluster's `ipv4Config` serves it, if there is one.
    #[serde(default, rename = "ipv4PoolRef", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Ipv4PoolRef>")]
    pub ipv4_pool_ref: Option<TypedRef>,

    /// Pool to take the device's IPv6 address from. When not set, the pool that is made from
    /// the ProxmoxCluster's `ipv6Config` serves it, if there is one.
    #[serde(default, rename = "ipv6PoolRef", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Ipv6PoolRef>")]
    pub ipv6_pool_ref: Option<TypedRef>,
}

/// A further network device of a VM, with what the guest is told about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "at least one pool reference must be set, either ipv4PoolRef or ipv6PoolRef",
    "rule": "self.ipv4PoolRef != null || self.ipv6PoolRef != null"
}]))]
pub struct AdditionalNetworkDevice {
    /// Proxmox name of the device: `net1`, `net2` and so on. `net0` is the default device.
    #[schemars(
        length(min = 1),
        extend("x-kubernetes-validations" = [{
            "message": "additional network devices doesn't allow net0",
            "rule": "self != 'net0'"
        }])
    )]
    pub name: String,

    /// Proxmox bridge (or SDN VNet) that the device is plugged into, for example `vmbr0`.
    #[schemars(length(min = 1))]
    pub bridge: String,

    /// Model of the network card. Defaults to `virtio`.
    #[serde(default = "virtio", skip_serializing_if = "Option::is_none")]
    pub model: Option<NetworkModel>,

    /// MTU of the virtual network card in bytes: 1280 to 65520, or 1 to use the bridge's. When it
    /// is not set, Proxmox gives the card an MTU of 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Mtu>")]
    pub mtu: Option<u16>,

    /// VLAN tag that the bridge puts on the device's traffic, 1 to 4094. No tag when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Integer>", range(min = 1, max = 4094))]
    pub vlan: Option<u16>,

    /// Name servers of this device. When not set, those of the ProxmoxCluster are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub dns_servers: Option<Vec<String>>,

    /// Pool to take the device's IPv4 address from. One of the two pool references must be
    /// set.
    #[serde(default, rename = "ipv4PoolRef", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Ipv4PoolRef>")]
    pub ipv4_pool_ref: Option<TypedRef>,

    /// Pool to take the device's IPv6 address from. One of the two pool references must be
    /// set.
    #[serde(default, rename = "ipv6PoolRef", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Ipv6PoolRef>")]
    pub ipv6_pool_ref: Option<TypedRef>,

    /// MTU of the guest's interface in bytes, at least 1280. When not set, the guest keeps the MTU
    /// of the network card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Mtu>")]
    pub link_mtu: Option<u16>,

    /// Static routes over this device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub routes: Option<Vec<Route>>,

    /// Rules that send traffic to a routing table. Each needs `to` or `from`, and a `table`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub routing_policy: Option<Vec<Policy>>,
}

/// A virtual routing and forwarding domain of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VrfDevice {
    /// Name of the VRF's interface in the guest, at least 3 characters.
    #[schemars(length(min = 3))]
    pub name: String,

    /// Routing table of the VRF. The kernel's own tables 254 and 255 are refused.
    #[schemars(with = "VrfTable")]
    pub table: i64,

    /// Devices that belong to the VRF, by Proxmox's name (`net1`) or by the guest's (`eth1`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<String>>,

    /// Static routes of the VRF, put into its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub routes: Option<Vec<Route>>,

    /// Rules that send traffic to the VRF. Each needs `to` or `from`; a `table` may be left out,
    /// and must be the VRF's own otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub routing_policy: Option<Vec<Policy>>,
}

/// A static route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Destination network in CIDR notation, for example `10.20.0.0/16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,

    /// Address of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,

    /// Metric of the route; of two routes to one destination, the one of the lower metric is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Int32>")]
    pub metric: Option<i64>,

    /// Routing table that the route is put into. The main table when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Int32>")]
    pub table: Option<i64>,
}

/// A rule that selects a routing table by source or destination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Destination network in CIDR notation that the rule applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,

    /// Source network in CIDR notation that the rule applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,

    /// Routing table to look into. Required on a network device; on a VRF it is the VRF's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Int32>")]
    pub table: Option<i64>,

    /// Priority of the rule; lower ones are looked at first. 32765 and 32766 are refused because
    /// the kernel's own rules sit there. The guest chooses one when it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<RulePriority>")]
    pub priority: Option<i64>,
}

/// Reference to an object of any kind in the namespace of the referrer.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct TypedRef {
    /// API group of the object: `ipam.cluster.x-k8s.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,

    /// Kind of the object: `InClusterIPPool` or `GlobalInClusterIPPool`.
    pub kind: String,

    /// Name of the object.
    pub name: String,
}

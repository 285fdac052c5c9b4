//! Which addresses a machine needs, from which pools, and how the claims are named.

use std::fmt;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;

use super::ranges::Family;
use crate::api::{IpConfig, ProxmoxClusterSpec, ProxmoxMachineSpec, TypedRef};

/// API group of pools, claims and addresses.
pub const GROUP: &str = "ipam.cluster.x-k8s.io";
/// Pool in the namespace of the claim.
pub const IN_CLUSTER_POOL: &str = "InClusterIPPool";
/// Pool for claims of all namespaces.
pub const GLOBAL_IN_CLUSTER_POOL: &str = "GlobalInClusterIPPool";
/// The first network device of a machine; the only one that the cluster's own pools serve.
pub const DEFAULT_DEVICE: &str = "net0";

/// A pool that addresses are claimed from. Any group and kind is passed on as it is written: which
/// ones exist is the business of the IPAM provider (and of the CRD, which allows two).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolRef {
    /// API group; empty when the reference names none.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl PoolRef {
    /// A pool of the in-cluster provider in the namespace of the claim.
    pub fn in_cluster(name: String) -> Self {
        Self { group: GROUP.to_owned(), kind: IN_CLUSTER_POOL.to_owned(), name }
    }
}

impl From<&TypedRef> for PoolRef {
    fn from(value: &TypedRef) -> Self {
        Self {
            group: value.api_group.clone().unwrap_or_default(),
            kind: value.kind.clone(),
            name: value.name.clone(),
        }
    }
}

impl From<&TypedLocalObjectReference> for PoolRef {
    fn from(value: &TypedLocalObjectReference) -> Self {
        Self {
            group: value.api_group.clone().unwrap_or_default(),
            kind: value.kind.clone(),
            name: value.name.clone(),
        }
    }
}

impl From<PoolRef> for TypedLocalObjectReference {
    fn from(value: PoolRef) -> Self {
        Self {
            api_group: (!value.group.is_empty()).then_some(value.group),
            kind: value.kind,
            name: value.name,
        }
    }
}

impl fmt::Display for PoolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// One address that a machine needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Proxmox name of the network device: `net0`, `net1`, …
    pub device: String,
    /// Which kind of address.
    pub family: Family,
    /// Where it comes from.
    pub pool: PoolRef,
}

impl Slot {
    /// Name of the claim, and of the address that answers it: `<machine>-<device>-inet` for IPv4,
    /// `<machine>-<device>-inet6` for IPv6.
    pub fn claim_name(&self, machine: &str) -> String {
        let suffix = match self.family {
            Family::V4 => "inet",
            Family::V6 => "inet6",
        };
        format!("{machine}-{}-{suffix}", self.device)
    }
}

/// Name of the cluster's own pool: `<cluster>-v4-icip` or `<cluster>-v6-icip`, where `cluster` is
/// the name of the ProxmoxCluster.
pub fn pool_name(cluster: &str, family: Family) -> String {
    match family {
        Family::V4 => format!("{cluster}-v4-icip"),
        Family::V6 => format!("{cluster}-v6-icip"),
    }
}

/// The addresses that a machine needs, in the order in which capmox v0.7 claims them: the default
/// device, then the additional ones as listed; IPv4 before IPv6 on each.
///
/// `cluster_name` is the name of the ProxmoxCluster. The default device takes from the pool that
/// its own reference names, else from the cluster's pool where the cluster has that family.
pub fn wanted_slots(
    cluster_name: &str,
    cluster: &ProxmoxClusterSpec,
    machine: &ProxmoxMachineSpec,
) -> Vec<Slot> {
    let network = machine.network.as_ref();
    let default = network.and_then(|network| network.default.as_ref());
    let mut slots = Vec::new();
    for (family, config, reference) in [
        (Family::V4, &cluster.ipv4_config, default.and_then(|d| d.ipv4_pool_ref.as_ref())),
        (Family::V6, &cluster.ipv6_config, default.and_then(|d| d.ipv6_pool_ref.as_ref())),
    ] {
        let own = |_: &IpConfig| PoolRef::in_cluster(pool_name(cluster_name, family));
        let pool = reference.map(PoolRef::from).or_else(|| config.as_ref().map(own));
        slots.extend(pool.map(|pool| Slot { device: DEFAULT_DEVICE.to_owned(), family, pool }));
    }
    let additional = network.and_then(|network| network.additional_devices.as_ref());
    for device in additional.into_iter().flatten() {
        for (family, reference) in
            [(Family::V4, &device.ipv4_pool_ref), (Family::V6, &device.ipv6_pool_ref)]
        {
            slots.extend(reference.as_ref().map(|reference| Slot {
                device: device.name.clone(),
                family,
                pool: PoolRef::from(reference),
            }));
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn names(cluster: &serde_json::Value, machine: &serde_json::Value) -> Vec<String> {
        let mut cluster = cluster.clone();
        cluster["dnsServers"] = json!(["10.0.0.1"]);
        let cluster: ProxmoxClusterSpec = serde_json::from_value(cluster).unwrap();
        let machine: ProxmoxMachineSpec = serde_json::from_value(machine.clone()).unwrap();
        wanted_slots("infra", &cluster, &machine)
            .iter()
            .map(|slot| format!("{} < {}", slot.claim_name("m1"), slot.pool))
            .collect()
    }

    fn pool(kind: &str, name: &str) -> serde_json::Value {
        json!({"apiGroup": GROUP, "kind": kind, "name": name})
    }

    #[test]
    fn the_default_device_takes_from_the_pools_of_the_cluster() {
        let v4 = json!({"addresses": ["10.0.0.2"], "prefix": 24});
        let v6 = json!({"addresses": ["fd00::2"], "prefix": 64});
        let machine = json!({});
        assert_eq!(
            names(&json!({"ipv4Config": v4}), &machine),
            ["m1-net0-inet < InClusterIPPool infra-v4-icip"]
        );
        assert_eq!(
            names(&json!({"ipv4Config": v4, "ipv6Config": v6}), &machine),
            [
                "m1-net0-inet < InClusterIPPool infra-v4-icip",
                "m1-net0-inet6 < InClusterIPPool infra-v6-icip"
            ]
        );
    }

    #[test]
    fn references_win_and_additional_devices_follow_in_order() {
        let cluster = json!({"ipv4Config": {"addresses": ["10.0.0.2"], "prefix": 24}});
        let machine = json!({"network": {
            "default": {
                "bridge": "vmbr0",
                "ipv4PoolRef": pool("GlobalInClusterIPPool", "shared"),
                "ipv6PoolRef": pool("InClusterIPPool", "six"),
            },
            "additionalDevices": [
                {"name": "net2", "bridge": "b", "ipv6PoolRef": pool("InClusterIPPool", "lan6")},
                {
                    "name": "net1",
                    "bridge": "b",
                    "ipv6PoolRef": pool("InClusterIPPool", "dmz6"),
                    "ipv4PoolRef": pool("InClusterIPPool", "dmz"),
                },
            ],
        }});
        assert_eq!(
            names(&cluster, &machine),
            [
                "m1-net0-inet < GlobalInClusterIPPool shared",
                "m1-net0-inet6 < InClusterIPPool six",
                "m1-net2-inet6 < InClusterIPPool lan6",
                "m1-net1-inet < InClusterIPPool dmz",
                "m1-net1-inet6 < InClusterIPPool dmz6",
            ]
        );
    }
}

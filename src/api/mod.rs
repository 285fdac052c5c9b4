//! SCRATCH: replaced by the api branch.
#![allow(missing_docs)]
pub mod capi;
pub mod conditions;
pub mod ipam;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ProxmoxCluster",
    namespaced,
    status = "ProxmoxClusterStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterSpec {
    pub control_plane_endpoint: Option<Endpoint>,
    pub external_managed_control_plane: Option<bool>,
    #[serde(rename = "ipv4Config")]
    pub ipv4_config: Option<IpConfig>,
    #[serde(rename = "ipv6Config")]
    pub ipv6_config: Option<IpConfig>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProxmoxClusterStatus {
    pub ready: Option<bool>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    pub host: String,
    pub port: i32,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IpConfig {
    pub addresses: Vec<String>,
    pub prefix: i64,
    pub gateway: Option<String>,
    pub metric: Option<u32>,
}

#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ProxmoxMachine",
    namespaced
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxMachineSpec {
    pub network: Option<NetworkSpec>,
    pub tags: Option<Vec<String>>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSpec {
    pub default: Option<NetworkDevice>,
    pub additional_devices: Option<Vec<AdditionalNetworkDevice>>,
    pub vrfs: Option<Vec<VrfDevice>>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkDevice {
    pub mtu: Option<u16>,
    #[serde(rename = "ipv4PoolRef")]
    pub ipv4_pool_ref: Option<TypedRef>,
    #[serde(rename = "ipv6PoolRef")]
    pub ipv6_pool_ref: Option<TypedRef>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdditionalNetworkDevice {
    pub name: String,
    pub mtu: Option<u16>,
    pub link_mtu: Option<u16>,
    pub routing_policy: Option<Vec<Policy>>,
    #[serde(rename = "ipv4PoolRef")]
    pub ipv4_pool_ref: Option<TypedRef>,
    #[serde(rename = "ipv6PoolRef")]
    pub ipv6_pool_ref: Option<TypedRef>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Policy {
    pub table: Option<i64>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VrfDevice {
    pub name: String,
    pub table: i64,
    pub routing_policy: Option<Vec<Policy>>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypedRef {
    pub api_group: Option<String>,
    pub kind: String,
    pub name: String,
}
pub type Unused = BTreeMap<String, String>;

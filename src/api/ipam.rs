//! SCRATCH
use k8s_openapi::api::core::v1::{LocalObjectReference, TypedLocalObjectReference};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "InClusterIPPool",
    namespaced,
    status = "InClusterIPPoolStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPoolSpec {
    pub addresses: Vec<String>,
    pub prefix: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    #[serde(rename = "allocateReservedIPAddresses", skip_serializing_if = "Option::is_none")]
    pub allocate_reserved_ip_addresses: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded_addresses: Option<Vec<String>>,
}
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "GlobalInClusterIPPool",
    status = "InClusterIPPoolStatus"
)]
#[serde(transparent)]
pub struct GlobalInClusterIPPoolSpec(pub InClusterIPPoolSpec);
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPoolStatus {
    pub ip_addresses: Option<InClusterIPPoolStatusIPAddresses>,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPoolStatusIPAddresses {
    pub total: i64,
    pub free: i64,
    pub used: i64,
    pub out_of_range: i64,
}
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "IPAddressClaim",
    namespaced,
    status = "IPAddressClaimStatus",
    plural = "ipaddressclaims"
)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    pub pool_ref: TypedLocalObjectReference,
}
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimStatus {
    pub address_ref: Option<LocalObjectReference>,
    pub conditions: Option<Vec<super::conditions::Condition>>,
}
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "IPAddress",
    namespaced,
    plural = "ipaddresses"
)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressSpec {
    pub claim_ref: LocalObjectReference,
    pub pool_ref: TypedLocalObjectReference,
    pub address: String,
    pub prefix: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

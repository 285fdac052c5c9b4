//! The IPAM contract of Cluster API, and the pools of its in-cluster provider.
//!
//! Only what is read and written here; unknown fields are ignored on reading, and only fields that
//! are owned are ever patched. Kinds keep the provider's and Cluster API's own names.

use k8s_openapi::api::core::v1::{LocalObjectReference, TypedLocalObjectReference};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::{Condition, V1Beta2Conditions};
use super::schema::Integer;

/// API group of pools, claims and addresses.
pub const GROUP: &str = "ipam.cluster.x-k8s.io";

/// A pool of addresses for claims in its own namespace.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "InClusterIPPool",
    plural = "inclusterippools",
    namespaced,
    status = "InClusterIPPoolStatus",
    category = "cluster-api",
    doc = "InClusterIPPool is a pool of addresses for claims in its namespace.",
    printcolumn = r#"{"name":"Addresses","type":"string","jsonPath":".spec.addresses"}"#,
    printcolumn = r#"{"name":"Total","type":"integer","jsonPath":".status.ipAddresses.total"}"#,
    printcolumn = r#"{"name":"Free","type":"integer","jsonPath":".status.ipAddresses.free"}"#,
    printcolumn = r#"{"name":"Used","type":"integer","jsonPath":".status.ipAddresses.used"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPoolSpec {
    /// Addresses to hand out: single addresses, ranges (`10.0.0.10-10.0.0.20`) and networks in CIDR
    /// notation, all of one family.
    pub addresses: Vec<String>,

    /// Length of the network's prefix in bits, for example 24.
    #[schemars(with = "Integer", range(min = 0, max = 128))]
    pub prefix: i64,

    /// Address of the network's gateway, which is never handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,

    /// True to hand out the network's first address and, for IPv4, its broadcast address too.
    /// Defaults to false.
    #[serde(
        default,
        rename = "allocateReservedIPAddresses",
        skip_serializing_if = "Option::is_none"
    )]
    pub allocate_reserved_ip_addresses: Option<bool>,

    /// Addresses that are not handed out, written as in `addresses`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_addresses: Option<Vec<String>>,
}

/// A pool of addresses for claims of all namespaces.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1alpha2",
    kind = "GlobalInClusterIPPool",
    plural = "globalinclusterippools",
    status = "InClusterIPPoolStatus",
    category = "cluster-api",
    doc = "GlobalInClusterIPPool is a pool of addresses for claims of all namespaces.",
    printcolumn = r#"{"name":"Addresses","type":"string","jsonPath":".spec.addresses"}"#,
    printcolumn = r#"{"name":"Total","type":"integer","jsonPath":".status.ipAddresses.total"}"#,
    printcolumn = r#"{"name":"Free","type":"integer","jsonPath":".status.ipAddresses.free"}"#,
    printcolumn = r#"{"name":"Used","type":"integer","jsonPath":".status.ipAddresses.used"}"#
)]
#[serde(transparent)]
pub struct GlobalInClusterIPPoolSpec(pub InClusterIPPoolSpec);

/// What is known of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPoolStatus {
    /// How many addresses the pool has, and what they are used for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<InClusterIPPoolStatusIPAddresses>,
}

/// Figures of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPoolStatusIPAddresses {
    /// Number of addresses that the pool hands out.
    #[schemars(with = "Integer")]
    pub total: i64,

    /// Number of addresses that can still be handed out.
    #[schemars(with = "Integer")]
    pub free: i64,

    /// Number of addresses in use.
    #[schemars(with = "Integer")]
    pub used: i64,

    /// Number of addresses in use that the pool would not hand out (any more).
    #[schemars(with = "Integer")]
    pub out_of_range: i64,
}

/// A request for an address.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "IPAddressClaim",
    plural = "ipaddressclaims",
    namespaced,
    status = "IPAddressClaimStatus",
    category = "cluster-api",
    doc = "IPAddressClaim asks for one address of a pool."
)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimSpec {
    /// Name of the Cluster that the address is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub cluster_name: Option<String>,

    /// Pool to take the address from.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub pool_ref: TypedLocalObjectReference,
}

/// What became of a claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimStatus {
    /// The IPAddress that was made for the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub address_ref: Option<LocalObjectReference>,

    /// Conditions: `Ready` says whether an address was given, and why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,

    /// Conditions in the form that Cluster API uses from its v1beta2 contract on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<V1Beta2Conditions>,
}

/// An address that was given.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ipam.cluster.x-k8s.io",
    version = "v1beta1",
    kind = "IPAddress",
    plural = "ipaddresses",
    namespaced,
    category = "cluster-api",
    doc = "IPAddress is an address that was given to a claim."
)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressSpec {
    /// The claim that it was given to.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub claim_ref: LocalObjectReference,

    /// The pool that it comes from.
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub pool_ref: TypedLocalObjectReference,

    /// The address.
    #[schemars(length(min = 1, max = 39))]
    pub address: String,

    /// Length of the network's prefix in bits.
    #[schemars(with = "Integer")]
    pub prefix: i64,

    /// Address of the network's gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 39))]
    pub gateway: Option<String>,
}

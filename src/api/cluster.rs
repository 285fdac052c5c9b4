//! ProxmoxCluster: where the machines of a cluster run, and what they share.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::{Condition, V1Beta2Conditions};
use super::machine::ProxmoxMachineSpec;
use super::schema::{Int32, Integer, NodeNameText};

/// What the machines of a cluster share: endpoint, nodes, addresses, name servers, credentials.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ProxmoxCluster",
    plural = "proxmoxclusters",
    namespaced,
    status = "ProxmoxClusterStatus",
    category = "cluster-api",
    doc = "ProxmoxCluster is the infrastructure of one Cluster API Cluster on Proxmox VE.",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Endpoint","type":"string","jsonPath":".spec.controlPlaneEndpoint"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterSpec {
    /// Where the API server of the workload cluster is reached. An address given as host must not
    /// lie within the addresses of `ipv4Config` or `ipv6Config`. May be left out only with
    /// `externalManagedControlPlane`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,

    /// Set to true when a control plane provider fills in `controlPlaneEndpoint`. The cluster then
    /// waits for it. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_managed_control_plane: Option<bool>,

    /// Proxmox nodes that new VMs may be placed on. A machine can name its own instead. When
    /// neither does, the VM is made on the node of its template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_nodes: Option<Vec<String>>,

    /// Groups of Proxmox nodes that fail together, such as a rack. Cluster API spreads control planes
    /// over those that it may use for them, and a Machine that names one in `spec.failureDomain` is
    /// placed on its nodes only. Without any, `spec.failureDomain` of Machines has no effect on
    /// where they are placed. An addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        extend("x-kubernetes-list-type" = "map"),
        extend("x-kubernetes-list-map-keys" = ["name"])
    )]
    pub failure_domains: Option<Vec<FailureDomain>>,

    /// How nodes are compared when a VM is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_hints: Option<SchedulerHints>,

    /// IPv4 addresses for the first network device of the machines, from which a pool is made. At
    /// least one of `ipv4Config` and `ipv6Config` must be set.
    #[serde(default, rename = "ipv4Config", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "IPv4Config addresses must be provided",
        "rule": "self.addresses.size() > 0"
    }]))]
    pub ipv4_config: Option<IpConfig>,

    /// IPv6 addresses for the first network device of the machines, from which a pool is made. At
    /// least one of `ipv4Config` and `ipv6Config` must be set.
    #[serde(default, rename = "ipv6Config", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "IPv6Config addresses must be provided",
        "rule": "self.addresses.size() > 0"
    }]))]
    pub ipv6_config: Option<IpConfig>,

    /// Addresses of the name servers that the machines use, at least one. A network device can
    /// name its own instead.
    #[schemars(length(min = 1))]
    pub dns_servers: Vec<String>,

    /// Values that a ClusterClass copies into its machine templates. Nothing else reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_spec: Option<CloneSpec>,

    /// ProxmoxConnection by which Proxmox is reached. It goes before `credentialsRef`, and that before
    /// the credentials of the manager. `status.credentials` shows which of them is used. An
    /// addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_ref: Option<ConnectionRef>,

    /// Secret with the credentials for Proxmox. It goes before the credentials of the manager, and
    /// has no effect beside `connectionRef`. Its keys are `url` (for example `https://pve.example.com:8006`), `token` (user,
    /// realm and name of an API token, `user@realm!name`), `secret` (the token's UUID), and
    /// optionally `insecure` and `root_ca` (PEM bundle of certificate authorities to trust). The
    /// certificate of Proxmox is checked only when `insecure` is there and is `false`. A change of
    /// the Secret takes effect at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub credentials_ref: Option<SecretRef>,
}

/// Where an API server is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "port must be within 1-65535",
    "rule": "self.port > 0 && self.port < 65536"
}]))]
pub struct Endpoint {
    /// Host name or IP address, at most 512 characters.
    #[schemars(length(max = 512))]
    pub host: String,

    /// TCP port, 1 to 65535.
    pub port: i32,
}

/// A group of Proxmox nodes that fail together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomain {
    /// What Machines call it in `spec.failureDomain`.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,

    /// Its Proxmox nodes, at least one.
    #[schemars(with = "Vec<NodeNameText>", length(min = 1))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub nodes: Vec<String>,

    /// Whether Cluster API may put control planes there. Defaults to true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<bool>,
}

/// A failure domain as Cluster API reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureDomainStatus {
    /// Whether control planes may be put there.
    #[serde(default)]
    pub control_plane: bool,

    /// What else is told of it: `nodes`, its Proxmox nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Addresses that a pool is made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// `metric` has a default, so nobody has to write it; the released schema lists it all the same.
#[schemars(extend("required" = ["addresses", "metric", "prefix"]))]
pub struct IpConfig {
    /// Addresses to hand out to machines: single addresses, ranges (`10.0.0.10-10.0.0.20`) and
    /// networks in CIDR notation. At least one.
    pub addresses: Vec<String>,

    /// Length of the network's prefix in bits, for example 24.
    #[schemars(with = "Integer", range(max = 128))]
    pub prefix: i64,

    /// Address of the network's gateway, which becomes the machines' default gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,

    /// Metric of the machines' default route over this gateway. Defaults to 100.
    #[serde(default = "default_metric", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Int32>")]
    pub metric: Option<u32>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn default_metric() -> Option<u32> {
    Some(100)
}

/// How nodes are compared when a VM is placed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerHints {
    /// How much of a node's memory may be given to VMs, in percent of what the node has. More than
    /// 100 allows overcommitment; 0 takes memory out of the choice. Defaults to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_adjustment: Option<i64>,
}

/// Values that a ClusterClass copies into machine templates.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSpec {
    /// Machine specs by role. `controlPlane` must be there; others are named as the ClusterClass
    /// names them, for example `workerNode` and `loadBalancer`.
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "Cowardly refusing to deploy cluster without control plane",
        "rule": "has(self.controlPlane)"
    }]))]
    pub machine_spec: BTreeMap<String, ProxmoxMachineSpec>,

    /// Public SSH keys for the machines' administrator, in the format of `authorized_keys`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_authorized_keys: Option<Vec<String>>,

    /// Network interface that carries the virtual address of the control plane. Found by kube-vip
    /// itself when empty.
    #[serde(
        default,
        rename = "virtualIPNetworkInterface",
        skip_serializing_if = "Option::is_none"
    )]
    pub virtual_ip_network_interface: Option<String>,
}

/// Reference to a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Namespace of the Secret. Defaults to the namespace of the ProxmoxCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Reference to a ProxmoxConnection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ConnectionRef {
    /// Name of the ProxmoxConnection.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Where the credentials stand that a cluster uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsInUse {
    /// `ProxmoxConnection`, `Secret`, or `Manager` for the manager's own.
    pub kind: String,

    /// Namespace of the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// Name of the ProxmoxConnection or Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What is known of a ProxmoxCluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterStatus {
    /// Whether the cluster can take machines. Cluster API starts machines once it is true.
    #[serde(default)]
    pub ready: bool,

    /// Pools that were made from `ipv4Config` and `ipv6Config`, in the cluster's namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_cluster_ip_pool_ref: Vec<ObjectName>,

    /// Proxmox node that each machine was placed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_locations: Option<NodeLocations>,

    /// The failure domains of the spec, in the form that Cluster API reads. An addition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failure_domains: BTreeMap<String, FailureDomainStatus>,

    /// Where the credentials stand that are used: by `spec.connectionRef`, else by
    /// `spec.credentialsRef`, else the manager's own. An addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<CredentialsInUse>,

    /// One word for a problem that keeps the cluster from working until somebody solves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,

    /// The problem of `failureReason` in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,

    /// Conditions: `Ready` sums up the others; `ClusterReady` says whether Proxmox, credentials and
    /// pools are as they should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,

    /// Conditions in the form that Cluster API uses from its v1beta2 contract on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<V1Beta2Conditions>,
}

impl ProxmoxClusterStatus {
    /// The conditions of the v1beta2 contract; none when none were written.
    pub fn v1beta2_conditions(&self) -> &[MetaCondition] {
        self.v1beta2.as_ref().map_or(&[], |v1beta2| v1beta2.conditions.as_slice())
    }
}

/// Reference to an object by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ObjectName {
    /// Name of the object.
    #[serde(default)]
    pub name: String,
}

/// Where the machines of a cluster were placed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLocations {
    /// Places of the control-plane machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control_plane: Vec<NodeLocation>,

    /// Places of all other machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<NodeLocation>,
}

/// Where a machine was placed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLocation {
    /// The ProxmoxMachine.
    pub machine: ObjectName,

    /// The Proxmox node.
    pub node: String,
}

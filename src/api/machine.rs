//! ProxmoxMachine: one VM.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::{Condition, V1Beta2Conditions};
use super::network::NetworkSpec;
use super::schema::{Int32, Tag};

/// The VM to make: template, size, disks, network, placement.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ProxmoxMachine",
    plural = "proxmoxmachines",
    namespaced,
    status = "ProxmoxMachineStatus",
    category = "cluster-api",
    category = "proxmox",
    shortname = "moxm",
    doc = "ProxmoxMachine is the VM of one Cluster API Machine on Proxmox VE.",
    printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".metadata.labels.cluster\\.x-k8s\\.io/cluster-name"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".status.proxmoxNode"}"#,
    printcolumn = r#"{"name":"Provider_ID","type":"string","jsonPath":".spec.providerID"}"#,
    printcolumn = r#"{"name":"Machine","type":"string","jsonPath":".metadata.ownerReferences[?(@.kind==\"Machine\")].name"}"#,
    printcolumn = r#"{"name":"VMID","type":"integer","jsonPath":".spec.virtualMachineID"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Address","type":"string","priority":1,"jsonPath":".status.addresses[?(@.type==\"InternalIP\")].address"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "Must set full=true when specifying format",
        "rule": "self.full || !has(self.format)"
    },
    {
        "message": "Must set full=true when specifying storage",
        "rule": "self.full || !has(self.storage)"
    }
]))]
pub struct ProxmoxMachineSpec {
    /// Identifies the VM in Kubernetes: `proxmox://` and the VM's BIOS UUID. The node of the
    /// machine carries the same. Set by the provider; leave it empty.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,

    /// Number of the VM in Proxmox. Set by the provider; leave it empty.
    #[serde(default, rename = "virtualMachineID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_id: Option<i64>,

    /// Proxmox node that holds the template of `templateID`. Set both, or `templateSelector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub source_node: Option<String>,

    /// VMID of the template to clone, on `sourceNode`. Set both, or `templateSelector`.
    #[serde(default, rename = "templateID", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Int32>")]
    pub template_id: Option<i64>,

    /// Finds the template to clone by its tags, instead of `sourceNode` and `templateID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_selector: Option<TemplateSelector>,

    /// Description of the VM, shown as its notes in Proxmox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,

    /// Format of the cloned disks: `raw`, `qcow2` or `vmdk`, as far as the storage knows it. Only
    /// for a full clone. When not set, the storage's own default applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<DiskFormat>,

    /// Whether the template's disks are copied (true) or linked to (false). A linked clone is made
    /// at once and shares the template's data, so that the template cannot be removed while it
    /// exists. Defaults to true.
    #[serde(default = "full_clone", skip_serializing_if = "Option::is_none")]
    pub full: Option<bool>,

    /// Proxmox resource pool that the VM is added to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,

    /// Snapshot of the template to clone. Its current state when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snap_name: Option<String>,

    /// Storage that the cloned disks are put on. Only for a full clone. When not set, they stay on
    /// the template's storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,

    /// Proxmox node to make the VM on, instead of one chosen among `allowedNodes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,

    /// Number of CPU sockets, at least 1. The template's when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_sockets: Option<i32>,

    /// Number of cores per socket, at least 1. The template's when not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_cores: Option<i32>,

    /// Memory in MiB, a multiple of 8. The template's when not set. A node with less memory to
    /// spare is not chosen.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(extend("multipleOf" = 8))]
    pub memory_mib: Option<i32>,

    /// Disks of the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disks: Option<Disks>,

    /// Network of the VM. The template's devices are kept when it is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSpec>,

    /// VMIDs that the VM's number is taken from. When not set, Proxmox says the next free one.
    #[serde(default, rename = "vmIDRange", skip_serializing_if = "Option::is_none")]
    pub vm_id_range: Option<VmIdRange>,

    /// Checks to leave out while the guest boots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Checks>,

    /// What the guest is told about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_settings: Option<MetadataSettings>,

    /// Proxmox nodes that the VM may be placed on. Replaces the list of the ProxmoxCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_nodes: Option<Vec<String>>,

    /// Tags for the VM, beside those of the template. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Option<Vec<Tag>>",
        length(min = 1),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub tags: Option<Vec<String>>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn full_clone() -> Option<bool> {
    Some(true)
}

impl ProxmoxMachineSpec {
    /// Whether the clone is a full one; it is unless the spec says otherwise.
    pub fn is_full_clone(&self) -> bool {
        self.full.unwrap_or(true)
    }
}

/// Finds a template by its tags.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateSelector {
    /// Tags that the template has: all of these and no others, upper and lower case being the
    /// same. Exactly one template of the Proxmox cluster must have them.
    #[schemars(with = "Vec<Tag>", length(min = 1), extend("x-kubernetes-list-type" = "set"))]
    pub match_tags: Vec<String>,
}

/// Format of a disk image.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    Raw,
    Qcow2,
    Vmdk,
}

impl DiskFormat {
    /// As Proxmox writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        }
    }
}

impl std::fmt::Display for DiskFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Disks of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disks {
    /// The disk that the VM boots from, and the size it is grown to before the first start. It
    /// keeps the template's size when not set. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "Value is immutable",
        "rule": "self == oldSelf"
    }]))]
    pub boot_volume: Option<BootVolume>,
}

/// Disk that a VM boots from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BootVolume {
    /// Proxmox name of the disk in the template, for example `scsi0`.
    pub disk: String,

    /// Size of the disk in GiB, at least 5 and at least the template's.
    #[schemars(range(min = 5))]
    pub size_gb: i32,
}

/// Range of VMIDs, both ends included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "message": "end should be greater than or equal to start",
    "rule": "self.end >= self.start"
}]))]
pub struct VmIdRange {
    /// First VMID, 100 to 999999999.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub start: i64,

    /// Last VMID, 100 to 999999999 and not below `start`.
    #[schemars(range(min = 100, max = 999_999_999))]
    pub end: i64,
}

/// Checks to leave out while a guest boots.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checks {
    /// True to take the machine for ready without asking cloud-init whether it finished. Defaults
    /// to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_cloud_init_status: Option<bool>,

    /// True to take the machine for ready as soon as its VM runs, for guests without the QEMU guest
    /// agent. cloud-init is not asked either. Defaults to false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_qemu_guest_agent: Option<bool>,
}

/// What a guest is told about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataSettings {
    /// True to put the providerID into the guest's meta-data as `provider-id`, from where
    /// cloud-init can hand it to the kubelet. Defaults to false.
    #[serde(default, rename = "providerIDInjection", skip_serializing_if = "Option::is_none")]
    pub provider_id_injection: Option<bool>,
}

/// What is known of a ProxmoxMachine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxMachineStatus {
    /// Whether the VM is provisioned: it runs and its guest was set up. Stays true from then on.
    #[serde(default)]
    pub ready: bool,

    /// Addresses of the machine: its host name, and the addresses of its network devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,

    /// State of the VM: `notfound`, `pending` or `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vm_status: Option<String>,

    /// Whether the VM was given its bootstrap data. The VM's configuration is left alone from then
    /// on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_data_provided: Option<bool>,

    /// Addresses that were claimed, by the Proxmox name of the network device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ip_addresses: BTreeMap<String, IpAddresses>,

    /// Network devices of the VM, each with its MAC address, its bridge, and the addresses that its
    /// guest was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<NetworkStatus>,

    /// Proxmox node that holds the VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxmox_node: Option<String>,

    /// UPID of the Proxmox task in flight. Look it up in the task log of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ref: Option<String>,

    /// When a step that failed is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Time>,

    /// Template that was chosen for the VM. Recorded together with the VMID, before the clone
    /// starts, so that an interrupted clone is continued from the same template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_ref: Option<TemplateRef>,

    /// Volume id of the ISO image with the bootstrap data, for example
    /// `local:iso/user-data-105.iso`. Recorded before the upload and cleared when the image has
    /// been deleted, so that none is left behind.
    #[serde(default, rename = "bootstrapISO", skip_serializing_if = "Option::is_none")]
    pub bootstrap_iso: Option<String>,

    /// Node that the image was put on. The VM may be moved while the image stays where it is.
    #[serde(default, rename = "bootstrapISONode", skip_serializing_if = "Option::is_none")]
    pub bootstrap_iso_node: Option<String>,

    /// How often cloning failed or lost its VMID to somebody else since the machine was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub clone_attempts: Option<i32>,

    /// One word for why the machine failed for good. Once set, nothing more is done for the
    /// machine until it is deleted; a MachineHealthCheck or the owner replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,

    /// Why the machine failed for good, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,

    /// Conditions: `Ready` sums up the others; `VMProvisioned` says what the VM waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,

    /// Conditions in the form that Cluster API uses from its v1beta2 contract on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<V1Beta2Conditions>,
}

impl ProxmoxMachineStatus {
    /// The conditions of the v1beta2 contract; none when none were written.
    pub fn v1beta2_conditions(&self) -> &[MetaCondition] {
        self.v1beta2.as_ref().map_or(&[], |v1beta2| v1beta2.conditions.as_slice())
    }
}

/// Template that a VM is cloned from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// Proxmox node that holds the template.
    pub node: String,

    /// VMID of the template.
    pub vmid: i64,
}

/// Kind of a machine's address.
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
pub enum MachineAddressType {
    #[default]
    Hostname,
    ExternalIP,
    InternalIP,
    ExternalDNS,
    InternalDNS,
}

/// Address of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineAddress {
    /// Kind of the address.
    #[serde(rename = "type")]
    pub type_: MachineAddressType,

    /// The address, at most 256 characters.
    #[schemars(length(min = 1, max = 256))]
    pub address: String,
}

/// Addresses of a network device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpAddresses {
    /// IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,

    /// IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
}

/// Network device of a VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Whether the device's link is up in Proxmox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<bool>,

    /// Addresses that the guest was given for the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addrs: Vec<String>,

    /// MAC address of the device.
    pub mac_addr: String,

    /// Bridge that the device is plugged into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_name: Option<String>,
}

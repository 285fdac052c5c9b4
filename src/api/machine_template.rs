//! ProxmoxMachineTemplate: what Cluster API makes ProxmoxMachines from.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster_template::TemplateMetadata;
use super::machine::ProxmoxMachineSpec;

/// What Cluster API makes ProxmoxMachines from.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ProxmoxMachineTemplate",
    plural = "proxmoxmachinetemplates",
    namespaced,
    category = "cluster-api",
    shortname = "pmt",
    doc = "ProxmoxMachineTemplate is what Cluster API makes ProxmoxMachines from."
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxMachineTemplateSpec {
    /// The ProxmoxMachine to make.
    pub template: ProxmoxMachineTemplateResource,
}

/// A ProxmoxMachine to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxMachineTemplateResource {
    /// Labels and annotations that the ProxmoxMachine gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,

    /// Spec that the ProxmoxMachine gets. To change it, make a new template and refer to that: the
    /// owners of machines roll out by the template's name.
    pub spec: ProxmoxMachineSpec,
}

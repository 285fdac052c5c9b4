//! ProxmoxClusterTemplate: what a ClusterClass makes ProxmoxClusters from.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::ProxmoxClusterSpec;

/// What a ClusterClass makes ProxmoxClusters from.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ProxmoxClusterTemplate",
    plural = "proxmoxclustertemplates",
    namespaced,
    category = "cluster-api",
    shortname = "pct",
    doc = "ProxmoxClusterTemplate is what a ClusterClass makes ProxmoxClusters from."
)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterTemplateSpec {
    /// The ProxmoxCluster to make.
    pub template: ProxmoxClusterTemplateResource,
}

/// A ProxmoxCluster to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxClusterTemplateResource {
    /// Labels and annotations that the ProxmoxCluster gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,

    /// Spec that the ProxmoxCluster gets. The addresses may be left to the patches of the
    /// ClusterClass.
    pub spec: ProxmoxClusterSpec,
}

/// Labels and annotations for an object made from a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Annotations to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

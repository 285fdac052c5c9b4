//! SCRATCH
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta1", kind = "Cluster", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    pub paused: Option<bool>,
}

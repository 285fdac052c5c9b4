//! The slices of Cluster API's Cluster and Machine that are read. They are never written, so
//! unknown fields may be dropped.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster::Endpoint;
use super::conditions::Condition;

/// API group of Cluster and Machine.
pub const GROUP: &str = "cluster.x-k8s.io";
/// Label that names the Cluster an object belongs to.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Label whose presence marks a control-plane machine.
pub const CONTROL_PLANE_LABEL: &str = "cluster.x-k8s.io/control-plane";
/// Label by which objects are dealt out to managers that were started with a watch filter.
pub const WATCH_LABEL: &str = "cluster.x-k8s.io/watch-filter";
/// Annotation whose presence says that nothing may be changed for an object.
pub const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";
/// Annotation whose presence says that somebody else looks after an infrastructure cluster.
pub const MANAGED_BY_ANNOTATION: &str = "cluster.x-k8s.io/managed-by";

/// What is read of a Cluster.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Cluster",
    plural = "clusters",
    namespaced,
    status = "ClusterStatus",
    doc = "The slice of Cluster API's Cluster that is read."
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Whether nothing may be changed for the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,

    /// The infrastructure cluster, here a ProxmoxCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectReference>,

    /// The control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<ObjectReference>,

    /// Where the workload cluster's API server is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
}

/// What is read of a Cluster's status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Whether the infrastructure cluster is ready, as Cluster API saw it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ready: Option<bool>,

    /// Whether the control plane is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ready: Option<bool>,

    /// Cluster API's own word for where the cluster stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,

    /// One word for why the cluster failed, copied from the infrastructure cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,

    /// Why the cluster failed, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,

    /// Conditions of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What is read of a Machine.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta1",
    kind = "Machine",
    plural = "machines",
    namespaced,
    status = "MachineStatus",
    doc = "The slice of Cluster API's Machine that is read."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// Name of the Cluster that the machine belongs to.
    pub cluster_name: String,

    /// Where the bootstrap data is.
    #[serde(default)]
    pub bootstrap: Bootstrap,

    /// The infrastructure machine, here a ProxmoxMachine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<ObjectReference>,

    /// Kubernetes version of the node, for example `v1.34.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Identifies the machine's VM, copied from the infrastructure machine.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,

    /// Failure domain that the machine should be made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
}

/// Where a machine's bootstrap data is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The bootstrap configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<ObjectReference>,

    /// Secret with the bootstrap data; set once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// What is read of a Machine's status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// The machine's Node, once it has joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<ObjectReference>,

    /// Whether the bootstrap data is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_ready: Option<bool>,

    /// Whether the infrastructure machine is ready, as Cluster API saw it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ready: Option<bool>,

    /// Cluster API's own word for where the machine stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,

    /// Conditions of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The owner reference of `meta` to a `kind` of Cluster API's group, in whatever version.
pub fn owner<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.kind == kind && group == GROUP
    })
}

/// The name of the Cluster that an object belongs to, by its label.
pub fn cluster_name(meta: &ObjectMeta) -> Option<&str> {
    label(meta, CLUSTER_NAME_LABEL).filter(|name| !name.is_empty())
}

/// Whether an object is marked as part of a control plane.
pub fn is_control_plane(meta: &ObjectMeta) -> bool {
    label(meta, CONTROL_PLANE_LABEL).is_some()
}

/// Whether a machine is one of the control plane, by its Machine, which alone carries the label where
/// people wrote the objects, or by its own label.
pub fn is_of_control_plane(own: &ObjectMeta, owner: Option<&ObjectMeta>) -> bool {
    owner.is_some_and(is_control_plane) || is_control_plane(own)
}

/// Whether nothing may be changed for an object: it, or the cluster it belongs to, is paused.
pub fn is_paused(meta: &ObjectMeta, cluster: Option<&Cluster>) -> bool {
    has(meta.annotations.as_ref(), PAUSED_ANNOTATION)
        || cluster.is_some_and(|cluster| cluster.spec.paused == Some(true))
}

/// Whether somebody else looks after an infrastructure cluster.
pub fn is_externally_managed(meta: &ObjectMeta) -> bool {
    has(meta.annotations.as_ref(), MANAGED_BY_ANNOTATION)
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn has(map: Option<&BTreeMap<String, String>>, key: &str) -> bool {
    map.is_some_and(|map| map.contains_key(key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn owner_is_found_by_group_and_kind_in_any_version() {
        let reference = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "name": "a", "uid": "u"});
        let owned = |api_version: &str, kind: &str| {
            let meta = meta(json!({"ownerReferences": [reference(api_version, kind)]}));
            owner(&meta, "Machine").map(|owner| owner.name.clone())
        };
        assert_eq!(owned("cluster.x-k8s.io/v1beta1", "Machine").as_deref(), Some("a"));
        assert_eq!(owned("cluster.x-k8s.io/v1beta2", "Machine").as_deref(), Some("a"));
        assert_eq!(owned("example.com/v1", "Machine"), None);
        assert_eq!(owned("cluster.x-k8s.io/v1beta1", "MachineSet"), None);
        assert_eq!(owned("v1", "Machine"), None);
    }

    #[test]
    fn paused_by_annotation_of_any_value_or_by_cluster() {
        let paused = meta(json!({"annotations": {"cluster.x-k8s.io/paused": ""}}));
        let plain = meta(json!({}));
        let cluster = |paused| Cluster::new("c", ClusterSpec { paused, ..ClusterSpec::default() });
        assert!(is_paused(&paused, None));
        assert!(is_paused(&plain, Some(&cluster(Some(true)))));
        assert!(!is_paused(&plain, Some(&cluster(Some(false)))));
        assert!(!is_paused(&plain, Some(&cluster(None))));
        assert!(!is_paused(&plain, None));
    }

    #[test]
    fn labels_say_cluster_and_role() {
        let labelled = meta(json!({"labels": {
            "cluster.x-k8s.io/cluster-name": "one", "cluster.x-k8s.io/control-plane": ""
        }}));
        assert_eq!(cluster_name(&labelled), Some("one"));
        assert!(is_control_plane(&labelled));
        let unnamed = meta(json!({"labels": {"cluster.x-k8s.io/cluster-name": ""}}));
        assert_eq!(cluster_name(&unnamed), None);
        assert!(!is_control_plane(&unnamed));
    }

    #[test]
    fn machine_as_cluster_api_writes_it_is_read() {
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
            "metadata": {"name": "m"},
            "spec": {
                "clusterName": "c", "bootstrap": {"dataSecretName": "s"},
                "infrastructureRef": {"kind": "ProxmoxMachine", "name": "p"},
                "version": "v1.34.1", "nodeDrainTimeout": "10s"
            },
            "status": {
                "bootstrapReady": true, "nodeRef": {"name": "m"}, "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]
            }
        }))
        .unwrap();
        assert_eq!(machine.spec.bootstrap.data_secret_name.as_deref(), Some("s"));
        let status = machine.status.unwrap();
        assert_eq!(status.node_ref.unwrap().name.as_deref(), Some("m"));
        assert_eq!(status.bootstrap_ready, Some(true));
    }
}

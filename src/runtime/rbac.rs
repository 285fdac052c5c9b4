//! What the manager may do in Kubernetes: one table, from which the roles are generated.
//!
//! A table and its rendering only. Every line says why; what has no reason is not granted.

use serde_json::{Value, json};

use crate::api::crd::{PROVIDER_LABEL, sorted};

/// One grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resources, with subresources as `resource/subresource`.
    pub resources: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// What it is needed for.
    pub why: &'static str,
}

const INFRASTRUCTURE: &str = crate::api::GROUP;
const CLUSTER_API: &str = crate::api::capi::GROUP;
const IPAM: &str = crate::api::ipam::GROUP;
const CONNECTION: &str = crate::api::CONNECTION_GROUP;
const EVENTS: &str = "events.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];

/// What the manager needs in every namespace it serves.
pub const MANAGER: &[Grant] = &[
    Grant {
        group: "",
        resources: &["secrets"],
        verbs: &["get", "list", "patch", "watch"],
        why: "read bootstrap data and credentials by name, notice changes by their metadata (which \
              nothing less than list and watch allows), keep credentials by a finalizer while a \
              cluster uses them",
    },
    Grant {
        group: "",
        resources: &["events"],
        verbs: &["create", "patch"],
        why: "tell what happens to an object; a repeated event is counted up by a patch",
    },
    Grant {
        group: EVENTS,
        resources: &["events"],
        verbs: &["create", "patch"],
        why: "tell it in the group that events are written in today; else it is told in the core group",
    },
    Grant {
        group: CLUSTER_API,
        resources: &["clusters", "machines"],
        verbs: READ,
        why: "owners, pause, readiness, version, bootstrap data and node of a machine",
    },
    Grant {
        group: CLUSTER_API,
        resources: &["clusters/status", "machines/status"],
        verbs: &["get"],
        why: "readiness and node, where a server checks subresources apart",
    },
    Grant {
        group: CLUSTER_API,
        resources: &["clusters/status"],
        verbs: &["patch"],
        why: "take off the failure that capmox marks a cluster without credentials with",
    },
    Grant {
        group: INFRASTRUCTURE,
        resources: &["proxmoxclusters", "proxmoxmachines"],
        verbs: &["get", "list", "patch", "update", "watch"],
        why: "our own objects: finalizers, providerID, VMID",
    },
    Grant {
        group: INFRASTRUCTURE,
        resources: &["proxmoxmachinetemplates"],
        verbs: &["get", "list"],
        why: "see what a cluster is going to ask of Proxmox, for `capmox check` in the manager's pod",
    },
    Grant {
        group: INFRASTRUCTURE,
        resources: &["proxmoxclusters/finalizers", "proxmoxmachines/finalizers"],
        verbs: &["update"],
        why: "own pools and claims with blockOwnerDeletion",
    },
    Grant {
        group: INFRASTRUCTURE,
        resources: &["proxmoxclusters/status", "proxmoxmachines/status"],
        verbs: &["get", "patch", "update"],
        why: "report status",
    },
    Grant {
        group: CONNECTION,
        resources: &["proxmoxconnections"],
        verbs: READ,
        why: "read how Proxmox is reached, where a cluster names a ProxmoxConnection; these are changed by \
              users alone",
    },
    Grant {
        group: CONNECTION,
        resources: &["proxmoxconnections/status"],
        verbs: &["get", "patch"],
        why: "report whether a connection works",
    },
    Grant {
        group: IPAM,
        resources: &["inclusterippools"],
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        why: "the pools made from a cluster's addresses",
    },
    Grant {
        group: IPAM,
        resources: &["globalinclusterippools"],
        verbs: READ,
        why: "the metric of pools that machines name",
    },
    Grant {
        group: IPAM,
        resources: &["ipaddressclaims"],
        verbs: &["create", "delete", "get", "list", "watch"],
        why: "ask for addresses, and give them back",
    },
    Grant {
        group: IPAM,
        resources: &["ipaddresses"],
        verbs: READ,
        why: "the addresses that were given",
    },
];

/// What the embedded allocator needs beside [`MANAGER`]; bound only where it is switched on.
pub const EMBEDDED_IPAM: &[Grant] = &[
    Grant {
        group: IPAM,
        resources: &["inclusterippools", "globalinclusterippools"],
        verbs: &["get", "list", "patch", "watch"],
        why: "protect pools in use by a finalizer",
    },
    Grant {
        group: IPAM,
        resources: &["inclusterippools/status", "globalinclusterippools/status"],
        verbs: &["get", "patch"],
        why: "report how full a pool is",
    },
    Grant {
        group: IPAM,
        resources: &["ipaddressclaims"],
        verbs: &["get", "list", "patch", "watch"],
        why: "claims to answer, and their finalizer",
    },
    Grant {
        group: IPAM,
        resources: &["ipaddressclaims/status"],
        verbs: &["get", "patch"],
        why: "answer a claim",
    },
    Grant {
        group: IPAM,
        resources: &["ipaddresses"],
        verbs: &["create", "delete", "get", "list", "patch", "watch"],
        why: "the addresses themselves",
    },
    Grant {
        group: IPAM,
        resources: &[
            "inclusterippools/finalizers",
            "globalinclusterippools/finalizers",
            "ipaddressclaims/finalizers",
        ],
        verbs: &["update"],
        why: "own addresses with blockOwnerDeletion",
    },
    Grant {
        group: "apps",
        resources: &["deployments"],
        verbs: &["list"],
        why: "notice that the in-cluster IPAM provider is installed",
    },
    Grant {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["list"],
        why: "notice that the in-cluster IPAM provider runs",
    },
    Grant {
        group: "clusterctl.cluster.x-k8s.io",
        resources: &["providers"],
        verbs: &["list"],
        why: "notice that clusterctl installed the in-cluster IPAM provider",
    },
];

/// What leader election needs in the manager's own namespace.
pub const LEADER_ELECTION: &[Grant] = &[
    Grant {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        why: "hold the lease",
    },
    Grant {
        group: "",
        resources: &["configmaps"],
        verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
        why: "hand over from a manager that elects by ConfigMap",
    },
    Grant { group: "", resources: &["events"], verbs: &["create", "patch"], why: "tell who leads" },
];

/// What the diagnostics server needs to ask who may read it.
pub const DIAGNOSTICS: &[Grant] = &[
    Grant {
        group: "authentication.k8s.io",
        resources: &["tokenreviews"],
        verbs: &["create"],
        why: "who asks",
    },
    Grant {
        group: "authorization.k8s.io",
        resources: &["subjectaccessreviews"],
        verbs: &["create"],
        why: "whether they may",
    },
];

/// What Cluster API's managers need of our kinds; they take it by aggregation.
pub const CLUSTER_API_MANAGERS: &[Grant] = &[Grant {
    group: INFRASTRUCTURE,
    resources: &[
        "proxmoxclusters",
        "proxmoxclustertemplates",
        "proxmoxmachines",
        "proxmoxmachinetemplates",
    ],
    verbs: &["create", "delete", "get", "list", "patch", "update", "watch"],
    why: "Cluster API makes machines from templates and takes their status over",
}];

/// The roles as Kubernetes objects, without the name prefix and namespace that kustomize adds.
pub fn roles() -> Vec<Value> {
    let plain = json!({ PROVIDER_LABEL.0: PROVIDER_LABEL.1 });
    let aggregated = json!({
        PROVIDER_LABEL.0: PROVIDER_LABEL.1,
        "cluster.x-k8s.io/aggregate-to-manager": "true",
        "kubeadm.controlplane.cluster.x-k8s.io/aggregate-to-manager": "true",
    });
    vec![
        role("ClusterRole", "manager-role", &plain, MANAGER),
        role("ClusterRole", "cluster-api-role", &aggregated, CLUSTER_API_MANAGERS),
        role("ClusterRole", "embedded-ipam-role", &plain, EMBEDDED_IPAM),
        role("ClusterRole", "proxy-role", &plain, DIAGNOSTICS),
        role("Role", "leader-election-role", &plain, LEADER_ELECTION),
    ]
}

/// The roles as one YAML file.
///
/// # Errors
///
/// A role that cannot be written as YAML, which none is.
pub fn yaml() -> Result<String, serde_yaml::Error> {
    let mut text = String::from(
        "# Generated from the table in src/runtime/rbac.rs. Edit that, then run `cargo xtask generate`.\n",
    );
    for role in roles() {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(&sorted(&role))?);
    }
    Ok(text)
}

fn role(kind: &str, name: &str, labels: &Value, grants: &[Grant]) -> Value {
    let rules: Vec<Value> = grants
        .iter()
        .map(|grant| {
            json!({
                "apiGroups": [grant.group],
                "resources": grant.resources,
                "verbs": grant.verbs,
            })
        })
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name, "labels": labels },
        "rules": rules,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_granted_by_wildcard_or_without_a_reason() {
        for grants in [MANAGER, EMBEDDED_IPAM, LEADER_ELECTION, DIAGNOSTICS, CLUSTER_API_MANAGERS] {
            for grant in grants {
                assert!(!grant.why.is_empty());
                assert!(!grant.group.contains('*'));
                for word in grant.resources.iter().chain(grant.verbs) {
                    assert!(!word.contains('*'), "{grant:?}");
                }
                assert!(grant.verbs.is_sorted(), "{grant:?}");
            }
        }
    }
}

//! Another provider that serves the same pools, told by what it leaves behind. Pure.
//!
//! Two allocators that do not know of each other hand out one address twice. So the embedded one
//! does not start where another one is installed, and stops when another one answers a claim.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::ResourceExt;

use super::FIELD_MANAGER;
use super::decide::RELEASE_ADDRESS;
use crate::api::ipam::IPAddressClaim;

/// Label of everything that clusterctl or the Cluster API operator installs for the provider.
pub(super) const PROVIDER_LABEL: &str = "cluster.x-k8s.io/provider=ipam-in-cluster";
/// Lease of the provider's leader, v1.0 and v1.1.
pub(super) const LEASE: &str = "7bb7acb4.ipam.cluster.x-k8s.io";
/// A lease that was not renewed for this long is of a process that is gone. The provider renews
/// every few seconds; the margin is for clocks that differ.
const LEASE_IS_OLD_SECONDS: i64 = 120;

/// How another provider was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// A Deployment of it that is not scaled to zero.
    Deployment(String),
    /// A Lease that its leader renews.
    Lease(String),
    /// clusterctl has installed it, and its Deployment was not found.
    Inventory(String),
    /// It took charge of a claim while this process runs.
    Answer {
        /// The claim.
        claim: String,
        /// The field manager that added the finalizer.
        manager: String,
    },
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployment(name) => write!(f, "Deployment {name} runs it"),
            Self::Lease(name) => write!(f, "its leader renews Lease {name}"),
            Self::Inventory(name) => write!(f, "clusterctl has installed it as Provider {name}"),
            Self::Answer { claim, manager } => {
                write!(f, "field manager {manager:?} took charge of IPAddressClaim {claim}")
            }
        }
    }
}

/// What the installation shows; `None` where it could not be read.
#[derive(Debug, Clone, Default)]
pub(super) struct Installed {
    pub(super) deployments: Option<Vec<Deployment>>,
    pub(super) leases: Option<Vec<Lease>>,
    /// Namespaced names of clusterctl's entries for the provider.
    pub(super) inventory: Option<Vec<String>>,
}

/// Whether another provider is installed and wanted to run.
///
/// A Deployment scaled to zero is no rival, even with an entry in clusterctl's inventory: that is
/// how somebody would try the embedded allocator.
pub(super) fn installed(seen: &Installed, now: &Time) -> Option<Evidence> {
    let deployments = seen.deployments.as_deref().unwrap_or_default();
    let scaled_up = deployments.iter().find(|deployment| {
        deployment.spec.as_ref().and_then(|spec| spec.replicas).is_none_or(|replicas| replicas > 0)
    });
    if let Some(deployment) = scaled_up {
        return Some(Evidence::Deployment(full_name(deployment)));
    }
    let leases = seen.leases.as_deref().unwrap_or_default();
    if let Some(lease) = leases.iter().find(|lease| is_live(lease, now)) {
        return Some(Evidence::Lease(full_name(lease)));
    }
    if deployments.is_empty() {
        return seen.inventory.as_deref()?.first().cloned().map(Evidence::Inventory);
    }
    None
}

fn is_live(lease: &Lease, now: &Time) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    held && renewed.is_some_and(|at| now.0.duration_since(at).as_secs() < LEASE_IS_OLD_SECONDS)
}

fn full_name<K: ResourceExt>(object: &K) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

/// Claims that another provider took charge of, by UID, with the evidence.
///
/// A provider adds its finalizer to a claim that somebody else wrote, so the field manager of the
/// finalizer does not own the spec. Who restores or moves claims writes both at once.
pub(super) fn answered_by_others(
    claims: &[IPAddressClaim],
) -> impl Iterator<Item = (String, Evidence)> + '_ {
    claims.iter().filter_map(|claim| {
        let entries = claim.metadata.managed_fields.as_deref().unwrap_or_default();
        let manager = entries.iter().filter(|entry| takes_charge(entry)).find_map(manager)?;
        let evidence = Evidence::Answer { claim: full_name(claim), manager };
        Some((claim.uid().unwrap_or_default(), evidence))
    })
}

fn manager(entry: &ManagedFieldsEntry) -> Option<String> {
    entry.manager.clone().filter(|manager| manager != FIELD_MANAGER)
}

fn takes_charge(entry: &ManagedFieldsEntry) -> bool {
    let Some(fields) = entry.fields_v1.as_ref().map(|fields| &fields.0) else { return false };
    let finalizers = fields.get("f:metadata").and_then(|metadata| metadata.get("f:finalizers"));
    let ours = format!("v:\"{RELEASE_ADDRESS}\"");
    finalizers.is_some_and(|all| all.get(&ours).is_some()) && fields.get("f:spec").is_none()
}

/// Remembers which claims others had taken charge of before this process began.
#[derive(Debug, Default)]
pub(super) struct Watch {
    before: Option<BTreeSet<String>>,
}

impl Watch {
    /// Evidence of another provider at work, from the second look on.
    pub(super) fn look(&mut self, claims: &[IPAddressClaim]) -> Option<Evidence> {
        let mut answered = answered_by_others(claims);
        let Some(before) = &self.before else {
            self.before = Some(answered.map(|(uid, _)| uid).collect());
            return None;
        };
        answered.find(|(uid, _)| !before.contains(uid)).map(|(_, evidence)| evidence)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn now() -> Time {
        serde_json::from_value(json!("2026-01-01T12:00:00Z")).unwrap()
    }

    fn deployment(replicas: &Value) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "manager", "namespace": "ipam"},
            "spec": {
                "replicas": replicas,
                "selector": {},
                "template": {},
            },
        }))
        .unwrap()
    }

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": LEASE, "namespace": "ipam"},
            "spec": {"holderIdentity": holder, "renewTime": renewed},
        }))
        .unwrap()
    }

    #[test]
    fn a_running_installation_is_a_rival() {
        let found = |seen: &Installed| installed(seen, &now()).map(|evidence| evidence.to_string());
        let inventory = Some(vec!["ipam/ipam-in-cluster".to_owned()]);
        assert_eq!(found(&Installed::default()), None);
        for (deployments, leases, expected) in [
            (vec![deployment(&json!(1))], vec![], Some("Deployment ipam/manager runs it")),
            (vec![deployment(&json!(null))], vec![], Some("Deployment ipam/manager runs it")),
            (vec![deployment(&json!(0))], vec![], None),
            (
                vec![deployment(&json!(0))],
                vec![lease("pod-1", "2026-01-01T11:59:50.000000Z")],
                Some("its leader renews Lease ipam/7bb7acb4.ipam.cluster.x-k8s.io"),
            ),
            (vec![deployment(&json!(0))], vec![lease("", "2026-01-01T11:59:50.000000Z")], None),
            (
                vec![deployment(&json!(0))],
                vec![lease("pod-1", "2026-01-01T11:50:00.000000Z")],
                None,
            ),
            (vec![], vec![], Some("clusterctl has installed it as Provider ipam/ipam-in-cluster")),
        ] {
            let seen = Installed {
                deployments: Some(deployments),
                leases: Some(leases),
                inventory: inventory.clone(),
            };
            assert_eq!(found(&seen).as_deref(), expected, "{seen:?}");
        }
    }

    fn claim(uid: &str, entries: &Value) -> IPAddressClaim {
        serde_json::from_value(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
            "kind": "IPAddressClaim",
            "metadata": {"name": "c", "namespace": "ns", "uid": uid, "managedFields": entries},
            "spec": {"poolRef": {"kind": "InClusterIPPool", "name": "p"}},
        }))
        .unwrap()
    }

    fn finalizer_by(manager: &str, with_spec: bool) -> Value {
        let mut fields = json!({"f:metadata": {"f:finalizers": {
            ".": {}, "v:\"ipam.cluster.x-k8s.io/ReleaseAddress\"": {},
        }}});
        if with_spec {
            fields["f:spec"] = json!({"f:poolRef": {}});
        }
        json!([{"manager": manager, "operation": "Update", "fieldsV1": fields}])
    }

    #[test]
    fn another_one_that_takes_charge_of_a_claim_is_a_rival() {
        let ours = claim("1", &finalizer_by(FIELD_MANAGER, false));
        let moved = claim("2", &finalizer_by("clusterctl", true));
        let bare = claim("3", &json!([]));
        let before = claim("4", &finalizer_by("manager", false));

        let mut watch = Watch::default();
        assert_eq!(watch.look(std::slice::from_ref(&before)), None, "it may be gone by now");
        assert_eq!(watch.look(&[before.clone(), ours, moved, bare]), None);

        let after = claim("5", &finalizer_by("manager", false));
        let evidence = watch.look(&[before, after]).unwrap().to_string();
        assert_eq!(evidence, "field manager \"manager\" took charge of IPAddressClaim ns/c");
    }
}

//! The objects of the IPAM contract that the provider writes, and what it makes of the answers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use super::ranges::Family;
use super::slots::{PoolRef, Slot, pool_name};
use crate::api::ipam::{
    IPAddress, IPAddressClaim, IPAddressClaimSpec, InClusterIPPool, InClusterIPPoolSpec,
};
use crate::api::{IpConfig, ProxmoxCluster, ProxmoxMachine};

/// Label that names the Cluster an object belongs to; `clusterctl move` takes such objects along.
pub const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
/// Annotation of a pool: the metric of the default route over its gateway, a decimal number.
pub const METRIC_ANNOTATION: &str = "metric";

/// The number in an annotation `metric`, as Go reads it, which takes other bases by their prefix:
/// `0x64`, and `0144` in base 8.
pub fn metric(text: &str) -> Option<u32> {
    let text = text.trim().to_ascii_lowercase();
    let based = [("0x", 16), ("0o", 8), ("0b", 2)];
    let based = based.iter().find_map(|(prefix, base)| Some((text.strip_prefix(prefix)?, *base)));
    let octal = || Some((text.strip_prefix('0').filter(|rest| !rest.is_empty())?, 8));
    let (digits, base) = based.or_else(octal).unwrap_or((&text, 10));
    // A sign is none of a metric.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| u32::from_str_radix(digits, base).ok()).flatten()
}

/// The pools of a cluster: one for each family that it configures, IPv4 first.
///
/// `cluster_name` is the name of the Cluster that owns the ProxmoxCluster.
pub fn desired_pools(cluster: &ProxmoxCluster, cluster_name: &str) -> Vec<InClusterIPPool> {
    [(Family::V4, &cluster.spec.ipv4_config), (Family::V6, &cluster.spec.ipv6_config)]
        .into_iter()
        .filter_map(|(family, config)| Some((family, config.as_ref()?)))
        .map(|(family, config)| desired_pool(cluster, cluster_name, family, config))
        .collect()
}

fn desired_pool(
    cluster: &ProxmoxCluster,
    cluster_name: &str,
    family: Family,
    config: &IpConfig,
) -> InClusterIPPool {
    let infra_name = cluster.metadata.name.as_deref().unwrap_or_default();
    let spec = InClusterIPPoolSpec {
        addresses: config.addresses.clone(),
        prefix: config.prefix,
        gateway: config.gateway.clone().filter(|gateway| !gateway.is_empty()),
        ..InClusterIPPoolSpec::default()
    };
    let mut pool = InClusterIPPool::new(&pool_name(infra_name, family), spec);
    pool.metadata.namespace.clone_from(&cluster.metadata.namespace);
    pool.metadata.labels = Some(cluster_label(cluster_name));
    pool.metadata.annotations = config
        .metric
        .map(|metric| BTreeMap::from([(METRIC_ANNOTATION.to_owned(), metric.to_string())]));
    pool.metadata.owner_references = controlled_by(cluster);
    pool
}

/// The claim for one address of a machine.
///
/// `cluster_name` is the name of the Cluster that the machine belongs to.
pub fn desired_claim(machine: &ProxmoxMachine, cluster_name: &str, slot: &Slot) -> IPAddressClaim {
    let machine_name = machine.metadata.name.as_deref().unwrap_or_default();
    let mut claim = IPAddressClaim::new(
        &slot.claim_name(machine_name),
        IPAddressClaimSpec {
            cluster_name: Some(cluster_name.to_owned()),
            pool_ref: slot.pool.clone().into(),
        },
    );
    claim.metadata = ObjectMeta {
        namespace: machine.metadata.namespace.clone(),
        labels: Some(cluster_label(cluster_name)),
        owner_references: controlled_by(machine),
        ..claim.metadata
    };
    claim
}

fn cluster_label(cluster_name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(CLUSTER_NAME_LABEL.to_owned(), cluster_name.to_owned())])
}

fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> Option<Vec<OwnerReference>> {
    let reference = owner.controller_owner_ref(&())?;
    Some(vec![OwnerReference { block_owner_deletion: Some(true), ..reference }])
}

/// An address that a machine was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assigned {
    /// The address.
    pub address: IpAddr,
    /// Length of the network's prefix.
    pub prefix: u8,
    /// The gateway, if the network has one.
    pub gateway: Option<IpAddr>,
}

/// An `IPAddress` that does not answer the claim it is named after.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("IPAddress {name} cannot be used: {why}")]
pub struct WrongAddress {
    /// Its name.
    pub name: String,
    /// What is wrong, and what to do.
    pub why: String,
}

/// Reads the address that answers a claim, and checks that it is one: made for the claim, from the
/// pool asked for, of the right family.
///
/// # Errors
///
/// [`WrongAddress`] otherwise; the machine must not use it.
pub fn read_address(
    address: &IPAddress,
    claim_name: &str,
    slot: &Slot,
) -> Result<Assigned, WrongAddress> {
    let wrong =
        |why: String| WrongAddress { name: address.metadata.name.clone().unwrap_or_default(), why };
    let spec = &address.spec;
    if spec.claim_ref.name != claim_name {
        return Err(wrong(format!(
            "it belongs to claim {}, not to {claim_name}: delete it or that claim",
            spec.claim_ref.name
        )));
    }
    let pool = PoolRef::from(&spec.pool_ref);
    if pool != slot.pool {
        return Err(wrong(format!(
            "it comes from {pool}, not from {}: delete claim {claim_name} to get one from there",
            slot.pool
        )));
    }
    let parse = |field: &str, text: &str| {
        text.parse::<IpAddr>()
            .ok()
            .filter(|ip| Family::from(*ip) == slot.family)
            .ok_or_else(|| wrong(format!("{field} {text:?} is no {} address", slot.family)))
    };
    let ip = parse("spec.address", &spec.address)?;
    let gateway = spec.gateway.as_deref().filter(|text| !text.is_empty());
    let prefix =
        u8::try_from(spec.prefix).ok().filter(|prefix| *prefix <= slot.family.bits()).ok_or_else(
            || wrong(format!("spec.prefix {} does not fit {}", spec.prefix, slot.family)),
        )?;
    let gateway = gateway.map(|text| parse("spec.gateway", text)).transpose()?;
    Ok(Assigned { address: ip, prefix, gateway })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::super::slots::wanted_slots;
    use super::*;

    fn cluster() -> ProxmoxCluster {
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ProxmoxCluster",
            "metadata": {"name": "infra", "namespace": "ns", "uid": "c-uid"},
            "spec": {
                "dnsServers": ["10.0.0.1"],
                "ipv4Config": {
                    "addresses": ["10.0.0.10-10.0.0.20"],
                    "prefix": 24,
                    "gateway": "10.0.0.1",
                    "metric": 50,
                },
                "ipv6Config": {"addresses": ["fd00::/64"], "prefix": 64, "metric": null},
            },
        }))
        .unwrap()
    }

    fn machine() -> ProxmoxMachine {
        serde_json::from_value(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ProxmoxMachine",
            "metadata": {"name": "m1", "namespace": "ns", "uid": "m-uid"},
            "spec": {"sourceNode": "pve1", "templateID": 900},
        }))
        .unwrap()
    }

    #[test]
    fn the_pools_are_those_of_the_peer_and_move_with_the_cluster() {
        let pools = desired_pools(&cluster(), "workload");
        let as_json: Vec<Value> =
            pools.iter().map(|pool| serde_json::to_value(pool).unwrap()).collect();
        let owner = json!([{
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ProxmoxCluster",
            "name": "infra",
            "uid": "c-uid",
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        assert_eq!(
            as_json[0],
            json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2",
                "kind": "InClusterIPPool",
                "metadata": {
                    "name": "infra-v4-icip",
                    "namespace": "ns",
                    "labels": {"cluster.x-k8s.io/cluster-name": "workload"},
                    "annotations": {"metric": "50"},
                    "ownerReferences": owner,
                },
                "spec": {
                    "addresses": ["10.0.0.10-10.0.0.20"],
                    "prefix": 24,
                    "gateway": "10.0.0.1",
                },
            })
        );
        assert_eq!(as_json[1]["metadata"]["name"], "infra-v6-icip");
        assert_eq!(as_json[1]["metadata"]["annotations"], json!(null));
        assert_eq!(as_json.len(), 2);
    }

    #[test]
    fn the_claim_is_that_of_the_peer_and_names_its_cluster_twice() {
        let slot = wanted_slots("infra", &cluster().spec, &machine().spec).remove(0);
        let claim = serde_json::to_value(desired_claim(&machine(), "workload", &slot)).unwrap();
        assert_eq!(
            claim,
            json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
                "kind": "IPAddressClaim",
                "metadata": {
                    "name": "m1-net0-inet",
                    "namespace": "ns",
                    "labels": {"cluster.x-k8s.io/cluster-name": "workload"},
                    "ownerReferences": [{
                        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
                        "kind": "ProxmoxMachine",
                        "name": "m1",
                        "uid": "m-uid",
                        "controller": true,
                        "blockOwnerDeletion": true,
                    }],
                },
                "spec": {
                    "clusterName": "workload",
                    "poolRef": {
                        "apiGroup": "ipam.cluster.x-k8s.io",
                        "kind": "InClusterIPPool",
                        "name": "infra-v4-icip",
                    },
                },
            })
        );
    }

    fn address(change: &Value) -> IPAddress {
        let mut spec = json!({
            "claimRef": {"name": "m1-net0-inet"},
            "poolRef": {
                "apiGroup": "ipam.cluster.x-k8s.io",
                "kind": "InClusterIPPool",
                "name": "infra-v4-icip",
            },
            "address": "10.0.0.10",
            "prefix": 24,
            "gateway": "10.0.0.1",
        });
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
            "kind": "IPAddress",
            "metadata": {"name": "m1-net0-inet", "namespace": "ns"},
            "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn a_metric_is_read_as_go_reads_it() {
        for (text, number) in [
            ("100", Some(100)),
            (" 0 ", Some(0)),
            ("0x64", Some(100)),
            ("0144", Some(100)),
            ("0o144", Some(100)),
            ("0b11", Some(3)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("", None),
            ("0x", None),
            ("08", None),
            ("+1", None),
            ("-1", None),
            ("é", None),
            ("ten", None),
        ] {
            assert_eq!(metric(text), number, "{text:?}");
        }
    }

    #[test]
    fn an_address_is_used_only_when_it_answers_the_claim() {
        let slot = wanted_slots("infra", &cluster().spec, &machine().spec).remove(0);
        let read = |change| read_address(&address(&change), "m1-net0-inet", &slot);
        let expected = Assigned {
            address: "10.0.0.10".parse().unwrap(),
            prefix: 24,
            gateway: Some("10.0.0.1".parse().unwrap()),
        };
        assert_eq!(read(json!({})), Ok(expected));
        assert_eq!(read(json!({"gateway": ""})), Ok(Assigned { gateway: None, ..expected }));
        for (change, part) in [
            (json!({"claimRef": {"name": "other"}}), "belongs to claim other"),
            (
                json!({"poolRef": {"apiGroup": "x", "kind": "InClusterIPPool", "name": "p"}}),
                "comes from InClusterIPPool p",
            ),
            (json!({"address": "fd00::1"}), "spec.address \"fd00::1\" is no IPv4 address"),
            (json!({"address": "?"}), "spec.address"),
            (json!({"gateway": "?"}), "spec.gateway"),
            (json!({"prefix": 33}), "spec.prefix 33"),
        ] {
            let text = read(change).unwrap_err().to_string();
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
    }
}

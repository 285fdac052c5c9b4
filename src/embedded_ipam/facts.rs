//! What was seen of claims, addresses, pools and clusters. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::api::ipam::{
    IPAddress, IPAddressClaim, InClusterIPPoolSpec, InClusterIPPoolStatusIPAddresses,
};
use crate::ipam::pool::{AddressPool, InvalidPool, PoolSpec};
use crate::ipam::{CLUSTER_NAME_LABEL, GLOBAL_IN_CLUSTER_POOL, GROUP, IN_CLUSTER_POOL, PoolRef};

/// Set on whatever Cluster API objects are to be left alone, with any value.
pub(super) const PAUSED_ANNOTATION: &str = "cluster.x-k8s.io/paused";

/// The kinds of pools that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PoolKind {
    InCluster,
    Global,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PoolKey {
    pub(super) kind: PoolKind,
    /// Empty for a pool of all namespaces.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl PoolKey {
    /// The pool that a reference in `namespace` means, if it is one that is served.
    pub(super) fn resolve(reference: &PoolRef, namespace: &str) -> Option<Self> {
        let kind = match reference.kind.as_str() {
            IN_CLUSTER_POOL => PoolKind::InCluster,
            GLOBAL_IN_CLUSTER_POOL => PoolKind::Global,
            _ => return None,
        };
        let namespace = match kind {
            PoolKind::InCluster => namespace.to_owned(),
            PoolKind::Global => String::new(),
        };
        (reference.group == GROUP).then(|| Self { kind, namespace, name: reference.name.clone() })
    }
}

impl fmt::Display for PoolKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            PoolKind::InCluster => {
                write!(f, "{IN_CLUSTER_POOL} {}/{}", self.namespace, self.name)
            }
            PoolKind::Global => write!(f, "{GLOBAL_IN_CLUSTER_POOL} {}", self.name),
        }
    }
}

/// A pool of either kind.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    pub(super) key: PoolKey,
    pub(super) metadata: ObjectMeta,
    pub(super) spec: InClusterIPPoolSpec,
    /// The figures that its status shows.
    pub(super) shown: Option<InClusterIPPoolStatusIPAddresses>,
}

impl Pool {
    pub(super) fn read(&self) -> Result<AddressPool, InvalidPool> {
        AddressPool::new(&PoolSpec {
            addresses: &self.spec.addresses,
            prefix: self.spec.prefix,
            gateway: self.spec.gateway.as_deref(),
            allocate_reserved: self.spec.allocate_reserved_ip_addresses.unwrap_or_default(),
            excluded: self.spec.excluded_addresses.as_deref().unwrap_or_default(),
        })
    }
}

/// Namespace and name.
pub(super) type Key = (String, String);

/// One look at everything, newest first-hand state of each kind.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) claims: Vec<IPAddressClaim>,
    pub(super) addresses: BTreeMap<Key, IPAddress>,
    pub(super) pools: BTreeMap<PoolKey, Pool>,
    /// Clusters, and whether each is paused.
    pub(super) clusters: BTreeMap<Key, bool>,
}

/// Namespace and name of an object.
pub(super) fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Whether the object asks to be left alone.
pub(super) fn is_paused(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|all| all.contains_key(PAUSED_ANNOTATION))
}

/// Whether the finalizer is on the object.
pub(super) fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|own| own == finalizer)
}

/// The Cluster that a claim names, in its spec or by its label.
pub(super) fn cluster_of(claim: &IPAddressClaim) -> Option<Key> {
    let named = claim.spec.cluster_name.as_deref().filter(|name| !name.is_empty());
    let name = named.or_else(|| claim.labels().get(CLUSTER_NAME_LABEL).map(String::as_str))?;
    Some((claim.namespace().unwrap_or_default(), name.to_owned()))
}

impl Facts {
    /// The `IPAddress` objects of each pool, also of pools that are gone.
    pub(super) fn addresses_by_pool(&self) -> BTreeMap<PoolKey, Vec<&IPAddress>> {
        let mut by_pool: BTreeMap<PoolKey, Vec<&IPAddress>> = BTreeMap::new();
        for ((namespace, _), address) in &self.addresses {
            let reference = PoolRef::from(&address.spec.pool_ref);
            if let Some(pool) = PoolKey::resolve(&reference, namespace) {
                by_pool.entry(pool).or_default().push(address);
            }
        }
        by_pool
    }
}

/// The addresses that can be read.
pub(super) fn in_use(addresses: &[&IPAddress]) -> BTreeSet<IpAddr> {
    addresses.iter().filter_map(|address| address.spec.address.parse().ok()).collect()
}

//! What is to be done next. Pure: from one look at everything to steps and reports.
//!
//! Every pass decides from the beginning. A claim first gets its finalizer, and is given an address
//! only in a later pass that has seen it; the same holds for the pool. So nothing is handed out
//! that could not be taken back. Claims are served oldest first, each with the lowest address that
//! is neither in use nor handed out in this pass.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::facts::{
    Facts, Key, Pool, PoolKey, PoolKind, cluster_of, has_finalizer, in_use, is_paused, key,
};
use crate::api::ipam::{
    GlobalInClusterIPPool, IPAddress, IPAddressClaim, IPAddressSpec, InClusterIPPool,
};
use crate::ipam::pool::{AddressPool, InvalidPool, Usage};
use crate::ipam::{CLUSTER_NAME_LABEL, PoolRef};

/// Keeps a claim until its address is released.
pub(super) const RELEASE_ADDRESS: &str = "ipam.cluster.x-k8s.io/ReleaseAddress";
/// Keeps an address while its claim is there.
pub(super) const PROTECT_ADDRESS: &str = "ipam.cluster.x-k8s.io/ProtectAddress";
/// Keeps a pool while addresses of it are in use.
pub(super) const PROTECT_POOL: &str = "ipam.cluster.x-k8s.io/ProtectPool";

/// An object that is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Claim(Key),
    Address(Key),
    Pool(PoolKey),
}

/// One write. Each carries the version it was decided on, so that it fails if that is outdated.
#[derive(Debug, Clone)]
pub(super) enum Step {
    SetFinalizers {
        target: Target,
        version: String,
        finalizers: Vec<String>,
    },
    CreateAddress(Box<IPAddress>),
    /// Makes an address that answers a claim ours in full: finalizer, owners, label.
    CompleteAddress {
        address: Key,
        version: String,
        metadata: Box<ObjectMeta>,
    },
    DeleteAddress {
        address: Key,
        uid: String,
        version: String,
    },
}

/// Why a claim has no address, with the reason names of the IPAM contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    AllocationFailed,
    PoolNotReady,
    PoolExhausted,
}

/// Where a claim stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not ours, or paused: nothing is done and nothing said.
    LeftAlone,
    /// A step of this pass brings it forward.
    Moving,
    /// It has its address.
    Bound,
    /// It waits; the text is for people.
    Waiting(Reason, String),
}

/// What a pass comes to.
#[derive(Debug, Clone, Default)]
pub(super) struct Decision {
    /// Writes, in order.
    pub(super) steps: Vec<Step>,
    /// Where each claim stands.
    pub(super) claims: BTreeMap<Key, Standing>,
    /// Figures of each pool that can be understood.
    pub(super) pools: BTreeMap<PoolKey, Usage>,
    /// Pools that cannot be understood.
    pub(super) invalid: BTreeMap<PoolKey, InvalidPool>,
}

/// Decides on everything that was seen.
pub(super) fn decide(facts: &Facts) -> Decision {
    let by_pool = facts.addresses_by_pool();
    let mut pass = Pass { facts, pools: BTreeMap::new(), decision: Decision::default() };
    for (key, pool) in &facts.pools {
        let addresses = by_pool.get(key).map(Vec::as_slice).unwrap_or_default();
        pass.pool(key, pool, addresses);
    }
    let mut claims: Vec<&IPAddressClaim> = facts.claims.iter().collect();
    claims.sort_by_cached_key(|claim| {
        (claim.metadata.creation_timestamp.as_ref().map(|time| time.0), key(&claim.metadata))
    });
    for claim in claims {
        let standing = pass.claim(claim);
        pass.decision.claims.insert(key(&claim.metadata), standing);
    }
    pass.orphans();
    pass.decision
}

/// A pool during a pass.
struct Open<'a> {
    pool: &'a Pool,
    read: Result<AddressPool, InvalidPool>,
    /// Addresses in use, and those handed out in this pass.
    taken: BTreeSet<IpAddr>,
    usage: Usage,
}

struct Pass<'a> {
    facts: &'a Facts,
    pools: BTreeMap<&'a PoolKey, Open<'a>>,
    decision: Decision,
}

impl<'a> Pass<'a> {
    fn pool(&mut self, key: &'a PoolKey, pool: &'a Pool, addresses: &[&IPAddress]) {
        let read = pool.read();
        let texts = addresses.iter().map(|address| address.spec.address.as_str());
        let usage = read.as_ref().map(|read| read.usage(texts)).unwrap_or_default();
        if !is_paused(&pool.metadata) {
            self.protect_pool(key, &pool.metadata, !addresses.is_empty());
            match &read {
                Ok(_) => drop(self.decision.pools.insert(key.clone(), usage)),
                Err(why) => drop(self.decision.invalid.insert(key.clone(), why.clone())),
            }
        }
        self.pools.insert(key, Open { pool, read, taken: in_use(addresses), usage });
    }

    /// A pool is kept from deletion while addresses of it exist.
    fn protect_pool(&mut self, key: &PoolKey, metadata: &ObjectMeta, used: bool) {
        let deleting = metadata.deletion_timestamp.is_some();
        let target = || Target::Pool(key.clone());
        match (has_finalizer(metadata, PROTECT_POOL), deleting) {
            (false, false) => self.add_finalizer(target(), metadata, PROTECT_POOL),
            (true, true) if !used => self.remove_finalizer(target(), metadata, PROTECT_POOL),
            _ => {}
        }
    }

    fn claim(&mut self, claim: &IPAddressClaim) -> Standing {
        let metadata = &claim.metadata;
        let reference = PoolRef::from(&claim.spec.pool_ref);
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let Some(pool) = PoolKey::resolve(&reference, &namespace) else {
            return Standing::LeftAlone;
        };
        let deleting = metadata.deletion_timestamp.is_some();
        let pool_paused = self.pools.get(&pool).is_some_and(|open| is_paused(&open.pool.metadata));
        if is_paused(metadata) || pool_paused || self.cluster_says_wait(claim, deleting) {
            return Standing::LeftAlone;
        }
        let protected = has_finalizer(metadata, RELEASE_ADDRESS);
        match (deleting, protected) {
            (true, false) => Standing::LeftAlone,
            (true, true) => self.release(claim),
            (false, false) => {
                self.add_finalizer(Target::Claim(key(metadata)), metadata, RELEASE_ADDRESS);
                Standing::Moving
            }
            (false, true) => self.serve(claim, &pool),
        }
    }

    /// A claim of a paused cluster waits; so does one whose cluster is not there (yet), unless it is
    /// being deleted: the cluster may have gone before it.
    fn cluster_says_wait(&self, claim: &IPAddressClaim, deleting: bool) -> bool {
        cluster_of(claim).is_some_and(|cluster| match self.facts.clusters.get(&cluster) {
            Some(paused) => *paused,
            None => !deleting,
        })
    }

    fn release(&mut self, claim: &IPAddressClaim) -> Standing {
        let claim_key = key(&claim.metadata);
        if let Some(address) = self.facts.addresses.get(&claim_key)
            && address.spec.claim_ref.name == claim_key.1
        {
            if has_finalizer(&address.metadata, PROTECT_ADDRESS) {
                let target = Target::Address(claim_key);
                self.remove_finalizer(target, &address.metadata, PROTECT_ADDRESS);
                return Standing::Moving;
            }
            if address.metadata.deletion_timestamp.is_none() {
                self.decision.steps.push(Step::DeleteAddress {
                    address: claim_key,
                    uid: address.uid().unwrap_or_default(),
                    version: address.resource_version().unwrap_or_default(),
                });
                return Standing::Moving;
            }
            // Somebody else's finalizer holds the address: it stays in use, the claim may go.
        }
        self.remove_finalizer(Target::Claim(claim_key), &claim.metadata, RELEASE_ADDRESS);
        Standing::Moving
    }

    fn serve(&mut self, claim: &IPAddressClaim, pool: &PoolKey) -> Standing {
        let claim_key = key(&claim.metadata);
        if let Some(address) = self.facts.addresses.get(&claim_key) {
            return self.existing(claim, pool, address);
        }
        let not_ready = |why: String| Standing::Waiting(Reason::PoolNotReady, why);
        let Some(open) = self.pools.get_mut(pool) else {
            return not_ready(format!("{pool} does not exist: create it or correct spec.poolRef"));
        };
        if open.pool.metadata.deletion_timestamp.is_some() {
            return not_ready(format!("{pool} is being deleted"));
        }
        let read = match &open.read {
            Ok(read) => read,
            Err(why) => return not_ready(format!("{pool} cannot be used: {why}")),
        };
        if !has_finalizer(&open.pool.metadata, PROTECT_POOL) {
            return Standing::Moving;
        }
        let Some(free) = read.lowest_free(&open.taken) else {
            // Nothing that changes with each address: all who wait would be written to each time.
            let total = open.usage.total;
            return Standing::Waiting(
                Reason::PoolExhausted,
                format!(
                    "{pool} has no free address: it hands out {total}, and all are taken. Add \
                     addresses to its spec.addresses or delete claims that are not needed"
                ),
            );
        };
        open.taken.insert(free);
        let address = new_address(claim, open.pool, read, free);
        self.decision.steps.push(Step::CreateAddress(Box::new(address)));
        Standing::Moving
    }

    /// There is an address of the claim's name already.
    fn existing(
        &mut self,
        claim: &IPAddressClaim,
        pool: &PoolKey,
        address: &IPAddress,
    ) -> Standing {
        let (namespace, name) = key(&claim.metadata);
        let from = PoolKey::resolve(&PoolRef::from(&address.spec.pool_ref), &namespace);
        let foreign_owner = address.owner_references().iter().any(|owner| {
            owner.controller == Some(true)
                && (owner.kind != IPAddressClaim::kind(&()) || owner.name != name)
        });
        if address.spec.claim_ref.name != name || from.as_ref() != Some(pool) || foreign_owner {
            return Standing::Waiting(
                Reason::AllocationFailed,
                format!(
                    "IPAddress {namespace}/{name} exists and is not the answer to this claim: its \
                     claim is {} and its pool {}. Delete that IPAddress, or this claim",
                    address.spec.claim_ref.name,
                    PoolRef::from(&address.spec.pool_ref)
                ),
            );
        }
        // A pool that is gone leaves its addresses: owned by the claim alone.
        let pool = self.pools.get(pool).map(|open| open.pool);
        let complete = completed(&address.metadata, claim, pool);
        if complete != address.metadata && address.metadata.deletion_timestamp.is_none() {
            self.decision.steps.push(Step::CompleteAddress {
                address: (namespace, name),
                version: address.resource_version().unwrap_or_default(),
                metadata: Box::new(complete),
            });
            return Standing::Moving;
        }
        Standing::Bound
    }

    /// Addresses that wait to go and whose claim went without releasing them.
    fn orphans(&mut self) {
        let claims: BTreeSet<Key> = self.facts.claims.iter().map(|c| key(&c.metadata)).collect();
        for (address_key, address) in &self.facts.addresses {
            let claim = (address_key.0.clone(), address.spec.claim_ref.name.clone());
            let reference = PoolRef::from(&address.spec.pool_ref);
            if address.metadata.deletion_timestamp.is_some()
                && has_finalizer(&address.metadata, PROTECT_ADDRESS)
                && PoolKey::resolve(&reference, &address_key.0).is_some()
                && !claims.contains(&claim)
            {
                let target = Target::Address(address_key.clone());
                self.remove_finalizer(target, &address.metadata, PROTECT_ADDRESS);
            }
        }
    }

    fn add_finalizer(&mut self, target: Target, metadata: &ObjectMeta, finalizer: &str) {
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer.to_owned());
        self.set_finalizers(target, metadata, finalizers);
    }

    fn remove_finalizer(&mut self, target: Target, metadata: &ObjectMeta, finalizer: &str) {
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|own| own != finalizer);
        self.set_finalizers(target, metadata, finalizers);
    }

    fn set_finalizers(&mut self, target: Target, metadata: &ObjectMeta, finalizers: Vec<String>) {
        let version = metadata.resource_version.clone().unwrap_or_default();
        self.decision.steps.push(Step::SetFinalizers { target, version, finalizers });
    }
}

fn new_address(claim: &IPAddressClaim, pool: &Pool, read: &AddressPool, free: IpAddr) -> IPAddress {
    let name = claim.name_any();
    let mut address = IPAddress::new(
        &name,
        IPAddressSpec {
            claim_ref: LocalObjectReference { name: name.clone() },
            pool_ref: claim.spec.pool_ref.clone(),
            address: free.to_string(),
            prefix: read.prefix().into(),
            gateway: read.gateway().map(|gateway| gateway.to_string()),
        },
    );
    address.metadata.namespace.clone_from(&claim.metadata.namespace);
    address.metadata = completed(&address.metadata, claim, Some(pool));
    address
}

/// The metadata of an address, with all that it must have to answer the claim.
fn completed(metadata: &ObjectMeta, claim: &IPAddressClaim, pool: Option<&Pool>) -> ObjectMeta {
    let mut complete = metadata.clone();
    if let Some(cluster) = claim.labels().get(CLUSTER_NAME_LABEL) {
        complete
            .labels
            .get_or_insert_default()
            .insert(CLUSTER_NAME_LABEL.to_owned(), cluster.clone());
    }
    let finalizers = complete.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|own| own == PROTECT_ADDRESS) {
        finalizers.push(PROTECT_ADDRESS.to_owned());
    }
    let owners = complete.owner_references.get_or_insert_default();
    let by_claim = claim.controller_owner_ref(&());
    let by_pool = pool.map(|pool| match pool.key.kind {
        PoolKind::InCluster => owner::<InClusterIPPool>(pool),
        PoolKind::Global => owner::<GlobalInClusterIPPool>(pool),
    });
    for wanted in by_claim.into_iter().chain(by_pool) {
        own(owners, OwnerReference { block_owner_deletion: Some(true), ..wanted });
    }
    complete
}

fn owner<K: Resource<DynamicType = ()>>(pool: &Pool) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: pool.key.name.clone(),
        uid: pool.metadata.uid.clone().unwrap_or_default(),
        controller: Some(false),
        block_owner_deletion: None,
    }
}

/// Puts the owner in, in place of one of the same kind and name: an object that was made anew, or
/// moved from another management cluster, has another UID.
fn own(owners: &mut Vec<OwnerReference>, wanted: OwnerReference) {
    match owners.iter_mut().find(|own| own.kind == wanted.kind && own.name == wanted.name) {
        Some(own) => *own = wanted,
        None => owners.push(wanted),
    }
}

#[cfg(test)]
mod tests;

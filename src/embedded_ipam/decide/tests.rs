//! Decisions over whole worlds: single cases, and what holds for any sequence of events.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const IPAM: &str = "ipam.cluster.x-k8s.io";

/// The facts, changed by steps as the apiserver would change them.
#[derive(Debug, Clone, Default)]
struct World {
    facts: Facts,
    made: u32,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pool_key(name: &str) -> PoolKey {
    PoolKey { kind: PoolKind::InCluster, namespace: "ns".into(), name: name.into() }
}

fn claim_key(name: &str) -> Key {
    ("ns".to_owned(), name.to_owned())
}

impl World {
    fn metadata(&mut self, name: &str) -> Value {
        self.made += 1;
        json!({
            "name": name,
            "namespace": "ns",
            "uid": format!("uid-{}", self.made),
            "resourceVersion": "1",
            "creationTimestamp": format!("2026-01-01T00:{:02}:{:02}Z", self.made / 60, self.made % 60),
        })
    }

    fn pool(mut self, name: &str, addresses: &[&str]) -> Self {
        let pool = Pool {
            key: pool_key(name),
            metadata: read(self.metadata(name)),
            spec: read(json!({"addresses": addresses, "prefix": 24, "gateway": "10.0.0.1"})),
            shown: None,
        };
        self.facts.pools.insert(pool.key.clone(), pool);
        self
    }

    fn claim(mut self, name: &str, pool: &str) -> Self {
        self.add_claim(name, pool, &json!({}));
        self
    }

    fn add_claim(&mut self, name: &str, pool: &str, change: &Value) {
        let mut metadata = self.metadata(name);
        metadata.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        self.facts.claims.push(read(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
            "kind": "IPAddressClaim",
            "metadata": metadata,
            "spec": {"poolRef": {"apiGroup": IPAM, "kind": "InClusterIPPool", "name": pool}},
        })));
    }

    fn claim_mut(&mut self, name: &str) -> &mut IPAddressClaim {
        self.facts.claims.iter_mut().find(|claim| claim.name_any() == name).unwrap()
    }

    fn delete_claim(&mut self, name: &str) {
        mark_deleted(&mut self.claim_mut(name).metadata);
        self.collect();
    }

    fn delete_pool(&mut self, name: &str) {
        mark_deleted(&mut self.facts.pools.get_mut(&pool_key(name)).unwrap().metadata);
        self.collect();
    }

    /// Drops what is deleted and held by nothing.
    fn collect(&mut self) {
        let stays = |metadata: &ObjectMeta| {
            metadata.deletion_timestamp.is_none()
                || metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())
        };
        self.facts.claims.retain(|claim| stays(&claim.metadata));
        self.facts.addresses.retain(|_, address| stays(&address.metadata));
        self.facts.pools.retain(|_, pool| stays(&pool.metadata));
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::SetFinalizers { target, finalizers, .. } => {
                let metadata = match target {
                    Target::Claim(key) => &mut self.claim_mut(&key.1).metadata,
                    Target::Address(key) => {
                        &mut self.facts.addresses.get_mut(key).unwrap().metadata
                    }
                    Target::Pool(key) => &mut self.facts.pools.get_mut(key).unwrap().metadata,
                };
                metadata.finalizers = Some(finalizers.clone());
            }
            Step::CreateAddress(address) => {
                let before = self.facts.addresses.insert(key(&address.metadata), *address.clone());
                assert!(before.is_none(), "{address:?} was there");
            }
            Step::CompleteAddress { address, metadata, .. } => {
                self.facts.addresses.get_mut(address).unwrap().metadata = *metadata.clone();
            }
            Step::DeleteAddress { address, .. } => {
                mark_deleted(&mut self.facts.addresses.get_mut(address).unwrap().metadata);
            }
        }
        self.collect();
    }

    /// Passes until there is nothing left to do.
    fn settle(&mut self) -> Decision {
        for _ in 0..10 {
            let decision = decide(&self.facts);
            if decision.steps.is_empty() {
                return decision;
            }
            for step in &decision.steps {
                self.apply(step);
            }
        }
        panic!("no end of steps: {:#?}", decide(&self.facts).steps)
    }

    fn address_of(&self, claim: &str) -> Option<&str> {
        self.facts.addresses.get(&claim_key(claim)).map(|found| found.spec.address.as_str())
    }
}

fn mark_deleted(metadata: &mut ObjectMeta) {
    metadata.deletion_timestamp.get_or_insert(read(json!("2026-01-02T00:00:00Z")));
}

fn waits_for(decision: &Decision, claim: &str, reason: Reason, part: &str) {
    match &decision.claims[&claim_key(claim)] {
        Standing::Waiting(got, text) => {
            assert_eq!(*got, reason, "{text}");
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_gets_the_lowest_free_address_and_everything_that_goes_with_it() {
    let mut world = World::default().pool("p", &["10.0.0.0-10.0.0.2"]).claim("a", "p");
    let label = json!({CLUSTER_NAME_LABEL: "workload"});
    world.facts.clusters.insert(claim_key("workload"), false);
    world.add_claim("b", "p", &json!({"labels": label}));
    let decision = world.settle();
    assert_eq!(world.address_of("a"), Some("10.0.0.2"), "not the network, not the gateway");
    waits_for(&decision, "b", Reason::PoolExhausted, "it hands out 1, and all are taken");
    assert_eq!(decision.claims[&claim_key("a")], Standing::Bound);
    assert_eq!(decision.pools[&pool_key("p")].free, 0);

    world.delete_claim("a");
    world.settle();
    assert_eq!((world.address_of("a"), world.address_of("b")), (None, Some("10.0.0.2")));
    let address = serde_json::to_value(&world.facts.addresses[&claim_key("b")]).unwrap();
    assert_eq!(
        address["metadata"],
        json!({
            "name": "b",
            "namespace": "ns",
            "labels": label,
            "finalizers": [PROTECT_ADDRESS],
            "ownerReferences": [
                {
                    "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
                    "kind": "IPAddressClaim",
                    "name": "b",
                    "uid": "uid-3",
                    "controller": true,
                    "blockOwnerDeletion": true,
                },
                {
                    "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2",
                    "kind": "InClusterIPPool",
                    "name": "p",
                    "uid": "uid-1",
                    "controller": false,
                    "blockOwnerDeletion": true,
                },
            ],
        })
    );
    assert_eq!(address["spec"]["claimRef"], json!({"name": "b"}));
    assert_eq!(address["spec"]["gateway"], "10.0.0.1");
    assert_eq!(address["spec"]["prefix"], 24);
}

#[test]
fn nothing_is_handed_out_before_claim_and_pool_are_protected() {
    let world = World::default().pool("p", &["10.0.0.2"]).claim("a", "p");
    let first = decide(&world.facts).steps;
    let finalizers_only = first.iter().all(|step| matches!(step, Step::SetFinalizers { .. }));
    assert!(finalizers_only && first.len() == 2, "{first:?}");
}

#[test]
fn a_pool_in_use_is_kept_and_one_that_goes_hands_out_nothing() {
    let mut world = World::default().pool("p", &["10.0.0.2-10.0.0.9"]).claim("a", "p");
    world.settle();
    world.delete_pool("p");
    world.add_claim("b", "p", &json!({}));
    let decision = world.settle();
    waits_for(&decision, "b", Reason::PoolNotReady, "InClusterIPPool ns/p is being deleted");
    assert!(world.facts.pools.contains_key(&pool_key("p")));

    world.delete_claim("a");
    let decision = world.settle();
    assert!(world.facts.pools.is_empty());
    waits_for(&decision, "b", Reason::PoolNotReady, "InClusterIPPool ns/p does not exist");
}

#[test]
fn a_pool_that_contradicts_itself_is_told_on_the_claim() {
    let mut world = World::default().pool("p", &["10.0.0.2", "fd00::1"]).claim("a", "p");
    let decision = world.settle();
    waits_for(&decision, "a", Reason::PoolNotReady, "spec.addresses mixes IPv4 and IPv6");
    assert!(decision.invalid.contains_key(&pool_key("p")) && decision.pools.is_empty());
}

#[test]
fn what_is_paused_is_left_alone() {
    let paused = json!({"annotations": {"cluster.x-k8s.io/paused": "true"}});
    let mut world = World::default().pool("p", &["10.0.0.2-10.0.0.9"]);
    world.add_claim("itself", "p", &paused);
    for (claim, cluster) in [("of-paused", "paused"), ("of-none", "none"), ("of-live", "live")] {
        world.add_claim(claim, "p", &json!({"labels": {CLUSTER_NAME_LABEL: cluster}}));
    }
    world.facts.clusters.insert(claim_key("paused"), true);
    world.facts.clusters.insert(claim_key("live"), false);
    world.settle();
    assert_eq!(world.facts.addresses.len(), 1);
    assert!(world.address_of("of-live").is_some());

    world.facts.clusters.insert(claim_key("paused"), false);
    world.settle();
    assert!(world.address_of("of-paused").is_some());

    // Paused again, it is not even released; a cluster that went lets its claims go.
    world.facts.clusters.insert(claim_key("paused"), true);
    world.delete_claim("of-paused");
    world.settle();
    assert!(world.address_of("of-paused").is_some());
    world.facts.clusters.clear();
    world.settle();
    assert_eq!(world.address_of("of-paused"), None);
}

#[test]
fn claims_for_others_are_not_touched() {
    let mut world = World::default().pool("p", &["10.0.0.2"]);
    for (name, reference) in [
        ("a", json!({"apiGroup": "ipam.example.com", "kind": "InClusterIPPool", "name": "p"})),
        ("b", json!({"apiGroup": IPAM, "kind": "InClusterPrefixPool", "name": "p"})),
        ("c", json!({"kind": "InClusterIPPool", "name": "p"})),
    ] {
        world.add_claim(name, "p", &json!({}));
        world.claim_mut(name).spec.pool_ref = read(reference);
    }
    let decision = world.settle();
    assert!(decision.claims.values().all(|standing| *standing == Standing::LeftAlone));
}

#[test]
fn an_address_made_before_is_completed_and_one_of_another_claim_is_not_taken() {
    let mut world = World::default().pool("p", &["10.0.0.2-10.0.0.9"]);
    for (name, of) in [("a", "a"), ("b", "else")] {
        let metadata = world.metadata(name);
        let address: IPAddress = read(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
            "kind": "IPAddress",
            "metadata": metadata,
            "spec": {
                "claimRef": {"name": of},
                "poolRef": {"apiGroup": IPAM, "kind": "InClusterIPPool", "name": "p"},
                "address": "10.0.0.7",
                "prefix": 24,
            },
        }));
        world.facts.addresses.insert(claim_key(name), address);
        world.add_claim(name, "p", &json!({}));
    }
    let decision = world.settle();
    assert_eq!(decision.claims[&claim_key("a")], Standing::Bound);
    let address = &world.facts.addresses[&claim_key("a")];
    assert!(has_finalizer(&address.metadata, PROTECT_ADDRESS));
    assert_eq!(address.owner_references().len(), 2);
    waits_for(&decision, "b", Reason::AllocationFailed, "its claim is else");
}

#[test]
fn an_address_whose_claim_was_torn_away_can_go() {
    let mut world = World::default().pool("p", &["10.0.0.2"]).claim("a", "p");
    world.settle();
    world.facts.claims.clear();
    world.settle();
    assert!(world.address_of("a").is_some(), "nobody asked for its deletion yet");
    mark_deleted(&mut world.facts.addresses.get_mut(&claim_key("a")).unwrap().metadata);
    world.settle();
    assert_eq!(world.address_of("a"), None);
}

#[derive(Debug, Clone)]
enum Event {
    Claim(u8, bool),
    Delete(u8),
    DeletePool(bool),
    RestorePool(bool),
    Pass,
    /// A pass of which only some steps have their effect: the bits say which.
    Crash(u8),
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0_u8..12, any::<bool>()).prop_map(|(n, p)| Event::Claim(n, p)),
        4 => (0_u8..12).prop_map(Event::Delete),
        1 => any::<bool>().prop_map(Event::DeletePool),
        1 => any::<bool>().prop_map(Event::RestorePool),
        3 => Just(Event::Pass),
        3 => any::<u8>().prop_map(Event::Crash),
    ]
}

fn pool_name(first: bool) -> (&'static str, [&'static str; 1]) {
    if first { ("p", ["10.0.0.0/29"]) } else { ("q", ["10.0.0.100-10.0.0.102"]) }
}

impl World {
    fn happen(&mut self, event: &Event) {
        match event {
            Event::Claim(n, pool) => {
                let name = format!("c{n}");
                if !self.facts.claims.iter().any(|claim| claim.name_any() == name) {
                    self.add_claim(&name, pool_name(*pool).0, &json!({}));
                }
            }
            Event::Delete(n) => {
                let name = format!("c{n}");
                if self.facts.claims.iter().any(|claim| claim.name_any() == name) {
                    self.delete_claim(&name);
                }
            }
            Event::DeletePool(pool) => {
                let (name, _) = pool_name(*pool);
                if self.facts.pools.contains_key(&pool_key(name)) {
                    self.delete_pool(name);
                }
            }
            Event::RestorePool(pool) => {
                let (name, addresses) = pool_name(*pool);
                if !self.facts.pools.contains_key(&pool_key(name)) {
                    *self = std::mem::take(self).pool(name, &addresses);
                }
            }
            Event::Pass => self.some_steps(u8::MAX),
            Event::Crash(which) => self.some_steps(*which),
        }
    }

    fn some_steps(&mut self, which: u8) {
        for (index, step) in decide(&self.facts).steps.iter().enumerate() {
            if which.rotate_right(u32::try_from(index % 8).unwrap()) & 1 == 1 {
                self.apply(step);
            }
        }
    }

    fn is_sound(&self) -> Result<(), TestCaseError> {
        for (pool, addresses) in self.facts.addresses_by_pool() {
            prop_assert_eq!(in_use(&addresses).len(), addresses.len(), "twice from {}", pool);
            prop_assert!(self.facts.pools.contains_key(&pool), "{} went while in use", pool);
        }
        for key in self.facts.addresses.keys() {
            let live = self.facts.claims.iter().any(|claim| super::key(&claim.metadata) == *key);
            prop_assert!(live, "the claim of {:?} went without it", key);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_address_is_given_twice_lost_or_leaked_whatever_happens(
        events in prop::collection::vec(any_event(), 0..40),
    ) {
        let mut world = World::default();
        for first in [true, false] {
            let (name, addresses) = pool_name(first);
            world = world.pool(name, &addresses);
        }
        for event in &events {
            world.happen(event);
            world.is_sound()?;
        }
        let decision = world.settle();
        world.is_sound()?;
        for claim in &world.facts.claims {
            prop_assert!(claim.metadata.deletion_timestamp.is_none(), "{:?} stays", claim);
            let standing = &decision.claims[&key(&claim.metadata)];
            let has = world.facts.addresses.contains_key(&key(&claim.metadata));
            match standing {
                Standing::Bound => prop_assert!(has),
                Standing::Waiting(Reason::PoolExhausted, _) => {
                    let pool = pool_key(&claim.spec.pool_ref.name);
                    prop_assert!(!has && decision.pools[&pool].free == 0);
                }
                Standing::Waiting(Reason::PoolNotReady, _) => prop_assert!(!has),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::cluster::decision::Target;
use crate::cluster::facts::MachineFact;
use crate::fault::{Class, Fault};
use crate::ipam::desired_pools;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A cluster in service, with `change` merged in.
fn cluster(change: &Value) -> ProxmoxCluster {
    let mut value = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxCluster",
        "metadata": {
            "name": "infra", "namespace": "ns", "uid": "infra-uid", "resourceVersion": "7",
            "finalizers": ["proxmoxcluster.infrastructure.cluster.x-k8s.io"],
            "ownerReferences": [{
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
                "name": "workload", "uid": "workload-uid", "controller": true,
            }],
        },
        "spec": {
            "controlPlaneEndpoint": {"host": "10.0.0.5", "port": 6443},
            "dnsServers": ["10.0.0.1"],
            "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "metric": 100},
        },
    });
    merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

fn merge(value: &mut Value, change: &Value) {
    let Some(fields) = change.as_object() else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (field, change) in fields {
        if change.is_null() {
            value.as_object_mut().unwrap().remove(field);
        } else {
            merge(&mut value[field.as_str()], change);
        }
    }
}

fn owner(change: &Value) -> Owner {
    let mut value = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
        "metadata": {"name": "workload", "namespace": "ns", "uid": "workload-uid"},
        "spec": {},
    });
    merge(&mut value, change);
    let cluster = Seen::Present(Box::new(serde_json::from_value(value).unwrap()));
    Owner::Named { name: "workload".to_owned(), cluster }
}

fn named(cluster: Seen<Box<Cluster>>) -> Owner {
    Owner::Named { name: "workload".to_owned(), cluster }
}

/// In short what an approach is.
fn short(approach: &Approach) -> String {
    match approach {
        Approach::HandsOff => "hands off".to_owned(),
        Approach::Live(name) => format!("live for {name}"),
        Approach::Gone => "gone".to_owned(),
        Approach::Settled(decision) => match (decision.steps.as_slice(), &decision.standing) {
            ([Step::Patch { what, .. }], _) => (*what).to_owned(),
            (_, standing) => format!("{standing:?}"),
        },
    }
}

#[test]
fn object_and_owner_say_how_to_go_about_it() {
    const DELETED: &str = "2026-01-01T00:00:00Z";
    let deleted = json!({"metadata": {"deletionTimestamp": DELETED}});
    let let_go = json!({"metadata": {"deletionTimestamp": DELETED, "finalizers": null}});
    let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    let paused_and_deleted = json!({"metadata": {
        "deletionTimestamp": DELETED, "annotations": {"cluster.x-k8s.io/paused": ""},
    }});
    let managed = json!({"metadata": {"annotations": {"cluster.x-k8s.io/managed-by": "x"}}});
    let fresh = json!({"metadata": {"finalizers": null}});
    let no_endpoint = json!({"spec": {"controlPlaneEndpoint": null}});
    let no_host = json!({"spec": {"controlPlaneEndpoint": {"host": ""}}});
    let external = json!({"spec": {
        "controlPlaneEndpoint": {"port": 0}, "externalManagedControlPlane": true,
    }});
    let unknown = || named(Seen::Unknown("timeout".to_owned()));
    let (any, going) = (json!({}), owner(&deleted));
    for (what, change, owner, expected) in [
        ("in service", &any, owner(&any), "live for workload"),
        ("new", &fresh, owner(&any), "add the finalizer"),
        ("no owner", &any, Owner::Unset, "Live([OwnerUnset])"),
        ("no owner and no finalizer", &fresh, Owner::Unset, "Live([OwnerUnset])"),
        ("owner gone", &any, named(Seen::Absent), "Live([OwnerAbsent(\"workload\")])"),
        ("owner unknown", &any, unknown(), "Live([OwnerUnknown(\"workload\", \"timeout\")])"),
        ("paused itself", &paused, owner(&any), "Paused"),
        ("paused itself, no owner", &paused, Owner::Unset, "Paused"),
        ("Cluster paused", &fresh, owner(&json!({"spec": {"paused": true}})), "Paused"),
        ("paused and deleted", &paused_and_deleted, going.clone(), "Paused"),
        ("managed by others", &managed, owner(&any), "hands off"),
        ("managed by others, no owner", &managed, Owner::Unset, "hands off"),
        (
            "no endpoint",
            &no_endpoint,
            owner(&any),
            "Live([Endpoint { part: Whole, is_external: false }])",
        ),
        (
            "no endpoint but that of the Cluster",
            &no_endpoint,
            owner(&json!({"spec": {"controlPlaneEndpoint": {"host": "h", "port": 6443}}})),
            "live for workload",
        ),
        ("no host", &no_host, owner(&any), "Live([Endpoint { part: Host, is_external: false }])"),
        (
            "no port yet from the provider",
            &external,
            owner(&any),
            "Live([Endpoint { part: Port, is_external: true }])",
        ),
        ("deleted with its Cluster", &deleted, going.clone(), "gone"),
        ("deleted after its Cluster", &deleted, named(Seen::Absent), "gone"),
        ("deleted without ever an owner", &deleted, Owner::Unset, "gone"),
        ("deleted alone", &deleted, owner(&any), "Deleting([OwnerLives(\"workload\")])"),
        (
            "deleted, owner unknown",
            &deleted,
            unknown(),
            "Deleting([Unknown(\"cannot read Cluster workload: timeout\")])",
        ),
        ("deleted and let go", &let_go, going, "hands off"),
    ] {
        assert_eq!(short(&approach(&cluster(change), &owner)), expected, "{what}");
    }
}

/// Surroundings in which all is well.
fn around(cluster: &ProxmoxCluster) -> Surroundings {
    let pools = desired_pools(cluster, "workload").into_iter().map(|wanted| {
        let mut pool = wanted.clone();
        pool.status = serde_json::from_value(json!({
            "ipAddresses": {"total": 11, "free": 11, "used": 0, "outOfRange": 0},
        }))
        .unwrap();
        pool.metadata.creation_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        PoolFact { wanted, seen: PoolSeen::Present(Box::new(pool)) }
    });
    Surroundings {
        secret: None,
        abandoned: Vec::new(),
        pools: pools.collect(),
        is_any_claim_answered: false,
        machines: Seen::Present(Vec::new()),
        proxmox: Ok("9.0".to_owned()),
        insecure: None,
        passed_over: Seen::Absent,
    }
}

fn troubles(decision: &Decision) -> &[Trouble] {
    let Standing::Live(troubles) = &decision.standing else { panic!("{decision:?}") };
    troubles
}

#[test]
fn a_cluster_whose_parts_are_in_place_is_left_alone() {
    let cluster = cluster(&json!({}));
    let decision = live(&cluster, &owner(&json!({})), &around(&cluster), at(0));
    assert!(decision.steps.is_empty(), "{decision:?}");
    assert!(troubles(&decision).is_empty(), "{decision:?}");
    assert_eq!(decision.pools.unwrap(), ["infra-v4-icip"]);
}

#[test]
fn the_mark_of_capmox_is_taken_off_the_owner_once_all_is_well() {
    let cluster = cluster(&json!({}));
    let marked = |message: &str| {
        owner(&json!({"status": {
            "failureReason": "InvalidConfiguration", "failureMessage": message,
        }}))
    };
    let copied = "Failure detected from referenced resource infra: No credentials found, …";
    let mut facts = around(&cluster);
    let steps = live(&cluster, &marked(copied), &facts, at(0)).steps;
    let target = Target::OwnerStatus("workload".to_owned());
    assert!(matches!(&steps[..], [Step::Patch { target: at, .. }] if *at == target), "{steps:?}");
    assert!(live(&cluster, &marked("something else"), &facts, at(0)).steps.is_empty());
    facts.proxmox = Err(Fault::new(Class::Transient, "silent"));
    assert!(live(&cluster, &marked(copied), &facts, at(0)).steps.is_empty());
}

#[test]
fn pools_are_made_whether_proxmox_answers_or_not() {
    let both = json!({"spec": {"ipv6Config": {"addresses": ["fd00::/64"], "prefix": 64}}});
    let cluster = cluster(&both);
    let fault = Fault::new(Class::Transient, "no connection");
    let mut facts = around(&cluster);
    facts.proxmox = Err(fault.clone());
    for pool in &mut facts.pools {
        pool.seen = PoolSeen::Absent;
    }
    let decision = live(&cluster, &owner(&json!({})), &facts, at(0));
    let made: Vec<_> = decision
        .steps
        .iter()
        .map(|step| match step {
            Step::CreatePool(pool) => pool.metadata.name.clone().unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(made, ["infra-v4-icip", "infra-v6-icip"]);
    assert_eq!(troubles(&decision), [Trouble::Proxmox(fault)]);
    assert_eq!(decision.pools.unwrap(), Vec::<String>::new());
}

#[test]
fn a_missing_ipam_provider_is_told_once_for_all_pools() {
    let both = json!({"spec": {"ipv6Config": {"addresses": ["fd00::/64"], "prefix": 64}}});
    let cluster = cluster(&both);
    let mut facts = around(&cluster);
    for pool in &mut facts.pools {
        pool.seen = PoolSeen::NotServed;
    }
    let decision = live(&cluster, &owner(&json!({})), &facts, at(0));
    assert_eq!(troubles(&decision), [Trouble::PoolsNotServed]);
    assert!(decision.steps.is_empty());
}

#[test]
fn a_pool_that_nobody_looks_after_is_told_after_half_a_minute() {
    let cluster = cluster(&json!({}));
    let mut facts = around(&cluster);
    let PoolSeen::Present(pool) = &mut facts.pools[0].seen else { panic!() };
    pool.status = None;
    pool.metadata.creation_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    let wakes = |facts: &Surroundings, now| {
        let decision = live(&cluster, &owner(&json!({})), facts, at(now));
        wake(&decision.standing, &facts.pools, None, at(now))
    };
    assert!(troubles(&live(&cluster, &owner(&json!({})), &facts, at(29))).is_empty());
    assert_eq!(wakes(&facts, 10), Wake::After(Duration::from_secs(21)));
    let silent = [Trouble::PoolSilent("infra-v4-icip".to_owned())];
    assert_eq!(troubles(&live(&cluster, &owner(&json!({})), &facts, at(30))), silent);
    assert_eq!(wakes(&facts, 30), Wake::After(REGULAR));
    assert!(!keeps_from_service(&silent[0]));
    facts.is_any_claim_answered = true;
    assert!(troubles(&live(&cluster, &owner(&json!({})), &facts, at(30))).is_empty());
}

fn secret(change: &Value) -> SecretFact {
    let mut value = json!({"name": "creds", "namespace": "ns", "resourceVersion": "3"});
    merge(&mut value, change);
    SecretFact { metadata: serde_json::from_value(value).unwrap(), users: Vec::new() }
}

#[test]
fn without_its_secret_a_cluster_says_so_and_nothing_of_proxmox() {
    let key = ObjectKey { namespace: "ns".to_owned(), name: "creds".to_owned() };
    for (what, reference, seen, expected) in [
        (
            "absent",
            json!({"name": "creds"}),
            Seen::Absent,
            Some(Trouble::SecretAbsent(key.clone())),
        ),
        (
            "unknown",
            json!({"name": "creds"}),
            Seen::Unknown("forbidden".to_owned()),
            Some(Trouble::SecretUnknown(key, "forbidden".to_owned())),
        ),
        ("present", json!({"name": "creds"}), Seen::Present(secret(&json!({}))), None),
    ] {
        let cluster = cluster(&json!({"spec": {"credentialsRef": reference}}));
        let mut facts = around(&cluster);
        facts.secret = Some(seen);
        let fault = Fault::new(Class::Blocked, "no Secret");
        facts.proxmox = Err(fault.clone());
        let decision = live(&cluster, &owner(&json!({})), &facts, at(0));
        let expected = expected.unwrap_or(Trouble::Proxmox(fault));
        assert_eq!(troubles(&decision), [expected], "{what}");
    }
}

#[test]
fn locations_follow_the_machines() {
    let cluster = cluster(&json!({"status": {"nodeLocations": {
        "controlPlane": [
            {"machine": {"name": "by-hand"}, "node": "pve1"},
            {"machine": {"name": "moved"}, "node": "pve1"},
        ],
        "workers": [
            {"machine": {"name": "gone"}, "node": "pve1"},
            {"machine": {"name": "known"}, "node": "pve2"},
        ],
    }}}));
    let machine = |name: &str, node: Option<&str>, is_control_plane| MachineFact {
        name: name.to_owned(),
        node: node.map(ToOwned::to_owned),
        is_control_plane,
    };
    let mut facts = around(&cluster);
    facts.machines = Seen::Present(vec![
        machine("new", Some("pve3"), false),
        machine("known", None, false),
        machine("unplaced", None, false),
        machine("moved", Some("pve2"), true),
        // Only its Machine carries the label.
        machine("by-hand", Some("pve1"), false),
    ]);
    let new =
        serde_json::to_value(live(&cluster, &owner(&json!({})), &facts, at(0)).locations).unwrap();
    let expected = json!({
        "controlPlane": [
            {"machine": {"name": "by-hand"}, "node": "pve1"},
            {"machine": {"name": "moved"}, "node": "pve2"},
        ],
        "workers": [
            {"machine": {"name": "known"}, "node": "pve2"},
            {"machine": {"name": "new"}, "node": "pve3"},
        ],
    });
    assert_eq!(new, expected);
    facts.machines = Seen::Unknown("not listed yet".to_owned());
    assert_eq!(live(&cluster, &owner(&json!({})), &facts, at(0)).locations, None);
}

#[test]
fn a_cluster_goes_after_its_machines_and_with_its_pools_and_secrets() {
    let cluster = cluster(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let PoolSeen::Present(mut pool) = around(&cluster).pools.remove(0).seen else { panic!() };
    pool.metadata.uid = Some("pool-uid".to_owned());
    let held = secret(&json!({
        "finalizers": ["proxmoxcluster.infrastructure.cluster.x-k8s.io/secret"],
    }));
    let mut remains = Remains {
        machines: Seen::Present(vec!["m1".to_owned()]),
        pools: vec![PoolSeen::Present(pool), PoolSeen::Absent],
        alone_since: None,
        secrets: vec![Seen::Present(held), Seen::Absent],
    };
    let decision = gone(&cluster, &remains, at(0));
    assert!(decision.steps.is_empty());
    let machines = Remainder::Machines(vec!["m1".to_owned()]);
    assert_eq!(decision.standing, Standing::Deleting(vec![machines]));

    remains.machines = Seen::Unknown("timeout".to_owned());
    assert!(gone(&cluster, &remains, at(0)).steps.is_empty());

    remains.machines = Seen::Present(Vec::new());
    let steps = gone(&cluster, &remains, at(0)).steps;
    assert!(
        matches!(
            steps.as_slice(),
            [
                Step::DeletePool { uid, .. },
                Step::Patch { target: Target::Secret(_), .. }
            ] if uid == "pool-uid"
        ),
        "{steps:?}"
    );

    remains.secrets = vec![Seen::Unknown("timeout".to_owned())];
    assert!(gone(&cluster, &remains, at(0)).steps.is_empty());

    remains.secrets = Vec::new();
    remains.pools = vec![PoolSeen::NotServed];
    let steps = gone(&cluster, &remains, at(0)).steps;
    assert!(
        matches!(steps.as_slice(), [Step::Patch { what: "remove the finalizer", .. }]),
        "{steps:?}"
    );
}

#[test]
fn a_pool_that_does_not_go_keeps_a_cluster_for_a_moment_only() {
    let cluster = cluster(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let PoolSeen::Present(mut pool) = around(&cluster).pools.remove(0).seen else { panic!() };
    pool.metadata.uid = Some("pool-uid".to_owned());
    let remains = |pool: PoolSeen| Remains {
        machines: Seen::Present(Vec::new()),
        pools: vec![pool],
        alone_since: Some(at(0)),
        secrets: Vec::new(),
    };
    let finalizer = |decision: &Decision| {
        matches!(decision.steps.as_slice(), [Step::Patch { what: "remove the finalizer", .. }])
    };
    let present = remains(PoolSeen::Present(pool));
    assert!(matches!(gone(&cluster, &present, at(9)).steps[..], [Step::DeletePool { .. }]));
    assert!(finalizer(&gone(&cluster, &present, at(10))));
    let unknown = remains(PoolSeen::Unknown("conversion webhook failed".to_owned()));
    let waits = gone(&cluster, &unknown, at(3)).standing;
    assert!(matches!(&waits, Standing::Deleting(all) if matches!(all[..], [Remainder::Pool(_)])));
    assert_eq!(wake(&waits, &[], Some(at(-500)), at(0)), Wake::After(POOL_RETRY));
    assert!(finalizer(&gone(&cluster, &unknown, at(10))));
}

#[test]
fn what_fails_is_tried_again_at_growing_pauses() {
    let failing = Standing::Live(vec![Trouble::Proxmox(Fault::new(Class::Transient, "silent"))]);
    let wakes = |before: Option<i64>| wake(&failing, &[], before.map(at), at(100));
    assert_eq!(wakes(None), Wake::After(RETRY_FIRST));
    assert_eq!(wakes(Some(99)), Wake::After(RETRY_FIRST));
    assert_eq!(wakes(Some(80)), Wake::After(Duration::from_secs(20)));
    assert_eq!(wakes(Some(0)), Wake::After(RETRY_LAST));
    assert_eq!(wakes(Some(200)), Wake::After(RETRY_FIRST));
    let watched = Standing::Live(vec![Trouble::OwnerUnset]);
    assert_eq!(wake(&watched, &[], Some(at(99)), at(100)), Wake::After(REGULAR));
    assert_eq!(wake(&Standing::Live(Vec::new()), &[], None, at(0)), Wake::After(REGULAR));
}

#[test]
fn secrets_that_are_held_are_looked_at_beside_the_one_that_is_named() {
    let key = |name: &str| ObjectKey { namespace: "ns".to_owned(), name: name.to_owned() };
    let cluster = cluster(&json!({"spec": {"credentialsRef": {"name": "creds"}}}));
    let held = [key("old"), key("creds")];
    assert_eq!(held_secrets(&cluster, &held), [key("creds"), key("old")]);
    assert!(!is_abandoned(&cluster, &secret(&json!({}))));
    assert!(is_abandoned(&cluster, &secret(&json!({"name": "old"}))));
}

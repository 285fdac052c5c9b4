#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::cluster::facts::User;
use crate::ipam::desired_pools;

fn cluster() -> ProxmoxCluster {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxCluster",
        "metadata": {"name": "infra", "namespace": "ns", "uid": "me", "resourceVersion": "7"},
        "spec": {
            "dnsServers": ["10.0.0.1"],
            "ipv4Config": {
                "addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1",
                "metric": 50,
            },
        },
    }))
    .unwrap()
}

fn owner(kind: &str, name: &str, uid: &str, controller: bool) -> Value {
    let group = if kind == "ProxmoxCluster" {
        "infrastructure.cluster.x-k8s.io/v1alpha1"
    } else {
        "example.com/v1"
    };
    let mut owner = json!({"apiVersion": group, "kind": kind, "name": name, "uid": uid});
    if controller {
        owner["controller"] = json!(true);
        owner["blockOwnerDeletion"] = json!(true);
    }
    owner
}

/// RFC 7386, as the apiserver does it.
fn apply(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (field, change) in fields {
        if change.is_null() {
            object.as_object_mut().unwrap().remove(field);
        } else {
            apply(&mut object[field.as_str()], change);
        }
    }
}

fn patch_of(step: Option<Step>) -> Option<Value> {
    match step? {
        Step::Patch { patch, .. } => Some(patch),
        other => panic!("{other:?}"),
    }
}

/// The pool as it is wanted, changed by `change`, and what is then done about it.
fn pool_after(change: &Value) -> (Value, Result<Option<Step>, Trouble>) {
    let wanted = desired_pools(&cluster(), "workload").remove(0);
    let mut value = serde_json::to_value(&wanted).unwrap();
    apply(&mut value, &json!({"metadata": {"resourceVersion": "9"}}));
    apply(&mut value, change);
    let seen: InClusterIPPool = serde_json::from_value(value.clone()).unwrap();
    (value, pool(&cluster(), &PoolFact { wanted, seen: PoolSeen::Present(Box::new(seen)) }))
}

#[test]
fn a_pool_is_patched_in_what_differs_and_then_rests() {
    let others = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"excludedAddresses": ["x"]}});
    assert!(pool_after(&others).1.unwrap().is_none());
    for (what, change, expected) in [
        (
            "addresses",
            json!({"spec": {"addresses": ["10.0.0.1"]}}),
            json!({"spec": {
                "addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1",
            }}),
        ),
        (
            "label, which capmox does not set",
            json!({"metadata": {"labels": null}}),
            json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "workload"}}}),
        ),
        (
            "metric",
            json!({"metadata": {"annotations": {"metric": "7", "other": "x"}}}),
            json!({"metadata": {"annotations": {"metric": "50"}}}),
        ),
        (
            "no owner",
            json!({"metadata": {"ownerReferences": null}}),
            json!({"metadata": {
                "ownerReferences": [owner("ProxmoxCluster", "infra", "me", true)],
            }}),
        ),
        (
            "owner of an earlier life, and another",
            json!({"metadata": {"ownerReferences": [
                owner("ProxmoxCluster", "infra", "earlier", true),
                owner("Thing", "other", "u", false),
            ]}}),
            json!({"metadata": {"ownerReferences": [
                owner("Thing", "other", "u", false),
                owner("ProxmoxCluster", "infra", "me", true),
            ]}}),
        ),
    ] {
        let (mut value, step) = pool_after(&change);
        let patch = patch_of(step.unwrap()).expect(what);
        let mut with_version = json!({"metadata": {"resourceVersion": "9"}});
        apply(&mut with_version, &expected);
        assert_eq!(patch, with_version, "{what}");
        apply(&mut value, &patch);
        assert!(pool_after(&value).1.unwrap().is_none(), "{what}");
    }
}

#[test]
fn a_setting_that_is_wanted_no_more_is_taken_away() {
    let mut cluster = cluster();
    let config = cluster.spec.ipv4_config.as_mut().unwrap();
    config.metric = None;
    config.gateway = None;
    let seen = serde_json::from_value(pool_after(&json!({})).0).unwrap();
    let wanted = desired_pools(&cluster, "workload").remove(0);
    let fact = PoolFact { wanted, seen: PoolSeen::Present(Box::new(seen)) };
    let patch = patch_of(pool(&cluster, &fact).unwrap()).unwrap();
    assert_eq!(patch["metadata"]["annotations"], json!({"metric": null}));
    assert_eq!(patch["spec"]["gateway"], Value::Null);
    assert!(patch["spec"].as_object().unwrap().contains_key("gateway"));
}

#[test]
fn a_pool_of_somebody_else_and_one_on_its_way_out_are_left_alone() {
    let foreign = json!({"metadata": {"ownerReferences": [owner("Thing", "other", "u", true)]}});
    let expected = Trouble::PoolForeign {
        pool: "infra-v4-icip".to_owned(),
        controller: "Thing other".to_owned(),
    };
    assert_eq!(pool_after(&foreign).1.unwrap_err(), expected);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let expected = Trouble::PoolDeleting("infra-v4-icip".to_owned());
    assert_eq!(pool_after(&deleted).1.unwrap_err(), expected);
}

#[test]
fn only_a_pool_of_this_cluster_is_deleted_and_only_once() {
    let deletes = |change: Value| {
        let mut value = pool_after(&json!({"metadata": {"uid": "pool"}})).0;
        apply(&mut value, &change);
        delete_pool(&cluster(), &serde_json::from_value(value).unwrap()).is_some()
    };
    assert!(deletes(json!({})));
    assert!(!deletes(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    let earlier = owner("ProxmoxCluster", "infra", "earlier", true);
    assert!(!deletes(json!({"metadata": {"ownerReferences": [earlier]}})));
    assert!(!deletes(json!({"metadata": {"ownerReferences": null}})));
}

fn secret(metadata: &Value, users: &[User]) -> SecretFact {
    let mut value = json!({"name": "creds", "namespace": "ns", "resourceVersion": "3"});
    apply(&mut value, metadata);
    SecretFact { metadata: serde_json::from_value(value).unwrap(), users: users.to_vec() }
}

fn user(uid: &str, is_deleting: bool) -> User {
    User { uid: uid.to_owned(), is_deleting }
}

#[test]
fn a_secret_is_held_by_finalizer_and_owner_and_then_rests() {
    let me = owner("ProxmoxCluster", "infra", "me", false);
    let peer = owner("ProxmoxCluster", "other", "u", false);
    for (what, before, owners, finalizers) in [
        ("new", json!({}), Some(json!([me])), Some(json!([SECRET_FINALIZER]))),
        (
            "shared",
            json!({"ownerReferences": [peer], "finalizers": [SECRET_FINALIZER]}),
            Some(json!([peer, me])),
            None,
        ),
        (
            "moved, with an owner of an earlier life",
            json!({
                "ownerReferences": [owner("ProxmoxCluster", "infra", "earlier", false)],
                "finalizers": [SECRET_FINALIZER],
            }),
            Some(json!([me])),
            None,
        ),
        (
            "of another namespace",
            json!({"namespace": "far"}),
            None,
            Some(json!([SECRET_FINALIZER])),
        ),
        (
            "of another namespace, owned as capmox does",
            json!({
                "namespace": "far", "finalizers": [SECRET_FINALIZER],
                "ownerReferences": [me, owner("ProxmoxCluster", "infra", "theirs", false)],
            }),
            Some(json!([owner("ProxmoxCluster", "infra", "theirs", false)])),
            None,
        ),
    ] {
        let fact = secret(&before, &[]);
        let patch = patch_of(hold(&cluster(), &fact)).expect(what);
        assert_eq!(patch["metadata"].get("ownerReferences"), owners.as_ref(), "{what}");
        assert_eq!(patch["metadata"].get("finalizers"), finalizers.as_ref(), "{what}");
        let mut after = serde_json::to_value(&fact.metadata).unwrap();
        apply(&mut after, &patch["metadata"]);
        assert!(hold(&cluster(), &secret(&after, &[])).is_none(), "{what}");
    }
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert!(hold(&cluster(), &secret(&deleted, &[])).is_none());
}

#[test]
fn a_secret_is_let_go_by_its_last_user() {
    let me = owner("ProxmoxCluster", "infra", "me", false);
    let peer = owner("ProxmoxCluster", "other", "u", false);
    let finalizer = json!([SECRET_FINALIZER]);
    let owned = |owners: Value| json!({"ownerReferences": owners, "finalizers": finalizer});
    let far = json!({"namespace": "far", "finalizers": finalizer});
    let (none, gone) = (Value::Null, json!([]));
    for (what, before, users, is_leaving, owners, finalizers) in [
        ("last, deleted", owned(json!([me])), vec![], false, &none, &gone),
        ("last, leaving", owned(json!([me])), vec![], true, &json!([]), &gone),
        (
            "one of two",
            owned(json!([me, peer])),
            vec![user("u", false)],
            false,
            &json!([peer]),
            &none,
        ),
        (
            "the other has not taken hold yet",
            owned(json!([me])),
            vec![user("u", false)],
            false,
            &json!([]),
            &none,
        ),
        (
            "both go, this one first",
            owned(json!([me, peer])),
            vec![user("u", true)],
            false,
            &json!([peer]),
            &none,
        ),
        ("both go, this one last", owned(json!([me])), vec![user("u", true)], false, &none, &gone),
        (
            "owned by somebody who does not use it",
            owned(json!([me, peer])),
            vec![],
            false,
            &json!([peer]),
            &gone,
        ),
        ("far, last", far.clone(), vec![], false, &none, &gone),
        ("far, used", far, vec![user("u", true)], false, &none, &none),
        ("never held", json!({}), vec![], false, &none, &none),
    ] {
        let patch = patch_of(release(&cluster(), &secret(&before, &users), is_leaving));
        let patch = patch.unwrap_or_default();
        assert_eq!(&patch["metadata"]["ownerReferences"], owners, "{what}");
        assert_eq!(&patch["metadata"]["finalizers"], finalizers, "{what}");
    }
}

#[test]
fn finalizers_of_others_stay() {
    let mut cluster = cluster();
    cluster.metadata.finalizers = Some(vec!["other".to_owned()]);
    let patch = patch_of(Some(add_finalizer(&cluster))).unwrap();
    let expected = json!({"metadata": {
        "resourceVersion": "7", "finalizers": ["other", CLUSTER_FINALIZER],
    }});
    assert_eq!(patch, expected);
    cluster.metadata.finalizers = Some(vec![CLUSTER_FINALIZER.to_owned(), "other".to_owned()]);
    let patch = patch_of(Some(remove_finalizer(&cluster))).unwrap();
    assert_eq!(patch["metadata"]["finalizers"], json!(["other"]));
}

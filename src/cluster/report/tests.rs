#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::fault::{Class, Fault};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn cluster(status: &Value) -> ProxmoxCluster {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxCluster",
        "metadata": {"name": "infra", "namespace": "ns", "generation": 2, "resourceVersion": "7"},
        "spec": {"dnsServers": ["10.0.0.1"]},
        "status": status,
    }))
    .unwrap()
}

fn says(standing: Standing, old: &Value) -> ProxmoxClusterStatus {
    status(&cluster(old), &Decision::standing(standing), at(0))
}

/// Status, severity, reason and message of ClusterReady.
fn condition(status: &ProxmoxClusterStatus) -> (String, String, String, String) {
    let found = conditions::find(&status.conditions, reasons::CLUSTER_READY).unwrap().clone();
    (
        found.status,
        found.severity.unwrap_or_default(),
        found.reason.unwrap_or_default(),
        found.message.unwrap_or_default(),
    )
}

#[test]
fn who_takes_over_is_told_when_other_credentials_are_used_than_with_capmox() {
    let both = || {
        Seen::Present(PassedOver { used: "https://a:8006".into(), own: "https://b:8006".into() })
    };
    let unknown = || Seen::Unknown("not read".to_owned());
    let of = |old: &ProxmoxCluster, passed_over| {
        let decision = Decision { passed_over, ..Decision::standing(Standing::Live(vec![])) };
        status(old, &decision, at(0))
    };
    let told = |status: &ProxmoxClusterStatus| {
        let told = conditions::find(&status.conditions, "ManagerCredentialsUsed");
        let other = status.v1beta2_conditions().iter().any(|c| c.type_ == "ManagerCredentialsUsed");
        assert_eq!(told.is_some(), other);
        told.map(|one| (one.status.clone(), one.message.clone().unwrap_or_default()))
    };
    let mut left = cluster(&json!({"ready": true}));
    left.spec.credentials_ref = serde_json::from_value(json!({"name": "creds"})).unwrap();
    let first = of(&left, both());
    let (state, text) = told(&first).unwrap();
    assert_eq!(state, "False");
    for part in ["Secret ns/creds (https://a:8006)", "(https://b:8006)", "spec.credentialsRef out"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert_eq!(condition(&first).0, "True");
    assert!(first.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    let events = notices(left.status.as_ref(), &first.conditions);
    assert!(events.iter().any(|one| one.is_warning && one.reason == "CredentialsRefUsed"));

    // It stays while it is so, without another event, and while nobody knows.
    let mut later = left.clone();
    later.status = Some(first.clone());
    assert!(told(&of(&later, both())).is_some() && told(&of(&later, unknown())).is_some());
    assert_eq!(notices(Some(&first), &of(&later, both()).conditions), []);
    assert_eq!(told(&of(&later, Seen::Absent)), None);
    // Who was never served by capmox, or is new, expects nothing else.
    let ours = cluster(&json!({"ready": true, "credentials": {"kind": "Secret", "name": "creds"}}));
    for other in [ours, cluster(&json!(null)), cluster(&json!({}))] {
        assert_eq!(told(&of(&other, both())), None);
    }
    // Where it is not known at first, it is told later.
    let mut unread = left.clone();
    unread.status = Some(of(&left, unknown()));
    assert_eq!(told(unread.status.as_ref().unwrap()), None);
    assert!(told(&of(&unread, both())).is_some());
}

fn silent() -> Trouble {
    Trouble::Proxmox(Fault::new(Class::Transient, "no connection to https://pve:8006: check it"))
}

#[test]
fn a_cluster_without_trouble_is_ready_in_both_generations() {
    let status = says(Standing::Live(Vec::new()), &json!({}));
    assert!(status.ready);
    let shape: Vec<_> =
        status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    assert_eq!(shape, [("Ready", "True"), ("ClusterReady", "True")]);
    let shape: Vec<_> =
        status.v1beta2_conditions().iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    assert_eq!(shape, [("Ready", "True"), ("ClusterReady", "True"), ("Paused", "False")]);
}

#[test]
fn a_cluster_that_was_ready_stays_ready_whatever_the_trouble() {
    for (old, expected) in [(json!({}), false), (json!({"ready": true}), true)] {
        let status = says(Standing::Live(vec![silent()]), &old);
        assert_eq!(status.ready, expected);
        assert_eq!(condition(&status).0, "False");
        let status = says(Standing::Deleting(Vec::new()), &old);
        assert_eq!(status.ready, expected);
    }
    let unattended = Trouble::PoolSilent("infra-v4-icip".to_owned());
    let status = says(Standing::Live(vec![unattended]), &json!({}));
    assert!(status.ready);
    assert_eq!(condition(&status).2, "IPAMProviderUnavailable");
}

#[test]
fn a_paused_cluster_says_so_and_keeps_the_rest() {
    let before = says(Standing::Live(vec![silent()]), &json!({"ready": true}));
    let after = says(Standing::Paused, &serde_json::to_value(&before).unwrap());
    assert_eq!(after.conditions, before.conditions);
    let (ready, paused) = (&after.v1beta2_conditions()[0], &after.v1beta2_conditions()[2]);
    assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "False"));
    assert_eq!((paused.type_.as_str(), paused.status.as_str()), ("Paused", "True"));

    let fresh = says(Standing::Paused, &json!({}));
    assert!(fresh.conditions.is_empty());
    let shape: Vec<_> =
        fresh.v1beta2_conditions().iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect();
    assert_eq!(shape, [("Ready", "Unknown"), ("Paused", "True")]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of every trouble")]
fn every_trouble_names_its_object_and_a_remedy() {
    let key = ObjectKey { namespace: "far".to_owned(), name: "creds".to_owned() };
    let name = || "infra-v4-icip".to_owned();
    let refused = |target| Trouble::Failed {
        target,
        fault: Fault::new(Class::Invalid, "cannot update it: refused"),
    };
    let absent = |is_external| Trouble::Endpoint { part: EndpointPart::Whole, is_external };
    for (trouble, severity, reason, parts) in [
        (
            Trouble::OwnerUnset,
            "Info",
            "WaitingForOwnerCluster",
            ["owner reference", "spec.infrastructureRef"],
        ),
        (
            Trouble::OwnerAbsent("workload".to_owned()),
            "Warning",
            "WaitingForOwnerCluster",
            ["Cluster ns/workload", "delete this ProxmoxCluster"],
        ),
        (
            Trouble::OwnerUnknown("workload".to_owned(), "timeout".to_owned()),
            "",
            "Unknown",
            ["Cluster ns/workload", "timeout"],
        ),
        (
            absent(false),
            "Warning",
            "MissingControlPlaneEndpoint",
            ["spec.controlPlaneEndpoint", "set host and port"],
        ),
        (
            absent(true),
            "Warning",
            "MissingControlPlaneEndpoint",
            ["spec.controlPlaneEndpoint", "waits for the control plane provider"],
        ),
        (
            Trouble::SecretAbsent(key.clone()),
            "Error",
            "ProxmoxUnreachable",
            ["Secret far/creds", "token (USER@REALM!NAME)"],
        ),
        (
            Trouble::SecretUnknown(key.clone(), "forbidden".to_owned()),
            "Error",
            "ProxmoxUnreachable",
            ["Secret far/creds", "forbidden"],
        ),
        (silent(), "Error", "ProxmoxUnreachable", ["https://pve:8006", "check it"]),
        (
            Trouble::PoolsNotServed,
            "Warning",
            "IPAMProviderUnavailable",
            ["no one answers claims of kind InClusterIPPool", "--embedded-ipam"],
        ),
        (
            Trouble::PoolSilent(name()),
            "Warning",
            "IPAMProviderUnavailable",
            ["kind InClusterIPPool: ns/infra-v4-icip", "--embedded-ipam"],
        ),
        (
            Trouble::PoolForeign { pool: name(), controller: "Thing x".to_owned() },
            "Warning",
            "IPPoolFailed",
            ["belongs to Thing x", "delete it"],
        ),
        (
            Trouble::PoolDeleting(name()),
            "Warning",
            "IPPoolFailed",
            ["ns/infra-v4-icip is being deleted", "delete the IPAddressClaims"],
        ),
        (
            Trouble::PoolUnknown(name(), "timeout".to_owned()),
            "Warning",
            "IPPoolFailed",
            ["ns/infra-v4-icip", "timeout"],
        ),
        (refused(Target::Pool(name())), "Warning", "IPPoolFailed", ["cannot", "refused"]),
        (refused(Target::Secret(key)), "Error", "ProxmoxUnreachable", ["cannot", "refused"]),
        (refused(Target::Itself), "", "Unknown", ["cannot", "refused"]),
    ] {
        let what = format!("{trouble:?}");
        let said = condition(&says(Standing::Live(vec![trouble]), &json!({})));
        assert_eq!((said.1.as_str(), said.2.as_str()), (severity, reason), "{what}");
        for part in parts {
            assert!(said.3.contains(part), "{part:?} is missing in {:?}", said.3);
        }
    }
}

#[test]
fn several_troubles_are_all_told_under_the_worst() {
    let all = vec![Trouble::PoolsNotServed, silent()];
    let (_, severity, reason, message) = condition(&says(Standing::Live(all), &json!({})));
    assert_eq!((severity.as_str(), reason.as_str()), ("Error", "ProxmoxUnreachable"));
    assert!(message.contains("--embedded-ipam. no connection"), "{message}");
}

#[test]
fn a_deletion_says_what_it_waits_for() {
    let machines = |count: usize| {
        let names = (0..count).map(|number| format!("m{number}")).collect();
        Standing::Deleting(vec![Remainder::Machines(names)])
    };
    let failed = Remainder::Failed(Fault::new(Class::Denied, "cannot delete it: forbidden"));
    for (standing, reason, text) in [
        (machines(2), "Deleting", "waits for ProxmoxMachines to be deleted: m0, m1"),
        (machines(7), "Deleting", "m0, m1, m2, m3, m4 and 2 more"),
        (
            Standing::Deleting(vec![Remainder::OwnerLives("workload".to_owned())]),
            "Deleting",
            "waits for Cluster workload, which is not being deleted: delete the Cluster",
        ),
        (Standing::Deleting(vec![failed]), "DeletionFailed", "cannot delete it: forbidden"),
        (
            Standing::Deleting(vec![Remainder::Pool("pool has addresses".to_owned())]),
            "Deleting",
            "pool has addresses. This is waited for a few seconds",
        ),
        (Standing::Deleting(Vec::new()), "Deleting", "lets go of pools and credentials"),
    ] {
        let said = condition(&says(standing, &json!({})));
        assert_eq!(said.2, reason);
        assert!(said.3.contains(text), "{text:?} is missing in {:?}", said.3);
    }
}

#[test]
fn a_failure_that_capmox_left_goes_with_its_cause_and_others_stay() {
    let failed =
        |message: &str| json!({"failureReason": "InvalidConfiguration", "failureMessage": message});
    let left = failed("No credentials found, ProxmoxCluster missing credentialsRef");
    let status = says(Standing::Live(Vec::new()), &left);
    assert_eq!((status.failure_reason, status.failure_message), (None, None));
    let status = says(Standing::Live(vec![silent()]), &left);
    assert!(status.failure_reason.is_some());
    let status = says(Standing::Live(Vec::new()), &failed("something else"));
    assert!(status.failure_reason.is_some());
}

#[test]
fn pools_are_added_to_those_that_were_there() {
    let old = json!({"inClusterIpPoolRef": [{"name": "infra-v6-icip"}]});
    let mut decision = Decision::standing(Standing::Live(Vec::new()));
    decision.pools = Some(vec!["infra-v4-icip".to_owned(), "infra-v6-icip".to_owned()]);
    let status = status(&cluster(&old), &decision, at(0));
    let names: Vec<_> =
        status.in_cluster_ip_pool_ref.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["infra-v6-icip", "infra-v4-icip"]);
}

#[test]
fn the_patch_holds_what_differs_and_nulls_what_went() {
    let old = json!({
        "ready": true,
        "failureReason": "x",
        "nodeLocations": {
            "controlPlane": [{"machine": {"name": "a"}, "node": "pve1"}],
            "workers": [{"machine": {"name": "b"}, "node": "pve1"}],
        },
    });
    let before = cluster(&old);
    let mut new = before.status.clone().unwrap();
    assert_eq!(status_patch(&before, &new).unwrap(), None);
    new.failure_reason = None;
    new.node_locations.as_mut().unwrap().workers.clear();
    let expected = json!({
        "metadata": {"resourceVersion": "7"},
        "status": {"failureReason": null, "nodeLocations": {"workers": null}},
    });
    assert_eq!(status_patch(&before, &new).unwrap(), Some(expected));
}

#[test]
fn a_change_is_an_event_and_a_repetition_is_none() {
    let of = |old: &ProxmoxClusterStatus, standing| {
        let old = serde_json::to_value(old).unwrap();
        let new = says(standing, &old);
        let before = cluster(&old).status;
        notice(before.as_ref(), &new.conditions).map(|notice| (notice.is_warning, notice.reason))
    };
    let new = ProxmoxClusterStatus::default();
    let ready = says(Standing::Live(Vec::new()), &json!({}));
    assert_eq!(of(&new, Standing::Live(vec![Trouble::OwnerUnset])), None);
    assert_eq!(of(&new, Standing::Live(Vec::new())), Some((false, "ClusterReady".to_owned())));
    assert_eq!(of(&ready, Standing::Live(Vec::new())), None);
    let unreachable = Some((true, "ProxmoxUnreachable".to_owned()));
    assert_eq!(of(&ready, Standing::Live(vec![silent()])), unreachable);
    let machines = Remainder::Machines(vec!["m".to_owned()]);
    let deleting = Some((false, "Deleting".to_owned()));
    assert_eq!(of(&ready, Standing::Deleting(vec![machines])), deleting);
    assert_eq!(of(&ready, Standing::Paused), None);
}

#[test]
fn failure_domains_are_told_in_the_form_of_the_contract_and_go_with_the_spec() {
    let mut object = cluster(&json!({"failureDomains": {"old": {"controlPlane": true}}}));
    object.spec.failure_domains = serde_json::from_value(json!([
        {"name": "a", "nodes": ["pve1", "pve2"]},
        {"name": "b", "nodes": ["pve3"], "controlPlane": false},
    ]))
    .unwrap();
    let decision = Decision::standing(Standing::Live(Vec::new()));
    let told = status(&object, &decision, at(0));
    let expected = json!({
        "a": {"controlPlane": true, "attributes": {"nodes": "pve1,pve2"}},
        "b": {"controlPlane": false, "attributes": {"nodes": "pve3"}},
    });
    assert_eq!(serde_json::to_value(&told.failure_domains).unwrap(), expected);
    let patch = status_patch(&object, &told).unwrap().unwrap();
    assert!(patch["status"]["failureDomains"]["old"].is_null(), "{patch}");
    object.status = Some(told);
    object.spec.failure_domains = None;
    let none = status(&object, &decision, at(0));
    let patch = status_patch(&object, &none).unwrap().unwrap();
    assert_eq!(patch["status"], json!({"failureDomains": null}));
}

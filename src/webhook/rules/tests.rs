//! The rules, as tables of objects and refusals.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::{Value, json};

use super::*;

mod settled;

fn object(kind: Kind, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": kind.as_str(),
        "metadata": {"name": "one", "namespace": "ns"},
        "spec": spec,
    }))
    .unwrap()
}

fn judge(kind: Kind, object: &DynamicObject, old: Option<&DynamicObject>) -> Verdict {
    review(&Review { kind, name: "one", object, old, dry_run: false })
}

/// The code and text of the refusal, or nothing when accepted.
fn refusal(kind: Kind, spec: &Value, old: Option<&Value>) -> Option<(u16, String)> {
    let old = old.map(|old| object(kind, old));
    match judge(kind, &object(kind, spec), old.as_ref()) {
        Verdict::Accepted | Verdict::Doubted(_) => None,
        Verdict::Refused { status, .. } => Some((status.code, status.message)),
    }
}

fn expect(kind: Kind, spec: &Value, expected: Option<(u16, &str)>) {
    for old in [None, Some(spec)] {
        match (refusal(kind, spec, old), expected) {
            (None, None) => {}
            (Some((code, text)), Some((expected_code, part))) => {
                assert_eq!(code, expected_code, "{text}");
                assert!(text.contains(part), "{part:?} is missing in {text:?}");
            }
            (got, _) => panic!("{spec}: expected {expected:?}, got {got:?}"),
        }
    }
}

fn cluster(host: &str, v4: &[&str], v6: &[&str]) -> Value {
    json!({
        "dnsServers": ["10.0.0.1"],
        "controlPlaneEndpoint": {"host": host, "port": 6443},
        "ipv4Config": {"addresses": v4, "prefix": 24},
        "ipv6Config": {"addresses": v6, "prefix": 64},
    })
}

#[test]
fn the_endpoint_is_a_name_or_an_address_outside_the_pools() {
    let inside = "addresses may not contain the endpoint IP";
    let unreadable = "provided addresses are not valid IP addresses, ranges or CIDRs";
    let v4 = ["10.0.0.10-10.0.0.20", "10.0.1.0/24", "10.0.2.1"];
    for (host, v4, v6, expected) in [
        ("10.0.0.9", &v4[..], &["fd00::/64"][..], None),
        ("api.example.com", &["nonsense"], &[], None),
        ("10.0.0.15", &v4, &[], Some(("spec.IPv4Config.addresses", inside))),
        ("10.0.1.255", &v4, &[], Some(("spec.IPv4Config.addresses", inside))),
        ("10.0.2.1", &v4, &[], Some(("spec.IPv4Config.addresses", inside))),
        ("fd00::7", &v4, &["fd00::/64"], Some(("spec.IPv6Config.addresses", inside))),
        ("10.0.0.9", &["10.0.0"], &[], Some(("spec.IPv4Config.addresses", unreadable))),
        ("10.0.0.9", &[], &["x"], Some(("spec.IPv6Config.addresses", unreadable))),
        (
            "not_a_name",
            &[],
            &[],
            Some((
                "spec.controlplaneEndpoint",
                "provided endpoint address is not a valid IP or FQDN",
            )),
        ),
    ] {
        let spec = cluster(host, v4, v6);
        expect(Kind::ProxmoxCluster, &spec, expected.map(|(path, _)| (422, path)));
        expect(Kind::ProxmoxCluster, &spec, expected.map(|(_, text)| (422, text)));
    }
}

#[test]
fn a_missing_endpoint_is_refused_with_both_remedies_unless_managed_elsewhere() {
    let mut spec = cluster("", &["10.0.0.10"], &[]);
    spec.as_object_mut().unwrap().remove("controlPlaneEndpoint");
    expect(Kind::ProxmoxCluster, &spec, Some((422, "spec.controlPlaneEndpoint: Required value")));
    expect(Kind::ProxmoxCluster, &spec, Some((422, "spec.externalManagedControlPlane")));

    spec["externalManagedControlPlane"] = json!(true);
    expect(Kind::ProxmoxCluster, &spec, None);
}

#[test]
fn a_cluster_without_pools_is_refused_on_creation_only() {
    let spec = json!({
        "dnsServers": ["10.0.0.1"],
        "controlPlaneEndpoint": {"host": "api", "port": 6443},
    });
    let text = "proxmox cluster must define at least one IP pool config".to_owned();
    assert_eq!(refusal(Kind::ProxmoxCluster, &spec, None), Some((403, text)));
    assert_eq!(refusal(Kind::ProxmoxCluster, &spec, Some(&spec)), None);
}

fn machine(network: &Value) -> Value {
    json!({"sourceNode": "pve1", "templateID": 900, "network": network})
}

fn pool() -> Value {
    json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"})
}

#[test]
fn the_default_device_is_needed_and_its_mtu_carries_ipv6() {
    let path = "spec.network.default.mtu";
    for (mtu, expected) in [
        (json!(null), None),
        (json!(1), None),
        (json!(1280), None),
        (json!(1279), Some((422, path))),
        (json!(576), Some((422, "mtu must be at least 1280 or 1, but was 576"))),
    ] {
        let spec = machine(&json!({"default": {"bridge": "vmbr0", "mtu": mtu}}));
        expect(Kind::ProxmoxMachine, &spec, expected);
    }
    let text = "default network device must be set when setting network spec";
    expect(Kind::ProxmoxMachine, &machine(&json!({})), Some((422, text)));
    expect(Kind::ProxmoxMachine, &machine(&json!({})), Some((422, "spec.network.default:")));
    expect(Kind::ProxmoxMachine, &json!({"sourceNode": "pve1", "templateID": 900}), None);
}

#[test]
fn each_additional_device_is_checked_in_order() {
    let good = json!({"name": "net1", "bridge": "vmbr1", "ipv4PoolRef": pool()});
    for (change, expected) in [
        (json!({}), None),
        (json!({"ipv4PoolRef": null}), Some("additionalDevices.1.IPPoolConfig")),
        (json!({"mtu": 1000}), Some("additionalDevices.1.mtu")),
        (json!({"mtu": 1, "linkMtu": 1280}), None),
        (json!({"linkMtu": 1}), Some("additionalDevices.1.linkMtu")),
        (json!({"linkMtu": 1000}), Some("mtu must be at least 1280, but was 1000")),
        (json!({"routingPolicy": [{"to": "10.0.0.0/8", "table": 5}]}), None),
        (
            json!({"routingPolicy": [{"table": 5}, {"to": "10.0.0.0/8"}]}),
            Some("additionalDevices.1.routingPolicy"),
        ),
        (json!({"routingPolicy": [{"table": 5}, {}]}), Some("routing policy [1] requires a table")),
    ] {
        let mut device = good.clone();
        device["name"] = json!("net2");
        device.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let network =
            json!({"default": {"bridge": "vmbr0"}, "additionalDevices": [good.clone(), device]});
        expect(Kind::ProxmoxMachine, &machine(&network), expected.map(|part| (422, part)));
    }
}

#[test]
fn a_vrf_and_its_policies_use_one_table() {
    let vrf = |policies: Value| {
        machine(&json!({
            "default": {"bridge": "vmbr0"},
            "vrfs": [{"name": "vrf-a", "table": 500, "routingPolicy": policies}],
        }))
    };
    expect(
        Kind::ProxmoxMachine,
        &vrf(json!([{"from": "10.0.0.0/8", "table": 500}, {"to": "10.0.0.0/8"}])),
        None,
    );
    let bad = vrf(json!([{"table": 501}]));
    let text = "VRF vrf-a: device/rule routing table mismatch 500 != 501";
    expect(Kind::ProxmoxMachine, &bad, Some((422, text)));
    let path = "spec.network.VirtualNetworkDevices.VRFs.0.Table";
    expect(Kind::ProxmoxMachine, &bad, Some((422, path)));
}

#[test]
fn tags_stay_as_they_are() {
    let tagged = |tags: Value| json!({"sourceNode": "pve1", "templateID": 900, "tags": tags});
    let refused = Some((400, "tags are immutable".to_owned()));
    for (old, new, expected) in [
        (json!(["a"]), json!(["a"]), None),
        (json!(["a"]), json!(["b"]), refused.clone()),
        (json!(["a", "b"]), json!(["b", "a"]), refused.clone()),
        (json!(null), json!([]), refused.clone()),
        (json!(null), json!(["a"]), refused),
    ] {
        assert_eq!(refusal(Kind::ProxmoxMachine, &tagged(new), Some(&tagged(old))), expected);
    }
}

#[test]
fn refusals_name_the_object_its_field_and_warn_as_the_peer_does() {
    let machine = object(Kind::ProxmoxMachine, &machine(&json!({})));
    let Verdict::Refused { status, warnings } = judge(Kind::ProxmoxMachine, &machine, None) else {
        panic!("accepted");
    };
    assert_eq!(warnings, ["cannot create proxmox machine one"]);
    assert_eq!(status.reason, "Invalid");
    assert!(
        status.message.starts_with(
            "ProxmoxMachine.infrastructure.cluster.x-k8s.io \"one\" is invalid: \
             spec.network.default: Invalid value: null: default"
        ),
        "{}",
        status.message
    );
    let details = status.details.unwrap();
    assert_eq!((details.kind.as_str(), details.name.as_str()), ("ProxmoxMachine", "one"));
    assert_eq!(details.causes[0].field, "spec.network.default");

    let tags = |tags: &str| {
        object(
            Kind::ProxmoxMachine,
            &json!({"sourceNode": "pve1", "templateID": 1, "tags": [tags]}),
        )
    };
    match judge(Kind::ProxmoxMachine, &tags("a"), Some(&tags("b"))) {
        Verdict::Refused { warnings, .. } => assert!(warnings.is_empty()),
        other => panic!("{other:?}"),
    }
}

const TEMPLATES: [Kind; 2] = [Kind::ProxmoxMachineTemplate, Kind::ProxmoxClusterTemplate];

fn template(kind: Kind, spec: &Value, metadata: &Value) -> DynamicObject {
    let mut object = object(kind, &json!({"template": {"spec": spec}}));
    let mut all = json!({"name": "one", "namespace": "ns"});
    all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    object.metadata = serde_json::from_value(all).unwrap();
    object
}

#[test]
fn a_template_stays_as_it_is_except_for_its_metadata_and_for_nulls() {
    let old =
        json!({"sourceNode": "pve1", "memoryMiB": 2048, "network": {"default": {"bridge": "a"}}});
    for (change, field) in [
        (json!({}), None),
        (json!({"pool": null}), None),
        (json!({"memoryMiB": 4096}), Some("spec.template.spec.memoryMiB: Invalid value: 4096")),
        (json!({"memoryMiB": null}), Some("spec.template.spec.memoryMiB: Invalid value: null")),
        (json!({"tags": ["x"]}), Some("spec.template.spec.tags")),
        (json!({"network": {"default": {"bridge": "b"}}}), Some("spec.template.spec.network")),
        (json!({"target": "pve2", "sourceNode": "pve2"}), Some("spec.template.spec.sourceNode")),
    ] {
        let mut new = old.clone();
        new.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        for kind in TEMPLATES {
            let labelled = template(kind, &new, &json!({"labels": {"a": "b"}}));
            let verdict = judge(kind, &labelled, Some(&template(kind, &old, &json!({}))));
            match (verdict, field) {
                (Verdict::Accepted, None) => {}
                (Verdict::Refused { status, warnings }, Some(field)) => {
                    assert_eq!(status.code, 422);
                    assert!(status.message.contains(field), "{}", status.message);
                    let remedy = format!("make a new {} and refer to that", kind.as_str());
                    assert!(status.message.ends_with(&remedy), "{}", status.message);
                    assert_eq!(warnings, [format!("cannot update {} one", kind.in_words())]);
                }
                (verdict, field) => panic!("{change}: expected {field:?}, got {verdict:?}"),
            }
        }
    }
}

#[test]
fn templates_change_in_a_topology_dry_run_and_in_a_cluster_class() {
    let marked = json!({"annotations": {"topology.cluster.x-k8s.io/dry-run": ""}});
    let owner = |group: &str, kind: &str| {
        json!({"ownerReferences": [
            {"apiVersion": format!("{group}/v1beta1"), "kind": kind, "name": "c", "uid": "u"},
        ]})
    };
    let of_class = owner("cluster.x-k8s.io", "ClusterClass");
    for (metadata, dry_run, accepted) in [
        (&marked, true, true),
        (&marked, false, false),
        (&json!({}), true, false),
        (&of_class, false, true),
        (&owner("cluster.x-k8s.io", "Cluster"), false, false),
        (&owner("example.com", "ClusterClass"), false, false),
    ] {
        for kind in TEMPLATES {
            let old = template(kind, &json!({"memoryMiB": 2048}), metadata);
            let new = template(kind, &json!({"memoryMiB": 4096}), metadata);
            let review = Review { kind, name: "one", object: &new, old: Some(&old), dry_run };
            let verdict = super::review(&review);
            assert_eq!(verdict == Verdict::Accepted, accepted, "{metadata} {dry_run}: {verdict:?}");
        }
    }
}

#[test]
fn a_new_template_whose_machines_would_be_refused_is_accepted_with_a_warning() {
    for (network, expected) in [
        (json!({"default": {"bridge": "vmbr0"}}), None),
        (json!({}), Some("spec.network.default")),
        (json!({"default": {"bridge": "vmbr0", "mtu": 576}}), Some("mtu must be at least 1280")),
    ] {
        let spec = machine(&network);
        let kind = Kind::ProxmoxMachineTemplate;
        match (judge(kind, &template(kind, &spec, &json!({})), None), expected) {
            (Verdict::Accepted, None) => {}
            (Verdict::Doubted(doubts), Some(expected)) => {
                assert_eq!(doubts.len(), 1);
                assert!(doubts[0].starts_with("machines made from this template"), "{doubts:?}");
                assert!(doubts[0].contains(expected), "{doubts:?}");
            }
            (verdict, expected) => panic!("{network}: expected {expected:?}, got {verdict:?}"),
        }
    }
    let unreadable = json!({"network": "none"});
    for kind in TEMPLATES {
        let verdict = judge(kind, &template(kind, &unreadable, &json!({})), None);
        assert_eq!(verdict, Verdict::Accepted);
    }
}

#[test]
fn an_object_that_is_being_deleted_can_always_go() {
    let mut going = object(Kind::ProxmoxMachine, &machine(&json!({})));
    let before = going.clone();
    going.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    assert_eq!(judge(Kind::ProxmoxMachine, &going, Some(&before)), Verdict::Accepted);
}

#[test]
fn a_spec_that_cannot_be_read_is_a_bad_request() {
    let (code, text) = refusal(Kind::ProxmoxMachine, &machine(&json!("none")), None).unwrap();
    assert_eq!(code, 400);
    assert!(text.contains("spec cannot be read"), "{text}");
}

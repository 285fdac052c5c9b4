//! Changes of machines that have got as far as not to be changed by them, and faults that were stored.

use super::*;

fn with_status(spec: &Value, status: &Value) -> DynamicObject {
    let mut machine = object(Kind::ProxmoxMachine, spec);
    machine.data["status"] = status.clone();
    machine
}

fn merged(spec: &Value, change: &Value) -> Value {
    let mut spec = spec.clone();
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    spec
}

/// The refusal of a change of a machine with this status, if any.
fn refused(spec: &Value, status: &Value, change: &Value) -> Option<String> {
    let old = with_status(spec, status);
    let new = with_status(&merged(spec, change), status);
    match judge(Kind::ProxmoxMachine, &new, Some(&old)) {
        Verdict::Accepted => None,
        Verdict::Refused { status, .. } => {
            assert_eq!(status.code, 422, "{}", status.message);
            Some(status.message)
        }
        Verdict::Doubted(doubts) => panic!("{doubts:?}"),
    }
}

/// Where a machine is, from its first moment on: object and status.
fn stages() -> [(Value, Value); 4] {
    let spec = json!({
        "sourceNode": "pve1", "templateID": 900, "numCores": 2, "full": true, "tags": ["a"],
        "network": {"default": {"bridge": "vmbr0", "model": "virtio"}},
    });
    let reserved = merged(&spec, &json!({"virtualMachineID": 105}));
    let cloned = merged(&reserved, &json!({"providerID": "proxmox://u"}));
    [
        (reserved, json!({"proxmoxNode": "pve1", "templateRef": {"node": "pve1", "vmid": 900}})),
        (cloned.clone(), json!({"ready": false})),
        (cloned.clone(), json!({"ready": false, "bootstrapDataProvided": true})),
        (cloned, json!({"ready": true, "bootstrapDataProvided": true})),
    ]
}

#[test]
fn a_template_that_records_a_vm_is_accepted_with_a_warning() {
    let kind = Kind::ProxmoxMachineTemplate;
    for (field, value) in [
        ("providerID", json!("proxmox://9a8b7c6d-0000-4000-8000-000000000001")),
        ("virtualMachineID", json!(105)),
    ] {
        let mut spec = machine(&json!({"default": {"bridge": "vmbr0"}}));
        spec[field] = value;
        let Verdict::Doubted(doubts) = judge(kind, &template(kind, &spec, &json!({})), None) else {
            panic!("{field} was taken without a word");
        };
        let [doubt] = &doubts[..] else { panic!("{doubts:?}") };
        assert!(doubt.contains(&format!("remove spec.template.spec.{field}")), "{doubt}");
    }
}

#[test]
fn a_change_that_could_not_take_effect_is_refused_with_field_and_remedy() {
    let [_, cloned, seeded, ready] = [0, 1, 2, 3];
    for (change, path, from) in [
        (json!({"templateID": 901}), "spec.templateID: Invalid value: 901", cloned),
        (
            json!({"sourceNode": null, "templateID": null, "templateSelector": {"matchTags": ["x"]}}),
            "spec.sourceNode: Invalid value: null",
            cloned,
        ),
        (json!({"target": "pve2"}), "spec.target", cloned),
        (json!({"allowedNodes": ["pve2"]}), "spec.allowedNodes", cloned),
        (json!({"full": false}), "spec.full: Invalid value: false", cloned),
        (json!({"storage": "ceph"}), "spec.storage", cloned),
        (json!({"format": "raw"}), "spec.format", cloned),
        (json!({"pool": "p"}), "spec.pool", cloned),
        (json!({"snapName": "s"}), "spec.snapName", cloned),
        (json!({"vmIDRange": {"start": 100, "end": 200}}), "spec.vmIDRange", cloned),
        (json!({"numCores": 4}), "spec.numCores: Invalid value: 4", seeded),
        (json!({"numCores": null}), "spec.numCores: Invalid value: null", seeded),
        (json!({"numSockets": 2}), "spec.numSockets", seeded),
        (json!({"memoryMiB": 4096}), "spec.memoryMiB", seeded),
        (json!({"description": "new"}), "spec.description", seeded),
        (json!({"disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}}), "spec.disks", seeded),
        (
            json!({"metadataSettings": {"providerIDInjection": true}}),
            "spec.metadataSettings",
            seeded,
        ),
        (
            json!({"network": {"default": {"bridge": "vmbr1", "model": "virtio"}}}),
            "spec.network.default.bridge: Invalid value: \"vmbr1\"",
            seeded,
        ),
        (
            json!({"network": {"default": {"bridge": "vmbr0", "model": "virtio", "vlan": 7}}}),
            "spec.network.default.vlan: Invalid value: 7",
            seeded,
        ),
        (json!({"checks": {"skipQemuGuestAgent": true}}), "spec.checks", ready),
    ] {
        for (stage, (spec, status)) in stages().iter().enumerate() {
            let refusal = refused(spec, status, &change);
            if stage < from {
                assert_eq!(refusal, None, "{change} at stage {stage}");
                continue;
            }
            let text = refusal.unwrap_or_else(|| panic!("{change} at stage {stage} is accepted"));
            assert!(text.contains(path), "{text}");
            assert!(text.contains("cannot take effect any more"), "{text}");
            assert!(text.contains("a new ProxmoxMachineTemplate"), "{text}");
        }
    }
}

#[test]
fn what_the_controllers_write_and_what_says_the_same_is_accepted_at_any_stage() {
    for change in [
        json!({}),
        json!({"providerID": "proxmox://other"}),
        json!({"virtualMachineID": 106}),
        json!({"virtualMachineID": null}),
        json!({"pool": null, "target": "", "allowedNodes": [], "disks": {"bootVolume": null}}),
        json!({"checks": {"skipCloudInitStatus": false}, "description": "", "full": null}),
        json!({"network": {"default": {"bridge": "vmbr0", "model": "virtio", "mtu": null},
            "additionalDevices": [], "vrfs": null}}),
    ] {
        for (stage, (spec, status)) in stages().iter().enumerate() {
            assert_eq!(refused(spec, status, &change), None, "{change} at stage {stage}");
        }
    }
    // By hand: another VM for a machine whose own is given up, from another template.
    let [_, (spec, status), ..] = stages();
    let anew = json!({"providerID": null, "virtualMachineID": null, "templateID": 901});
    assert_eq!(refused(&spec, &status, &anew), None);
}

#[test]
fn a_machine_that_is_being_deleted_may_be_changed_in_everything() {
    let [.., (spec, status)] = stages();
    let old = with_status(&spec, &status);
    let mut new = with_status(&merged(&spec, &json!({"numCores": 4})), &status);
    new.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    assert_eq!(judge(Kind::ProxmoxMachine, &new, Some(&old)), Verdict::Accepted);
}

/// As Cluster API 1.12 and later update a machine in place: first a dry run with the name of the new
/// template, then the change with the annotation.
#[test]
fn an_in_place_update_of_cluster_api_is_accepted_with_a_warning_and_anybody_elses_refused() {
    let [.., (spec, status)] = stages();
    let with = |spec: &Value, annotations: Value| {
        let mut machine = with_status(spec, &status);
        machine.metadata.annotations = serde_json::from_value(annotations).unwrap();
        machine
    };
    let template = |name: &str| json!({"cluster.x-k8s.io/cloned-from-name": name});
    let progress = json!({"in-place-updates.internal.cluster.x-k8s.io/update-in-progress": ""});
    let old = with(&spec, template("a"));
    for (annotations, dry_run, accepted) in [
        (template("b"), true, true),
        (progress.clone(), false, true),
        (merged(&template("b"), &progress), true, true),
        // A user, with and without dry run, though the template was renamed.
        (template("a"), true, false),
        (json!({}), true, false),
        (template("a"), false, false),
        (template("b"), false, false),
    ] {
        for (field, change) in [("numCores", json!(4)), ("tags", json!(["b"]))] {
            let new = with(&merged(&spec, &json!({field: change})), annotations.clone());
            let kind = Kind::ProxmoxMachine;
            let review = Review { kind, name: "one", object: &new, old: Some(&old), dry_run };
            match super::review(&review) {
                Verdict::Doubted(doubts) if accepted => {
                    let text = doubts.join(" ");
                    assert!(text.contains(field) && text.contains("Update Extension"), "{text}");
                }
                Verdict::Refused { .. } if !accepted => {}
                verdict => panic!("{annotations} {dry_run} {field}: {verdict:?}"),
            }
        }
    }
    // What nobody could bring about is refused all the same.
    let network = json!({"default": {"bridge": "vmbr0", "model": "virtio", "mtu": 5}});
    let new = with(&merged(&spec, &json!({"network": network})), progress);
    let verdict = judge(Kind::ProxmoxMachine, &new, Some(&old));
    assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
}

fn networked(device: &Value, vrfs: &Value) -> Value {
    let net1 = json!({"name": "net1", "bridge": "vmbr1", "ipv4PoolRef": pool()});
    let network = json!({
        "default": {"bridge": "vmbr0"},
        "additionalDevices": [merged(&net1, device)],
        "vrfs": vrfs,
    });
    machine(&network)
}

#[test]
fn network_settings_that_no_guest_could_apply_are_refused_with_their_field() {
    let vrf = |change: Value| json!([merged(&json!({"name": "vrf-a", "table": 500}), &change)]);
    for (device, vrfs, expected) in [
        (
            json!({"name": "eth1"}),
            json!([]),
            "spec.network.additionalDevices.0.name: Invalid \
            value: \"eth1\": no network device of Proxmox: expected net1 to net31",
        ),
        (json!({"name": "net32"}), json!([]), "spec.network.additionalDevices.0.name"),
        (json!({"name": "net01"}), json!([]), "spec.network.additionalDevices.0.name"),
        (json!({"bridge": "vmbr1,tag=3"}), json!([]), "spec.network.additionalDevices.0.bridge"),
        (
            json!({"routes": [{"to": "10.0.0.0/8"}, {"to": "ten", "via": "10.0.0.1"}]}),
            json!([]),
            "spec.network.additionalDevices.0.routes[1].to: Invalid value: \"ten\": \"ten\" is \
            neither an IP address nor a prefix",
        ),
        (
            json!({"routingPolicy": [{"table": 5}]}),
            json!([]),
            "spec.network.additionalDevices.0.routingPolicy[0].to: Invalid value: null: is missing",
        ),
        (json!({}), vrf(json!({"name": "vrf-with-a-long-name"})), "spec.network.vrfs.0.name"),
        (
            json!({}),
            vrf(json!({"interfaces": ["net9"]})),
            "spec.network.vrfs.0.interfaces[0]: Invalid value: \"net9\": \"net9\" is no device of \
            this machine: net0 (eth0), net1 (eth1)",
        ),
        (
            json!({}),
            vrf(json!({"routes": [{"to": "default"}]})),
            "spec.network.vrfs.0.routes[0].via",
        ),
    ] {
        let spec = networked(&device, &vrfs);
        let (code, text) = refusal(Kind::ProxmoxMachine, &spec, None)
            .unwrap_or_else(|| panic!("{device} {vrfs} is accepted"));
        assert!(code == 422 && text.contains(expected), "{code} {text}");
        // As long as it is there, it is not in the way of anything else.
        let named = merged(&spec, &json!({"numCores": 4}));
        assert_eq!(refusal(Kind::ProxmoxMachine, &named, Some(&spec)), None, "{text}");
        let good = networked(&json!({}), &json!([]));
        assert_eq!(refusal(Kind::ProxmoxMachine, &good, Some(&spec)), None, "it may be mended");
        assert!(refusal(Kind::ProxmoxMachine, &spec, Some(&good)).is_some(), "nor be brought in");
    }
}

#[test]
fn faults_that_were_stored_may_be_mended_one_after_the_other() {
    let net = |name: &str| json!({"name": name, "bridge": "vmbr1", "ipv4PoolRef": pool()});
    let spec = |devices: &[&str], members: &[&str]| {
        let devices: Vec<Value> = devices.iter().map(|name| net(name)).collect();
        machine(&json!({
            "default": {"bridge": "vmbr0"}, "additionalDevices": devices,
            "vrfs": [{"name": "vrf-a", "table": 500, "interfaces": members}],
        }))
    };
    let stored = spec(&["net1", "eth7"], &["net9"]);
    for (what, change, accepted) in [
        ("one device goes, another moves", spec(&["eth7"], &["net9"]), true),
        ("one comes", spec(&["net2", "net1", "eth7"], &["net9"]), true),
        ("one is mended", spec(&["net1", "net7"], &["net9"]), true),
        ("another fault comes", spec(&["net1", "eth8"], &["net9"]), false),
        ("and one more", spec(&["net1", "eth7"], &["net9", "net8"]), false),
    ] {
        let refusal = refusal(Kind::ProxmoxMachine, &change, Some(&stored));
        assert_eq!(refusal.is_none(), accepted, "{what}: {refusal:?}");
    }
}

#[test]
fn a_machine_that_is_moved_or_restored_with_a_fault_is_taken_as_it_is() {
    let spec = networked(&json!({"name": "eth1"}), &json!([]));
    let known = merged(&spec, &json!({"providerID": "proxmox://u"}));
    assert_eq!(refusal(Kind::ProxmoxMachine, &known, None), None);
    let mut waiting = object(Kind::ProxmoxMachine, &spec);
    assert!(matches!(judge(Kind::ProxmoxMachine, &waiting, None), Verdict::Refused { .. }));
    waiting.metadata.finalizers = Some(vec![crate::api::MACHINE_FINALIZER.to_owned()]);
    assert_eq!(judge(Kind::ProxmoxMachine, &waiting, None), Verdict::Accepted);
}

#[test]
fn a_template_whose_machines_have_a_fault_is_accepted_with_a_warning() {
    let spec = networked(&json!({"name": "eth1"}), &json!([]));
    let kind = Kind::ProxmoxMachineTemplate;
    match judge(kind, &template(kind, &spec, &json!({})), None) {
        Verdict::Doubted(doubts) => {
            assert!(doubts[0].contains("spec.network.additionalDevices.0.name"), "{doubts:?}");
        }
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn machine_specs_that_a_cluster_carries_are_warned_of_with_their_field_when_they_come_in() {
    let bad = networked(&json!({"name": "eth1"}), &json!([]));
    let worse = machine(&json!({"default": {"bridge": "vmbr0", "mtu": 5}}));
    let good = networked(&json!({}), &json!([]));
    let carrying = |specs: Value| {
        merged(&cluster("10.0.0.9", &[], &[]), &json!({"cloneSpec": {"machineSpec": specs}}))
    };
    let sound = carrying(json!({"controlPlane": good}));
    let one = carrying(json!({"controlPlane": good, "workerNode": bad}));
    let both = carrying(json!({"controlPlane": worse, "workerNode": bad}));
    let worker = "cloneSpec.machineSpec.workerNode.network.additionalDevices.0.name: Invalid value: \
                  \"eth1\"";
    let leader = "cloneSpec.machineSpec.controlPlane.network.default.mtu: Invalid value: 5";
    for (what, new, old, expected) in [
        ("nothing wrong", &sound, None, vec![]),
        ("made with it", &one, None, vec![worker]),
        ("made with two", &both, None, vec![leader, worker]),
        ("as it was", &one, Some(&one), vec![]),
        ("another comes in", &both, Some(&one), vec![leader]),
        ("comes in", &one, Some(&sound), vec![worker]),
        ("mended", &sound, Some(&both), vec![]),
    ] {
        let class = json!({"ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "ClusterClass", "name": "c", "uid": "u",
        }]});
        for (kind, below) in
            [(Kind::ProxmoxCluster, "spec."), (Kind::ProxmoxClusterTemplate, "spec.template.spec.")]
        {
            let made = |spec: &Value| match kind {
                Kind::ProxmoxCluster => object(kind, spec),
                _ => template(kind, spec, &class),
            };
            let doubts = match judge(kind, &made(new), old.map(made).as_ref()) {
                Verdict::Accepted => vec![],
                Verdict::Doubted(doubts) => doubts,
                verdict @ Verdict::Refused { .. } => panic!("{what}: {verdict:?}"),
            };
            assert_eq!(doubts.len(), expected.len(), "{what}: {doubts:?}");
            for (doubt, expected) in doubts.iter().zip(&expected) {
                assert!(doubt.contains(&format!("{below}{expected}")), "{what}: {doubt}");
            }
        }
    }
}

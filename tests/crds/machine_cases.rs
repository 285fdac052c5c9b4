//! Every rule on a machine's spec, wherever such a spec stands.

use serde_json::{Value, json};

use crate::stage::{Case, Stage, accepted, merged, refused};

fn base() -> Value {
    json!({ "sourceNode": "pve1", "templateID": 100 })
}

/// Rules on the machine itself.
fn machine() -> Vec<Case> {
    let base = base();
    let no = |what, change, texts| refused(what, &base, &change, texts);
    let yes = |what, change| accepted(what, &base, &change);
    vec![
        yes("as little as possible", json!({})),
        yes("all at once", everything()),
        no("source node empty", json!({"sourceNode": ""}), &["sourceNode"]),
        no("no such format", json!({"format": "qed"}), &["format", "\"raw\", \"qcow2\", \"vmdk\""]),
        yes("format of a full clone", json!({"format": "raw"})),
        no(
            "format of a linked clone",
            json!({"format": "raw", "full": false}),
            &["Must set full=true when specifying format"],
        ),
        no(
            "storage of a linked clone",
            json!({"storage": "local", "full": false}),
            &["Must set full=true when specifying storage"],
        ),
        yes("linked clone", json!({"full": false})),
        no("no sockets", json!({"numSockets": 0}), &["numSockets", "greater than or equal to 1"]),
        no("no cores", json!({"numCores": 0}), &["numCores", "greater than or equal to 1"]),
        no("odd memory", json!({"memoryMiB": 1001}), &["memoryMiB", "multiple of 8"]),
        no(
            "disk too small",
            json!({"disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 4}}}),
            &["sizeGb", "greater than or equal to 5"],
        ),
        no(
            "disk without size",
            json!({"disks": {"bootVolume": {"disk": "scsi0"}}}),
            &["sizeGb", "Required value"],
        ),
        // `format: int32` is only a hint to an API server.
        yes("template beyond 32 bits", json!({"templateID": 2_147_483_648_i64})),
        no("no tags", json!({"tags": []}), &["tags", "at least 1"]),
        no("tag twice", json!({"tags": ["a", "a"]}), &["tags[1]", "Duplicate value"]),
        no("tag with a blank", json!({"tags": ["a b"]}), &["tags[0]"]),
        yes("tags of all sorts", json!({"tags": ["A.b", "_c-d", "0+"]})),
        no("VMID too low", range(99, 200), &["vmIDRange.start", "greater than or equal to 100"]),
        no("VMID too high", range(100, 1_000_000_000), &["vmIDRange.end", "999999999"]),
        no("range backwards", range(200, 199), &["end should be greater than or equal to start"]),
        yes("range of one", range(200, 200)),
        no("range without end", json!({"vmIDRange": {"start": 100}}), &["vmIDRange.end"]),
    ]
}

/// Rules on the network of a machine.
fn network() -> Vec<Case> {
    let base = base();
    let no = |what, change: Value, texts| refused(what, &base, &change, texts);
    let yes = |what, change: Value| accepted(what, &base, &change);
    vec![
        no("no bridge", json!({"network": {"default": {}}}), &["default.bridge", "Required"]),
        no("empty bridge", default(&json!({"bridge": ""})), &["default.bridge"]),
        no("no such model", default(&json!({"model": "ne2k"})), &["model", "\"virtio\""]),
        no("MTU too low", default(&json!({"mtu": 575})), &["mtu", "invalid MTU value"]),
        no("MTU too high", default(&json!({"mtu": 65521})), &["mtu", "invalid MTU value"]),
        yes("MTU of the bridge", default(&json!({"mtu": 1}))),
        yes("least MTU", default(&json!({"mtu": 576}))),
        yes("largest MTU", default(&json!({"mtu": 65520}))),
        no("VLAN 0", default(&json!({"vlan": 0})), &["vlan", "greater than or equal to 1"]),
        no("VLAN 4095", default(&json!({"vlan": 4095})), &["vlan", "less than or equal to 4094"]),
        no("no name servers", default(&json!({"dnsServers": []})), &["dnsServers"]),
        no(
            "IPv4 pool of no group",
            default(&json!({"ipv4PoolRef": {"kind": "InClusterIPPool", "name": "p"}})),
            &["ipv4PoolRef", "ipv4PoolRef allows only IPAM apiGroup ipam.cluster.x-k8s.io"],
        ),
        no(
            "IPv6 pool of another group",
            default(&json!({"ipv6PoolRef": pool("example.com", "InClusterIPPool")})),
            &["ipv6PoolRef allows only IPAM apiGroup ipam.cluster.x-k8s.io"],
        ),
        no(
            "IPv4 pool of another kind",
            default(&json!({"ipv4PoolRef": pool("ipam.cluster.x-k8s.io", "Pool")})),
            &["ipv4PoolRef allows either InClusterIPPool or GlobalInClusterIPPool"],
        ),
        no(
            "IPv6 pool of another kind",
            default(&json!({"ipv6PoolRef": pool("ipam.cluster.x-k8s.io", "Pool")})),
            &["ipv6PoolRef allows either InClusterIPPool or GlobalInClusterIPPool"],
        ),
        yes(
            "global pool",
            default(
                &json!({"ipv4PoolRef": pool("ipam.cluster.x-k8s.io", "GlobalInClusterIPPool")}),
            ),
        ),
    ]
}

/// Rules on additional devices and VRFs.
fn devices() -> Vec<Case> {
    let base = base();
    let no = |what, change: Value, texts| refused(what, &base, &change, texts);
    let yes = |what, change: Value| accepted(what, &base, &change);
    let rule = |priority: i64| additional(&json!({"routingPolicy": [{"priority": priority}]}));
    vec![
        yes("one more device", additional(&json!({}))),
        no(
            "device net0",
            additional(&json!({"name": "net0"})),
            &["additional network devices doesn't allow net0"],
        ),
        no(
            "device without a name",
            additional(&json!({"name": ""})),
            &["additionalDevices[0].name"],
        ),
        no(
            "device without a pool",
            additional(&json!({"ipv4PoolRef": null})),
            &["at least one pool reference must be set, either ipv4PoolRef or ipv6PoolRef"],
        ),
        yes(
            "device with an IPv6 pool only",
            additional(&json!({
                "ipv4PoolRef": null,
                "ipv6PoolRef": pool("ipam.cluster.x-k8s.io", "InClusterIPPool")
            })),
        ),
        no(
            "device twice",
            json!({"network": {"additionalDevices": [device(&json!({})), device(&json!({}))]}}),
            &["additionalDevices[1]", "Duplicate value"],
        ),
        no("link MTU", additional(&json!({"linkMtu": 2})), &["linkMtu", "invalid MTU value"]),
        no("no routes", additional(&json!({"routes": []})), &["routes"]),
        no("no rules", additional(&json!({"routingPolicy": []})), &["routingPolicy"]),
        no("priority 0", rule(0), FIB),
        no("priority 32765", rule(32765), FIB),
        no("priority 32766", rule(32766), FIB),
        yes("priority 32764", rule(32764)),
        yes("priority 32767", rule(32767)),
        yes("VRF", vrf(&json!({}))),
        no("short VRF name", vrf(&json!({"name": "ab"})), &["vrfs[0].name"]),
        no("VRF without table", vrf(&json!({"table": null})), &["vrfs[0].table", "Required"]),
        no("table 0", vrf(&json!({"table": 0})), TABLE),
        no("table main", vrf(&json!({"table": 254})), TABLE),
        no("table local", vrf(&json!({"table": 255})), TABLE),
        yes("table 253", vrf(&json!({"table": 253}))),
        yes("table 256", vrf(&json!({"table": 256}))),
        yes("largest table", vrf(&json!({"table": u32::MAX}))),
        no(
            "table too large",
            vrf(&json!({"table": 1_i64 << 32})),
            &["vrfs[0].table", "4294967295"],
        ),
        no("priority too large", rule(1 << 32), &["priority", "4294967295"]),
        no(
            "VRF twice",
            json!({"network": {"vrfs": [
                {"name": "vrf0", "table": 500}, {"name": "vrf0", "table": 501}
            ]}}),
            &["vrfs[1]", "Duplicate value"],
        ),
    ]
}

const TABLE: &[&str] = &["Cowardly refusing to insert l3mdev rules into kernel tables"];
const FIB: &[&str] = &["Cowardly refusing to insert FIB rule matching kernel rules"];

fn range(start: i64, end: i64) -> Value {
    json!({"vmIDRange": {"start": start, "end": end}})
}

fn pool(group: &str, kind: &str) -> Value {
    json!({"apiGroup": group, "kind": kind, "name": "p"})
}

fn default(change: &Value) -> Value {
    json!({"network": {"default": merged(&json!({"bridge": "vmbr0"}), change)}})
}

fn device(change: &Value) -> Value {
    let base = json!({
        "name": "net1",
        "bridge": "vmbr1",
        "ipv4PoolRef": pool("ipam.cluster.x-k8s.io", "InClusterIPPool"),
    });
    merged(&base, change)
}

fn additional(change: &Value) -> Value {
    json!({"network": {"additionalDevices": [device(change)]}})
}

fn vrf(change: &Value) -> Value {
    json!({"network": {"vrfs": [merged(&json!({"name": "vrf0", "table": 500}), change)]}})
}

/// A spec that uses every field.
pub(crate) fn everything() -> Value {
    json!({
        "sourceNode": "pve1",
        "templateID": 100,
        "description": "a machine",
        "format": "qcow2",
        "full": true,
        "pool": "clusters",
        "snapName": "base",
        "storage": "local-lvm",
        "target": "pve2",
        "numSockets": 2,
        "numCores": 4,
        "memoryMiB": 16384,
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 100}},
        "network": {
            "default": {
                "bridge": "vmbr0", "model": "e1000", "mtu": 1500, "vlan": 100,
                "dnsServers": ["1.1.1.1"],
                "ipv4PoolRef": pool("ipam.cluster.x-k8s.io", "GlobalInClusterIPPool"),
                "ipv6PoolRef": pool("ipam.cluster.x-k8s.io", "InClusterIPPool")
            },
            "additionalDevices": [{
                "name": "net1", "bridge": "vmbr1", "model": "vmxnet3", "mtu": 9000, "vlan": 4094,
                "linkMtu": 9000, "dnsServers": ["fd00::53"],
                "ipv6PoolRef": pool("ipam.cluster.x-k8s.io", "InClusterIPPool"),
                "routes": [{"to": "10.0.0.0/8", "via": "10.1.1.1", "metric": 10, "table": 500}],
                "routingPolicy": [
                    {"to": "10.0.0.0/8", "from": "10.1.0.0/16", "table": 500, "priority": 1000}
                ]
            }],
            "vrfs": [{
                "name": "vrf-a", "table": 500, "interfaces": ["net1"],
                "routes": [{"to": "0.0.0.0/0", "via": "10.1.1.1"}],
                "routingPolicy": [{"from": "10.1.0.0/16", "priority": 1000}]
            }]
        },
        "vmIDRange": {"start": 1000, "end": 1999},
        "checks": {"skipCloudInitStatus": true, "skipQemuGuestAgent": true},
        "metadataSettings": {"providerIDInjection": true},
        "allowedNodes": ["pve1", "pve2"],
        "tags": ["one", "two"]
    })
}

fn all() -> Vec<Case> {
    machine().into_iter().chain(network()).chain(devices()).collect()
}

#[tokio::test]
async fn rules_hold_for_machines() {
    Stage::set().await.hold("ProxmoxMachine", &all(), Value::clone).await;
}

#[tokio::test]
async fn rules_hold_in_machine_templates() {
    let wrap = |spec: &Value| json!({"template": {"spec": spec}});
    Stage::set().await.hold("ProxmoxMachineTemplate", &all(), wrap).await;
}

#[tokio::test]
async fn rules_hold_for_machines_within_clusters() {
    let stage = Stage::set().await;
    let cluster = |spec: &Value| {
        json!({
            "dnsServers": ["1.1.1.1"],
            "ipv4Config": {"addresses": ["10.0.0.1"], "prefix": 24},
            "cloneSpec": {"machineSpec": {"controlPlane": spec}}
        })
    };
    stage.hold("ProxmoxCluster", &all(), cluster).await;
    let template = |spec: &Value| json!({"template": {"spec": cluster(spec)}});
    stage.hold("ProxmoxClusterTemplate", &all(), template).await;
}

/// Only a machine has to say what it is cloned from; a template may leave it to patches.
#[tokio::test]
async fn source_is_required_of_machines_only() {
    let one = "must define either SourceNode with TemplateID, OR TemplateSelector";
    let two = "must define either SourceNode with TemplateID, OR TemplateSelector.";
    let selector = json!({"templateSelector": {"matchTags": ["t"]}});
    let stage = Stage::set().await;
    let said = stage.attempt("ProxmoxMachine", &json!({})).await.unwrap_err();
    assert!(said.contains(one) && said.contains(two), "{said}");
    let said = stage.attempt("ProxmoxMachine", &merged(&base(), &selector)).await.unwrap_err();
    assert!(said.contains(one) && said.contains(two), "{said}");
    let half = json!({"sourceNode": "pve1"});
    let said = stage.attempt("ProxmoxMachine", &half).await.unwrap_err();
    assert!(said.contains(two), "{said}");
    stage.attempt("ProxmoxMachine", &selector).await.unwrap();
    let empty = json!({"templateSelector": {"matchTags": []}});
    let said = stage.attempt("ProxmoxMachine", &empty).await.unwrap_err();
    assert!(said.contains("matchTags"), "{said}");
    for spec in [json!({}), half, merged(&base(), &selector)] {
        stage
            .attempt("ProxmoxMachineTemplate", &json!({"template": {"spec": spec}}))
            .await
            .unwrap();
    }
    let said = stage.attempt("ProxmoxMachineTemplate", &json!({})).await.unwrap_err();
    assert!(said.contains("spec.template"), "{said}");
}

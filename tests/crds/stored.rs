//! What becomes of objects that are stored: defaults, pruning, updates, status, columns.

use capmox::api::{ProxmoxCluster, ProxmoxMachine, TemplateRef};
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::machine_cases::everything;
use crate::stage::{Stage, merged};

fn cluster() -> Value {
    json!({
        "controlPlaneEndpoint": {"host": "10.0.0.5", "port": 6443},
        "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24},
        "dnsServers": ["1.1.1.1"]
    })
}

async fn patch(
    stage: &Stage,
    kind: &str,
    name: &str,
    change: Value,
) -> Result<DynamicObject, String> {
    let api = stage.api(kind);
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
    patched.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        other => panic!("{other}"),
    })
}

#[tokio::test]
async fn defaults_are_filled_in() {
    let stage = Stage::set().await;
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"});
    let machine = json!({
        "sourceNode": "pve1", "templateID": 100,
        "network": {
            "default": {"bridge": "vmbr0"},
            "additionalDevices": [{"name": "net1", "bridge": "vmbr1", "ipv4PoolRef": pool}]
        }
    });
    let made = stage.create("ProxmoxMachine", "m", &machine).await;
    assert_eq!(made.data["spec"]["full"], true);
    assert_eq!(made.data["spec"]["network"]["default"]["model"], "virtio");
    assert_eq!(made.data["spec"]["network"]["additionalDevices"][0]["model"], "virtio");
    assert_eq!(made.data["status"], Value::Null);
    let spec = merged(
        &cluster(),
        &json!({"cloneSpec": {"machineSpec": {"controlPlane": {"sourceNode": "pve1"}}}}),
    );
    let made = stage.create("ProxmoxCluster", "c", &spec).await;
    assert_eq!(made.data["spec"]["ipv4Config"]["metric"], 100);
    assert_eq!(made.data["spec"]["cloneSpec"]["machineSpec"]["controlPlane"]["full"], true);
}

#[tokio::test]
async fn every_field_is_kept_and_unknown_ones_are_dropped() {
    let stage = Stage::set().await;
    let spec = merged(&everything(), &json!({"unknown": 1, "checks": {"unknown": true}}));
    let made = stage.create("ProxmoxMachine", "m", &spec).await;
    assert_eq!(made.data["spec"], everything());
    let api: Api<ProxmoxMachine> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let read = api.get("m").await.unwrap();
    assert_eq!(serde_json::to_value(&read.spec).unwrap(), everything());
}

#[tokio::test]
async fn boot_volume_stays_as_it_was_set() {
    let stage = Stage::set().await;
    let volume = |size: i64| json!({"disks": {"bootVolume": {"disk": "scsi0", "sizeGb": size}}});
    let base = json!({"sourceNode": "pve1", "templateID": 100});
    stage.create("ProxmoxMachine", "m", &base).await;
    let template = json!({"template": {"spec": merged(&base, &volume(20))}});
    stage.create("ProxmoxMachineTemplate", "t", &template).await;
    let set = patch(&stage, "ProxmoxMachine", "m", json!({"spec": volume(20)})).await;
    set.expect("a first value may be set");
    let said = patch(&stage, "ProxmoxMachine", "m", json!({"spec": volume(30)})).await;
    assert!(said.unwrap_err().contains("spec.disks.bootVolume: Invalid value"));
    let change = json!({"spec": {"template": {"spec": volume(30)}}});
    let said = patch(&stage, "ProxmoxMachineTemplate", "t", change).await.unwrap_err();
    assert!(said.contains("Value is immutable"), "{said}");
    let gone = json!({"spec": {"disks": {"bootVolume": null}}});
    patch(&stage, "ProxmoxMachine", "m", gone).await.expect("it may be taken away");
}

#[tokio::test]
async fn status_is_written_apart_and_read_back() {
    let stage = Stage::set().await;
    stage.create("ProxmoxCluster", "c", &cluster()).await;
    stage.create("ProxmoxMachine", "m", &json!({"templateSelector": {"matchTags": ["t"]}})).await;
    let ignored = json!({"status": {"ready": true}});
    let same = patch(&stage, "ProxmoxMachine", "m", ignored.clone()).await.unwrap();
    assert_eq!(same.data["status"], Value::Null);

    let clusters: Api<ProxmoxCluster> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let parameters = PatchParams::default();
    let change = json!({"status": {"nodeLocations": {"workers": [
        {"machine": {"name": "m"}, "node": "pve1"}
    ]}}});
    let written = clusters.patch_status("c", &parameters, &Patch::Merge(change)).await.unwrap();
    let status = written.status.unwrap();
    assert!(!status.ready);
    assert_eq!(status.node_locations.unwrap().workers[0].machine.name, "m");
    let stored = stage.api("ProxmoxCluster").get("c").await.unwrap();
    assert_eq!(stored.data["status"]["ready"], false, "filled in by the API server");

    let machines: Api<ProxmoxMachine> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let change = json!({"status": {
        "ready": true, "bootstrapISO": "local:iso/user-data-100.iso", "bootstrapISONode": "pve1",
        "cloneAttempts": 2,
        "templateRef": {"node": "pve1", "vmid": 9000}, "retryAfter": "2026-01-01T00:00:00Z",
        "addresses": [{"type": "InternalIP", "address": "10.0.0.10"}],
        "ipAddresses": {"net0": {"ipv4": "10.0.0.10"}}, "unknown": 1
    }});
    let written = machines.patch_status("m", &parameters, &Patch::Merge(change)).await.unwrap();
    let status = written.status.unwrap();
    assert_eq!(status.bootstrap_iso.as_deref(), Some("local:iso/user-data-100.iso"));
    assert_eq!(status.bootstrap_iso_node.as_deref(), Some("pve1"));
    assert_eq!(status.template_ref, Some(TemplateRef { node: "pve1".into(), vmid: 9000 }));
    assert_eq!(status.ip_addresses["net0"].ipv4.as_deref(), Some("10.0.0.10"));
    let stored = stage.api("ProxmoxMachine").get("m").await.unwrap();
    assert_eq!(stored.data["status"]["unknown"], Value::Null);
    let wrong = json!({"status": {"addresses": [{"type": "Pigeon", "address": "x"}]}});
    let refused = machines.patch_status("m", &parameters, &Patch::Merge(wrong)).await;
    assert!(refused.unwrap_err().to_string().contains("Unsupported value: \"Pigeon\""));
}

#[tokio::test]
async fn conditions_of_both_generations_are_accepted() {
    use capmox::api::conditions::{Severity, State, v1beta1, v1beta2};
    let stage = Stage::set().await;
    stage.create("ProxmoxCluster", "c", &cluster()).await;
    let wanted = [("ClusterReady", State::not(Severity::Error, "ProxmoxUnreachable", "no answer"))];
    let now = k8s_openapi::jiff::Timestamp::from_second(1_700_000_000).unwrap();
    let one = v1beta1(&[], &wanted, now);
    let two = v1beta2(&[], &wanted, false, Some(1), now);
    let clusters: Api<ProxmoxCluster> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let change = json!({"status": {"conditions": one, "v1beta2": {"conditions": two}}});
    let written =
        clusters.patch_status("c", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    let status = written.status.unwrap();
    assert_eq!(v1beta1(&status.conditions, &wanted, now), one, "read back as written");
    assert_eq!(v1beta2(status.v1beta2_conditions(), &wanted, false, Some(1), now), two);
}

/// The rows that `kubectl get` shows: names of the columns, and the cells of the first row.
async fn table(stage: &Stage, plural: &str) -> (Vec<String>, Vec<Value>) {
    let path = format!(
        "/apis/{}/{}/namespaces/{}/{plural}",
        capmox::api::GROUP,
        capmox::api::VERSION,
        stage.namespace
    );
    let request = http::Request::get(path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = stage.client.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let names = columns.iter().map(|column| column["name"].as_str().unwrap().to_owned()).collect();
    (names, table["rows"][0]["cells"].as_array().unwrap().clone())
}

#[tokio::test]
async fn columns_show_what_matters() {
    let stage = Stage::set().await;
    let label = json!({"metadata": {
        "labels": {"cluster.x-k8s.io/cluster-name": "one"},
        "ownerReferences": [{
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": "owner", "uid": "1"
        }]
    }});
    let spec = json!({
        "sourceNode": "pve1", "templateID": 100, "virtualMachineID": 105,
        "providerID": "proxmox://00000000-0000-4000-8000-000000000001"
    });
    stage.create("ProxmoxMachine", "m", &spec).await;
    patch(&stage, "ProxmoxMachine", "m", label.clone()).await.unwrap();
    let machines: Api<ProxmoxMachine> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let status = json!({"status": {
        "ready": false, "proxmoxNode": "pve2",
        "conditions": [{"type": "Ready", "status": "False", "reason": "Cloning",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "clone runs"}]
    }});
    machines.patch_status("m", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let (names, cells) = table(&stage, "proxmoxmachines").await;
    let expected = [
        "Name",
        "Cluster",
        "Ready",
        "Node",
        "Provider_ID",
        "Machine",
        "VMID",
        "Reason",
        "Age",
        "Address",
        "Message",
    ];
    assert_eq!(names, expected);
    let shown: Vec<_> = cells.iter().take(8).cloned().collect();
    let id = spec["providerID"].clone();
    assert_eq!(
        Value::from(shown),
        json!(["m", "one", "false", "pve2", id, "owner", 105, "Cloning"])
    );
    assert_eq!(cells[10], "clone runs");

    stage.create("ProxmoxCluster", "c", &cluster()).await;
    patch(
        &stage,
        "ProxmoxCluster",
        "c",
        json!({"metadata": {"labels": {
            "cluster.x-k8s.io/cluster-name": "one"
        }}}),
    )
    .await
    .unwrap();
    let (names, cells) = table(&stage, "proxmoxclusters").await;
    assert_eq!(names, ["Name", "Cluster", "Ready", "Endpoint", "Reason", "Age", "Message"]);
    assert_eq!(cells[1], "one");
    let endpoint = cells[3].as_str().unwrap();
    assert!(endpoint.contains("10.0.0.5") && endpoint.contains("6443"), "{endpoint}");
}

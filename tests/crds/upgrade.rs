//! Definitions that replace older ones in place: capmox's, and ours of before. What was stored stays,
//! can be read and written on, and survives the way back.

use std::time::Duration;

use capmox::api::{
    ProxmoxCluster, ProxmoxClusterTemplate, ProxmoxMachine, ProxmoxMachineTemplate, TemplateRef,
    crd,
};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::{Options, World};

use crate::capmox_crds;
use crate::machine_cases::everything;
use crate::stage::Stage;

const KINDS: [&str; 4] =
    ["ProxmoxCluster", "ProxmoxClusterTemplate", "ProxmoxMachine", "ProxmoxMachineTemplate"];

/// What only we write to the status of a machine.
const ADDITIONS: [&str; 4] = ["bootstrapISO", "cloneAttempts", "templateRef", "v1beta2"];

/// Ours as they would be without what was added last.
fn ours_of_before() -> Vec<Value> {
    let mut all = crd::infrastructure();
    for definition in &mut all {
        let version = &mut definition["spec"]["versions"][0];
        version["additionalPrinterColumns"] = json!([]);
        let status = "/schema/openAPIV3Schema/properties/status/properties";
        if let Some(fields) = version.pointer_mut(status).and_then(Value::as_object_mut) {
            fields.retain(|name, _| !ADDITIONS.contains(&name.as_str()));
        }
    }
    all
}

/// Fills the namespace as a manager of that definition would have.
async fn fill(stage: &Stage) {
    let cluster = json!({
        "controlPlaneEndpoint": {"host": "10.0.0.5", "port": 6443},
        "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1"},
        "dnsServers": ["10.0.0.1"],
        "allowedNodes": ["pve1", "pve2"],
        "credentialsRef": {"name": "credentials"}
    });
    let mut machine = everything();
    machine["providerID"] = json!("proxmox://00000000-0000-4000-8000-000000000001");
    machine["virtualMachineID"] = json!(105);
    stage.create("ProxmoxCluster", "o", &cluster).await;
    stage.create("ProxmoxMachine", "o", &machine).await;
    stage.create("ProxmoxMachineTemplate", "o", &json!({"template": {"spec": everything()}})).await;
    stage.create("ProxmoxClusterTemplate", "o", &json!({"template": {"spec": cluster}})).await;

    let condition = json!({"type": "Ready", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let of_cluster = json!({"ready": true, "conditions": [condition],
        "inClusterIpPoolRef": [{"name": "o-v4-icip"}],
        "nodeLocations": {"workers": [{"machine": {"name": "o"}, "node": "pve1"}]}});
    let of_machine = json!({"ready": true, "conditions": [condition], "vmStatus": "ready",
        "proxmoxNode": "pve1", "bootstrapDataProvided": true,
        "taskRef": "UPID:pve1:000F1234:01234567:65000000:qmstart:105:capmox@pve!capi:",
        "retryAfter": "2026-01-01T00:00:00Z",
        "addresses": [{"type": "InternalIP", "address": "10.0.0.10"}],
        "ipAddresses": {"net0": {"ipv4": "10.0.0.10"}},
        "network": [{"macAddr": "bc:24:11:00:00:01", "connected": true, "ipAddrs": ["10.0.0.10"],
            "networkName": "vmbr0"}]});
    for (kind, status) in [("ProxmoxCluster", of_cluster), ("ProxmoxMachine", of_machine)] {
        let change = Patch::Merge(json!({ "status": status }));
        stage.api(kind).patch_status("o", &PatchParams::default(), &change).await.unwrap();
    }
}

/// What the API server gives for each kind: spec and status.
async fn stored(stage: &Stage) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    for kind in KINDS {
        all.push((kind, stage.api(kind).get("o").await.unwrap().data));
    }
    all
}

/// Everything is readable by our types, and means the same.
async fn readable(stage: &Stage) {
    let (client, namespace) = (stage.client.clone(), stage.namespace.as_str());
    let cluster = Api::<ProxmoxCluster>::namespaced(client.clone(), namespace);
    let cluster = cluster.get("o").await.unwrap();
    assert_eq!(cluster.spec.credentials_ref.unwrap().name.as_deref(), Some("credentials"));
    assert_eq!(cluster.status.unwrap().in_cluster_ip_pool_ref[0].name, "o-v4-icip");
    let machine = Api::<ProxmoxMachine>::namespaced(client.clone(), namespace);
    let machine = machine.get("o").await.unwrap();
    assert_eq!(machine.spec.virtual_machine_id, Some(105));
    let status = machine.status.unwrap();
    assert!(status.ready && status.task_ref.is_some() && status.retry_after.is_some());
    assert_eq!(status.ip_addresses["net0"].ipv4.as_deref(), Some("10.0.0.10"));
    let template = Api::<ProxmoxMachineTemplate>::namespaced(client.clone(), namespace);
    assert!(template.get("o").await.unwrap().spec.template.spec.network.is_some());
    let template = Api::<ProxmoxClusterTemplate>::namespaced(client, namespace);
    assert_eq!(template.get("o").await.unwrap().spec.template.spec.dns_servers, ["10.0.0.1"]);
}

/// What only we write is kept, once the new definition is in use.
async fn takes_additions(world: &World, stage: &Stage) {
    let api = Api::<ProxmoxMachine>::namespaced(stage.client.clone(), &stage.namespace);
    let change = json!({"status": {
        "bootstrapISO": "local:iso/user-data-105.iso", "cloneAttempts": 1,
        "templateRef": {"node": "pve1", "vmid": 9000}
    }});
    let written = world.wait_for(Duration::from_mins(1), "the new fields", async || {
        let parameters = PatchParams::default();
        let machine = api.patch_status("o", &parameters, &Patch::Merge(&change)).await?;
        Ok(machine.status.and_then(|status| status.template_ref))
    });
    assert_eq!(written.await.unwrap(), TemplateRef { node: "pve1".into(), vmid: 9000 });
}

async fn there_and_back(old: Vec<Value>) {
    let world = World::start(Options { crds: false, ..Options::default() }).await.unwrap();
    let client = world.client().await.unwrap();
    testbed::crds::install(&client, old.clone()).await.unwrap();
    let stage = Stage::set_in(&world).await;
    fill(&stage).await;
    let before = stored(&stage).await;
    assert_eq!(before[2].1["status"]["proxmoxNode"], "pve1", "{before:?}");

    testbed::crds::install(&client, crd::infrastructure()).await.unwrap();
    assert_eq!(stored(&stage).await, before);
    readable(&stage).await;
    takes_additions(&world, &stage).await;
    readable(&stage).await;

    // Back: what was there is there, and what is ours is gone with its definition.
    testbed::crds::install(&client, old).await.unwrap();
    let back = world.wait_for(Duration::from_mins(1), "the old definitions", async || {
        // A write makes the API server store the object by the definition in use.
        let touch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
        stage.api("ProxmoxMachine").patch("o", &PatchParams::default(), &touch).await?;
        let now = stored(&stage).await;
        Ok((now[2].1["status"]["templateRef"].is_null()).then_some(now))
    });
    assert_eq!(back.await.unwrap(), before);
}

#[tokio::test]
async fn objects_of_capmox_stay_readable_when_its_definitions_become_ours_and_again() {
    there_and_back(capmox_crds::definitions()).await;
}

#[tokio::test]
async fn objects_of_an_older_version_stay_readable_when_definitions_are_renewed() {
    there_and_back(ours_of_before()).await;
}

//! A Cluster of a ClusterClass from nothing to its end, by Cluster API's own topology controller and
//! the real program: rolled over to another VM template, and with a machine replaced by a
//! MachineHealthCheck.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod machines;
mod stage;

use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use machines::{Kind, Machines};
use stage::{CLUSTER, NEW_TEMPLATE, OLD_TEMPLATE, Stage};

/// The Cluster: the example, with a control plane of one machine and two workers, which a health
/// check of its own looks after.
fn cluster(stage: &Stage) -> Value {
    let text = std::fs::read_to_string(testbed::root().join("examples/cluster-cilium.yaml"));
    let [cluster] = &mut testbed::apply::documents(&text.unwrap()).unwrap()[..] else {
        panic!("one Cluster");
    };
    cluster["metadata"]["name"] = json!(CLUSTER);
    let topology = &mut cluster["spec"]["topology"];
    topology["workers"]["machineDeployments"] = json!([{
        "class": "proxmox-worker",
        "name": "workers",
        "replicas": 2,
        "machineHealthCheck": {
            "maxUnhealthy": "100%",
            "nodeStartupTimeout": "2m",
            "unhealthyConditions": [
                {"type": "Ready", "status": "Unknown", "timeout": "8s"},
                {"type": "Ready", "status": "False", "timeout": "8s"},
            ],
        },
    }]);
    let (host, port) = stage.endpoint.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    set_variable(cluster, "controlPlaneEndpoint", |value| {
        *value = json!({"host": host, "port": port});
    });
    set_variable(cluster, "cloneSpec", |value| {
        let machines = &mut value["machineSpec"];
        machines["controlPlane"]["memoryMiB"] = json!(2048);
        machines["workerNode"]["memoryMiB"] = json!(1024);
        machines["workerNode"]["disks"]["bootVolume"]["sizeGb"] = json!(40);
        for role in ["controlPlane", "workerNode"] {
            machines[role]["templateID"] = json!(OLD_TEMPLATE);
            // The class has a network for who names none.
            machines[role].as_object_mut().unwrap().remove("network");
        }
    });
    cluster.clone()
}

fn set_variable(cluster: &mut Value, name: &str, change: impl FnOnce(&mut Value)) {
    let variables = cluster["spec"]["topology"]["variables"].as_array_mut().unwrap();
    let found = variables.iter_mut().find(|variable| variable["name"] == name).unwrap();
    change(&mut found["value"]);
}

/// What the variables and the class say has come to the machines.
fn are_as_asked(machines: &Machines, stage: &Stage) {
    let [control_plane] = machines.of(Kind::ControlPlane)[..] else { panic!("one control plane") };
    assert_eq!(control_plane.spec["memoryMiB"], 2048);
    assert_eq!(control_plane.spec["numSockets"], 1);
    for worker in machines.of(Kind::Worker) {
        assert_eq!(worker.spec["memoryMiB"], 1024);
        assert_eq!(worker.spec["numSockets"], 2);
        assert_eq!(worker.spec["disks"]["bootVolume"]["sizeGb"], 40);
        assert_eq!(worker.spec["network"]["default"]["bridge"], "vmbr0");
        assert_eq!(worker.spec["format"], "qcow2");
        assert_eq!(worker.spec["templateID"], OLD_TEMPLATE);
        let vm = stage.config(worker.vmid);
        assert_eq!(vm["memory"], "1024");
        assert_eq!(vm["sockets"], "2");
    }
}

/// How many machines of a kind there were at most, and how many ran at least.
struct Course {
    kind: Kind,
    most: usize,
    fewest: usize,
}

impl Course {
    fn of(kind: Kind) -> Self {
        Self { kind, most: 0, fewest: usize::MAX }
    }

    /// One that is being deleted counts no more: its place is free.
    fn follow(&mut self, now: &Machines) {
        let machines = now.of(self.kind);
        let staying = machines.iter().filter(|machine| !machine.is_deleting).count();
        let running = machines.iter().filter(|machine| machine.is_running()).count();
        self.most = self.most.max(staying);
        self.fewest = self.fewest.min(running);
    }
}

/// To another VM template: one machine more at most, never one less that runs.
async fn rolls_over(stage: &Stage) {
    let before = stage.machines().await.unwrap();
    let api = stage.clusters().await;
    let mut cluster = serde_json::to_value(api.get(CLUSTER).await.unwrap()).unwrap();
    set_variable(&mut cluster, "cloneSpec", |value| {
        for role in ["controlPlane", "workerNode"] {
            value["machineSpec"][role]["templateID"] = json!(NEW_TEMPLATE);
        }
    });
    let variables = &cluster["spec"]["topology"]["variables"];
    let patch = Patch::Merge(json!({"spec": {"topology": {"variables": variables}}}));
    api.patch(CLUSTER, &PatchParams::default(), &patch).await.unwrap();

    let (mut control_plane, mut workers) =
        (Course::of(Kind::ControlPlane), Course::of(Kind::Worker));
    stage
        .until("three machines of the new template", |now| {
            control_plane.follow(now);
            workers.follow(now);
            now.are_settled(1, 2)
                && now.all().iter().all(|machine| machine.spec["templateID"] == NEW_TEMPLATE)
        })
        .await;
    assert_eq!((control_plane.most, control_plane.fewest), (2, 1), "one is surged");
    assert_eq!((workers.most, workers.fewest), (3, 2), "one is surged");
    let after = stage.machines().await.unwrap();
    for old in before.all() {
        assert!(!stage.has_vm(&old.name), "the VM of {} is left", old.name);
        assert!(after.all().iter().all(|machine| machine.name != old.name));
    }
    assert!(after.all().iter().all(|machine| stage.has_vm(&machine.name)));
}

/// A worker whose kubelet dies is replaced; nobody else is.
async fn is_replaced(stage: &Stage) {
    let before = stage.machines().await.unwrap();
    let [sick, well] = before.of(Kind::Worker)[..] else { panic!("two workers") };
    stage.workload().kill_kubelet(&stage.endpoint, &sick.node).await.unwrap();
    stage
        .until("a worker in place of the sick one", |now| {
            now.are_settled(1, 2) && !now.names(Kind::Worker).contains(&sick.name.as_str())
        })
        .await;
    let after = stage.machines().await.unwrap();
    assert!(after.names(Kind::Worker).contains(&well.name.as_str()));
    assert_eq!(after.names(Kind::ControlPlane), before.names(Kind::ControlPlane));
    assert!(!stage.has_vm(&sick.name), "the VM of {} is left", sick.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_a_class_comes_up_rolls_over_heals_and_goes() {
    let stage = Stage::start().await.unwrap();
    stage.apply_class().await.unwrap();
    let cluster = cluster(&stage);
    testbed::apply::apply(&stage.client, &cluster, &stage.namespace).await.unwrap();
    stage.until("three machines Running", |now| now.are_settled(1, 2)).await;
    are_as_asked(&stage.machines().await.unwrap(), &stage);
    stage.is_found_by_resource_set().await;
    rolls_over(&stage).await;
    is_replaced(&stage).await;

    let api: Api<_> = stage.clusters().await;
    api.delete(CLUSTER, &DeleteParams::foreground()).await.unwrap();
    stage
        .world
        .wait_for(Duration::from_mins(1), "the Cluster's end", async || {
            Ok(api.get_opt(CLUSTER).await?.is_none().then_some(()))
        })
        .await
        .unwrap();
    stage.stop().await.unwrap();
}

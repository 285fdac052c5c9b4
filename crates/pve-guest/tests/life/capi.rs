//! Cluster API's own managers over a cluster of guests: what they ask of a workload cluster is
//! answered, from the first machine to the last. The infrastructure provider is a stand-in of a
//! few lines, so that nothing here depends on capmox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use testbed::{Binaries, ClusterRequest, Clusterctl, Options, World as Testbed, ports};
use tokio::time::sleep;

use crate::seeds::Seed;
use crate::world::{VMS, World};

const CLUSTER: &str = "lab";
const FINALIZER: &str = "infrastructure.cluster.x-k8s.io/stand-in";

/// The management cluster, as far as the test needs it.
struct Management {
    client: Client,
    namespace: String,
}

impl Management {
    async fn api(&self, kind: &str) -> Api<DynamicObject> {
        let version = match kind {
            "Secret" => "v1",
            "KubeadmControlPlane" => "controlplane.cluster.x-k8s.io/v1beta1",
            "ProxmoxCluster" | "ProxmoxMachine" => "infrastructure.cluster.x-k8s.io/v1alpha1",
            _ => "cluster.x-k8s.io/v1beta1",
        };
        testbed::apply::find(&self.client, version, kind, &self.namespace).await.unwrap()
    }

    async fn list(&self, kind: &str) -> Vec<DynamicObject> {
        self.api(kind).await.list(&ListParams::default()).await.unwrap().items
    }

    async fn get(&self, kind: &str, name: &str) -> Option<DynamicObject> {
        self.api(kind).await.get_opt(name).await.unwrap()
    }

    async fn patch(&self, kind: &str, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        let patched = self.api(kind).await.patch(name, &PatchParams::default(), &patch).await;
        patched.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }

    async fn patch_status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let api = self.api(kind).await;
        let patched = api.patch_status(name, &PatchParams::default(), &patch).await;
        patched.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }

    /// Waits until the objects of a kind are as they should be.
    async fn until(&self, what: &str, kind: &str, holds: impl Fn(&[DynamicObject]) -> bool) {
        let deadline = Instant::now() + Duration::from_mins(3);
        loop {
            let objects = self.list(kind).await;
            if holds(&objects) {
                return;
            }
            if Instant::now() > deadline {
                let states: Vec<_> = objects.iter().map(|object| &object.data["status"]).collect();
                panic!("never: {what}: {}", json!(states));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// The least that Cluster API wants of an infrastructure provider.
struct StandIn {
    management: Arc<Management>,
    world: Arc<World>,
    vms: BTreeMap<String, u32>,
}

impl StandIn {
    async fn run(mut self) {
        loop {
            for cluster in self.management.list("ProxmoxCluster").await {
                if cluster.data["status"]["ready"] != json!(true) {
                    let ready = json!({ "ready": true });
                    self.management.patch_status("ProxmoxCluster", &name(&cluster), ready).await;
                }
            }
            for machine in self.management.list("ProxmoxMachine").await {
                match &machine.metadata {
                    ObjectMeta { deletion_timestamp: Some(_), .. } => self.destroy(&machine).await,
                    _ if !self.vms.contains_key(&name(&machine)) => self.create(&machine).await,
                    _ => {}
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn create(&mut self, object: &DynamicObject) {
        let own = name(object);
        let owners = object.metadata.owner_references.iter().flatten();
        let Some(owner) = owners.into_iter().find(|owner| owner.kind == "Machine") else { return };
        let Some(machine) = self.management.get("Machine", &owner.name).await else { return };
        let secret = machine.data["spec"]["bootstrap"]["dataSecretName"].as_str();
        let Some(secret) = secret else { return };
        let secret = self.management.get("Secret", secret).await.unwrap();
        let data = secret.data["data"]["value"].as_str().unwrap();
        let data = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
        let vmid = VMS.into_iter().find(|vmid| self.vms.values().all(|used| used != vmid)).unwrap();
        let mut seed = Seed::new(vmid, String::from_utf8(data).unwrap());
        seed.meta_data = format!("instance-id: {}\nlocal-hostname: {own}\n", uuid(vmid));
        self.vms.insert(own.clone(), vmid);
        self.management
            .patch(
                "ProxmoxMachine",
                &own,
                json!({
                    "metadata": { "finalizers": [FINALIZER] },
                    "spec": { "providerID": format!("proxmox://{}", uuid(vmid)) },
                }),
            )
            .await;
        self.world.start_with(vmid, seed.image()).await;
        let addresses = json!([{ "type": "InternalIP", "address": format!("10.0.0.{vmid}") }]);
        let status = json!({ "ready": true, "addresses": addresses });
        self.management.patch_status("ProxmoxMachine", &own, status).await;
    }

    async fn destroy(&mut self, object: &DynamicObject) {
        let own = name(object);
        // The number stays taken: the simulator's VMs are there from the start.
        if let Some(vmid) = self.vms.get(&own).copied().filter(|_| has_finalizer(object)) {
            self.world.power(vmid, "stop").await;
            self.world.destroy(vmid).await;
        }
        let patch = json!({ "metadata": { "finalizers": null } });
        self.management.patch("ProxmoxMachine", &own, patch).await;
    }
}

fn has_finalizer(object: &DynamicObject) -> bool {
    object.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

fn uuid(vmid: u32) -> String {
    format!("00000000-0000-4000-8000-000000000{vmid}")
}

fn manifest(testbed: &Testbed, binaries: &Binaries, namespace: &str, endpoint: &str) -> String {
    let clusterctl = Clusterctl::new(binaries, &testbed.folder().join("clusterctl")).unwrap();
    let variables = [
        ("CONTROL_PLANE_ENDPOINT_IP", endpoint),
        ("NODE_IP_RANGES", "[10.0.0.101-10.0.0.120]"),
        ("IP_PREFIX", "24"),
        ("GATEWAY", "10.0.0.1"),
        ("DNS_SERVERS", "[10.0.0.1]"),
        ("PROXMOX_SOURCENODE", "pve1"),
        ("TEMPLATE_VMID", "9000"),
        ("VM_SSH_KEYS", "ssh-ed25519 AAAA test@example.com"),
        ("BRIDGE", "vmbr0"),
        ("BOOT_VOLUME_DEVICE", "scsi0"),
    ];
    let request = ClusterRequest {
        name: CLUSTER,
        namespace,
        kubernetes_version: "v1.33.4",
        control_plane: 1,
        workers: 2,
        flavor: "",
        variables: &variables,
    };
    clusterctl.generate(testbed.kubeconfig(), &request).unwrap()
}

fn control_plane_has(replicas: u64) -> impl Fn(&[DynamicObject]) -> bool {
    move |objects| {
        let status = &objects[0].data["status"];
        ["replicas", "readyReplicas", "updatedReplicas"]
            .iter()
            .all(|key| status[key] == json!(replicas))
            && status["initialized"] == json!(true)
            && status["ready"] == json!(true)
    }
}

fn all_running(count: usize) -> impl Fn(&[DynamicObject]) -> bool {
    move |machines| {
        let running = |machine: &&DynamicObject| {
            let status = &machine.data["status"];
            status["phase"] == "Running" && status["nodeRef"]["name"] == name(machine).as_str()
        };
        machines.len() == count && machines.iter().filter(running).count() == count
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_managers_drive_a_cluster_of_guests_through_its_life() {
    let binaries = Binaries::new();
    let testbed = Testbed::start_with(Options::with_capi(), &binaries).await.unwrap();
    let namespace = testbed.namespace("guests").await.unwrap();
    let client = testbed.client().await.unwrap();
    let management = Arc::new(Management { client, namespace });
    let world = Arc::new(World::clustered().await);
    let address = ports::free_address(6443).unwrap().to_string();
    let text = manifest(&testbed, &binaries, &management.namespace, &address);
    for object in testbed::apply::documents(&text).unwrap() {
        let applied = testbed::apply::apply(&management.client, &object, &management.namespace);
        applied.await.unwrap();
    }
    let stand_in =
        StandIn { management: management.clone(), world: world.clone(), vms: BTreeMap::new() };
    let stand_in = tokio::spawn(stand_in.run());
    let endpoint = format!("{address}:6443");
    let members = async || {
        let view = world.workload().cluster(&endpoint).await.unwrap().unwrap();
        (view.etcd_members.len(), view.nodes.len())
    };

    let kcp = "KubeadmControlPlane";
    management.until("one control-plane machine", kcp, control_plane_has(1)).await;
    management.until("three machines run", "Machine", all_running(3)).await;
    assert_eq!(members().await, (1, 3));

    let name = format!("{CLUSTER}-control-plane");
    management.patch(kcp, &name, json!({ "spec": { "replicas": 3 } })).await;
    management.until("three control-plane machines", kcp, control_plane_has(3)).await;
    management.until("five machines run", "Machine", all_running(5)).await;
    assert_eq!(members().await, (3, 5));

    management.patch(kcp, &name, json!({ "spec": { "replicas": 1 } })).await;
    management.until("one control-plane machine again", kcp, control_plane_has(1)).await;
    let workers = format!("{CLUSTER}-workers");
    management.patch("MachineDeployment", &workers, json!({ "spec": { "replicas": 1 } })).await;
    management.until("two machines run", "Machine", all_running(2)).await;
    assert_eq!(members().await, (1, 2));

    let clusters = management.api("Cluster").await;
    clusters.delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    management.until("no cluster is left", "Cluster", <[_]>::is_empty).await;
    assert_eq!(world.workload().cluster(&endpoint).await.unwrap(), None);
    assert_eq!(world.guests.violations(), Vec::<String>::new());
    assert!(!stand_in.is_finished(), "the stand-in failed");
    stand_in.abort();
}

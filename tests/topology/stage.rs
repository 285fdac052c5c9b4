//! The control plane, the simulated hypervisor with guests and workload clusters, and the program
//! with its webhooks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use pve_fake::{Config, Fake, Seed, VmSeed};
use pve_guest::{Guests, Workload, WorkloadProcess};
use serde_json::json;
use testbed::{Binaries, Clusterctl, ManagerProcess, Options, World, apply, ports};

use crate::machines::Machines;

pub(crate) const CLUSTER: &str = "lab";
pub(crate) const OLD_TEMPLATE: u32 = 9000;
pub(crate) const NEW_TEMPLATE: u32 = 9100;

/// How long a stretch may take; generous, as two cores are shared with everything.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(100);

pub(crate) struct Stage {
    // Dropped in this order: the program first, then what it works with.
    manager: ManagerProcess,
    pub(crate) world: World,
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// The cluster's, host and port.
    pub(crate) endpoint: String,
    fake: Fake,
    guests: Guests,
    workload: WorkloadProcess,
}

impl Stage {
    pub(crate) async fn start() -> Result<Self> {
        let binaries = Binaries::new();
        let world = World::start_with(Options::with_capi(), &binaries).await?;
        let client = world.client().await?;
        let namespace = world.namespace("topology").await?;
        let workload = WorkloadProcess::start(&binaries.path("workload-cluster")?).await?;
        let guests = Guests::new(pve_guest::Config {
            workload: Some(workload.client()),
            ..pve_guest::Config::default()
        });
        let template = VmSeed::new(NEW_TEMPLATE, "pve1", "kube-template-new", "shared").template();
        let config = Config::default().with_seed(Seed::three_nodes().with_vm(template));
        let fake = Fake::start(config.with_guest(guests.as_guest())).await?;
        let manager = start_manager(&world, &fake).await?;
        let endpoint = ports::free_address(6443)?.to_string() + ":6443";
        Ok(Self { manager, world, client, namespace, endpoint, fake, guests, workload })
    }

    /// The class with Cilium, and what stands for Cilium.
    pub(crate) async fn apply_class(&self) -> Result<()> {
        let clusterctl =
            Clusterctl::new(&Binaries::new(), &self.world.folder().join("clusterctl"))?;
        let class = testbed::root().join("templates/cluster-class-cilium.yaml");
        let text = clusterctl.fill_in(&class, &[("BRIDGE", "vmbr0")])?;
        let network = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cilium-config\n  \
                       namespace: kube-system\ndata: {}\n";
        let cilium = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cilium"},
            "data": {"cilium.yaml": network},
        });
        for object in apply::documents(&text)?.iter().chain([&cilium]) {
            apply::apply(&self.client, object, &self.namespace).await?;
        }
        Ok(())
    }

    /// Waits until the ClusterResourceSet of the class has found the Cluster. What it hands over is
    /// its own affair.
    pub(crate) async fn is_found_by_resource_set(&self) {
        let (api_version, kind) = ("addons.cluster.x-k8s.io/v1beta1", "ClusterResourceSetBinding");
        let bindings = apply::find(&self.client, api_version, kind, &self.namespace).await.unwrap();
        let found = async || {
            let binding = bindings.get_opt(CLUSTER).await?;
            let name = binding.and_then(|binding| {
                binding.data.pointer("/spec/bindings/0/clusterResourceSetName").cloned()
            });
            Ok((name == Some(json!("proxmox-cluster-crs-cilium-0"))).then_some(()))
        };
        self.world.wait_for(PATIENCE, "the ClusterResourceSet", found).await.unwrap();
    }

    pub(crate) async fn clusters(&self) -> Api<DynamicObject> {
        let version = "cluster.x-k8s.io/v1beta1";
        apply::find(&self.client, version, "Cluster", &self.namespace).await.unwrap()
    }

    pub(crate) async fn machines(&self) -> Result<Machines> {
        Machines::read(&self.client, &self.namespace).await
    }

    /// Looks again and again, often enough to see every machine that comes and goes.
    pub(crate) async fn until(&self, what: &str, mut goal: impl FnMut(&Machines) -> bool) {
        let waiting = async {
            let mut ticks = tokio::time::interval(LOOK);
            while !goal(&self.machines().await.unwrap()) {
                ticks.tick().await;
            }
        };
        let Ok(()) = tokio::time::timeout(PATIENCE, waiting).await else {
            panic!("not within {PATIENCE:?}: {what}\n{}", self.describe().await);
        };
    }

    async fn describe(&self) -> String {
        let world = self.world.describe(15).await;
        format!("{world}{:#?}\n{}", self.guests, self.manager.log_tail(40))
    }

    pub(crate) fn workload(&self) -> Workload {
        self.workload.client()
    }

    /// By its name: the VMID may be another machine's by now.
    pub(crate) fn has_vm(&self, machine: &str) -> bool {
        self.fake.model().vms().iter().any(|vm| vm.name.as_deref() == Some(machine))
    }

    /// Options of a VM, as Proxmox has them.
    pub(crate) fn config(&self, vmid: u32) -> BTreeMap<String, String> {
        let vms = self.fake.model().vms();
        vms.into_iter().find(|vm| vm.vmid == vmid).map(|vm| vm.config).unwrap_or_default()
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        let kind = "ProxmoxMachine";
        let version = "infrastructure.cluster.x-k8s.io/v1alpha1";
        let left = apply::find(&self.client, version, kind, &self.namespace).await?;
        let left = left.list(&ListParams::default()).await?;
        assert!(left.items.is_empty(), "{} ProxmoxMachines are left", left.items.len());
        assert_eq!(self.guests.violations(), Vec::<String>::new());
        self.manager.stop().await?;
        // With the last of it goes the simulator, which looks for what is left there.
        self.world.stop().await
    }
}

/// The program as it is deployed: with the webhooks that `config` registers.
async fn start_manager(world: &World, fake: &Fake) -> Result<ManagerProcess> {
    let (url, token) = (fake.url(), fake.token());
    let env = [
        ("PROXMOX_URL", url.as_str()),
        ("PROXMOX_TOKEN", token.id.as_str()),
        ("PROXMOX_SECRET", token.secret.as_str()),
    ];
    let port = ports::free()?;
    let (_, certificates) = world.serving_certificate();
    let own = [
        "--embedded-ipam".to_owned(),
        "--enable-webhooks=true".to_owned(),
        format!("--webhook-port={port}"),
        format!("--webhook-cert-dir={}", certificates.display()),
    ];
    let args: Vec<&str> = own.iter().map(String::as_str).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_capmox"));
    let mut manager = world.start_manager(program, &env, &args)?;
    manager.wait_ready(Duration::from_secs(30)).await.context("the program")?;
    let manifest = testbed::root().join("config/webhook/manifests.yaml");
    world.register_webhooks(&manifest, "capmox", port).await?;
    Ok(manager)
}

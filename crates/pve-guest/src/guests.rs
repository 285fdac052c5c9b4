//! The guests of all VMs: boots them when their VM starts and takes them down with it.
//!
//! Follows a machine over its whole life: cloud-init and kubeadm run on the first boot alone, later
//! boots find their work done, and a VM that is destroyed takes its disk with it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ipnet::Ipv4Net;
use pve_fake::{Boot, CloudInit, Guest, GuestHandle};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use crate::boot::{self, Disk, NodeId};
use crate::fault::Fault;
use crate::workload::{CallError, Power, Workload};

/// How the guests behave.
#[derive(Debug, Clone)]
pub struct Config {
    /// From power-on until the agent answers.
    pub boot: Duration,
    /// How long kubeadm works before it has something to tell.
    pub kubeadm: Duration,
    /// How long kubeadm join tries to reach its cluster; kubeadm itself: five minutes.
    pub join_deadline: Duration,
    /// Pause between two of its tries.
    pub retry: Duration,
    /// Version of the kubelet in the image, when the seed does not name one.
    pub kubernetes_version: String,
    /// Network that DHCP gives addresses of.
    pub leases: Ipv4Net,
    /// Plays the clusters; without it kubeadm succeeds and nothing comes of it.
    pub workload: Option<Workload>,
}

impl Default for Config {
    /// A machine that is up in half a second, on Kubernetes v1.34.4, without clusters.
    fn default() -> Self {
        Self {
            boot: Duration::from_millis(200),
            kubeadm: Duration::from_millis(300),
            join_deadline: Duration::from_mins(5),
            retry: Duration::from_millis(500),
            kubernetes_version: "v1.34.4".to_owned(),
            leases: Ipv4Net::new_assert([192, 168, 240, 0].into(), 20),
            workload: None,
        }
    }
}

/// How far a guest has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The kernel and the init system.
    Booting,
    /// cloud-init applies the seed; kubeadm may be part of that.
    CloudInit,
    /// All done: with the name of its Node, if kubeadm made one.
    Up(Option<String>),
    /// It did not come up.
    Failed(Fault),
    /// The VM is off.
    Off,
}

/// One guest, for tests to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The VM.
    pub vmid: u32,
    /// Its name.
    pub name: String,
    /// How far the guest has come.
    pub progress: Progress,
    /// Identity that its cloud-init has seen, and with it the first boot.
    pub instance_id: Option<String>,
}

/// All guests of a simulated cluster. Cheap to clone.
#[derive(Clone)]
pub struct Guests(Arc<Inner>);

impl std::fmt::Debug for Guests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.records()).finish()
    }
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    vms: BTreeMap<u32, Vm>,
    violations: Vec<String>,
    /// Version of each cluster, by its endpoint.
    versions: BTreeMap<String, String>,
}

struct Vm {
    name: String,
    progress: Progress,
    /// What earlier boots left behind.
    disk: Disk,
    /// Addresses in use, with the bridge they are on.
    addresses: Vec<(String, IpAddr)>,
    task: Option<AbortHandle>,
}

impl Guests {
    /// Guests for a simulator that is about to start.
    pub fn new(config: Config) -> Self {
        Self(Arc::new(Inner { config, state: Mutex::default() }))
    }

    /// As [`pve_fake::Config::with_guest`] takes it.
    pub fn as_guest(&self) -> Arc<dyn Guest> {
        Arc::new(self.clone())
    }

    /// Every guest whose VM still exists, by VMID.
    pub fn records(&self) -> Vec<Record> {
        let state = self.0.state();
        let record = |(vmid, vm): (&u32, &Vm)| Record {
            vmid: *vmid,
            name: vm.name.clone(),
            progress: vm.progress.clone(),
            instance_id: vm.disk.instance_id().map(str::to_owned),
        };
        state.vms.iter().map(record).collect()
    }

    /// One of them.
    pub fn record(&self, vmid: u32) -> Option<Record> {
        self.records().into_iter().find(|record| record.vmid == vmid)
    }

    /// What must not happen among guests, such as two with one address.
    pub fn violations(&self) -> Vec<String> {
        self.0.state().violations.clone()
    }

    /// Takes the violations, for a test that provokes them.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.0.state().violations)
    }
}

impl Guest for Guests {
    fn started(&self, boot: Boot, handle: GuestHandle) -> BoxFuture<'_, ()> {
        let inner = Arc::clone(&self.0);
        async move {
            let vmid = boot.vmid;
            let disk = inner.power_on(&boot);
            let task = tokio::spawn(Arc::clone(&inner).run(boot, disk, handle));
            if let Some(vm) = inner.state().vms.get_mut(&vmid) {
                vm.task = Some(task.abort_handle());
            }
        }
        .boxed()
    }

    fn stopped(&self, vmid: u32) -> BoxFuture<'_, ()> {
        async move { self.0.power_off(vmid).await }.boxed()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn power_on(&self, boot: &Boot) -> Disk {
        let mut state = self.state();
        let vm = state.vms.entry(boot.vmid).or_insert_with(|| Vm {
            name: String::new(),
            progress: Progress::Off,
            disk: Disk::default(),
            addresses: Vec::new(),
            task: None,
        });
        vm.name.clone_from(&boot.name);
        vm.progress = Progress::Booting;
        vm.disk.clone()
    }

    /// Down; a VM that was down already is no more.
    async fn power_off(&self, vmid: u32) {
        let (node, event) = {
            let mut state = self.state();
            let Some(vm) = state.vms.get_mut(&vmid) else { return };
            if let Some(task) = vm.task.take() {
                task.abort();
            }
            vm.addresses.clear();
            let node = vm.disk.node().cloned();
            if vm.progress == Progress::Off {
                state.vms.remove(&vmid);
                (node, Power::Gone)
            } else {
                vm.progress = Progress::Off;
                (node, Power::Off)
            }
        };
        if let Some(node) = node {
            self.tell(&node, event).await;
        }
    }

    async fn tell(&self, node: &NodeId, event: Power) {
        let Some(workload) = &self.config.workload else { return };
        match workload.power(&node.endpoint, &node.name, event).await {
            Ok(()) => {}
            // The machine was cut off before its cluster heard of it, or outlived it.
            Err(CallError::Refused(text)) => {
                tracing::debug!(node = node.name, text, "no such node");
            }
            Err(CallError::NotYet(text)) => {
                tracing::warn!(node = node.name, text, "the workload cluster was not told");
            }
        }
    }

    async fn run(self: Arc<Self>, boot: Boot, disk: Disk, handle: GuestHandle) {
        sleep_until(Instant::now() + self.config.boot).await;
        let vmid = boot.vmid;
        let result = boot::boot(&self, &boot, disk, &handle).await;
        handle.agent(true);
        match result {
            Ok(node) => {
                self.progress(vmid, Progress::Up(node));
            }
            Err(fault) => {
                tracing::info!(vmid, %fault, "guest did not come up");
                handle.cloud_init(CloudInit::Error(fault.to_string()));
                self.progress(vmid, Progress::Failed(fault));
            }
        }
    }

    pub(crate) fn progress(&self, vmid: u32, progress: Progress) {
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            vm.progress = progress;
        }
    }

    /// Writes to the VM's disk.
    pub(crate) fn write(&self, vmid: u32, disk: Disk) {
        if let Some(vm) = self.state().vms.get_mut(&vmid) {
            vm.disk = disk;
        }
    }

    /// Takes addresses into use; one that another guest on the bridge has is a violation.
    pub(crate) fn take_addresses(&self, vmid: u32, addresses: Vec<(String, IpAddr)>) {
        let mut state = self.state();
        let name = state.vms.get(&vmid).map(|vm| vm.name.clone()).unwrap_or_default();
        let mut found = Vec::new();
        for (other, vm) in state.vms.iter().filter(|(other, _)| **other != vmid) {
            for (bridge, address) in addresses.iter().filter(|own| vm.addresses.contains(own)) {
                found.push(format!(
                    "VM {vmid} ({name}) came up with address {address} on {bridge}, which VM {other} ({}) has",
                    vm.name
                ));
            }
        }
        state.violations.append(&mut found);
        if let Some(vm) = state.vms.get_mut(&vmid) {
            vm.addresses = addresses;
        }
    }

    /// Version of the kubelet in a cluster whose first machine may have told it.
    pub(crate) fn version(&self, endpoint: &str) -> String {
        let known = self.state().versions.get(endpoint).cloned();
        known.unwrap_or_else(|| self.config.kubernetes_version.clone())
    }

    /// Remembers the version of a cluster.
    pub(crate) fn learn_version(&self, endpoint: &str, version: &str) {
        self.state().versions.insert(endpoint.to_owned(), version.to_owned());
    }
}

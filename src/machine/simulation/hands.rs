//! What people and other controllers do: Cluster API, the IPAM provider, operators with good and
//! bad intentions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use pve_fake::model::{Credentials, Request};
use pve_fake::{Change, Millis, VmSeed, VmView};
use serde_json::{Value, json};

use super::line::TOKEN;
use super::plan::{Happening, Wish};
use super::world::{BIRTH, ROOT, State, World};

/// The end of something that lasts.
#[derive(Debug, Clone)]
pub(super) enum End {
    Change(Change),
    Secret(Value),
    Unpause,
    Unprotect(u32),
}

pub(super) fn name_of(machine: usize) -> String {
    format!("m-{machine}")
}

fn node_name(node: usize) -> String {
    format!("pve{}", node + 1)
}

impl World {
    /// Cluster and ProxmoxCluster.
    pub(super) fn found(&self) {
        let mut state = self.lock();
        state.kubernetes.put(
            "clusters",
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
                "metadata": {"name": "one"},
                "spec": {"infrastructureRef": {"kind": "ProxmoxCluster", "name": "one"}},
                "status": {"infrastructureReady": true},
            }),
        );
        let mut infra = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxCluster",
            "metadata": {"name": "one"},
            "spec": {"dnsServers": ["10.0.0.1"],
                "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24,
                    "gateway": "10.0.0.1"}},
        });
        if self.plan.spread {
            infra["spec"]["allowedNodes"] = json!(["pve1", "pve2", "pve3"]);
        }
        state.kubernetes.put("proxmoxclusters", infra);
    }

    /// Machines come and go as planned.
    pub(super) fn wishes(&self) {
        let millis = self.millis();
        for (index, wish) in self.plan.machines.iter().enumerate() {
            let name = name_of(index);
            let mut state = self.lock();
            let exists = state.kubernetes.get("machines", &name).is_some();
            if wish.created <= millis && !exists && !state.wished.contains(&name) {
                state.wished.insert(name.clone());
                state.note(millis, format!("{name} is wanted"));
                state.want(&name, wish);
            }
            if wish.deleted.is_some_and(|at| at <= millis) && state.unwanted.insert(name.clone()) {
                state.note(millis, format!("{name} is not wanted any more"));
                state.kubernetes.delete("proxmoxmachines", &name);
            }
        }
    }

    /// Nobody wants any machine.
    pub(super) fn farewell(&self) {
        let mut state = self.lock();
        for index in 0..self.plan.machines.len() {
            let name = name_of(index);
            state.unwanted.insert(name.clone());
            state.kubernetes.delete("proxmoxmachines", &name);
        }
    }

    pub(super) fn happen(self: &Arc<Self>, happening: Happening) {
        match happening {
            Happening::Crash => self.crash(),
            Happening::Clock { seconds } => self.shift_clock(SignedDuration::from_secs(seconds)),
            other => {
                let (millis, now) = (self.millis(), self.now());
                self.lock().happens(other, millis, now);
            }
        }
    }
}

fn owner_of(plan: &Wish, name: &str) -> (Value, Value) {
    let labels = json!({"cluster.x-k8s.io/cluster-name": "one"});
    let owner = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
        "metadata": {"name": name, "labels": labels},
        "spec": {"clusterName": "one", "version": "v1.34.4",
            "infrastructureRef": {"kind": "ProxmoxMachine", "name": name},
            "bootstrap": {"dataSecretName": format!("{name}-data")}},
    });
    let mut machine = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxMachine",
        "metadata": {"name": name, "labels": labels, "generation": 1},
        "spec": {"sourceNode": "pve1", "templateID": 9000, "numSockets": 2, "numCores": 4,
            "memoryMiB": 4096, "full": plan.full,
            "checks": {"skipQemuGuestAgent": plan.skip_agent,
                "skipCloudInitStatus": plan.skip_cloud_init},
            "network": {"default": {"bridge": "vmbr0", "model": "virtio"}}},
    });
    if plan.grows {
        machine["spec"]["disks"] = json!({"bootVolume": {"disk": "scsi0", "sizeGb": 20}});
    }
    if plan.ranged {
        machine["spec"]["vmIDRange"] = json!({"start": 200, "end": 206});
    }
    if let Some(text) = plan.description {
        machine["spec"]["description"] = json!(text);
    }
    if let Some((vmid, seconds)) = plan.recorded {
        machine["spec"]["virtualMachineID"] = json!(vmid);
        let due = Timestamp::from_second(BIRTH + seconds).expect("a time");
        machine["status"] = json!({
            "ready": false, "proxmoxNode": "pve3", "templateRef": {"node": "pve1", "vmid": 9000},
            "cloneAttempts": 1, "retryAfter": due.to_string(),
        });
    }
    (owner, machine)
}

impl State {
    fn want(&mut self, name: &str, wish: &Wish) {
        let (owner, mut machine) = owner_of(wish, name);
        let owner = self.kubernetes.put("machines", owner);
        machine["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine", "name": name,
            "uid": owner["metadata"]["uid"], "controller": true,
        }]);
        self.kubernetes.put("secrets", secret(name));
        self.kubernetes.put("proxmoxmachines", machine);
    }

    /// The VM that was made for a machine, if it is there.
    pub(super) fn vm_of(&self, name: &str) -> Option<VmView> {
        let made = self.made.iter().filter(|(_, of)| *of == name);
        let mut vms = made.filter_map(|(vmid, _)| self.model.vm_view(*vmid));
        vms.find(|vm| !is_strange(vm))
    }

    fn untouched_vm(&self, name: &str) -> Option<VmView> {
        self.vm_of(name).filter(|vm| vm.lock.is_none())
    }

    fn lasts(&mut self, millis: u64, for_: u64, begins: Change, ends: Change) {
        self.model.change(begins);
        self.ends.push((millis + for_, End::Change(ends)));
    }

    fn happens(&mut self, happening: Happening, millis: u64, now: Millis) {
        self.model.advance(now);
        match happening {
            Happening::NodeOffline { node, millis: time } => {
                let node = node_name(node);
                let back = Change::NodeOnline { node: node.clone() };
                self.lasts(millis, time, Change::NodeOffline { node }, back);
            }
            Happening::NodeSilent { node, millis } => {
                let (node, millis) = (node_name(node), Some(millis));
                self.model.change(Change::NodeSilent { node, millis });
            }
            Happening::QuorumLost { millis } => {
                self.model.change(Change::QuorumLost { millis: Some(millis) });
            }
            Happening::TokenRevoked { millis: time } => {
                let token = TOKEN.0.to_owned();
                let back = Change::TokenRestored { token: token.clone() };
                self.lasts(millis, time, Change::TokenRevoked { token }, back);
            }
            Happening::StorageFull { storage, millis: time } => {
                let change = |full| Change::StorageFull { storage: storage.to_owned(), full };
                self.lasts(millis, time, change(true), change(false));
            }
            Happening::StorageOff { storage, millis: time } => {
                let change =
                    |disabled| Change::StorageDisabled { storage: storage.to_owned(), disabled };
                self.lasts(millis, time, change(true), change(false));
            }
            Happening::TemplateGone { millis: time } => {
                let back = Change::VmAppears { vm: self.template.clone() };
                self.lasts(millis, time, Change::VmGone { vmid: 9000 }, back);
            }
            Happening::Stale { millis: time } => self.stale_until = millis + time,
            Happening::IpamAsleep { millis: time } => self.ipam_sleeps_until = millis + time,
            Happening::Paused { millis: time } => {
                self.kubernetes.edit("clusters", "one", |c| c["spec"]["paused"] = json!(true));
                self.ends.push((millis + time, End::Unpause));
            }
            other => self.happens_to_a_machine(other, millis, now),
        }
    }

    fn happens_to_a_machine(&mut self, happening: Happening, millis: u64, now: Millis) {
        match happening {
            Happening::VmGone { machine } => {
                let name = name_of(machine);
                if let Some(vm) = self.untouched_vm(&name) {
                    self.tampered.insert(name);
                    self.model.change(Change::VmGone { vmid: vm.vmid });
                }
            }
            Happening::VmMoved { machine, node } => self.moves(&name_of(machine), node),
            Happening::VmStopped { machine } => {
                if let Some(vm) = self.untouched_vm(&name_of(machine)) {
                    self.model.change(Change::VmCrashed { vmid: vm.vmid });
                }
            }
            Happening::VmRenamed { machine } => {
                let Some(vm) = self.untouched_vm(&name_of(machine)) else { return };
                self.by_hand("PUT", &vm, "config", now, &[("name", "renamed-by-hand")]);
            }
            Happening::VmSuspended { machine } => {
                let Some(vm) = self.untouched_vm(&name_of(machine)) else { return };
                if vm.running {
                    self.by_hand("POST", &vm, "status/suspend", now, &[]);
                }
            }
            Happening::VmProtected { machine, millis: time } => {
                let Some(vm) = self.untouched_vm(&name_of(machine)) else { return };
                self.by_hand("PUT", &vm, "config", now, &[("protection", "1")]);
                self.ends.push((millis + time, End::Unprotect(vm.vmid)));
            }
            Happening::TextNumbers => self.model.change(Change::TextNumbers { on: true }),
            Happening::VmLocked { machine, millis: time } => {
                let Some(vm) = self.untouched_vm(&name_of(machine)) else { return };
                let change = |lock| Change::VmLocked { vmid: vm.vmid, lock };
                self.lasts(millis, time, change(Some("backup".to_owned())), change(None));
            }
            Happening::Stranger { machine } => {
                self.strangers.insert(name_of(machine));
            }
            Happening::SeedGone { machine } => self.loses_seed(&name_of(machine)),
            Happening::ClaimDeleted { machine } => {
                let name = name_of(machine);
                self.kubernetes.delete("ipaddressclaims", &format!("{name}-net0-inet"));
                self.tampered.insert(name);
                self.addresses_tampered = true;
            }
            Happening::SecretGone { machine, millis: time } => {
                let name = format!("{}-data", name_of(machine));
                if let Some(secret) = self.kubernetes.get("secrets", &name).cloned() {
                    self.kubernetes.delete("secrets", &name);
                    self.ends.push((millis + time, End::Secret(secret)));
                }
            }
            _ => {}
        }
    }

    /// Migrated by hand. With an image of a local storage in its drive Proxmox migrates no VM; then it
    /// dies with its node, and HA brings its configuration to another one.
    fn moves(&mut self, name: &str, node: usize) {
        let Some(vm) = self.untouched_vm(name) else { return };
        // Whatever works on it holds its lock.
        let works = format!(":{}:", vm.vmid);
        if self.model.tasks().iter().any(|it| it.exit.is_none() && it.upid.contains(&works)) {
            return;
        }
        self.tampered.insert(name.to_owned());
        let drive = vm.config.get("ide0");
        if drive.is_some_and(|drive| drive.contains("user-data")) && vm.node != node_name(node) {
            self.model.change(Change::VmCrashed { vmid: vm.vmid });
        }
        self.model.change(Change::VmMoved { vmid: vm.vmid, node: node_name(node) });
    }

    fn loses_seed(&mut self, name: &str) {
        let Some(vm) = self.vm_of(name) else { return };
        let attached = vm.config.get("ide0").is_some_and(|drive| drive.contains("user-data"));
        let tasks = self.model.tasks();
        let writes = tasks.iter().any(|task| task.kind == "qmconfig" && task.exit.is_none());
        if attached || writes {
            // A guest without its data never comes up; somebody has to replace it.
            self.doomed.insert(name.to_owned());
        }
        let volume = format!("local:iso/user-data-{}.iso", vm.vmid);
        self.model.change(Change::VolumeGone { node: vm.node, volume });
    }

    fn by_hand(
        &mut self,
        method: &str,
        vm: &VmView,
        what: &str,
        now: Millis,
        with: &[(&str, &str)],
    ) {
        let token = Some(format!("{}={}", ROOT.0, ROOT.1));
        let credentials = Credentials { token, ..Credentials::default() };
        let path = format!("/nodes/{}/qemu/{}/{what}", vm.node, vm.vmid);
        let method = method.parse().expect("a method of HTTP");
        let mut request = Request::new(method, &path, credentials);
        for (key, value) in with {
            request = request.with(key, value);
        }
        // Refused where the node is down: then nobody did it.
        let _ = self.model.handle(&request, now);
    }

    /// Whether the file with a VM's bootstrap data is somewhere.
    pub(super) fn has_seed(&self, vmid: u32) -> bool {
        self.seeds(&format!(":iso/user-data-{vmid}.iso")).next().is_some()
    }

    pub(super) fn end_what_ends(&mut self, millis: u64) {
        let (over, lasting) =
            std::mem::take(&mut self.ends).into_iter().partition(|(at, _)| *at <= millis);
        self.ends = lasting;
        let over: Vec<(u64, End)> = over;
        for (_, end) in over {
            match end {
                End::Change(Change::VmLocked { vmid, lock: None })
                    if self
                        .model
                        .vm_view(vmid)
                        .is_none_or(|vm| vm.lock.as_deref() != Some("backup")) => {}
                End::Change(change) => self.model.change(change),
                End::Secret(secret) => {
                    self.kubernetes.put("secrets", secret);
                }
                End::Unprotect(vmid) => {
                    let Some(vm) = self.model.vm_view(vmid) else { continue };
                    let now = self.model.now();
                    self.by_hand("PUT", &vm, "config", now, &[("protection", "0")]);
                    let still = self.model.vm_view(vmid).is_some_and(|vm| {
                        vm.config.get("protection").is_some_and(|value| value == "1")
                    });
                    if still {
                        self.ends.push((millis + 5_000, End::Unprotect(vmid)));
                    }
                }
                End::Unpause => {
                    self.kubernetes.edit("clusters", "one", |c| c["spec"]["paused"] = json!(false));
                }
            }
        }
    }

    /// What others do as a matter of course.
    pub(super) fn people(&mut self, millis: u64) {
        self.cluster_api();
        if millis >= self.ipam_sleeps_until {
            self.ipam();
        }
    }

    /// A node joins when its machine is ready.
    fn cluster_api(&mut self) {
        let ready = |object: &Value| object["status"]["ready"] == json!(true);
        let up: Vec<String> = self
            .kubernetes
            .of("proxmoxmachines")
            .filter(|(_, object)| ready(object))
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in up {
            let joined = self
                .kubernetes
                .get("machines", &name)
                .is_none_or(|machine| !machine["status"]["nodeRef"].is_null());
            if !joined && self.dice.percent(20) {
                self.kubernetes.edit("machines", &name, |machine| {
                    machine["status"] =
                        json!({"bootstrapReady": true, "nodeRef": {"kind": "Node", "name": name}});
                });
            }
        }
    }

    /// Gives the lowest free address to each claim.
    fn ipam(&mut self) {
        let claimed = self.kubernetes.of("ipaddressclaims").map(|(name, _)| name);
        if claimed.eq(self.kubernetes.of("ipaddresses").map(|(name, _)| name)) {
            return;
        }
        let claims: Vec<(String, Value)> = self
            .kubernetes
            .of("ipaddressclaims")
            .map(|(name, object)| (name.to_owned(), object.clone()))
            .collect();
        let alive: BTreeSet<&str> = claims.iter().map(|(name, _)| name.as_str()).collect();
        let addresses: Vec<(String, String)> = self
            .kubernetes
            .of("ipaddresses")
            .map(|(name, object)| {
                (name.to_owned(), object["spec"]["address"].as_str().unwrap_or_default().to_owned())
            })
            .collect();
        for (name, _) in addresses.iter().filter(|(name, _)| !alive.contains(name.as_str())) {
            self.kubernetes.delete("ipaddresses", name);
        }
        let mut used: BTreeSet<String> = addresses
            .iter()
            .filter(|(name, _)| alive.contains(name.as_str()))
            .map(|(_, address)| address.clone())
            .collect();
        for (name, claim) in &claims {
            if self.kubernetes.get("ipaddresses", name).is_some() {
                continue;
            }
            let mut all = (10..10 + self.pool).map(|last| format!("10.0.0.{last}"));
            let Some(free) = all.find(|address| !used.contains(address)) else { continue };
            used.insert(free.clone());
            let address = json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta1", "kind": "IPAddress",
                "metadata": {"name": name},
                "spec": {"claimRef": {"name": name}, "poolRef": claim["spec"]["poolRef"],
                    "address": free, "prefix": 24, "gateway": "10.0.0.1"},
            });
            self.kubernetes.put("ipaddresses", address);
            self.kubernetes.edit("ipaddressclaims", name, |claim| {
                claim["status"] = json!({"addressRef": {"name": name}});
            });
        }
    }

    /// Does what conditions ask for: a clone that was cut short is removed, and a VM whose removal
    /// was cut short is unlocked.
    pub(super) fn operator(&mut self, millis: u64) {
        let runs = |kind: &str| {
            self.model.tasks().iter().any(|task| task.kind == kind && task.exit.is_none())
        };
        let (cloning, destroying) = (runs("qmclone"), runs("qmdestroy"));
        let mut stuck = BTreeMap::new();
        for vm in self.model.vms() {
            match vm.lock.as_deref() {
                Some("clone") if !cloning => {
                    stuck.insert(vm.vmid, Change::VmGone { vmid: vm.vmid })
                }
                Some("destroyed") if !destroying => {
                    stuck.insert(vm.vmid, Change::VmLocked { vmid: vm.vmid, lock: None })
                }
                _ => None,
            };
        }
        self.stuck.retain(|vmid, _| stuck.contains_key(vmid));
        for (vmid, change) in stuck {
            let since = *self.stuck.entry(vmid).or_insert(millis);
            if millis - since > 60_000 {
                self.note(millis, format!("the operator: {change:?}"));
                self.model.change(change);
            }
        }
    }
}

/// Whether it is somebody else's.
pub(super) fn is_strange(vm: &VmView) -> bool {
    vm.name.as_deref().is_some_and(|name| name.starts_with("stranger"))
}

fn secret(name: &str) -> Value {
    // "#cloud-config\n" and "cloud-config" in base64.
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("{name}-data")},
        "data": {"value": "I2Nsb3VkLWNvbmZpZwo=", "format": "Y2xvdWQtY29uZmln"},
    })
}

/// Somebody else's VM, for the start.
pub(super) fn neighbour() -> VmSeed {
    VmSeed::new(100, "pve2", "neighbour", "shared").foreign()
}

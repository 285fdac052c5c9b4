//! What must never be, and what must be in the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::hands::{is_strange, name_of};
use super::world::{State, World};

impl World {
    /// A clone of which the process knows: with it no more run at once than may.
    pub(super) fn has_cloned(&self, task: &str, life: u64) {
        let limit = self.plan.clones.endpoint;
        let mut state = self.lock();
        if state.life != life {
            return;
        }
        state.clones.insert(task.to_owned());
        let tasks = state.model.tasks();
        let runs =
            |task: &&String| tasks.iter().any(|known| known.upid == **task && known.exit.is_none());
        let running = state.clones.iter().filter(runs).count();
        if limit > 0 && running > limit {
            state.fail(format!("{running} clones at once, and {limit} may run"));
        }
    }

    /// Looks at everything that must never be.
    pub(super) fn check(&self) {
        let millis = self.millis();
        let mut state = self.lock();
        for violation in state.model.take_violations() {
            let tolerated =
                violation.rule == pve_fake::Rule::AddressTwice && state.addresses_tampered;
            if !tolerated {
                state.fail(format!("{:?}: {}", violation.rule, violation.text));
            }
        }
        for (kind, object) in std::mem::take(&mut state.kubernetes.gone) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match kind.as_str() {
                "proxmoxmachines" => {
                    let failed = object["status"]["cloneAttempts"].as_u64().unwrap_or_default();
                    state.note(millis, format!("{name} is gone, failed clones: {failed}"));
                    state.judge_departure(&name, &object);
                }
                "ipaddressclaims" => {
                    let machine = name.trim_end_matches("-net0-inet").to_owned();
                    if state.vm_of(&machine).is_some() && !state.tampered.contains(&machine) {
                        state
                            .fail(format!("the address of {machine} was given back, its VM lives"));
                    }
                }
                _ => {}
            }
        }
    }

    /// Whether all machines have come to an end that somebody could live with; else what is missing.
    pub(super) fn unsettled(&self) -> Option<String> {
        let state = self.lock();
        for index in 0..self.plan.machines.len() {
            let name = name_of(index);
            if !state.wished.contains(&name) {
                return Some(format!("{name} is not wanted yet"));
            }
            if let Some(object) = state.kubernetes.get("proxmoxmachines", &name)
                && let Some(why) = state.unfinished(&name, object)
            {
                return Some(why);
            }
        }
        None
    }

    /// An event came: an ISO on a node that is off may stay there when somebody is told.
    pub(super) fn told(&self, event: &Value) {
        if event["reason"] == json!("BootstrapISOLeft") {
            let text = event["note"].as_str().or(event["message"].as_str()).unwrap_or_default();
            self.note(format!("event: {text}"));
            self.lock().told_left.push(text.to_owned());
        }
    }

    /// What is left when all machines are gone.
    pub(super) fn leftovers(&self) -> Option<String> {
        let state = self.lock();
        let ours = |vmid: u32| state.made.contains_key(&vmid);
        let vms = state.model.vms();
        if let Some(vm) = vms.iter().find(|vm| ours(vm.vmid) && !is_strange(vm)) {
            return Some(format!("VM {} ({:?}) is left", vm.vmid, vm.name));
        }
        if let Some((node, volume)) = state.seeds(":iso/").next() {
            return Some(format!("{volume} is left on {node}"));
        }
        let kinds = ["ipaddressclaims", "proxmoxmachines"];
        let mut objects = kinds.into_iter().flat_map(|kind| state.kubernetes.of(kind));
        objects.next().map(|(name, object)| format!("{name} is left: {}", said(object)))
    }
}

/// What the condition of a machine says.
pub(super) fn said(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == json!("VMProvisioned"));
    let text = |key: &str| {
        found.map(|c| c[key].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
    };
    format!("{} {}", text("reason"), text("message"))
}

impl State {
    /// No node is promised to more than it has, but by hand.
    pub(super) fn check_memory(&mut self) {
        let mut promised: BTreeMap<String, u64> = BTreeMap::new();
        for vm in self.model.vms().into_iter().filter(|vm| !vm.template) {
            let memory = vm.config.get("memory").and_then(|text| text.parse::<u64>().ok());
            *promised.entry(vm.node).or_default() += memory.unwrap_or_default();
        }
        if let Some((node, memory)) = promised.iter().find(|(_, memory)| **memory > 10 << 10)
            && self.tampered.is_empty()
        {
            self.fail(format!("{node} is promised to {memory} MiB, and has less"));
        }
    }

    /// Bootstrap ISOs of which nobody was told that they stay, with their nodes.
    pub(super) fn seeds(&self, file: &str) -> impl Iterator<Item = (String, String)> {
        let volumes = self.model.volumes().into_iter().map(|(node, volume, _)| (node, volume));
        volumes.filter(move |(node, volume)| {
            let told = format!("{volume} stays on node {node},");
            volume.contains(file) && !self.told_left.iter().any(|text| text.contains(&told))
        })
    }

    fn unfinished(&self, name: &str, object: &Value) -> Option<String> {
        let status = &object["status"];
        if object["metadata"].get("deletionTimestamp").is_some() {
            return Some(format!("{name} is not deleted: {}", said(object)));
        }
        if self.doomed.contains(name) && said(object).len() > 20 {
            return None;
        }
        let lost = status["vmStatus"] == json!("notfound") && self.tampered.contains(name);
        let failed = status["failureReason"].is_string();
        if lost || failed {
            return None;
        }
        if status["ready"] != json!(true) {
            return Some(format!("{name} is not ready: {}", said(object)));
        }
        let Some(vm) = self.vm_of(name) else {
            return (!self.tampered.contains(name))
                .then(|| format!("{name} is ready without a VM"));
        };
        if !vm.running {
            return Some(format!("{name} is ready and its VM {} does not run", vm.vmid));
        }
        let joined = self
            .kubernetes
            .get("machines", name)
            .is_some_and(|machine| !machine["status"]["nodeRef"].is_null());
        if !joined {
            return Some(format!("{name} has not joined"));
        }
        (self.has_seed(vm.vmid) || status["bootstrapISO"].is_string())
            .then(|| format!("{name} has joined and its bootstrap ISO is still there"))
    }

    /// The finalizer is gone: so must be everything that was made for the machine.
    fn judge_departure(&mut self, name: &str, object: &Value) {
        let number =
            object["spec"]["virtualMachineID"].as_u64().and_then(|n| u32::try_from(n).ok());
        if let Some(vm) = self.vm_of(name) {
            self.fail(format!("{name} is gone and its VM {} is left", vm.vmid));
        }
        let Some(number) = number else { return };
        let others = self.kubernetes.of("proxmoxmachines").any(|(other, object)| {
            other != name && object["spec"]["virtualMachineID"].as_u64() == Some(u64::from(number))
        });
        if self.has_seed(number) && !others {
            self.fail(format!("{name} is gone and its bootstrap ISO {number} is left"));
        }
    }
}

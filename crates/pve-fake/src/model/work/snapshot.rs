//! Snapshots, and what is as simple: conversion to a template.

use super::Outcome;
use crate::model::Model;
use crate::model::option::is_drive;
use crate::model::state::{Run, Snapshot};

#[derive(Clone, Debug)]
pub(crate) enum SnapshotStep {
    Take { name: String, description: String },
    Delete { name: String },
    Rollback { name: String },
    Template,
}

#[derive(Clone, Debug)]
pub(crate) struct SnapshotWork {
    pub node: String,
    pub vmid: u32,
    pub step: SnapshotStep,
}

impl SnapshotWork {
    pub(crate) fn begin(&self, model: &mut Model) -> Outcome {
        let vm = model.unlocked_vm(&self.node, self.vmid).map_err(|refusal| refusal.text)?;
        let lock = match &self.step {
            SnapshotStep::Take { name, .. } if vm.snapshots.contains_key(name) => {
                return Err(format!("snapshot name '{name}' already used"));
            }
            SnapshotStep::Take { .. } => "snapshot",
            SnapshotStep::Delete { name } | SnapshotStep::Rollback { name }
                if !vm.snapshots.contains_key(name) =>
            {
                return Err(format!("snapshot '{name}' does not exist"));
            }
            SnapshotStep::Delete { .. } => "snapshot-delete",
            SnapshotStep::Rollback { .. } => "rollback",
            SnapshotStep::Template if vm.run != Run::Stopped => {
                return Err("you can't convert a VM to template if VM is running".to_owned());
            }
            SnapshotStep::Template => return Ok(()),
        };
        let vm = model.vm_mut(&self.node, self.vmid).map_err(|refusal| refusal.text)?;
        vm.config.insert("lock".to_owned(), lock.to_owned());
        Ok(())
    }

    pub(crate) fn finish(&self, model: &mut Model) -> Outcome {
        let now = model.now;
        self.abort(model);
        let Some(vm) = model.vms.get_mut(&self.vmid) else { return Ok(()) };
        match &self.step {
            SnapshotStep::Take { name, description } => {
                let snapshot = Snapshot {
                    config: vm.config.clone(),
                    description: description.clone(),
                    taken: now,
                };
                vm.snapshots.insert(name.clone(), snapshot);
            }
            SnapshotStep::Delete { name } => {
                vm.snapshots.remove(name);
            }
            SnapshotStep::Rollback { name } => {
                if let Some(snapshot) = vm.snapshots.get(name) {
                    vm.config.clone_from(&snapshot.config);
                }
                model.power_off(self.vmid);
            }
            SnapshotStep::Template => self.make_template(model),
        }
        Ok(())
    }

    fn make_template(&self, model: &mut Model) {
        let Some(vm) = model.vms.get_mut(&self.vmid) else { return };
        let (old, new) = (format!("vm-{}-disk", self.vmid), format!("base-{}-disk", self.vmid));
        for (_, text) in vm.config.iter_mut().filter(|(key, _)| is_drive(key)) {
            *text = text.replace(&old, &new);
        }
        vm.config.insert("template".to_owned(), "1".to_owned());
        let owned = model.volumes.iter().filter(|(_, volume)| volume.owner == Some(self.vmid));
        for key in owned.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            if let Some(volume) = model.volumes.remove(&key) {
                model.volumes.insert((key.0, key.1.replace(&old, &new)), volume);
            }
        }
    }

    /// Takes the lock off.
    pub(crate) fn abort(&self, model: &mut Model) {
        if let Some(vm) = model.vms.get_mut(&self.vmid) {
            vm.config.remove("lock");
        }
    }
}

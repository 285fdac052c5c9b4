//! `qmclone`: a configuration with `lock: clone` from the beginning, all of it at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Outcome, Work};
use crate::model::Model;
use crate::model::state::{Vm, Volume};
use crate::model::task::{Lock, Stage};

/// A volume to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewVolume {
    pub storage: String,
    pub volid: String,
    pub size: u64,
    pub parent: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct CloneWork {
    pub source: u32,
    pub node: String,
    pub newid: u32,
    pub target: String,
    pub full: bool,
    pub pool: Option<String>,
    /// The clone's configuration as it will be.
    pub config: BTreeMap<String, String>,
    pub volumes: Vec<NewVolume>,
}

impl CloneWork {
    fn storages(&self) -> BTreeSet<&str> {
        self.volumes.iter().map(|volume| volume.storage.as_str()).collect()
    }

    pub(crate) fn storage_locks(&self, model: &Model) -> Vec<Lock> {
        let lock = |name: &str| {
            let shared = model.storages.get(name).is_some_and(|storage| storage.shared);
            Lock::Storage(name.to_owned(), if shared { String::new() } else { self.node.clone() })
        };
        self.storages().into_iter().map(lock).collect()
    }

    pub(crate) fn lock_text(&self, model: &Model) -> String {
        let busy =
            self.storage_locks(model).into_iter().find(|lock| model.locks.contains_key(lock));
        let Some(Lock::Storage(name, node)) = busy else { return super::lock_timeout(self.newid) };
        if node.is_empty() {
            format!("clone failed: cfs-lock 'storage-{name}' error: got lock request timeout")
        } else {
            format!(
                "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-{name}' - \
                 got timeout"
            )
        }
    }

    pub(crate) fn begin(&self, model: &mut Model) -> Outcome {
        if let Some(taken) = model.vms.get(&self.newid) {
            return Err(if taken.node == self.node {
                format!("unable to create VM {}: config file already exists", self.newid)
            } else {
                format!(
                    "close (rename) atomic file '/etc/pve/nodes/{}/qemu-server/{}.conf' failed: \
                     File exists",
                    self.node, self.newid
                )
            });
        }
        let config = BTreeMap::from([("lock".to_owned(), "clone".to_owned())]);
        let vm = Vm { node: self.node.clone(), config, ..Vm::default() };
        model.vms.insert(self.newid, vm);
        if let Some(pool) = self.pool.as_ref().and_then(|pool| model.pools.get_mut(pool)) {
            pool.vms.insert(self.newid);
        }
        Ok(())
    }

    pub(crate) fn duration(&self, model: &mut Model) -> Duration {
        for name in self.storages() {
            let others = model.tasks.values().filter(|task| {
                let Some(Work::Clone(work)) = &task.work else { return false };
                task.stage == Stage::Works && work.storages().contains(name)
            });
            let count = others.count() + 1;
            if let Some(storage) = model.storages.get_mut(name) {
                storage.peak_clones = storage.peak_clones.max(count);
            }
        }
        let copy = if self.full { model.timings.clone_full } else { model.timings.clone_linked };
        copy.max(model.timings.allocate)
    }

    pub(crate) fn finish(&self, model: &mut Model) -> Outcome {
        if !model.vms.contains_key(&self.source) {
            return Err(format!(
                "clone failed: unable to find configuration file for VM {} on node '{}'",
                self.source, self.node
            ));
        }
        for volume in self.volumes.iter().filter(|volume| volume.parent.is_none()) {
            let size = model.storages.get(&volume.storage).map_or(0, |storage| storage.size);
            if model.used(&volume.storage, &self.node) + volume.size > size {
                return Err(format!(
                    "clone failed: unable to create image '{}': No space left on device",
                    volume.volid
                ));
            }
        }
        for volume in &self.volumes {
            let size = if volume.parent.is_some() { 0 } else { volume.size };
            model.insert_volume(&self.target, &volume.volid, "images", size, Some(self.newid));
            let place = model.place(&self.target, &volume.volid);
            if let Some(made) = model.volumes.get_mut(&place) {
                *made = Volume { parent: volume.parent.clone(), ..made.clone() };
            }
        }
        if let Some(vm) = model.vms.get_mut(&self.newid) {
            vm.config.clone_from(&self.config);
            vm.node.clone_from(&self.target);
        }
        Ok(())
    }

    pub(crate) fn abort(&self, model: &mut Model) {
        model.vms.remove(&self.newid);
        for pool in model.pools.values_mut() {
            pool.vms.remove(&self.newid);
        }
    }
}

//! `qmdestroy`: `lock: destroyed` while it runs; the configuration goes last.

use super::Outcome;
use crate::model::option::Drive;
use crate::model::{Effect, Model};

#[derive(Clone, Debug)]
pub(crate) struct DestroyWork {
    pub node: String,
    pub vmid: u32,
    pub purge: bool,
    pub unreferenced: bool,
}

impl DestroyWork {
    pub(crate) fn begin(&self, model: &mut Model) -> Outcome {
        model.unlocked_vm(&self.node, self.vmid).map_err(|refusal| refusal.text)?;
        if model.vms.get(&self.vmid).is_some_and(|vm| vm.run != crate::model::state::Run::Stopped) {
            return Err(format!("VM {} is running - destroy failed", self.vmid));
        }
        let bases = model.volumes.iter().filter(|(_, volume)| volume.owner == Some(self.vmid));
        for ((_, volid), _) in bases {
            let storage = volid.split(':').next().and_then(|name| model.storages.get(name));
            // LVM-thin does not know what was cloned from a volume.
            let knows = storage.is_none_or(|storage| storage.kind != "lvmthin");
            if knows && model.volumes.values().any(|other| other.parent.as_ref() == Some(volid)) {
                return Err(format!("base volume '{volid}' is still in use by linked cloned"));
            }
        }
        let vm = model.vm_mut(&self.node, self.vmid).map_err(|refusal| refusal.text)?;
        vm.config.insert("lock".to_owned(), "destroyed".to_owned());
        Ok(())
    }

    pub(crate) fn finish(&self, model: &mut Model) -> Outcome {
        let Some(vm) = model.vms.remove(&self.vmid) else { return Ok(()) };
        let states = vm.snapshots.values().filter_map(|snapshot| snapshot.config.get("vmstate"));
        let referenced: Vec<String> = vm
            .config
            .values()
            .chain(states)
            .filter_map(|text| Drive::parse(text))
            .map(|drive| drive.file)
            .collect();
        model.volumes.retain(|(_, volid), volume| {
            let goes = self.unreferenced || referenced.contains(volid);
            volume.owner != Some(self.vmid) || !goes
        });
        for pool in model.pools.values_mut() {
            pool.vms.remove(&self.vmid);
        }
        if self.purge {
            model.ha.remove(&format!("vm:{}", self.vmid));
            model.replicated.remove(&self.vmid);
        }
        model.effects.push(Effect::Stopped { vmid: self.vmid });
        Ok(())
    }

    pub(crate) fn abort(&self, model: &mut Model) {
        if let Ok(vm) = model.vm_mut(&self.node, self.vmid)
            && vm.lock() == Some("destroyed")
        {
            vm.config.remove("lock");
        }
    }
}

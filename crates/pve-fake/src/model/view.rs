//! What tests may ask the model directly, without a call.

use std::collections::BTreeMap;

use super::Model;
use super::state::Run;

/// A VM as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmView {
    /// The VM's id.
    pub vmid: u32,
    /// The node's name.
    pub node: String,
    /// Its name.
    pub name: Option<String>,
    /// Whether its process runs.
    pub running: bool,
    /// Whether it is a template.
    pub template: bool,
    /// The lock of its configuration.
    pub lock: Option<String>,
    /// Options of the configuration file.
    pub config: BTreeMap<String, String>,
    /// The pool it is in.
    pub pool: Option<String>,
}

impl Model {
    /// All VMs and templates by id.
    pub fn vms(&self) -> Vec<VmView> {
        self.vms.keys().filter_map(|&vmid| self.vm_view(vmid)).collect()
    }

    /// One VM.
    pub fn vm_view(&self, vmid: u32) -> Option<VmView> {
        let vm = self.vms.get(&vmid)?;
        let pool = self.pools.iter().find(|(_, pool)| pool.vms.contains(&vmid));
        Some(VmView {
            vmid,
            node: vm.node.clone(),
            name: vm.get("name").map(str::to_owned),
            running: vm.run != Run::Stopped,
            template: vm.is_template(),
            lock: vm.lock().map(str::to_owned),
            config: vm.config.clone(),
            pool: pool.map(|(name, _)| name.clone()),
        })
    }

    /// Volumes: node (empty if shared), volume id, bytes of an uploaded file.
    pub fn volumes(&self) -> Vec<(String, String, bytes::Bytes)> {
        let volumes = self.volumes.iter();
        volumes
            .map(|((node, id), volume)| (node.clone(), id.clone(), volume.data.clone()))
            .collect()
    }

    /// Numbers of VMs that are in HA or replicated, whether or not there is such a VM.
    pub fn tended(&self) -> Vec<u32> {
        let in_ha = self.ha.keys().filter_map(|sid| sid.strip_prefix("vm:")?.parse().ok());
        in_ha.chain(self.replicated.iter().copied()).collect()
    }

    /// The most clones that wrote to a storage at one time.
    pub fn peak_clones(&self, storage: &str) -> usize {
        self.storages.get(storage).map_or(0, |storage| storage.peak_clones)
    }
}

//! Changes from outside the API: what operators, hardware and other people do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Model;
use super::state::{HaResource, NodeState, Run, Snapshot};
use super::task::Due;
use crate::seed::VmSeed;

/// Something that happens to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Change {
    /// A node goes down with its VMs and tasks.
    NodeOffline {
        /// The node's name.
        node: String,
    },
    /// A node comes back.
    NodeOnline {
        /// The node's name.
        node: String,
    },
    /// A node accepts calls and does not answer; for ever unless `millis` is given.
    NodeSilent {
        /// The node's name.
        node: String,
        /// Milliseconds.
        millis: Option<u64>,
    },
    /// A node is taken out of the cluster for good, with all that is on it alone.
    NodeGone {
        /// The node's name.
        node: String,
    },
    /// A node is set to maintenance (only shown).
    NodeMaintenance {
        /// The node's name.
        node: String,
        /// On or off.
        on: bool,
    },
    /// The cluster loses its quorum; for ever unless `millis` is given.
    QuorumLost {
        /// Milliseconds.
        millis: Option<u64>,
    },
    /// The cluster has its quorum again.
    QuorumBack,
    /// A token is refused from now on.
    TokenRevoked {
        /// `user@realm!name`.
        token: String,
    },
    /// A token is accepted again.
    TokenRestored {
        /// `user@realm!name`.
        token: String,
    },
    /// The secret of a token is replaced.
    TokenSecret {
        /// `user@realm!name`.
        token: String,
        /// The secret.
        secret: String,
    },
    /// Rights on a path are replaced.
    Rights {
        /// A path.
        path: String,
        /// User or token id.
        who: String,
        /// Names of privileges.
        privileges: Vec<String>,
    },
    /// A VM or template disappears without a call.
    VmGone {
        /// The VM's id.
        vmid: u32,
    },
    /// A VM or template appears.
    VmAppears {
        /// The VM as it turns up.
        vm: VmSeed,
    },
    /// A VM is moved without a call.
    VmMoved {
        /// The VM's id.
        vmid: u32,
        /// The node's name.
        node: String,
    },
    /// A VM's process dies.
    VmCrashed {
        /// The VM's id.
        vmid: u32,
    },
    /// A VM's processors are stopped, or go on.
    VmPaused {
        /// The VM's id.
        vmid: u32,
        /// Whether they are stopped.
        paused: bool,
    },
    /// A VM becomes a resource of the HA manager.
    VmInHa {
        /// The VM's id.
        vmid: u32,
    },
    /// A VM gets a snapshot with its memory, a disk that is attached no more, and a job that
    /// replicates it.
    VmLaden {
        /// The VM's id.
        vmid: u32,
    },
    /// A lock is left in a VM's configuration, or taken off.
    VmLocked {
        /// The VM's id.
        vmid: u32,
        /// The lock of its configuration.
        lock: Option<String>,
    },
    /// A storage has no room, or has it again.
    StorageFull {
        /// The storage's name.
        storage: String,
        /// Whether there is no room.
        full: bool,
    },
    /// A storage is taken out of the configuration for good, with what is on it.
    StorageGone {
        /// The storage's name.
        storage: String,
    },
    /// A storage is switched off, or on.
    StorageDisabled {
        /// The storage's name.
        storage: String,
        /// Whether it is switched off.
        disabled: bool,
    },
    /// Numbers in answers become texts, or numbers again.
    TextNumbers {
        /// On or off.
        on: bool,
    },
    /// A file disappears.
    VolumeGone {
        /// The node's name.
        node: String,
        /// The volume's id.
        volume: String,
    },
}

impl Model {
    /// Makes it happen, now.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::NodeOffline { node } => self.node_down(&node),
            Change::NodeOnline { node } => self.set_node(&node, NodeState::Online),
            Change::NodeGone { node } => self.node_gone(&node),
            Change::NodeSilent { node, millis } => {
                self.set_node(&node, NodeState::Silent);
                if let Some(millis) = millis {
                    self.schedule(Duration::from_millis(millis), Due::NodeBack(node));
                }
            }
            Change::NodeMaintenance { node, on } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.maintenance = on;
                }
            }
            Change::QuorumLost { millis } => {
                self.quorate = false;
                if let Some(millis) = millis {
                    self.schedule(Duration::from_millis(millis), Due::QuorumBack);
                }
            }
            Change::QuorumBack => self.quorate = true,
            Change::TokenRevoked { token } => self.access.set_revoked(&token, true),
            Change::TokenRestored { token } => self.access.set_revoked(&token, false),
            Change::TokenSecret { token, secret } => self.access.set_secret(&token, &secret),
            Change::Rights { path, who, privileges } => {
                let names: Vec<&str> = privileges.iter().map(String::as_str).collect();
                self.access.set_acl(&path, &who, &names);
            }
            Change::VmGone { .. }
            | Change::VmAppears { .. }
            | Change::VmMoved { .. }
            | Change::VmCrashed { .. }
            | Change::VmPaused { .. }
            | Change::VmInHa { .. }
            | Change::VmLaden { .. }
            | Change::VmLocked { .. } => self.change_vm(change),
            Change::StorageFull { storage, full } => {
                if let Some(storage) = self.storages.get_mut(&storage) {
                    storage.full = full;
                }
            }
            Change::StorageGone { storage } => {
                self.storages.remove(&storage);
                let on_it = format!("{storage}:");
                self.volumes.retain(|(_, id), _| !id.starts_with(&on_it));
            }
            Change::StorageDisabled { storage, disabled } => {
                if let Some(storage) = self.storages.get_mut(&storage) {
                    storage.disabled = disabled;
                }
            }
            Change::TextNumbers { on } => self.text_numbers = on,
            Change::VolumeGone { node, volume } => {
                let place = self.place(&node, &volume);
                self.volumes.remove(&place);
            }
        }
    }

    fn change_vm(&mut self, change: Change) {
        match change {
            Change::VmGone { vmid } => {
                self.power_off(vmid);
                self.vms.remove(&vmid);
                self.volumes.retain(|_, volume| volume.owner != Some(vmid));
            }
            Change::VmAppears { vm } => self.plant_vm(&vm),
            Change::VmMoved { vmid, node } => {
                if let Some(vm) = self.vms.get_mut(&vmid) {
                    vm.node = node;
                }
            }
            Change::VmCrashed { vmid } => self.power_off(vmid),
            Change::VmPaused { vmid, paused } => {
                let run = if paused { Run::Paused } else { Run::Running };
                if let Some(vm) = self.vms.get_mut(&vmid).filter(|vm| vm.run != Run::Stopped) {
                    vm.run = run;
                }
            }
            Change::VmInHa { vmid } => {
                let started = HaResource { state: "started".to_owned(), ..HaResource::default() };
                self.ha.insert(format!("vm:{vmid}"), started);
            }
            Change::VmLaden { vmid } => self.load(vmid),
            Change::VmLocked { vmid, lock } => {
                if let Some(vm) = self.vms.get_mut(&vmid) {
                    match lock {
                        Some(lock) => vm.config.insert("lock".to_owned(), lock),
                        None => vm.config.remove("lock"),
                    };
                }
            }
            _ => {}
        }
    }

    fn set_node(&mut self, node: &str, state: NodeState) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(node) {
            node.state = state;
            node.told = match state {
                NodeState::Online => None,
                NodeState::Offline | NodeState::Silent => Some(node.told.unwrap_or(now)),
            };
        }
    }

    fn node_gone(&mut self, node: &str) {
        self.node_down(node);
        self.nodes.remove(node);
        let on_it = |vm: &super::state::Vm| vm.node == node;
        let gone: Vec<u32> =
            self.vms.iter().filter(|(_, vm)| on_it(vm)).map(|(&vmid, _)| vmid).collect();
        for vmid in gone {
            self.vms.remove(&vmid);
            self.volumes.retain(|_, volume| volume.owner != Some(vmid));
        }
        self.volumes.retain(|(at, _), _| at != node);
    }

    /// With what people and other tools add to a VM.
    fn load(&mut self, vmid: u32) {
        let taken = self.now;
        let Some(vm) = self.vms.get_mut(&vmid) else { return };
        let (state, unused) =
            (format!("shared:vm-{vmid}-state-before"), format!("shared:vm-{vmid}-disk-7"));
        let mut config = vm.config.clone();
        config.insert("vmstate".to_owned(), state.clone());
        let snapshot = Snapshot { config, description: "before".to_owned(), taken };
        vm.snapshots.insert("before".to_owned(), snapshot);
        vm.config.insert("unused0".to_owned(), unused.clone());
        let node = vm.node.clone();
        for volume in [state, unused] {
            self.insert_volume(&node, &volume, "images", 1 << 30, Some(vmid));
        }
        self.replicated.insert(vmid);
    }

    fn node_down(&mut self, node: &str) {
        self.set_node(node, NodeState::Offline);
        self.lose_tasks(node);
        let running = |vm: &super::state::Vm| vm.node == node && vm.run != Run::Stopped;
        let down: Vec<u32> =
            self.vms.iter().filter(|(_, vm)| running(vm)).map(|(&vmid, _)| vmid).collect();
        for vmid in down {
            self.power_off(vmid);
        }
    }
}

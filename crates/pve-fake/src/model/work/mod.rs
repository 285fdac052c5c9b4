//! What tasks do: their checks when they begin, their effect when they end, their way back.

#![expect(clippy::unnecessary_wraps, reason = "all work begins and finishes alike")]

mod clone;
mod config;
mod destroy;
mod disk;
mod power;
mod snapshot;
mod volume;

use std::time::Duration;

pub(crate) use clone::{CloneWork, NewVolume};
pub(crate) use config::ConfigWork;
pub(crate) use destroy::DestroyWork;
pub(crate) use disk::ResizeWork;
pub(crate) use power::{Power, PowerWork};
pub(crate) use snapshot::{SnapshotStep, SnapshotWork};
pub(crate) use volume::{UnlinkWork, UploadWork};

use super::Model;
use super::request::Refusal;
use super::state::Vm;
use super::task::{Lock, Stage};

/// A failed task's exit text.
pub(crate) type Outcome = Result<(), String>;

#[derive(Clone, Debug)]
pub(crate) enum Work {
    Clone(Box<CloneWork>),
    Config(ConfigWork),
    Resize(ResizeWork),
    Power(PowerWork),
    Destroy(DestroyWork),
    Upload(UploadWork),
    Unlink(UnlinkWork),
    Snapshot(SnapshotWork),
}

impl Work {
    /// The worker's own checks and first visible marks.
    pub(crate) fn begin(&self, model: &mut Model, upid: &str) -> Outcome {
        match self {
            Self::Clone(work) => work.begin(model),
            Self::Config(work) => work.check(model).map_err(|refusal| refusal.text),
            Self::Resize(work) => work.check(model),
            Self::Power(work) => work.begin(model),
            Self::Destroy(work) => work.begin(model),
            Self::Snapshot(work) => work.begin(model),
            Self::Upload(_) => Ok(()),
            Self::Unlink(work) => work.begin(model, upid),
        }
    }

    /// From the last lock to the end.
    pub(crate) fn duration(&self, model: &mut Model) -> Duration {
        match self {
            Self::Clone(work) => work.duration(model),
            Self::Config(_) => model.timings.config,
            Self::Resize(_) => model.timings.resize,
            Self::Power(work) => work.duration(model),
            Self::Destroy(_) => model.timings.destroy,
            Self::Upload(_) => model.timings.upload,
            Self::Unlink(_) => model.timings.delete_volume,
            Self::Snapshot(_) => model.timings.snapshot,
        }
    }

    /// The effect.
    pub(crate) fn finish(&self, model: &mut Model, upid: &str) -> Outcome {
        match self {
            Self::Clone(work) => work.finish(model),
            Self::Config(work) => work.finish(model, upid),
            Self::Resize(work) => work.finish(model),
            Self::Power(work) => work.finish(model),
            Self::Destroy(work) => work.finish(model),
            Self::Upload(work) => work.finish(model),
            Self::Unlink(work) => work.finish(model),
            Self::Snapshot(work) => work.finish(model),
        }
    }

    /// Takes back what [`Work::begin`] marked.
    pub(crate) fn abort(&self, model: &mut Model) {
        match self {
            Self::Clone(work) => work.abort(model),
            Self::Destroy(work) => work.abort(model),
            Self::Snapshot(work) => work.abort(model),
            Self::Config(_)
            | Self::Resize(_)
            | Self::Power(_)
            | Self::Upload(_)
            | Self::Unlink(_) => {}
        }
    }

    fn vmid(&self) -> Option<u32> {
        match self {
            Self::Clone(work) => Some(work.newid),
            Self::Config(work) => Some(work.vmid),
            Self::Resize(work) => Some(work.vmid),
            Self::Power(work) => Some(work.vmid),
            Self::Destroy(work) => Some(work.vmid),
            Self::Snapshot(work) => Some(work.vmid),
            Self::Upload(_) | Self::Unlink(_) => None,
        }
    }

    /// The lock files needed at a stage.
    pub(crate) fn locks(&self, model: &Model, stage: Stage) -> Vec<Lock> {
        match (stage, self) {
            (Stage::WantsVm, work) => work.vmid().map(Lock::Vm).into_iter().collect(),
            (Stage::WantsStorage, Self::Clone(work)) => work.storage_locks(model),
            _ => Vec::new(),
        }
    }

    /// The exit text when a lock was not to be had.
    pub(crate) fn lock_text(&self, model: &Model, stage: Stage) -> String {
        match (stage, self) {
            (Stage::WantsStorage, Self::Clone(work)) => work.lock_text(model),
            (_, work) => lock_timeout(work.vmid().unwrap_or_default()),
        }
    }
}

/// The text of a VM's lock file that was not to be had.
pub(crate) fn lock_timeout(vmid: u32) -> String {
    format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
}

impl Model {
    /// The VM on that node, for endpoints that look at its configuration first.
    pub(crate) fn vm(&self, node: &str, vmid: u32) -> Result<&Vm, Refusal> {
        let vm = self.vms.get(&vmid).filter(|vm| vm.node == node);
        vm.ok_or_else(|| Refusal::missing_config(node, vmid))
    }

    pub(crate) fn vm_mut(&mut self, node: &str, vmid: u32) -> Result<&mut Vm, Refusal> {
        let vm = self.vms.get_mut(&vmid).filter(|vm| vm.node == node);
        vm.ok_or_else(|| Refusal::missing_config(node, vmid))
    }

    /// The VM, if no lock is in its configuration.
    pub(crate) fn unlocked_vm(&self, node: &str, vmid: u32) -> Result<&Vm, Refusal> {
        let vm = self.vm(node, vmid)?;
        match vm.lock() {
            Some(lock) => Err(Refusal::die(format!("VM is locked ({lock})"))),
            None => Ok(vm),
        }
    }

    /// Refuses what needs the cluster's quorum.
    pub(crate) fn need_quorum(&self) -> Result<(), Refusal> {
        if self.quorate { Ok(()) } else { Err(Refusal::die("cluster not ready - no quorum?")) }
    }

    /// Refuses to write a VM's configuration without quorum.
    pub(crate) fn need_writable(&self, node: &str, vmid: u32) -> Result<(), Refusal> {
        if self.quorate {
            Ok(())
        } else {
            Err(Refusal::die(format!(
                "unable to open file '/etc/pve/nodes/{node}/qemu-server/{vmid}.conf.tmp' - \
                 Permission denied"
            )))
        }
    }
}

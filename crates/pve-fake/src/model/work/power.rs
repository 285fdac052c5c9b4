//! `qmstart`, `qmstop`, `qmshutdown`, `qmreboot`, `qmresume` and their like.

use std::time::Duration;

use super::Outcome;
use crate::model::guest::{CloudInit, GuestState};
use crate::model::request::Refusal;
use crate::model::state::Run;
use crate::model::task::Due;
use crate::model::{Effect, GuestKind, Model};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    Start,
    Stop,
    Shutdown { force: bool, timeout: u32 },
    Reboot,
    Reset,
    Suspend,
    Resume,
}

#[derive(Clone, Debug)]
pub(crate) struct PowerWork {
    pub node: String,
    pub vmid: u32,
    pub power: Power,
}

impl PowerWork {
    pub(crate) fn begin(&self, model: &mut Model) -> Outcome {
        let vm = model.vm(&self.node, self.vmid).map_err(|refusal| match self.power {
            Power::Start => refusal.text,
            _ => Refusal::missing_vm(&self.node, self.vmid).text,
        })?;
        if let Some(lock) = vm.lock() {
            return Err(format!("VM is locked ({lock})"));
        }
        if self.power != Power::Start {
            return Ok(());
        }
        if vm.is_template() {
            return Err("you can't start a vm if it's a template".to_owned());
        }
        if vm.run != Run::Stopped {
            return Err(format!("VM {} already running", self.vmid));
        }
        for (_, drive) in vm.drives() {
            if drive.storage().is_some() && model.find_volume(&self.node, &drive.file).is_none() {
                return Err(format!("volume '{}' does not exist", drive.file));
            }
        }
        let bridges = model.nodes.get(&self.node).map(|node| node.bridges.clone());
        for nic in model.boot_view(self.vmid).map(|boot| boot.nics).unwrap_or_default() {
            if bridges.as_ref().is_some_and(|known| !known.contains(&nic.bridge)) {
                return Err(format!("bridge '{}' does not exist", nic.bridge));
            }
        }
        Ok(())
    }

    pub(crate) fn duration(&self, model: &Model) -> Duration {
        let timings = &model.timings;
        match self.power {
            Power::Start => timings.start,
            Power::Stop | Power::Reset | Power::Suspend | Power::Resume => timings.stop,
            Power::Reboot => timings.shutdown + timings.start,
            Power::Shutdown { timeout, .. } => match model.vms.get(&self.vmid) {
                Some(vm) if vm.guest.agent || vm.run == Run::Stopped => timings.shutdown,
                _ => timings.second * timeout,
            },
        }
    }

    pub(crate) fn finish(&self, model: &mut Model) -> Outcome {
        let vmid = self.vmid;
        let Some(vm) = model.vms.get_mut(&vmid) else { return Ok(()) };
        match self.power {
            Power::Start => model.power_on(vmid),
            Power::Stop => model.power_off(vmid),
            Power::Shutdown { force, .. } => {
                if vm.guest.agent || vm.run == Run::Stopped || force {
                    model.power_off(vmid);
                } else {
                    return Err("VM quit/powerdown failed - got timeout".to_owned());
                }
            }
            Power::Reboot | Power::Reset => {
                model.power_off(vmid);
                model.power_on(vmid);
            }
            Power::Suspend if vm.run == Run::Running => vm.run = Run::Paused,
            Power::Resume if vm.run == Run::Paused => vm.run = Run::Running,
            Power::Suspend | Power::Resume => {}
        }
        Ok(())
    }
}

impl Model {
    fn power_on(&mut self, vmid: u32) {
        let now = self.now;
        let pid = u32::try_from(self.roll() & 0xffff).unwrap_or(0) + 2000;
        let seeded = self
            .boot_view(vmid)
            .is_some_and(|boot| boot.cdroms.iter().any(|cdrom| !cdrom.data.is_empty()));
        let Some(vm) = self.vms.get_mut(&vmid) else { return };
        apply_pending(vm);
        vm.run = Run::Running;
        vm.started = now;
        vm.boot += 1;
        vm.pid = pid;
        vm.guest = GuestState::default();
        let boot = vm.boot;
        if self.guests == GuestKind::BuiltIn {
            if seeded {
                vm.guest.cloud_init = CloudInit::Running;
            }
            self.schedule(self.timings.agent, Due::AgentUp { vmid, boot });
        }
        if let Some(view) = self.boot_view(vmid) {
            self.effects.push(Effect::Started(Box::new(view)));
        }
    }

    pub(crate) fn power_off(&mut self, vmid: u32) {
        let Some(vm) = self.vms.get_mut(&vmid).filter(|vm| vm.run != Run::Stopped) else { return };
        vm.run = Run::Stopped;
        vm.guest = GuestState::default();
        apply_pending(vm);
        self.effects.push(Effect::Stopped { vmid });
    }
}

fn apply_pending(vm: &mut crate::model::state::Vm) {
    for (key, value) in std::mem::take(&mut vm.pending) {
        match value {
            Some(value) => vm.config.insert(key, value),
            None => vm.config.remove(&key),
        };
    }
}

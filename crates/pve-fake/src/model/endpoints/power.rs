//! `…/status/start` and its like: nearly everything that can go wrong goes wrong in the task.

use super::post;
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Field, Kind, may};
use crate::model::state::Run;
use crate::model::work::{Power, PowerWork, Work};

const NEED: Need = Need::All("/vms/{vmid}", &["VM.PowerMgmt"]);
const START: &[Field] = &[
    may("skiplock", Kind::Flag),
    may("timeout", Kind::Int(0, i64::MAX)),
    may("machine", Kind::Text),
    may("force-cpu", Kind::Text),
    may("migratedfrom", Kind::Text),
    may("stateuri", Kind::Text),
    may("targetstorage", Kind::Text),
];
const STOP: &[Field] = &[
    may("skiplock", Kind::Flag),
    may("timeout", Kind::Int(0, i64::MAX)),
    may("keepActive", Kind::Flag),
    may("overrule-shutdown", Kind::Flag),
    may("migratedfrom", Kind::Text),
];
const SHUTDOWN: &[Field] = &[
    may("skiplock", Kind::Flag),
    may("timeout", Kind::Int(0, i64::MAX)),
    may("keepActive", Kind::Flag),
    may("forceStop", Kind::Flag),
];
const REBOOT: &[Field] = &[may("timeout", Kind::Int(0, i64::MAX))];
const PAUSE: &[Field] = &[
    may("skiplock", Kind::Flag),
    may("todisk", Kind::Flag),
    may("nocheck", Kind::Flag),
    may("statestorage", Kind::StorageId),
];

pub(super) const ROUTES: &[Route] = &[
    post("/nodes/{node}/qemu/{vmid}/status/start", NEED, START, start),
    post("/nodes/{node}/qemu/{vmid}/status/stop", NEED, STOP, stop),
    post("/nodes/{node}/qemu/{vmid}/status/shutdown", NEED, SHUTDOWN, shutdown),
    post("/nodes/{node}/qemu/{vmid}/status/reboot", NEED, REBOOT, reboot),
    post("/nodes/{node}/qemu/{vmid}/status/reset", NEED, PAUSE, reset),
    post("/nodes/{node}/qemu/{vmid}/status/suspend", NEED, PAUSE, suspend),
    post("/nodes/{node}/qemu/{vmid}/status/resume", NEED, PAUSE, resume),
];

fn submit(model: &mut Model, call: &Call, kind: &'static str, power: Power) -> Reply {
    let work = PowerWork { node: call.node().to_owned(), vmid: call.vmid(), power };
    let id = call.vmid().to_string();
    Reply::task(model.submit(call.node(), kind, &id, &call.caller, Work::Power(work)))
}

fn start(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.need_quorum()?;
    let kind = if model.is_ha(call) { "hastart" } else { "qmstart" };
    Ok(submit(model, call, kind, Power::Start))
}

fn stop(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    if call.params.flag("overrule-shutdown") {
        model.kill_shutdown(call.vmid());
    }
    let kind = if model.is_ha(call) { "hastop" } else { "qmstop" };
    Ok(submit(model, call, kind, Power::Stop))
}

fn shutdown(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let force = call.params.flag("forceStop");
    let run = model.power_state(call)?;
    if run == Run::Paused && !force {
        return Err(Refusal::die("VM is paused - cannot shutdown"));
    }
    let timeout = u32::try_from(call.params.number("timeout").unwrap_or(60)).unwrap_or(60);
    Ok(submit(model, call, "qmshutdown", Power::Shutdown { force, timeout }))
}

fn reboot(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.need_running(call)?;
    Ok(submit(model, call, "qmreboot", Power::Reboot))
}

fn reset(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.need_running(call)?;
    Ok(submit(model, call, "qmreset", Power::Reset))
}

fn suspend(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.need_running(call)?;
    Ok(submit(model, call, "qmpause", Power::Suspend))
}

fn resume(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.need_running(call)?;
    Ok(submit(model, call, "qmresume", Power::Resume))
}

impl Model {
    fn is_ha(&self, call: &Call) -> bool {
        self.ha.contains_key(&format!("vm:{}", call.vmid()))
    }

    fn power_state(&self, call: &Call) -> Result<Run, Refusal> {
        let vm = self.vms.get(&call.vmid()).filter(|vm| vm.node == call.node());
        vm.map(|vm| vm.run).ok_or_else(|| Refusal::missing_vm(call.node(), call.vmid()))
    }

    fn need_running(&self, call: &Call) -> Result<(), Refusal> {
        match self.power_state(call)? {
            Run::Stopped => Err(Refusal::die(format!("VM {} not running", call.vmid()))),
            Run::Running | Run::Paused => Ok(()),
        }
    }

    /// Ends a shutdown that is under way, so that a stop need not wait for its lock.
    fn kill_shutdown(&mut self, vmid: u32) {
        let id = vmid.to_string();
        let running = self
            .tasks
            .values()
            .find(|task| task.kind == "qmshutdown" && task.id == id && task.end.is_none());
        if let Some(upid) = running.map(|task| task.upid.clone()) {
            self.kill_task(&upid);
        }
    }
}

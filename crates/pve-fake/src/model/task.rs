//! Tasks: their identifiers, their locks, their course from begin to end.

use std::time::Duration;

use serde_json::{Value, json};

use super::Model;
use super::access::Caller;
use super::guest::CloudInit;
use super::request::Refusal;
use super::state::{NodeState, Run};
use super::work::Work;
use crate::clock::Millis;

/// Ended tasks that are remembered; older ones are gone as after a rotation of the logs.
const KEPT: usize = 5000;

/// What a fault script has in store for the next task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFate {
    /// The exit text instead of `OK`.
    pub text: String,
    /// Whether the work is done all the same.
    pub with_effect: bool,
}

/// A lock file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lock {
    Vm(u32),
    /// By storage, and node if it is not shared.
    Storage(String, String),
}

/// Things that happen at a time.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    Finish(String),
    LockTimeout(String, Stage),
    FreeStorage(String),
    AgentUp { vmid: u32, boot: u64 },
    CloudInitDone { vmid: u32, boot: u64 },
    NodeBack(String),
    QuorumBack,
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    WantsVm,
    WantsStorage,
    Works,
    Over,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub upid: String,
    pub node: String,
    pub pid: u32,
    pub kind: &'static str,
    pub id: String,
    pub caller: Caller,
    pub start: Millis,
    pub end: Option<Millis>,
    pub exit: Option<String>,
    pub log: Vec<String>,
    pub stage: Stage,
    pub order: u64,
    pub work: Option<Work>,
    fate: Option<TaskFate>,
}

impl Task {
    pub(crate) fn log(&mut self, line: impl Into<String>) {
        self.log.push(line.into());
    }

    /// As `…/tasks/{upid}/status` shows it.
    pub(crate) fn status(&self) -> Value {
        let mut data = json!({
            "upid": self.upid,
            "node": self.node,
            "pid": self.pid,
            "pstart": self.order + 1000,
            "starttime": self.start.secs(),
            "type": self.kind,
            "id": self.id,
            "user": self.caller.user,
            "status": if self.end.is_some() { "stopped" } else { "running" },
        });
        if let (Some(exit), Some(map)) = (&self.exit, data.as_object_mut()) {
            map.insert("exitstatus".to_owned(), json!(exit));
        }
        self.add_token(&mut data);
        data
    }

    /// As task lists show it.
    pub(crate) fn entry(&self) -> Value {
        let mut data = json!({
            "upid": self.upid,
            "node": self.node,
            "pid": self.pid,
            "pstart": self.order + 1000,
            "starttime": self.start.secs(),
            "type": self.kind,
            "id": self.id,
            "user": self.caller.user,
        });
        if let (Some(end), Some(map)) = (self.end, data.as_object_mut()) {
            map.insert("endtime".to_owned(), json!(end.secs()));
            map.insert("status".to_owned(), json!(self.exit));
        }
        self.add_token(&mut data);
        data
    }

    fn add_token(&self, data: &mut Value) {
        if let (Some((_, name)), Some(map)) = (self.caller.id.split_once('!'), data.as_object_mut())
        {
            map.insert("tokenid".to_owned(), json!(name));
        }
    }
}

/// A task as tests see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Its identifier.
    pub upid: String,
    /// `qmclone`, `qmstart` …
    pub kind: String,
    /// The VM, for most kinds.
    pub id: String,
    /// None while it runs.
    pub exit: Option<String>,
}

impl Model {
    /// Starts a task and gives its UPID.
    pub(crate) fn submit(
        &mut self,
        node: &str,
        kind: &'static str,
        id: &str,
        caller: &Caller,
        work: Work,
    ) -> String {
        self.counter += 1;
        let order = self.counter;
        let pid = 0x000A_0000 + u32::try_from(order & 0xffff_ffff).unwrap_or(0);
        let upid = format!(
            "UPID:{node}:{pid:08X}:{:08X}:{:08X}:{kind}:{id}:{}:",
            order + 1000,
            self.now.secs(),
            caller.id
        );
        let task = Task {
            upid: upid.clone(),
            node: node.to_owned(),
            pid,
            kind,
            id: id.to_owned(),
            caller: caller.clone(),
            start: self.now,
            end: None,
            exit: None,
            log: Vec::new(),
            stage: Stage::WantsVm,
            order,
            work: Some(work),
            fate: self.fate.take(),
        };
        self.tasks.insert(upid.clone(), task);
        self.waiting.insert(order, upid.clone());
        self.push_on(&upid);
        if self.stage(&upid).is_some_and(|stage| stage < Stage::Works) {
            self.schedule(self.timings.lock_wait, Due::LockTimeout(upid.clone(), Stage::WantsVm));
        }
        upid
    }

    /// Takes a task as far as the locks allow.
    fn push_on(&mut self, upid: &str) {
        if self.stage(upid) == Some(Stage::WantsVm) && self.take_locks(upid, Stage::WantsVm) {
            match self.with_work(upid, |model, work| work.begin(model, upid)) {
                Some(Err(text)) => return self.end(upid, &text),
                Some(Ok(())) => self.set_stage(upid, Stage::WantsStorage),
                None => return,
            }
            let wait = Due::LockTimeout(upid.to_owned(), Stage::WantsStorage);
            self.schedule(self.timings.lock_wait, wait);
        }
        if self.stage(upid) == Some(Stage::WantsStorage)
            && self.take_locks(upid, Stage::WantsStorage)
        {
            self.set_stage(upid, Stage::Works);
            let duration = self.with_work(upid, |model, work| work.duration(model));
            self.schedule(self.timings.allocate, Due::FreeStorage(upid.to_owned()));
            self.schedule(duration.unwrap_or(Duration::ZERO), Due::Finish(upid.to_owned()));
        }
    }

    fn stage(&self, upid: &str) -> Option<Stage> {
        self.tasks.get(upid).map(|task| task.stage)
    }

    fn set_stage(&mut self, upid: &str, stage: Stage) {
        if let Some(task) = self.tasks.get_mut(upid) {
            task.stage = stage;
            if stage >= Stage::Works {
                self.waiting.remove(&task.order);
            }
        }
    }

    fn with_work<T>(&mut self, upid: &str, act: impl FnOnce(&mut Self, &Work) -> T) -> Option<T> {
        let work = self.tasks.get_mut(upid)?.work.take()?;
        let result = act(self, &work);
        if let Some(task) = self.tasks.get_mut(upid) {
            task.work = Some(work);
        }
        Some(result)
    }

    /// All locks of a stage or none.
    fn take_locks(&mut self, upid: &str, stage: Stage) -> bool {
        let wanted = self.with_work(upid, |model, work| work.locks(model, stage));
        let wanted = wanted.unwrap_or_default();
        if wanted.iter().any(|lock| self.locks.get(lock).is_some_and(|holder| holder != upid)) {
            return false;
        }
        self.locks.extend(wanted.into_iter().map(|lock| (lock, upid.to_owned())));
        true
    }

    /// Gives locks back and lets those go on that waited, oldest first.
    fn release(&mut self, upid: &str, storages_only: bool) {
        self.locks.retain(|lock, holder| {
            holder != upid || (storages_only && matches!(lock, Lock::Vm(_)))
        });
        for waiter in self.waiting.values().cloned().collect::<Vec<_>>() {
            self.push_on(&waiter);
        }
    }

    pub(crate) fn happen(&mut self, due: Due) {
        match due {
            Due::Finish(upid) => self.finish(&upid),
            Due::FreeStorage(upid) => self.release(&upid, true),
            Due::LockTimeout(upid, stage) => {
                if self.stage(&upid) == Some(stage) {
                    let text = self.with_work(&upid, |model, work| work.lock_text(model, stage));
                    if stage == Stage::WantsStorage {
                        self.with_work(&upid, |model, work| work.abort(model));
                    }
                    self.end(&upid, &text.unwrap_or_default());
                }
            }
            Due::AgentUp { vmid, boot } => {
                self.built_in_agent(vmid, boot);
            }
            Due::CloudInitDone { vmid, boot } => {
                if let Some(vm) = self.vms.get_mut(&vmid)
                    && vm.boot == boot
                    && vm.guest.cloud_init == CloudInit::Running
                {
                    vm.guest.cloud_init = CloudInit::Done;
                }
            }
            Due::NodeBack(node) => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.state = NodeState::Online;
                }
            }
            Due::QuorumBack => self.quorate = true,
        }
    }

    fn built_in_agent(&mut self, vmid: u32, boot: u64) {
        let running = |vm: &&mut super::state::Vm| vm.boot == boot && vm.run != Run::Stopped;
        let Some(vm) = self.vms.get_mut(&vmid).filter(running) else { return };
        vm.guest.agent = vm.agent_enabled();
        vm.guest.hostname = Some(vm.name(vmid));
        if vm.guest.cloud_init == CloudInit::Running {
            self.schedule(self.timings.cloud_init, Due::CloudInitDone { vmid, boot });
        }
    }

    fn finish(&mut self, upid: &str) {
        if self.stage(upid) != Some(Stage::Works) {
            return;
        }
        let fate = self.tasks.get_mut(upid).and_then(|task| task.fate.take());
        let effect = fate.as_ref().is_none_or(|fate| fate.with_effect);
        let result = if effect {
            self.with_work(upid, |model, work| work.finish(model, upid))
        } else {
            self.with_work(upid, |model, work| work.abort(model));
            Some(Ok(()))
        };
        let text = match (result, fate) {
            (_, Some(fate)) => fate.text,
            (Some(Err(text)), None) => {
                self.with_work(upid, |model, work| work.abort(model));
                text
            }
            (_, None) => "OK".to_owned(),
        };
        self.end(upid, &text);
    }

    /// Writes the last line of a task.
    pub(crate) fn end(&mut self, upid: &str, text: &str) {
        let now = self.now;
        self.set_stage(upid, Stage::Over);
        if let Some(task) = self.tasks.get_mut(upid) {
            task.end = Some(now);
            task.work = None;
            task.log(if text == "OK" {
                "TASK OK".to_owned()
            } else {
                format!("TASK ERROR: {text}")
            });
            task.exit = Some(text.lines().next().unwrap_or_default().to_owned());
        }
        self.release(upid, false);
        self.ended.push_back(upid.to_owned());
        if self.ended.len() > KEPT
            && let Some(oldest) = self.ended.pop_front()
        {
            self.tasks.remove(&oldest);
        }
    }

    /// Stops a running task from outside.
    pub(crate) fn kill_task(&mut self, upid: &str) {
        let stage = self.stage(upid).unwrap_or(Stage::Over);
        if stage < Stage::Over {
            if stage > Stage::WantsVm {
                self.with_work(upid, |model, work| work.abort(model));
            }
            self.end(upid, "received interrupt");
        }
    }

    /// Ends every task of a node whose host went down.
    pub(crate) fn lose_tasks(&mut self, node: &str) {
        let running = self.tasks.values().filter(|task| task.node == node && task.end.is_none());
        for upid in running.map(|task| task.upid.clone()).collect::<Vec<_>>() {
            self.end(&upid, "unexpected status");
        }
    }

    /// A task on a node that the caller may see.
    pub(crate) fn visible_task(
        &self,
        caller: &Caller,
        node: &str,
        upid: &str,
    ) -> Result<&Task, Refusal> {
        if !(upid.starts_with("UPID:") && upid.split(':').count() == 9 && upid.ends_with(':')) {
            return Err(Refusal::param("upid", "unable to parse worker upid"));
        }
        let task = self.tasks.get(upid).filter(|task| task.node == node);
        let task = task.ok_or_else(|| Refusal::param("upid", "no such task"))?;
        if self.may_see(caller, task) {
            Ok(task)
        } else {
            Err(Refusal::forbidden(&format!("/nodes/{node}, Sys.Audit")))
        }
    }

    /// A token sees its own tasks, a user those of its tokens too.
    pub(crate) fn may_see(&self, caller: &Caller, task: &Task) -> bool {
        let own = if caller.is_token() {
            task.caller.id == caller.id
        } else {
            task.caller.user == caller.user
        };
        own || self.access.allows(caller, &format!("/nodes/{}", task.node), "Sys.Audit")
    }

    /// Every task so far, oldest first.
    pub fn tasks(&self) -> Vec<TaskView> {
        let mut tasks: Vec<&Task> = self.tasks.values().collect();
        tasks.sort_by_key(|task| task.order);
        let view = |task: &Task| TaskView {
            upid: task.upid.clone(),
            kind: task.kind.to_owned(),
            id: task.id.clone(),
            exit: task.exit.clone(),
        };
        tasks.into_iter().map(view).collect()
    }
}

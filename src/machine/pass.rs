//! One pass over one machine: observe, decide and act in turns, then report.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Event, EventType};
use tracing::{debug, info, warn};

use super::astray::astray;
use super::decide::decide;
use super::decision::{Decision, Step, Waiting, Wake};
use super::departed::is_held;
use super::facts::{Call, Facts, Past};
use super::memory::{Headline, Memory, is_milestone};
use super::observe;
use super::quiet::{Bell, Rest, spread, unmoved, unwritten};
use super::report::{self, Conclusion};
use super::stores::Stores;
use super::traces::{Traces, holds};
use crate::api::{ProxmoxMachine, conditions, reasons};
use crate::connections::Connections;
use crate::events::Recorder;
use crate::fault::{Class, Fault};
use crate::hypervisor::{Endpoint, Leave, ObjectKey, Operation, View};
use crate::ids::{StorageName, VmId};

/// Turns of one pass. A whole life takes about twenty; more means that two decisions undo each
/// other, which is told and slowed down rather than repeated at full speed.
const TURNS: usize = 100;

/// How often in a row one step is done before its success is doubted.
const VAIN: u32 = 3;

/// How many conflicts in a row are others' changes that are about to arrive.
const CONFLICTS: u32 = 3;

/// First and longest pause after a fault.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_LAST: Duration = Duration::from_mins(1);

/// What all passes share.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) connections: Arc<Connections>,
    pub(super) stores: Stores,
    pub(super) recorder: Recorder,
    pub(super) memory: Arc<Memory>,
    pub(super) bell: Bell,
    pub(super) traces: Traces,
    pub(super) started: tokio::time::Instant,
    /// The time, which decisions and reports get as an argument.
    pub(super) clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// Some number.
    pub(super) chance: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Machines that may ask one endpoint at once.
    pub(super) at_one_endpoint: usize,
    /// The only storages for seeds, the preferred one first; any when empty.
    pub(super) iso_storages: Vec<StorageName>,
}

impl Shared {
    /// Runs a pass, if there is anything to do, and says when the next one is due.
    pub(super) async fn serve(&self, machine: ProxmoxMachine) -> Result<Wake, Interrupted> {
        let key = observe::key_of(&machine);
        let uid = machine.metadata.uid.clone().unwrap_or_default();
        self.traces.greet(&key, &uid);
        let wake = match self.still_rests(&machine) {
            Some(wake) => Ok(wake),
            None => Box::pin(Pass::new(self, machine).run()).await,
        };
        let wake = wake.map_err(|why| self.behind(&key, why));
        // It may have gone meanwhile by other hands.
        if !holds(&self.stores.machines, &key, &uid) {
            self.traces.forget(&key, &uid);
        }
        wake
    }

    /// Whose copy of the object goes on being old waits for a newer one rather than try again.
    fn behind(&self, key: &ObjectKey, why: Interrupted) -> Interrupted {
        if !matches!(why, Interrupted::Conflict) {
            return why;
        }
        let times = self.memory.with(key, |remembered| {
            remembered.conflicts = remembered.conflicts.saturating_add(1);
            remembered.conflicts
        });
        if times > CONFLICTS { Interrupted::Behind } else { why }
    }

    /// What to go on waiting for, if nothing has happened since the last pass but its own writes.
    fn still_rests(&self, machine: &ProxmoxMachine) -> Option<Wake> {
        let key = observe::key_of(machine);
        if self.memory.is_gone(machine.metadata.uid.as_deref()) {
            return Some(Wake::OnChange);
        }
        if self.bell.rang(&key) {
            return None;
        }
        let version = machine.metadata.resource_version.as_deref();
        let rest = self.memory.with(&key, |remembered| remembered.rest_at(version))?;
        rest.goes_on(tokio::time::Instant::now())
    }
}

/// Why a pass ended before its report.
#[derive(Debug, thiserror::Error)]
pub(super) enum Interrupted {
    /// Somebody else changed the object.
    #[error("the object changed meanwhile")]
    Conflict,
    /// The same again and again: the copy that the pass starts from does not get newer.
    #[error("what the API server tells of the object is behind what it holds")]
    Behind,
    /// The endpoint has as many to serve as it may, and does not go on.
    #[error("the Proxmox endpoint hangs")]
    Crowded,
    /// The API server refused or did not answer.
    #[error("API server: {0}")]
    Api(#[source] Box<kube::Error>),
}

impl From<kube::Error> for Interrupted {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict,
            _ => Self::Api(Box::new(error)),
        }
    }
}

/// Why a step did not do what it should.
#[derive(Debug)]
pub(super) enum Setback {
    /// Kubernetes; the pass ends here.
    Interrupted(Interrupted),
    /// Proxmox, or what was asked for; told in the report.
    Fault(Operation, Fault),
    /// Something is missing that has to be waited for.
    Wait(Waiting),
}

impl<E: Into<Interrupted>> From<E> for Setback {
    fn from(error: E) -> Self {
        Self::Interrupted(error.into())
    }
}

/// One pass.
pub(super) struct Pass<'a> {
    pub(super) shared: &'a Shared,
    pub(super) key: ObjectKey,
    pub(super) endpoint: Option<Arc<Endpoint>>,
    /// Leave to ask the endpoint.
    pub(super) leave: Option<Leave>,
    /// No leave was to be had: the pass has to come again.
    pub(super) crowded: bool,
    /// Why the endpoint turned out to be of no use during this pass.
    pub(super) lost: OnceLock<Fault>,
    /// As the API server has it; [`Facts::machine`] is what it is going to be.
    pub(super) stored: ProxmoxMachine,
    /// What its condition said when the pass began.
    said: Option<Headline>,
    pub(super) facts: Facts,
    /// What the choice of node and VMID was made from, if one was made.
    pub(super) surveyed: Option<(Arc<View>, Option<VmId>)>,
}

impl<'a> Pass<'a> {
    /// Starts from the newest copy of the object.
    pub(super) fn new(shared: &'a Shared, copy: ProxmoxMachine) -> Self {
        let key = observe::key_of(&copy);
        let (stored, grown, past, vm) = shared.memory.with(&key, |remembered| {
            remembered.rest = None;
            let stored = remembered.newest(copy);
            remembered.note_heritage(&stored);
            remembered.held |= is_held(&stored);
            let vm = remembered.vm(&stored);
            (stored, remembered.grown, remembered.past_now(), vm)
        });
        let gathered = observe::gather(&shared.stores, stored.clone());
        let facts = Facts { vm, grown, past, ..gathered };
        let said = stored.status.as_ref();
        let said = said.and_then(|old| conditions::find(&old.conditions, reasons::VM_PROVISIONED));
        Self {
            said: said.map(Headline::of),
            shared,
            key,
            endpoint: None,
            leave: None,
            crowded: false,
            lost: OnceLock::new(),
            stored,
            facts,
            surveyed: None,
        }
    }

    /// Runs the pass and says when the next one is due.
    pub(super) async fn run(mut self) -> Result<Wake, Interrupted> {
        let conclusion = self.turns().await?;
        // What is left to do needs no answer of Proxmox, and others wait for the place.
        self.leave = None;
        self.step_out_unless_queued(&conclusion);
        if let Conclusion::Decided(Decision::Gone) = conclusion {
            self.shared.traces.tell_departed(&self.stored);
            self.end();
            return Ok(Wake::OnChange);
        }
        self.tell_astray().await;
        if !keeps_the_vm(&conclusion) {
            self.shared.memory.with(&self.key, |remembered| remembered.vm = None);
        }
        if let Some(pause) = self.untold(&conclusion).await {
            return Ok(self.rest(Wake::After(pause)));
        }
        Box::pin(self.report(&conclusion)).await
    }

    /// How long to wait without a write, if none is needed.
    async fn untold(&self, conclusion: &Conclusion) -> Option<Duration> {
        let Conclusion::Decided(Decision::Wait(waiting, _)) = conclusion else { return None };
        if !matches!(waiting, Waiting::Task { .. } | Waiting::Turn(_)) {
            return None;
        }
        let status = report::status(&self.facts, conclusion, None, (self.shared.clock)());
        let stored = self.stored.status.as_ref();
        if let Waiting::Turn(position) = waiting {
            let told = self.shared.memory.with(&self.key, |remembered| remembered.turn_told)?;
            return unmoved(stored, &status, position.pause(), told.elapsed());
        }
        let age = self.endpoint.as_ref().and_then(|endpoint| endpoint.task_age(&self.key));
        let pause = unwritten(waiting, stored, &status, age)?;
        self.tell(&status.conditions, false).await;
        Some(pause)
    }

    /// Ends the pass. Until then only a change that is not its own makes the next one.
    fn rest(&self, wake: Wake) -> Wake {
        let wake = spread(wake, (self.shared.chance)());
        let version = self.stored.metadata.resource_version.clone();
        self.shared.memory.with(&self.key, |remembered| {
            remembered.conflicts = 0;
            remembered.rest = version.map(|version| Rest::new(version, wake));
        });
        wake
    }

    /// Remembers that Proxmox accepted a call and named no task to follow, or that there is none.
    pub(super) fn note_accepted(&mut self, operation: Option<Operation>) {
        let call = operation.map(|operation| Call { operation, age: Duration::ZERO });
        self.remember(|past| past.accepted = call);
        let at = call.map(|_| tokio::time::Instant::now());
        self.shared.memory.with(&self.key, |remembered| remembered.accepted_at = at);
    }

    /// Remembers that the answer to a call was lost.
    pub(super) fn note_lost(&mut self, operation: Operation) {
        self.remember(|past| past.lost = Some(Call { operation, age: Duration::ZERO }));
        let at = tokio::time::Instant::now();
        self.shared.memory.with(&self.key, |remembered| remembered.lost_at = Some(at));
    }

    /// Remembers something for this pass and later ones.
    pub(super) fn remember(&mut self, change: impl Fn(&mut Past)) {
        change(&mut self.facts.past);
        self.shared.memory.with(&self.key, |remembered| change(&mut remembered.past));
    }

    async fn turns(&mut self) -> Result<Conclusion, Interrupted> {
        for _ in 0..TURNS {
            if let Some(leave) = &self.leave {
                leave.goes_on();
            }
            let decision = decide(&self.facts, (self.shared.clock)());
            debug!(?decision, "decided");
            match decision {
                Decision::Look(look) => {
                    if let Some(position) = self.still_waits(&look) {
                        let wake = Wake::After(position.pause());
                        let waiting = Waiting::Turn(position);
                        return Ok(Conclusion::Decided(Decision::Wait(waiting, wake)));
                    }
                    self.look(look).await;
                    if self.crowded {
                        return self.turned_away();
                    }
                }
                Decision::Do(step) => match self.perform_unless_vain(step).await {
                    Ok(()) => {}
                    Err(Setback::Interrupted(Interrupted::Api(error))) if is_refusal(&error) => {
                        let waiting = Waiting::Refused(error.to_string());
                        let wake = Wake::seconds(30);
                        return Ok(Conclusion::Decided(Decision::Wait(waiting, wake)));
                    }
                    Err(Setback::Interrupted(interrupted)) => return Err(interrupted),
                    Err(Setback::Fault(operation, fault)) => {
                        return Ok(Conclusion::Faulted(operation, fault));
                    }
                    Err(Setback::Wait(waiting)) => {
                        let wake = match &waiting {
                            Waiting::Turn(position) => Wake::After(position.pause()),
                            _ => Wake::seconds(10),
                        };
                        return Ok(Conclusion::Decided(Decision::Wait(waiting, wake)));
                    }
                },
                Decision::Wait(..) | Decision::Fail(_) | Decision::Ready(_) | Decision::Gone => {
                    return Ok(Conclusion::Decided(decision));
                }
            }
        }
        Ok(Conclusion::Undecided)
    }

    /// Proxmox may report success for what has no effect, or undo it. What is done over and over is
    /// told and slowed down, and then tried again.
    async fn perform_unless_vain(&mut self, step: Step) -> Result<(), Setback> {
        let times = self.shared.memory.with(&self.key, |remembered| {
            let times = match &remembered.repeated {
                Some((last, times)) if *last == step => times.saturating_add(1),
                _ => 1,
            };
            remembered.repeated = Some((step.clone(), times));
            times
        });
        match step.operation() {
            Some(operation) if times > VAIN && times.is_multiple_of(2) => Err(Setback::Fault(
                operation,
                Fault::new(
                    Class::TaskFailed,
                    "Proxmox reported success more than once, and the effect does not show",
                ),
            )),
            _ => {
                let done = self.perform(step).await;
                if done.is_err() {
                    // A refusal is no success, and tells for itself.
                    self.shared.memory.with(&self.key, |remembered| {
                        remembered.repeated = None;
                        remembered.vm = None;
                    });
                }
                done
            }
        }
    }

    async fn report(mut self, conclusion: &Conclusion) -> Result<Wake, Interrupted> {
        let pause = self.pause(conclusion);
        let at = (self.shared.clock)();
        let status = report::status(&self.facts, conclusion, pause, at);
        let old = self.stored.status.clone().unwrap_or_default();
        let conditions = status.conditions.clone();
        let is_new = status.bootstrap_iso.is_some() && old.bootstrap_iso.is_none();
        self.facts.machine.status = Some(status);
        self.write_status().await?;
        if is_new {
            self.remember(|past| past.unsent_seed = true);
        }
        let queued = matches!(conclusion, Conclusion::Decided(Decision::Wait(Waiting::Turn(_), _)));
        let turn_told = queued.then(tokio::time::Instant::now);
        self.shared.memory.with(&self.key, |remembered| remembered.turn_told = turn_told);
        self.tell(&conditions, conclusion.is_fault()).await;
        if let Conclusion::Faulted(operation, fault) = conclusion {
            warn!(class = %fault.class, "could not {}: {fault}", operation.verb());
            // What the condition of a machine that is up does not tell.
            if old.ready && pause == Some(RETRY_FIRST) {
                let text = format!("could not {}: {fault}", operation.verb());
                self.publish(EventType::Warning, "HousekeepingFailed", &text).await;
            }
        }
        if let Conclusion::Decided(Decision::Ready(Some(attention))) = conclusion
            && !old.ready
        {
            self.publish(EventType::Warning, "CloudInitDegraded", attention).await;
        }
        Ok(self.rest(report::wake(conclusion, pause)))
    }

    /// How long to pause after a fault: longer with each in a row.
    fn pause(&self, conclusion: &Conclusion) -> Option<Duration> {
        self.shared.memory.with(&self.key, |remembered| {
            if !conclusion.is_fault() {
                if conclusion.is_progress() {
                    remembered.faults = 0;
                }
                if matches!(conclusion, Conclusion::Decided(Decision::Ready(_))) {
                    remembered.repeated = None;
                    remembered.guest_looks = 0;
                }
                return None;
            }
            let doubled = RETRY_FIRST.saturating_mul(1 << remembered.faults.min(10));
            remembered.faults = remembered.faults.saturating_add(1);
            Some(doubled.min(RETRY_LAST))
        })
    }

    /// Tells by an event what the condition comes to, once.
    async fn tell(&self, conditions: &[conditions::Condition], is_fault: bool) {
        let Some(condition) = conditions::find(conditions, reasons::VM_PROVISIONED) else { return };
        let now = Headline::of(condition);
        let memory = &self.shared.memory;
        let told = memory.with(&self.key, |remembered| remembered.told.replace(now.clone()));
        if told.or_else(|| self.said.clone()) == Some(now) {
            return;
        }
        let reason = condition.reason.as_deref().unwrap_or(reasons::VM_PROVISIONED);
        let message = condition.message.as_deref().unwrap_or_default();
        info!(status = condition.status, reason, message, "VMProvisioned");
        let bad = is_fault || matches!(condition.severity.as_deref(), Some("Warning" | "Error"));
        let was_up = self.stored.status.as_ref().is_some_and(|status| status.ready);
        if bad || is_milestone(condition, was_up) {
            let type_ = if bad { EventType::Warning } else { EventType::Normal };
            self.publish(type_, reason, message).await;
        }
    }

    /// Tells of addresses that nobody holds for the guest any more, once.
    async fn tell_astray(&self) {
        // Copies that are not filled yet tell nothing.
        let text = astray(&self.facts).filter(|_| self.shared.stores.know_ipam());
        let told = self
            .shared
            .memory
            .with(&self.key, |remembered| std::mem::replace(&mut remembered.astray, text.clone()));
        if let Some(text) = text.filter(|text| told.as_ref() != Some(text)) {
            self.publish_warning("AddressAstray", &text).await;
        }
    }

    /// Something that somebody has to know, and that no condition tells.
    pub(super) async fn publish_warning(&self, reason: &str, text: &str) {
        warn!(reason, "{text}");
        self.publish(EventType::Warning, reason, text).await;
    }

    /// Events are for people; one that is lost changes nothing.
    async fn publish(&self, type_: EventType, reason: &str, text: &str) {
        let event = Event {
            type_,
            action: "Reconcile".to_owned(),
            reason: reason.to_owned(),
            note: Some(text.chars().take(1000).collect()),
            secondary: None,
        };
        if let Err(error) = self.shared.recorder.publish(&event, &self.object_reference()).await {
            debug!(%error, "event not written");
        }
    }

    /// Lets go of all that is kept for a machine that is gone.
    fn end(&self) {
        if let Some(endpoint) = &self.endpoint {
            endpoint.unwatch(&self.key);
            if let Some(vmid) = self.facts.vmid() {
                endpoint.ledger().release(vmid, self.facts.uid());
            }
        }
        self.shared.memory.bury(&self.key, self.facts.uid());
    }
}

/// Whether the next pass may rest on what was read of the VM in this one.
fn keeps_the_vm(conclusion: &Conclusion) -> bool {
    matches!(
        conclusion,
        Conclusion::Decided(Decision::Wait(
            Waiting::Task { .. }
                | Waiting::Addresses(_)
                | Waiting::Boot
                | Waiting::Answer
                | Waiting::Agent(_)
                | Waiting::CloudInit,
            _
        ))
    )
}

/// Whether the API server would refuse the same again: not for want of time or a newer version.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
}

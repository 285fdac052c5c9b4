//! One pass over one machine: observe, decide and act in turns, then report.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder};
use tracing::{debug, info, warn};

use super::decide::decide;
use super::decision::{Decision, Step, Waiting, Wake};
use super::facts::{Call, Facts, Past};
use super::observe;
use super::report::{self, Conclusion};
use super::stores::Stores;
use crate::api::{ProxmoxMachine, conditions, reasons};
use crate::connections::Connections;
use crate::fault::{Class, Fault};
use crate::hypervisor::{Endpoint, Leave, ObjectKey, Operation, View};
use crate::ids::VmId;

/// Turns of one pass. A whole life takes about twenty; more means that two decisions undo each
/// other, which is told and slowed down rather than repeated at full speed.
const TURNS: usize = 100;

/// How often in a row one step is done before its success is doubted.
const VAIN: u32 = 3;

/// First and longest pause after a fault.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_LAST: Duration = Duration::from_mins(1);

/// What all passes share.
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) connections: Arc<Connections>,
    pub(super) stores: Stores,
    pub(super) recorder: Recorder,
    pub(super) memory: Memory,
    pub(super) started: tokio::time::Instant,
    /// The time, which decisions and reports get as an argument.
    pub(super) clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    /// Machines that may ask one endpoint at once.
    pub(super) at_one_endpoint: usize,
}

/// What is remembered of machines between passes. All of it may be lost: it only makes things
/// quicker, and keeps a foreign VM from being waited for.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<ObjectKey, Remembered>>);

/// What is remembered of one machine.
#[derive(Debug, Default, Clone)]
pub(super) struct Remembered {
    /// Faults in a row.
    pub(super) faults: u32,
    /// Since when the VM is absent.
    pub(super) absent_since: Option<tokio::time::Instant>,
    /// How often the guest was asked since it was started.
    pub(super) guest_looks: u32,
    /// The step done last, and how often in a row.
    repeated: Option<(Step, u32)>,
    /// A VMID was chosen by this process and no clone has been asked for under it yet.
    pub(super) untouched: bool,
    /// The size in GiB that the boot volume was grown to.
    pub(super) grown: Option<u32>,
    /// What decisions are to know of it.
    past: Past,
    /// When the calls in it were made.
    accepted_at: Option<tokio::time::Instant>,
    lost_at: Option<tokio::time::Instant>,
    /// The object as the API server answered the last write, until the copy catches up.
    latest: Option<ProxmoxMachine>,
    /// Versions that came before it.
    outdated: Vec<String>,
}

impl Memory {
    /// Works on what is remembered of a machine.
    pub(super) fn with<T>(&self, key: &ObjectKey, work: impl FnOnce(&mut Remembered) -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work(all.entry(key.clone()).or_default())
    }

    /// Forgets a machine.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl Remembered {
    /// Takes note of a write that replaced the version `before`.
    pub(super) fn wrote(&mut self, before: Option<String>, now: &ProxmoxMachine) {
        self.outdated.extend(before);
        self.latest = Some(now.clone());
    }

    /// What decisions are to know, with the time that has passed since.
    fn past_now(&self) -> Past {
        let mut past = self.past.clone();
        for (call, at) in [(&mut past.accepted, self.accepted_at), (&mut past.lost, self.lost_at)] {
            if let (Some(call), Some(at)) = (call, at) {
                call.age = at.elapsed();
            }
        }
        past
    }

    /// The newer of the copy and of what was written last.
    fn newest(&mut self, copy: ProxmoxMachine) -> ProxmoxMachine {
        let version = copy.metadata.resource_version.as_ref();
        let behind = version.is_some_and(|version| self.outdated.contains(version));
        match &self.latest {
            Some(latest) if behind && latest.metadata.uid == copy.metadata.uid => latest.clone(),
            _ => {
                self.latest = None;
                self.outdated.clear();
                copy
            }
        }
    }
}

/// Why a pass ended before its report.
#[derive(Debug, thiserror::Error)]
pub(super) enum Interrupted {
    /// Somebody else changed the object.
    #[error("the object changed meanwhile")]
    Conflict,
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
    pub(super) facts: Facts,
    /// What the choice of node and VMID was made from, if one was made.
    pub(super) surveyed: Option<(Arc<View>, Option<VmId>)>,
}

impl<'a> Pass<'a> {
    /// Starts from the newest copy of the object.
    pub(super) fn new(shared: &'a Shared, copy: ProxmoxMachine) -> Self {
        let key = observe::key_of(&copy);
        let (stored, grown, past) = shared.memory.with(&key, |remembered| {
            (remembered.newest(copy), remembered.grown, remembered.past_now())
        });
        let facts = Facts { grown, past, ..observe::gather(&shared.stores, stored.clone()) };
        Self {
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
        if let Conclusion::Decided(Decision::Gone) = conclusion {
            self.end();
            return Ok(Wake::OnChange);
        }
        Box::pin(self.report(&conclusion)).await
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
            let decision = decide(&self.facts, (self.shared.clock)());
            debug!(?decision, "decided");
            match decision {
                Decision::Look(look) => {
                    self.look(look).await;
                    if self.crowded {
                        return Err(Interrupted::Crowded);
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
                        let wake = Wake::seconds(10);
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
                    self.shared.memory.with(&self.key, |remembered| remembered.repeated = None);
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
        let said = conditions::find(&old.conditions, reasons::VM_PROVISIONED);
        let news = conditions::find(&status.conditions, reasons::VM_PROVISIONED)
            .filter(|new| said.map(headline) != Some(headline(new)))
            .cloned();
        self.facts.machine.status = Some(status);
        self.write_status().await?;
        if let Some(condition) = news {
            info!(
                status = condition.status,
                reason = condition.reason.as_deref().unwrap_or_default(),
                message = condition.message.as_deref().unwrap_or_default(),
                "VMProvisioned"
            );
            self.announce(&condition, conclusion.is_fault()).await;
        }
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
        Ok(report::wake(conclusion, pause))
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

    async fn announce(&self, condition: &conditions::Condition, is_fault: bool) {
        let reason = condition.reason.as_deref().unwrap_or(reasons::VM_PROVISIONED);
        let bad = is_fault || matches!(condition.severity.as_deref(), Some("Warning" | "Error"));
        let type_ = if bad { EventType::Warning } else { EventType::Normal };
        self.publish(type_, reason, condition.message.as_deref().unwrap_or_default()).await;
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
        self.shared.memory.forget(&self.key);
    }
}

/// Whether the API server would refuse the same again: not for want of time or a newer version.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422))
}

/// What makes a condition worth an event: not its wording.
fn headline(condition: &conditions::Condition) -> (&str, Option<&str>, Option<&str>) {
    (&condition.status, condition.reason.as_deref(), condition.severity.as_deref())
}

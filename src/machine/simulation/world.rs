//! Everything outside the process: Proxmox, the management cluster, the people at both, and time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use pve_fake::model::Response;
use pve_fake::{GuestKind, Millis, Model, Seed, Timings, VmSeed};
use tokio::time::Instant;

use super::dialect::Spoken;
use super::dice::Dice;
use super::hands::neighbour;
use super::kubernetes::Store;
use super::plan::{At, Event, Mishap, Plan};
use super::process::{Slot, live};
use crate::pve::Asked;

/// Milliseconds from one look at the world to the next.
pub(super) const STEP: u64 = 1000;

/// Seconds since 1970 at the start.
pub(super) const BIRTH: i64 = 1_800_000_000;

/// Calls that one machine may need in ten seconds; a loop makes more in one.
const CALLS_IN_TEN_SECONDS: u64 = 300;

/// The root user's token, for what is done by hand.
pub(super) const ROOT: (&str, &str) = ("root@pam!hand", "secret");

/// All of it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    start: Instant,
    state: Mutex<State>,
    pub(super) slot: Slot,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) model: Model,
    pub(super) kubernetes: Store,
    pub(super) dice: Dice,
    pub(super) spoken: Spoken,
    /// What machines are cloned from.
    pub(super) template: VmSeed,
    /// Not happened yet.
    pub(super) events: Vec<Event>,
    pub(super) calls: u64,
    pub(super) lost_tasks: BTreeSet<String>,
    /// Counts starts of the process.
    pub(super) life: u64,
    /// Clones that the process that lives now has asked for.
    pub(super) clones: BTreeSet<String>,
    /// Who made the VM of a number last.
    pub(super) made: BTreeMap<u32, String>,
    /// Machines whose number somebody else is going to take at the last moment.
    pub(super) strangers: BTreeSet<String>,
    /// What ends when, as milliseconds.
    pub(super) ends: Vec<(u64, super::hands::End)>,
    /// Machines whose VM or address somebody had a hand in.
    pub(super) tampered: BTreeSet<String>,
    /// Machines that are not going to come up, and whose condition has to say why.
    pub(super) doomed: BTreeSet<String>,
    /// Since when a clone is left without its task.
    pub(super) stuck: BTreeMap<u32, u64>,
    /// Machines that were made, and those that were deleted.
    pub(super) wished: BTreeSet<String>,
    pub(super) unwanted: BTreeSet<String>,
    /// What events told of bootstrap ISOs that stay on nodes that are off.
    pub(super) told_left: Vec<String>,
    /// A claim was deleted under somebody's VM.
    pub(super) addresses_tampered: bool,
    /// Addresses of the pool.
    pub(super) pool: u64,
    pub(super) restart: Option<u64>,
    pub(super) ipam_sleeps_until: u64,
    pub(super) stale_until: u64,
    last_arrival: Instant,
    wall: SignedDuration,
    window: (u64, u64),
    pub(super) trace: Vec<String>,
    pub(super) failure: Option<String>,
}

impl World {
    pub(super) fn new(plan: Plan) -> Arc<Self> {
        let now = Instant::now();
        let mut seed = Seed::three_nodes()
            .with_token(ROOT.0, ROOT.1, false)
            .with_vm(template(plan.seed))
            .with_vm(neighbour());
        if plan.tight {
            for node in &mut seed.nodes {
                node.memory = 10 << 30;
            }
        }
        let birth = Millis(u64::try_from(BIRTH).unwrap_or_default() * 1000);
        let clone_full = Duration::from_secs(plan.clone_seconds);
        let mut timings = Timings { clone_full, ..Timings::default() };
        timings.agent = Duration::from_secs(5);
        timings.cloud_init = Duration::from_secs(6);
        let model = Model::new(&seed, plan.release, timings, GuestKind::BuiltIn, birth);
        let state = State {
            model,
            kubernetes: Store::default(),
            template: template(plan.seed),
            dice: Dice::new(plan.seed ^ 0x00c0_ffee),
            spoken: Spoken::default(),
            events: plan.events.clone(),
            calls: 0,
            lost_tasks: BTreeSet::new(),
            life: 0,
            clones: BTreeSet::new(),
            made: BTreeMap::new(),
            strangers: BTreeSet::new(),
            ends: Vec::new(),
            tampered: BTreeSet::new(),
            doomed: BTreeSet::new(),
            stuck: BTreeMap::new(),
            wished: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            told_left: Vec::new(),
            addresses_tampered: false,
            pool: plan.addresses,
            restart: Some(0),
            ipam_sleeps_until: 0,
            stale_until: 0,
            last_arrival: now,
            wall: SignedDuration::ZERO,
            window: (0, 0),
            trace: Vec::new(),
            failure: None,
        };
        Arc::new(Self { plan, start: now, state: Mutex::new(state), slot: Slot::default() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the start.
    pub(super) fn millis(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The hypervisor's time.
    pub(super) fn now(&self) -> Millis {
        Millis(u64::try_from(BIRTH).unwrap_or_default() * 1000 + self.millis())
    }

    /// The clock of the process's machine, which may be wrong.
    pub(super) fn wall_clock(&self) -> Timestamp {
        let elapsed = SignedDuration::from_millis(i64::try_from(self.millis()).unwrap_or(i64::MAX));
        let birth = Timestamp::from_second(BIRTH).expect("a time");
        birth + elapsed + self.lock().wall
    }

    /// When a change that was just made is seen by the process.
    pub(super) fn arrival(&self) -> Instant {
        let now = self.millis();
        let mut state = self.lock();
        let lag = Duration::from_millis(state.dice.between(1, 40));
        let delay = state.stale_until.saturating_sub(now);
        let at = (Instant::now() + lag).max(Instant::now() + Duration::from_millis(delay));
        state.last_arrival = state.last_arrival.max(at);
        state.last_arrival
    }

    /// A call begins: what goes wrong with it, if anything.
    pub(super) fn begin(self: &Arc<Self>, what: &str) -> Option<Mishap> {
        let millis = self.millis();
        let (mishap, happenings) = {
            let mut state = self.lock();
            state.calls += 1;
            let calls = state.calls;
            state.note(millis, format!("call {calls}: {what}"));
            state.count(millis, self.plan.machines.len());
            for event in &mut state.events {
                if let At::Asked(begin, end, nth) = &mut event.at
                    && what.starts_with(*begin)
                    && what.ends_with(*end)
                {
                    *nth -= 1;
                }
            }
            let due = state.take(|at| at == At::Call(calls) || matches!(at, At::Asked(_, _, 0)));
            let mut mishap = None;
            let mut happenings = Vec::new();
            for event in due {
                state.note(millis, format!("  ! {:?}", event.mishap));
                match event.mishap {
                    Mishap::Happens(happening) => happenings.push(happening),
                    other => mishap = Some(other),
                }
            }
            (mishap, happenings)
        };
        for happening in happenings {
            self.happen(happening);
        }
        mishap
    }

    pub(super) fn note(&self, text: String) {
        let millis = self.millis();
        self.lock().note(millis, text);
    }

    /// A call has had its effect.
    pub(super) fn had_effect(&self, asked: &Asked, response: &Response) {
        let said = response.reason.clone().unwrap_or_else(|| match &response.body["data"] {
            serde_json::Value::String(text) => text.clone(),
            _ => String::new(),
        });
        self.note(format!("  {} {said} {:?}", response.status, asked.parameters));
        if response.status == 200
            && let Some((newid, name)) = clone_of(asked)
        {
            self.lock().made.insert(newid, name);
        }
        if self.plan.tight && self.plan.spread && asked.path.ends_with("/config") {
            self.lock().check_memory();
        }
        self.check();
    }

    /// The process dies, and is started again soon.
    pub(super) fn crash(&self) {
        let millis = self.millis();
        {
            let mut state = self.lock();
            state.note(millis, "the process dies".to_owned());
            state.clones.clear();
            let pause = state.dice.between(200, 3000);
            state.restart = Some(millis + pause);
        }
        self.slot.set(None);
    }

    /// A moment passes: what is due happens.
    pub(super) fn tick(self: &Arc<Self>) {
        let (millis, now) = (self.millis(), self.now());
        let due = {
            let mut state = self.lock();
            state.model.advance(now);
            let restart = state.restart.is_some_and(|at| at <= millis);
            if restart {
                state.restart = None;
                // What its predecessor asked for in its last moment is not its own.
                state.clones.clear();
                state.life += 1;
                state.note(millis, "the process starts".to_owned());
                drop(state);
                self.slot.set(Some(tokio::spawn(live(Arc::clone(self)))));
                state = self.lock();
            }
            state.take(|at| matches!(at, At::Millis(at) if at <= millis))
        };
        for event in due {
            self.lock().note(millis, format!("! {:?}", event.mishap));
            match event.mishap {
                Mishap::Happens(happening) => self.happen(happening),
                Mishap::CrashBefore | Mishap::CrashAfter => self.crash(),
                _ => {}
            }
        }
        if self.slot.is_over() {
            self.lock().fail("the process panicked".to_owned());
        }
        self.lock().end_what_ends(millis);
        // People look now and then.
        if millis % 5_000 < STEP {
            self.lock().operator(millis);
        }
        self.lock().people(millis);
        self.check();
    }

    /// Sets the process's clock forward or back.
    pub(super) fn shift_clock(&self, by: SignedDuration) {
        let mut state = self.lock();
        state.wall += by;
    }
}

impl State {
    #[expect(clippy::needless_pass_by_value, reason = "made for this at every call")]
    pub(super) fn note(&mut self, millis: u64, text: String) {
        if self.trace.len() < 20_000 {
            self.trace
                .push(format!("{:>8.3} s  {text}", Duration::from_millis(millis).as_secs_f64()));
        }
    }

    pub(super) fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.trace.push(format!("FAILED: {why}"));
            self.failure = Some(why);
        }
    }

    fn take(&mut self, due: impl Fn(At) -> bool) -> Vec<Event> {
        let (now, later) = std::mem::take(&mut self.events).into_iter().partition(|e| due(e.at));
        self.events = later;
        now
    }

    fn count(&mut self, millis: u64, machines: usize) {
        let window = millis / 10_000;
        if self.window.0 != window {
            self.window = (window, 0);
        }
        self.window.1 += 1;
        if self.window.1 > CALLS_IN_TEN_SECONDS * machines as u64 {
            self.fail(format!("{} calls in ten seconds: something goes in circles", self.window.1));
        }
    }

    /// Just before a call has its effect.
    pub(super) fn about_to(&mut self, asked: &Asked) {
        if let Some((newid, name)) = clone_of(asked)
            && self.strangers.remove(&name)
            && self.model.vm_view(newid).is_none()
        {
            self.tampered.insert(name);
            let node = ["pve1", "pve2", "pve3"][self.dice.index(3)];
            let vm = VmSeed::new(newid, node, &format!("stranger-{newid}"), "shared").foreign();
            self.made.remove(&newid);
            self.model.change(pve_fake::Change::VmAppears { vm });
        }
    }
}

/// Number and name of what a call clones.
fn clone_of(asked: &Asked) -> Option<(u32, String)> {
    if !asked.path.ends_with("/clone") {
        return None;
    }
    let of = |key: &str| {
        let found = asked.parameters.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.clone())
    };
    Some((of("newid")?.parse().ok()?, of("name")?))
}

/// What machines are cloned from. In some runs it is protected against being removed.
fn template(seed: u64) -> VmSeed {
    let template = VmSeed::new(9000, "pve1", "kube-template", "shared").template();
    if seed % 4 == 3 { template.with("protection", "1") } else { template }
}

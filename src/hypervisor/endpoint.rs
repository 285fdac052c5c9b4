//! The shared handle of one endpoint and credential, with its background loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::boots::Boots;
use super::gate::{Admission, Gate};
use super::kept::Kept;
use super::lists::Lists;
use super::queue::{CloneLimits, Place, Position, Queue};
use super::readings::{Got, Readings};
use super::tasks::{Operation, TaskState, Tasks};
use super::{Ledger, ObjectKey, View};
use crate::ids::{NodeName, VmId};
use crate::pve::{self, Client, StorageStatus, Upid, VmConfig};

/// Pause between two readings of the cluster while nothing is in flight: two calls a minute, and a
/// VM deleted by hand is noticed within a minute.
const IDLE_PAUSE: Duration = Duration::from_secs(30);

/// Age at which what seldom changes is read again.
const KEPT: Duration = Duration::from_secs(10);

/// How long an answer shows that the endpoint answers.
const CONTACT: Duration = Duration::from_mins(1);

/// Where woken objects are sent.
pub type Wakes = mpsc::UnboundedSender<ObjectKey>;

/// What is known of the endpoint itself.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Version of Proxmox VE, once it answered.
    pub version: Option<String>,
    /// The error of the latest reading, if it failed.
    pub trouble: Option<pve::Error>,
    /// When it answered last.
    pub contact: Option<Instant>,
}

/// One endpoint with one credential, shared by everything that uses it.
#[derive(Debug)]
pub struct Endpoint {
    client: Client,
    ledger: Arc<Mutex<Ledger>>,
    readings: Readings,
    pub(super) tasks: Mutex<Tasks>,
    pub(super) lists: Mutex<Lists>,
    boots: Mutex<Boots>,
    storages: Kept<NodeName, Vec<StorageStatus>>,
    templates: Kept<(NodeName, VmId), VmConfig>,
    next_id: Kept<(), VmId>,
    watched: Mutex<BTreeMap<VmId, ObjectKey>>,
    /// Those among them that the last reading did not list.
    missing: Mutex<BTreeSet<VmId>>,
    agents: Mutex<BTreeMap<ObjectKey, i64>>,
    health: Mutex<Health>,
    gate: Arc<Gate>,
    /// Who asks whether the endpoint answers at all.
    askers: Arc<Gate>,
    lost: watch::Sender<bool>,
    clones: Mutex<Queue>,
    pub(super) wakes: Wakes,
    pub(super) work: Notify,
}

/// Whose VMs an endpoint watches, and what it saw last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watch {
    watched: BTreeMap<VmId, ObjectKey>,
    view: Option<Arc<View>>,
}

/// A panic elsewhere leaves plain bookkeeping behind, which is still good.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// Starts the background loop, which ends with `shutdown` or with the last handle.
    pub fn start(
        client: Client,
        ledger: Arc<Mutex<Ledger>>,
        clones: CloneLimits,
        wakes: Wakes,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let endpoint = Arc::new(Self {
            client,
            ledger,
            readings: Readings::default(),
            tasks: Mutex::default(),
            lists: Mutex::default(),
            boots: Mutex::default(),
            storages: Kept::default(),
            templates: Kept::default(),
            next_id: Kept::default(),
            watched: Mutex::default(),
            missing: Mutex::default(),
            agents: Mutex::default(),
            health: Mutex::default(),
            gate: Arc::default(),
            askers: Arc::default(),
            lost: watch::Sender::new(false),
            clones: Mutex::new(Queue::new(clones)),
            wakes,
            work: Notify::new(),
        });
        let weak = Arc::downgrade(&endpoint);
        tokio::spawn(async move {
            let mut next_view = Instant::now() + IDLE_PAUSE;
            while let Some(endpoint) = weak.upgrade() {
                let due = endpoint.next_look().unwrap_or(next_view).min(next_view);
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    _ = tokio::time::timeout_at(due, endpoint.work.notified()) => {}
                }
                if endpoint.next_look().is_some_and(|next| next <= Instant::now()) {
                    endpoint.look_at_tasks();
                }
                if Instant::now() >= next_view {
                    next_view = Instant::now() + IDLE_PAUSE;
                    if !lock(&endpoint.watched).is_empty() {
                        // Looks at tasks do not wait for one that hangs. A failed reading is kept in
                        // the health; machines ask for it themselves.
                        tokio::spawn(async move { endpoint.view(Instant::now()).await });
                    }
                }
            }
        });
        endpoint
    }

    /// The client, for calls that concern one VM.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The promises made to machines of this Proxmox cluster.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    /// What is known of the endpoint itself.
    pub fn health(&self) -> Health {
        lock(&self.health).clone()
    }

    /// A reading of the cluster that was asked for at `not_before` or later. Callers that come
    /// while one is under way share it when it is new enough for them; who is content with the last
    /// one does not wait.
    pub async fn view(&self, not_before: Instant) -> Result<Arc<View>, pve::Error> {
        match self.readings.get(not_before, async |asked| self.read_cluster(asked).await).await {
            Got::Held(held) => held,
            Got::Read(Ok((view, before))) => {
                let changed = before.map(|before| view.changed_since(&before)).unwrap_or_default();
                self.answered();
                self.wake_watchers(&changed);
                self.wake_missing(&view);
                Ok(view)
            }
            Got::Read(Err(error)) => {
                self.note_trouble(&error);
                Err(error)
            }
        }
    }

    fn answered(&self) {
        let mut health = lock(&self.health);
        health.trouble = None;
        health.contact = Some(Instant::now());
        drop(health);
        self.gate.find();
        self.askers.find();
        self.lost.send_if_modified(|lost| std::mem::replace(lost, false));
    }

    fn note_trouble(&self, error: &pve::Error) {
        lock(&self.health).trouble = Some(error.clone());
        if error.is_endpoint_lost() {
            self.gate.lose(error.clone());
            self.askers.lose(error.clone());
            self.lost.send_if_modified(|lost| !std::mem::replace(lost, true));
        }
    }

    /// Whether the endpoint was of no use when it was asked last: it did not answer, was not
    /// trusted, or refused the credentials.
    pub fn lost(&self) -> watch::Receiver<bool> {
        self.lost.subscribe()
    }

    /// A call that concerned one VM was refused for the credentials, which concerns everybody.
    pub fn note_refusal(&self, error: &pve::Error) {
        if *error.kind() == pve::ErrorKind::Unauthorized {
            self.note_trouble(error);
        }
    }

    /// Lets somebody ask this endpoint, beside at most `at_most - 1` others; waits a moment for a
    /// place if need be.
    pub async fn admit(&self, at_most: usize) -> Admission {
        self.gate.admit(at_most).await
    }

    /// The last reading, however old; nothing is asked and nobody waited for.
    pub fn held_view(&self) -> Option<Arc<View>> {
        self.readings.last()
    }

    /// The storages of a node, as read at most ten seconds ago.
    pub async fn storages(&self, node: &NodeName) -> Result<Vec<StorageStatus>, pve::Error> {
        let awaited = || pve::Error::awaited_of(node, &format!("/nodes/{node}/storage"));
        let read = async || self.client.storages(node).await;
        self.storages.get(node.clone(), KEPT, awaited, read).await
    }

    /// The configuration of a template, as read at most ten seconds ago.
    pub async fn template(&self, node: &NodeName, vmid: VmId) -> Result<VmConfig, pve::Error> {
        let read = async || self.client.vm_config(node, vmid).await;
        let awaited = || pve::Error::awaited("GET", &format!("/nodes/{node}/qemu/{vmid}/config"));
        self.templates.get((node.clone(), vmid), KEPT, awaited, read).await
    }

    /// The lowest VMID that was free at most ten seconds ago, in the datacenter's range.
    pub async fn next_id(&self) -> Result<VmId, pve::Error> {
        let awaited = || pve::Error::awaited("GET", "/cluster/nextid");
        self.next_id.get((), KEPT, awaited, async || self.client.next_id().await).await
    }

    /// How guests boot.
    pub fn boots(&self) -> MutexGuard<'_, Boots> {
        lock(&self.boots)
    }

    /// Wakes an object.
    pub fn wake(&self, key: ObjectKey) {
        // A closed channel means that the process is ending.
        let _ = self.wakes.send(key);
    }

    /// A reading that is at most as old as the pause between two regular ones.
    pub async fn recent_view(&self) -> Result<Arc<View>, pve::Error> {
        let now = Instant::now();
        self.view(now.checked_sub(IDLE_PAUSE).unwrap_or(now)).await
    }

    /// Asks the endpoint for its version. While it answered within the last minute, whomever, the
    /// version comes from memory. One asks for all, and nobody waits for long behind an endpoint
    /// that hangs.
    pub async fn version(&self) -> Result<String, pve::Error> {
        if let Some(version) = self.version_of_late() {
            return Ok(version);
        }
        let _leave = match self.askers.admit(1).await {
            Admission::Granted(leave) => leave,
            Admission::Lost(error) => return Err(error),
            Admission::Full => return Err(pve::Error::awaited("GET", "/version")),
        };
        if let Some(version) = self.version_of_late() {
            return Ok(version);
        }
        self.ask_version().await
    }

    /// Asks the endpoint for its version, which shows that it answers and takes the credentials.
    pub async fn ask_version(&self) -> Result<String, pve::Error> {
        match self.client.version().await {
            Ok(version) => {
                lock(&self.health).version = Some(version.version.clone());
                self.answered();
                Ok(version.version)
            }
            Err(error) => {
                self.note_trouble(&error);
                Err(error)
            }
        }
    }

    fn version_of_late(&self) -> Option<String> {
        match self.health() {
            Health { version: Some(version), trouble: None, contact: Some(at) }
                if at.elapsed() < CONTACT =>
            {
                Some(version)
            }
            _ => None,
        }
    }

    /// Asks for a turn to clone, or behind how many one waits. Who waits is woken.
    pub fn clone_turn(&self, key: &ObjectKey, place: &Place) -> Result<(), Position> {
        lock(&self.clones).ask(key, place, Instant::now())
    }

    /// Behind how many somebody goes on waiting for a turn; none for who does not wait, or need not
    /// any longer.
    pub fn clone_position(&self, key: &ObjectKey) -> Option<Position> {
        lock(&self.clones).wait_on(key, Instant::now())
    }

    /// Counts a clone that was asked for before this process was there, until it is over.
    pub fn adopt_clone(&self, key: &ObjectKey, place: Place) {
        lock(&self.clones).adopt(key, place);
    }

    /// Gives up the place in the queue of who waits for something else now.
    pub fn step_out_of_clones(&self, key: &ObjectKey) {
        let next = lock(&self.clones).step_out(key);
        self.wake_all(next);
    }

    /// A clone is over or not wanted any more.
    pub fn leave_clones(&self, key: &ObjectKey) {
        let next = lock(&self.clones).leave(key);
        self.wake_all(next);
    }

    fn wake_all(&self, keys: Vec<ObjectKey>) {
        for key in keys {
            self.wake(key);
        }
    }

    /// Wakes `key` whenever the entry of `vmid` changes.
    pub fn watch(&self, vmid: VmId, key: ObjectKey) {
        lock(&self.watched).insert(vmid, key);
    }

    /// Goes on watching what another endpoint of the same Proxmox watched, whose credentials were
    /// replaced: machines that are up come by seldom.
    pub fn take_over(&self, watch: Watch) {
        let Watch { watched, view } = watch;
        let mut known = lock(&self.watched);
        for (vmid, key) in watched {
            known.entry(vmid).or_insert(key);
        }
        drop(known);
        self.readings.compare_with(view);
    }

    /// What is watched here, to be gone on with elsewhere.
    pub fn watch_list(&self) -> Watch {
        Watch { watched: lock(&self.watched).clone(), view: self.readings.last_or_before() }
    }

    /// Whether promises made here are kept there, which is so at one Proxmox.
    pub fn is_same_proxmox(&self, ledger: &Arc<Mutex<Ledger>>) -> bool {
        Arc::ptr_eq(&self.ledger, ledger)
    }

    /// The ledger itself.
    pub fn shared_ledger(&self) -> Arc<Mutex<Ledger>> {
        Arc::clone(&self.ledger)
    }

    /// Ends [`Self::watch`] and all that is kept for `key`.
    pub fn unwatch(&self, key: &ObjectKey) {
        lock(&self.watched).retain(|_, watcher| watcher != key);
        lock(&self.tasks).forget(key);
        lock(&self.agents).remove(key);
        lock(&self.boots).forget(key);
        self.leave_clones(key);
    }

    /// Follows a task for `key` and wakes it when the task has ended.
    pub fn follow(&self, key: &ObjectKey, upid: Upid, operation: Operation) {
        lock(&self.tasks).follow(key.clone(), upid, operation, Instant::now());
        self.work.notify_one();
    }

    /// What is known of the task of `key`.
    pub fn task(&self, key: &ObjectKey) -> Option<TaskState> {
        lock(&self.tasks).state(key).cloned()
    }

    /// Since when the task of `key` is followed.
    pub fn task_age(&self, key: &ObjectKey) -> Option<Duration> {
        lock(&self.tasks).age(key, Instant::now())
    }

    /// Forgets the task of `key`.
    pub fn forget_task(&self, key: &ObjectKey) {
        lock(&self.tasks).forget(key);
    }

    /// What the last task of `key` did does not show: whether it did it is to be looked at.
    pub fn doubt_task(&self, key: &ObjectKey, why: String) {
        lock(&self.tasks).doubt(key, why);
    }

    /// The guest process that runs `cloud-init status` for `key`, if one was started.
    pub fn agent_pid(&self, key: &ObjectKey) -> Option<i64> {
        lock(&self.agents).get(key).copied()
    }

    /// Remembers or forgets that process.
    pub fn set_agent_pid(&self, key: &ObjectKey, pid: Option<i64>) {
        let mut agents = lock(&self.agents);
        match pid {
            Some(pid) => agents.insert(key.clone(), pid),
            None => agents.remove(key),
        };
    }

    async fn read_cluster(&self, asked: Instant) -> Result<View, pve::Error> {
        let mut view = View::new(asked, self.client.cluster_resources().await?);
        if view.nodes.is_empty() {
            // Every release lists nodes among the resources; this keeps a server that does not
            // from looking like a cluster without nodes.
            match self.client.nodes().await {
                Ok(nodes) => view.add_nodes(nodes),
                Err(error) => tracing::debug!(%error, "nodes are not listed"),
            }
        }
        Ok(view)
    }

    /// A VM that was made and destroyed between two readings is in neither, which is no change. Each
    /// disappearance is told once.
    fn wake_missing(&self, view: &View) {
        let watched = lock(&self.watched);
        let gone = watched.keys().filter(|vmid| !view.guests.contains_key(vmid)).copied();
        let gone: BTreeSet<VmId> = gone.collect();
        let mut missing = lock(&self.missing);
        for key in gone.difference(&missing).filter_map(|vmid| watched.get(vmid)) {
            self.wake(key.clone());
        }
        *missing = gone;
    }

    fn wake_watchers(&self, changed: &BTreeSet<VmId>) {
        let watched = lock(&self.watched);
        for key in changed.iter().filter_map(|vmid| watched.get(vmid)) {
            // A closed channel means that the process is ending.
            let _ = self.wakes.send(key.clone());
        }
    }
}

#[cfg(test)]
mod tests;

//! The shared handle of one endpoint and credential, with its background loop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::gate::{Admission, Gate};
use super::tasks::{Exit, Operation, TaskState, Tasks};
use super::{Ledger, ObjectKey, View};
use crate::ids::VmId;
use crate::pve::{self, Client, TaskStatus, Upid};

/// Pause between two readings of the cluster while nothing is in flight: two calls a minute, and a
/// VM deleted by hand is noticed within a minute.
const IDLE_PAUSE: Duration = Duration::from_secs(30);

/// Where woken objects are sent.
pub type Wakes = mpsc::UnboundedSender<ObjectKey>;

/// What is known of the endpoint itself.
#[derive(Debug, Clone, Default)]
pub struct Health {
    /// Version of Proxmox VE, once it answered.
    pub version: Option<String>,
    /// The error of the latest reading, if it failed.
    pub trouble: Option<pve::Error>,
}

/// One endpoint with one credential, shared by everything that uses it.
#[derive(Debug)]
pub struct Endpoint {
    client: Client,
    ledger: Arc<Mutex<Ledger>>,
    view: tokio::sync::Mutex<Reading>,
    tasks: Mutex<Tasks>,
    watched: Mutex<BTreeMap<VmId, ObjectKey>>,
    agents: Mutex<BTreeMap<ObjectKey, i64>>,
    health: Mutex<Health>,
    gate: Arc<Gate>,
    lost: watch::Sender<bool>,
    wakes: Wakes,
    work: Notify,
}

/// How long a failed reading stands for all who ask: an endpoint that hangs is not asked once for
/// each of them.
const SHARED_FAILURE: Duration = Duration::from_secs(3);

/// The last reading of the cluster, and how the one after it failed, if it did.
#[derive(Debug, Default)]
struct Reading {
    view: Option<Arc<View>>,
    failure: Option<(Instant, pve::Error)>,
}

/// A panic elsewhere leaves plain bookkeeping behind, which is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// Starts the background loop, which ends with `shutdown` or with the last handle.
    pub fn start(
        client: Client,
        ledger: Arc<Mutex<Ledger>>,
        wakes: Wakes,
        shutdown: CancellationToken,
    ) -> Arc<Self> {
        let endpoint = Arc::new(Self {
            client,
            ledger,
            view: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
            watched: Mutex::default(),
            agents: Mutex::default(),
            health: Mutex::default(),
            gate: Arc::default(),
            lost: watch::Sender::new(false),
            wakes,
            work: Notify::new(),
        });
        let weak = Arc::downgrade(&endpoint);
        tokio::spawn(async move {
            let mut next_view = Instant::now() + IDLE_PAUSE;
            while let Some(endpoint) = weak.upgrade() {
                let due = lock(&endpoint.tasks).next_due().unwrap_or(next_view).min(next_view);
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    _ = tokio::time::timeout_at(due, endpoint.work.notified()) => {}
                }
                endpoint.look_at_tasks();
                if Instant::now() >= next_view {
                    if !lock(&endpoint.watched).is_empty() {
                        // A failed reading is kept in the health; machines ask for it themselves.
                        let _ = endpoint.view(Instant::now()).await;
                    }
                    next_view = Instant::now() + IDLE_PAUSE;
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
    /// while one is under way share it when it is new enough for them.
    pub async fn view(&self, not_before: Instant) -> Result<Arc<View>, pve::Error> {
        let mut held = self.view.lock().await;
        if let Some(view) = held.view.as_ref().filter(|view| view.asked >= not_before) {
            return Ok(Arc::clone(view));
        }
        if let Some((at, error)) = &held.failure
            && at.elapsed() < SHARED_FAILURE
        {
            return Err(error.clone());
        }
        let asked = Instant::now();
        match self.read_cluster(asked).await {
            Ok(view) => {
                let view = Arc::new(view);
                let changed =
                    held.view.as_ref().map(|before| view.changed_since(before)).unwrap_or_default();
                *held = Reading { view: Some(Arc::clone(&view)), failure: None };
                lock(&self.health).trouble = None;
                self.note_found();
                self.wake_watchers(&changed);
                Ok(view)
            }
            Err(error) => {
                held.failure = Some((Instant::now(), error.clone()));
                self.note_trouble(&error);
                Err(error)
            }
        }
    }

    fn note_trouble(&self, error: &pve::Error) {
        lock(&self.health).trouble = Some(error.clone());
        if error.is_endpoint_lost() {
            self.gate.lose(error.clone());
            self.lost.send_if_modified(|lost| !std::mem::replace(lost, true));
        }
    }

    fn note_found(&self) {
        self.gate.find();
        self.lost.send_if_modified(|lost| std::mem::replace(lost, false));
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

    /// The last reading, however old; nothing is asked for.
    pub async fn held_view(&self) -> Option<Arc<View>> {
        self.view.lock().await.view.clone()
    }

    /// A reading that is at most as old as the pause between two regular ones.
    pub async fn recent_view(&self) -> Result<Arc<View>, pve::Error> {
        let now = Instant::now();
        self.view(now.checked_sub(IDLE_PAUSE).unwrap_or(now)).await
    }

    /// Asks the endpoint for its version, once; later answers come from memory.
    pub async fn version(&self) -> Result<String, pve::Error> {
        if let Health { version: Some(version), trouble: None } = self.health() {
            return Ok(version);
        }
        self.ask_version().await
    }

    /// Asks the endpoint for its version, which shows that it answers and takes the credentials.
    pub async fn ask_version(&self) -> Result<String, pve::Error> {
        match self.client.version().await {
            Ok(version) => {
                let mut health = lock(&self.health);
                health.version = Some(version.version.clone());
                health.trouble = None;
                drop(health);
                self.note_found();
                Ok(version.version)
            }
            Err(error) => {
                self.note_trouble(&error);
                Err(error)
            }
        }
    }

    /// Wakes `key` whenever the entry of `vmid` changes.
    pub fn watch(&self, vmid: VmId, key: ObjectKey) {
        lock(&self.watched).insert(vmid, key);
    }

    /// Ends [`Self::watch`] and all that is kept for `key`.
    pub fn unwatch(&self, key: &ObjectKey) {
        lock(&self.watched).retain(|_, watcher| watcher != key);
        lock(&self.tasks).forget(key);
        lock(&self.agents).remove(key);
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

    /// Forgets the task of `key`.
    pub fn forget_task(&self, key: &ObjectKey) {
        lock(&self.tasks).forget(key);
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

    fn wake_watchers(&self, changed: &BTreeSet<VmId>) {
        let watched = lock(&self.watched);
        for key in changed.iter().filter_map(|vmid| watched.get(vmid)) {
            // A closed channel means that the process is ending.
            let _ = self.wakes.send(key.clone());
        }
    }

    /// Looks at every task that is due. A look at a node that does not answer takes long, so nobody
    /// waits for it; the client bounds how many are under way.
    fn look_at_tasks(self: &Arc<Self>) {
        let due = lock(&self.tasks).take_due(Instant::now());
        for (key, upid) in due {
            let endpoint = Arc::clone(self);
            tokio::spawn(async move {
                let result = match endpoint.client.task_status(&upid).await {
                    Ok(TaskStatus::Running) => Ok(None),
                    Ok(TaskStatus::Stopped { exit }) => Ok(Some(exit_of(exit))),
                    Err(error) if nobody_knows(&error) => {
                        Ok(Some(Exit::Unknown(error.message().to_owned())))
                    }
                    Err(error) => Err(error.to_string()),
                };
                let ended = lock(&endpoint.tasks).looked(&key, &upid, result, Instant::now());
                if ended {
                    let _ = endpoint.wakes.send(key);
                }
                endpoint.work.notify_one();
            });
        }
    }
}

/// Whether no later look can tell more: the task's log is lost, or its node is none any more.
fn nobody_knows(error: &pve::Error) -> bool {
    error.is_task_unknown()
        || error.cause() == Some(pve::Cause::NodeMissing)
        || *error.kind() == pve::ErrorKind::NotImplemented
}

fn exit_of(exit: pve::TaskExit) -> Exit {
    match exit {
        pve::TaskExit::Ok | pve::TaskExit::Warnings(_) => Exit::Success,
        pve::TaskExit::Unknown(text) => Exit::Unknown(text),
        pve::TaskExit::Failed(text) => Exit::Failure(text),
    }
}

//! How the simulated cluster behaves: its release and how long things take.

use std::time::Duration;

/// The major release whose behaviour is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 7.4: synchronous resize, `VM.Monitor`, no `message` in error bodies.
    V7,
    /// 8.4: resize is a task, `VM.Monitor`, no `message` in error bodies.
    V8,
    /// 9.1: `VM.GuestAgent.*`, `message` in error bodies, one wording for every 401.
    #[default]
    V9,
}

impl Release {
    /// What `GET /version` calls `version`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V7 => "7.4-17",
            Self::V8 => "8.4.1",
            Self::V9 => "9.1.4",
        }
    }

    /// What `GET /version` calls `release`.
    pub fn release(self) -> &'static str {
        match self {
            Self::V7 => "7.4",
            Self::V8 => "8.4",
            Self::V9 => "9.1",
        }
    }
}

/// How long things take, in the simulator's time. The default is a quiet real cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Every call, before it is looked at.
    pub call: Duration,
    /// A full clone's copy.
    pub clone_full: Duration,
    /// A linked clone.
    pub clone_linked: Duration,
    /// Allocation of a clone's volumes, under the storage's lock.
    pub allocate: Duration,
    /// A `POST …/config` task.
    pub config: Duration,
    /// A start task.
    pub start: Duration,
    /// A stop task.
    pub stop: Duration,
    /// A guest's own way down, if its agent is up.
    pub shutdown: Duration,
    /// What a second given as a parameter (a shutdown's `timeout`) lasts.
    pub second: Duration,
    /// A resize task.
    pub resize: Duration,
    /// The copy task after an upload.
    pub upload: Duration,
    /// A destroy task.
    pub destroy: Duration,
    /// A volume deletion task.
    pub delete_volume: Duration,
    /// Snapshot, rollback, template conversion.
    pub snapshot: Duration,
    /// From start to an answering agent (built-in guest only).
    pub agent: Duration,
    /// From an answering agent to the end of cloud-init (built-in guest only).
    pub cloud_init: Duration,
    /// How long an agent that does not answer is waited for.
    pub agent_ping: Duration,
    /// How long a command in the guest runs.
    pub exec: Duration,
    /// Between two broadcasts of VM status; `cluster/resources` is no fresher than that.
    pub broadcast: Duration,
    /// Wait for a VM's or storage's lock file before the task fails.
    pub lock_wait: Duration,
    /// Delay of a 401.
    pub unauthorized: Duration,
    /// How long a silent node is waited for before 596.
    pub proxy: Duration,
    /// Idle time after which a kept-alive connection is closed. Not scaled: it is the clients'
    /// time, not the cluster's.
    pub keep_alive: Duration,
    /// Life of a ticket. Not scaled either.
    pub ticket: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            call: Duration::from_millis(5),
            clone_full: Duration::from_secs(20),
            clone_linked: Duration::from_secs(2),
            allocate: Duration::from_millis(300),
            config: Duration::from_millis(300),
            start: Duration::from_secs(2),
            stop: Duration::from_secs(2),
            shutdown: Duration::from_secs(5),
            second: Duration::from_secs(1),
            resize: Duration::from_millis(500),
            upload: Duration::from_millis(700),
            destroy: Duration::from_secs(2),
            delete_volume: Duration::from_millis(500),
            snapshot: Duration::from_secs(1),
            agent: Duration::from_secs(15),
            cloud_init: Duration::from_secs(20),
            agent_ping: Duration::from_secs(3),
            exec: Duration::from_millis(500),
            broadcast: Duration::from_secs(10),
            lock_wait: Duration::from_secs(10),
            unauthorized: Duration::from_secs(3),
            proxy: Duration::from_secs(30),
            keep_alive: Duration::from_secs(5),
            ticket: Duration::from_hours(2),
        }
    }
}

impl Timings {
    /// Everything that takes time multiplied by `factor` (0.02: fifty times as fast).
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        let by = |duration: Duration| duration.mul_f64(factor.max(0.0));
        Self {
            call: by(self.call),
            clone_full: by(self.clone_full),
            clone_linked: by(self.clone_linked),
            allocate: by(self.allocate),
            config: by(self.config),
            start: by(self.start),
            stop: by(self.stop),
            shutdown: by(self.shutdown),
            second: by(self.second),
            resize: by(self.resize),
            upload: by(self.upload),
            destroy: by(self.destroy),
            delete_volume: by(self.delete_volume),
            snapshot: by(self.snapshot),
            agent: by(self.agent),
            cloud_init: by(self.cloud_init),
            agent_ping: by(self.agent_ping),
            exec: by(self.exec),
            broadcast: by(self.broadcast),
            lock_wait: by(self.lock_wait),
            unauthorized: by(self.unauthorized),
            proxy: by(self.proxy),
            keep_alive: self.keep_alive,
            ticket: self.ticket,
        }
    }
}

//! The controllers: started while leading, stopped softly when asked and at once when the lease is
//! lost.

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::lacks;
use super::lease::{self, Elector, End, LeaseTimes};
use super::metrics::Metrics;
use super::process::Error;
use crate::connection::StatusWriter;
use crate::connections::{self, Connections, Own};
use crate::hypervisor::CloneLimits;
use crate::ids::StorageName;
use crate::pve::Fence;
use crate::{cluster, connection, embedded_ipam, machine};

/// How long work in hand may take at the end: less than the ten seconds that Kubernetes gives by
/// the Deployment's `terminationGracePeriodSeconds`.
const GRACE: Duration = Duration::from_secs(8);

const CLUSTER: &str = "controller of ProxmoxCluster";
const MACHINE: &str = "controller of ProxmoxMachine";
const CONNECTION: &str = "controller of ProxmoxConnection";
const IPAM: &str = "embedded IPAM";

/// What the controllers work with.
pub(super) struct Work {
    pub(super) client: Client,
    pub(super) own: Own,
    pub(super) metrics: Metrics,
    pub(super) namespace: Option<String>,
    pub(super) watch_filter: Option<String>,
    pub(super) concurrency: u16,
    pub(super) clones: CloneLimits,
    pub(super) iso_storages: Vec<StorageName>,
    pub(super) embedded_ipam: bool,
    pub(super) connection_status: StatusWriter,
}

/// Works until `shutdown`; with `times`, only while holding the lease.
pub(super) async fn lead(
    work: Work,
    times: Option<LeaseTimes>,
    namespace: &str,
    shutdown: &CancellationToken,
) -> Result<(), Error> {
    let metrics = work.metrics.clone();
    let seen_in = work.namespace.clone().unwrap_or_else(|| namespace.to_owned());
    let (client, lacking) = (work.client.clone(), metrics.clone());
    let told = async move { lacks::tell(&client, &seen_in, &lacking).await };
    tokio::spawn(shutdown.clone().run_until_cancelled_owned(told));
    let Some(times) = times else {
        metrics.set_leader(true);
        return Running::start(work, Fence::default(), shutdown)
            .until(std::future::pending())
            .await;
    };
    let leases = Api::namespaced(work.client.clone(), namespace);
    let fence = Fence::default();
    let mut elector = Elector::new(leases, lease::NAME, identity().await, times, fence.clone());
    info!(namespace, lease = lease::NAME, "leader election");
    if !elector.acquire(shutdown).await {
        return Ok(());
    }
    metrics.set_leader(true);
    // Held on to while work in hand ends, so not by the process's own token.
    let done = CancellationToken::new();
    let keep = async {
        match elector.keep(&done).await {
            End::Lost(why) => why,
            End::Asked => std::future::pending().await,
        }
    };
    let result = Running::start(work, fence, shutdown).until(keep).await;
    metrics.set_leader(false);
    match result {
        Err(Error::LeaseLost { .. }) => {}
        _ => elector.release().await,
    }
    result
}

/// Unique, and tells people which pod it is.
async fn identity() -> String {
    let host = tokio::fs::read_to_string("/proc/sys/kernel/hostname").await.unwrap_or_default();
    let host = if host.trim().is_empty() { "capmox" } else { host.trim() };
    format!("{host}_{}", uuid::Uuid::new_v4())
}

/// Controllers at work.
struct Running {
    tasks: JoinSet<&'static str>,
    shutdown: CancellationToken,
}

impl Running {
    fn start(work: Work, fence: Fence, shutdown: &CancellationToken) -> Self {
        let Work {
            client,
            own,
            metrics,
            namespace,
            watch_filter,
            concurrency,
            clones,
            iso_storages,
            embedded_ipam,
            connection_status,
        } = work;
        let (wakes, woken) = mpsc::unbounded_channel();
        let connections = Arc::new(Connections::new(connections::Settings {
            client: client.clone(),
            own,
            wakes,
            observer: Arc::new(metrics),
            fence,
            clones,
            shutdown: shutdown.clone(),
        }));
        let mut tasks = JoinSet::new();
        let controller = cluster::run(
            cluster::Context {
                client: client.clone(),
                connections: Arc::clone(&connections),
                namespace: namespace.clone(),
                watch_filter: watch_filter.clone(),
                concurrency,
            },
            shutdown.clone(),
        );
        tasks.spawn(named(CLUSTER, controller));
        let controller = connection::run(
            connection::Context {
                client: client.clone(),
                connections: Arc::clone(&connections),
                writer: connection_status,
                concurrency,
            },
            shutdown.clone(),
        );
        tasks.spawn(named(CONNECTION, controller));
        let controller = machine::run(
            machine::Context {
                client: client.clone(),
                connections,
                wakes: woken,
                namespace,
                watch_filter,
                concurrency,
                iso_storages,
            },
            shutdown.clone(),
        );
        tasks.spawn(named(MACHINE, controller));
        if embedded_ipam {
            tasks.spawn(named(IPAM, serve_pools(client, shutdown.clone())));
        }
        Self { tasks, shutdown: shutdown.clone() }
    }

    /// Until the token is cancelled and work in hand is done, or until `lost` gives a reason.
    async fn until(mut self, lost: impl Future<Output = String>) -> Result<(), Error> {
        let lost = std::pin::pin!(lost);
        tokio::select! {
            result = self.end() => result,
            why = lost => {
                // At once: somebody else works on the same objects from now on.
                self.tasks.abort_all();
                Err(Error::LeaseLost { name: lease::NAME.to_owned(), why })
            }
        }
    }

    async fn end(&mut self) -> Result<(), Error> {
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            Some(ended) = self.tasks.join_next() => {
                // Unless the token was cancelled in the same moment.
                if !self.shutdown.is_cancelled() {
                    return Err(Error::Ended(ended.unwrap_or_else(|error| panicked(&error))));
                }
            }
        }
        let until = Instant::now() + GRACE;
        while let Ok(next) = timeout_at(until, self.tasks.join_next()).await {
            match next {
                None => return Ok(()),
                Some(Ok(name)) => info!("{name} ended"),
                Some(Err(error)) => {
                    panicked(&error);
                }
            }
        }
        Err(Error::CutOff(GRACE))
    }
}

async fn named(name: &'static str, controller: impl Future<Output = ()>) -> &'static str {
    controller.await;
    name
}

fn panicked(error: &JoinError) -> &'static str {
    error!(%error, "a controller panicked");
    "controllers"
}

/// The allocator ends where another provider serves; the machines are then served by that one, so
/// everything else goes on.
async fn serve_pools(client: Client, shutdown: CancellationToken) {
    if let Err(error) = embedded_ipam::run(client, shutdown.clone()).await {
        error!(%error, "embedded IPAM ended; the rest works on");
        shutdown.cancelled().await;
    }
}

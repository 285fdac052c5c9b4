//! The controller of ProxmoxMachine: from a Machine of Cluster API to a running VM, and back.
//!
//! A pass takes turns: `decide` says what has to be known or done next,
//! `observe` looks it up, `act` does it, until there is something to wait for; `report` writes that
//! down. Passes start when something watched changes, when a Proxmox task ends, and when the list
//! of VMs shows a change; times are only a safety net.

mod act;
mod astray;
mod decide;
mod decision;
mod departed;
mod desired;
mod double;
mod facts;
#[cfg(test)]
mod fixture;
mod memory;
mod observe;
mod pass;
mod placing;
mod quiet;
mod remedy;
mod report;
mod seed;
#[cfg(test)]
mod simulation;
mod stores;
mod traces;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::controller::{self, Action};
use kube::runtime::events::Reporter;
use kube::{Resource, ResourceExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, info_span, warn};

use crate::connections::Connections;
use crate::events::Recorder;
use crate::hypervisor::ObjectKey;
use crate::ids::StorageName;
use decision::Wake;
use memory::Memory;
use pass::{Interrupted, Shared};
use quiet::Bell;
use stores::{Ringer, Selection, Stored};
use traces::Traces;

/// How long the first lists may take; the API server answers them within a second or so.
const FIRST_READING: Duration = Duration::from_secs(10);

/// Soon again: something is about to arrive.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Until a machine is tried again whose copy is old; the newer one makes it be tried before.
const BEHIND: Duration = Duration::from_secs(3);

/// Until an endpoint that hangs is asked again by a machine that found it crowded.
const CROWDED: Duration = Duration::from_secs(5);

/// What the controller works with.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Context {
    /// The management cluster.
    pub client: kube::Client,
    /// The Proxmox endpoints.
    pub connections: Arc<Connections>,
    /// Machines whose task ended or whose VM changed.
    pub wakes: mpsc::UnboundedReceiver<ObjectKey>,
    /// The only namespace to look at; all when none.
    pub namespace: Option<String>,
    /// Value of the watch label that objects must carry; any when none.
    pub watch_filter: Option<String>,
    /// Objects of one endpoint worked on at once.
    pub concurrency: u16,
    /// The only storages for bootstrap data, the preferred one first; any when empty.
    pub iso_storages: Vec<StorageName>,
}

/// Runs until `shutdown`; work in hand is finished first.
pub async fn run(context: Context, shutdown: CancellationToken) {
    let Context { client, connections, wakes, namespace, watch_filter, concurrency, iso_storages } =
        context;
    let bell = Bell::default();
    let selection = Selection { namespace, watch_filter };
    let memory = Arc::new(Memory::default());
    let recorder = Recorder::new(client.clone(), Reporter::from("capmox"));
    let traces = Traces {
        bell: bell.clone(),
        memory: Arc::clone(&memory),
        connections: Arc::clone(&connections),
        recorder: recorder.clone(),
    };
    let (stores, controller) = stores::start(&client, &selection, &traces);
    let started = Instant::now();
    let at_one_endpoint = usize::from(concurrency);
    let ringing = Ringer { bell: bell.clone(), machines: stores.machines.clone() };
    #[expect(clippy::disallowed_methods, reason = "the one place where machines read the clock")]
    let clock = Timestamp::now;
    let shared = Arc::new(Shared {
        client,
        connections,
        stores,
        recorder,
        memory,
        bell,
        traces,
        started,
        clock: Box::new(clock),
        chance: Box::new(quiet::chance),
        at_one_endpoint,
        iso_storages,
    });
    let wakes = futures::stream::unfold(wakes, |mut wakes| async move {
        wakes.recv().await.map(|key| (key, wakes))
    });
    info!("ProxmoxMachine controller starts");
    // kube's controller does not end before its first list; until then it has nothing in hand.
    let listed = controller.store();
    let asked = shutdown.clone();
    let ends_early = async move {
        asked.cancelled().await;
        if listed.wait_until_ready().now_or_never().is_some() {
            std::future::pending::<()>().await;
        }
    };
    let work = controller
        .reconcile_on(stores::woken(wakes, ringing))
        // Room beside the machines of an endpoint that hangs.
        .with_config(controller::Config::default().concurrency(concurrency.saturating_mul(2)))
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(reconcile, on_error, shared)
        .for_each(|result| async move {
            if let Err(error) = result {
                // What reconcile returns was logged with its machine.
                tracing::debug!(%error, "ProxmoxMachine controller");
            }
        });
    tokio::select! {
        () = work => {}
        () = ends_early => {}
    }
}

async fn reconcile(object: Arc<Stored>, shared: Arc<Shared>) -> Result<Action, Interrupted> {
    let namespace = object.meta().namespace.clone().unwrap_or_default();
    let span = info_span!("machine", %namespace, name = object.name_any());
    let work = async {
        let early = shared.started.elapsed() < FIRST_READING;
        if !shared.stores.know_clusters() || (early && !shared.stores.know_ipam()) {
            if !early {
                warn!("waiting for the first list of Machines, Clusters and ProxmoxClusters");
            }
            return Ok(Action::requeue(if early { AT_ONCE } else { FIRST_READING }));
        }
        match &object.0 {
            Ok(machine) => {
                let wake = shared.serve(machine.clone()).await?;
                Ok(action(wake))
            }
            Err(invalid) => {
                Ok(action(shared.serve_unreadable(&object, &invalid.to_string()).await?))
            }
        }
    };
    work.instrument(span).await
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that the controller calls")]
/// The API server's trouble is its own: the next pass starts from what is there then.
fn on_error(object: Arc<Stored>, error: &Interrupted, shared: Arc<Shared>) -> Action {
    if matches!(error, Interrupted::Api(_)) {
        warn!(machine = %object.name_any(), %error, "pass interrupted");
    }
    action(quiet::spread(Wake::After(pause_after(error)), (shared.chance)()))
}

const fn action(wake: Wake) -> Action {
    match wake {
        Wake::OnChange => Action::await_change(),
        Wake::After(time) => Action::requeue(time),
    }
}

/// When a pass that was interrupted is made again.
const fn pause_after(error: &Interrupted) -> Duration {
    match error {
        Interrupted::Conflict => AT_ONCE,
        Interrupted::Behind => BEHIND,
        Interrupted::Crowded => CROWDED,
        Interrupted::Api(_) => Duration::from_secs(5),
    }
}

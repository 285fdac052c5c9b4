//! The controller of ProxmoxCluster.
//!
//! A pass looks at the object and at what belongs to it (`observe`), decides (`decide`), takes
//! the steps (`act`), and looks again until there is nothing left to do; then it says how things
//! stand (`report`). A pass starts from nothing but what it reads, so a restart at any point loses
//! nothing. Proxmox is asked for its version and nothing else.

mod act;
mod decide;
mod decision;
mod desired;
mod facts;
mod observe;
mod report;
mod watches;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Reporter};
use kube::runtime::reflector::Store;
use kube::{Client, Resource};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use act::Outcome;
use decision::{Approach, Decision, Remainder, Standing, Step, Target, Trouble, Wake};
use facts::{PoolFact, Surroundings};
use watches::{ClusterGuard, Held, MachineGuard, OwnerMeta, Watches, watches};

use crate::api::{ProxmoxCluster, conditions, reasons};
use crate::connections::Connections;
use crate::events::Recorder;
use crate::fault::{Class, Fault};
use crate::hypervisor::ObjectKey;

/// Field manager of all writes, and the source of events.
const FIELD_MANAGER: &str = "capmox-proxmoxcluster";

/// Looks in one pass; two or three are usual.
const TURNS: u8 = 6;

/// Pause after a pass that could not even be reported.
const RETRY: Duration = Duration::from_secs(5);
/// Pause after a lost race, which the next look settles.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// What the controller works with.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Context {
    /// The management cluster.
    pub client: kube::Client,
    /// The Proxmox endpoints.
    pub connections: Arc<Connections>,
    /// The only namespace to look at; all when none.
    pub namespace: Option<String>,
    /// Value of the watch label that objects must carry; any when none.
    pub watch_filter: Option<String>,
    /// Objects worked on at once.
    pub concurrency: u16,
}

/// Runs until `shutdown`, and until the passes under way have ended.
pub async fn run(context: Context, shutdown: CancellationToken) {
    let Context { client, connections, namespace, watch_filter, concurrency } = context;
    let Watches { controller, clusters, machines, owners, held } =
        watches(&client, &connections, namespace.as_deref(), watch_filter.as_deref(), concurrency);
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let alone = Mutex::default();
    let desk = Desk { client, connections, recorder, clusters, machines, owners, held, alone };
    let desk = Arc::new(desk);
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
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(reconcile, after_failure, desk)
        .for_each(async |result| {
            if let Err(error) = result {
                // Faults of passes were logged where they arose; what is left are watches and
                // objects that went meanwhile.
                debug!(%error, "controller of ProxmoxCluster");
            }
        });
    tokio::select! {
        () = work => {}
        () = ends_early => {}
    }
}

/// What every pass works with.
struct Desk {
    client: Client,
    connections: Arc<Connections>,
    recorder: Recorder,
    clusters: Store<ClusterGuard>,
    machines: Store<MachineGuard>,
    owners: Store<OwnerMeta>,
    held: Held,
    /// Since when clusters on their way out have nothing left but pools and Secrets. It may be lost:
    /// then it counts from anew.
    alone: Mutex<BTreeMap<ObjectKey, Timestamp>>,
}

impl Desk {
    /// Since when nothing but pools and Secrets is left of a cluster, if that `is_alone`.
    fn alone_since(&self, key: &ObjectKey, is_alone: bool) -> Option<Timestamp> {
        let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        if is_alone {
            return Some(*alone.entry(key.clone()).or_insert_with(now));
        }
        alone.remove(key);
        None
    }

    /// Secrets that the cluster owns and keeps from being deleted.
    fn secrets_held_by(&self, cluster: &ProxmoxCluster) -> Vec<ObjectKey> {
        cluster.metadata.uid.as_deref().map(|uid| self.held.by(uid)).unwrap_or_default()
    }
}

#[expect(clippy::disallowed_methods, reason = "the driver's clock; what decides gets the time")]
fn now() -> Timestamp {
    Timestamp::now()
}

async fn reconcile(cluster: Arc<ClusterGuard>, desk: Arc<Desk>) -> Result<Action, Fault> {
    let key = facts::key(cluster.meta());
    let span = info_span!("proxmoxcluster", namespace = key.namespace, name = key.name);
    async {
        let wake = pass(&desk, &key).await.inspect_err(|fault| {
            warn!(class = %fault.class, %fault, "pass failed");
        })?;
        Ok(match wake {
            Wake::Now => Action::requeue(RETRY_SOON),
            Wake::After(pause) => Action::requeue(pause),
            Wake::OnChange => Action::await_change(),
        })
    }
    .instrument(span)
    .await
}

fn after_failure(_: Arc<ClusterGuard>, fault: &Fault, _: Arc<Desk>) -> Action {
    Action::requeue(if fault.class == Class::Conflict { RETRY_SOON } else { RETRY })
}

/// Looks, decides and acts until nothing is left to do, and reports.
async fn pass(desk: &Desk, key: &ObjectKey) -> Result<Wake, Fault> {
    let mut proxmox = None;
    for _ in 0..TURNS {
        let read = observe::cluster(&desk.client, key).await;
        let read =
            read.map_err(|error| observe::fault(&format!("read ProxmoxCluster {key}"), &error))?;
        let cluster = match read {
            None => {
                desk.alone_since(key, false);
                return Ok(Wake::OnChange);
            }
            Some(DeserializeGuard(Ok(cluster))) => cluster,
            Some(invalid) => {
                publish_invalid(desk, &invalid).await;
                return Ok(Wake::OnChange);
            }
        };
        let Some(look) = look(desk, &cluster, proxmox.take()).await else {
            return Ok(Wake::OnChange);
        };
        let (mut decision, around) = look;
        let failures = match take(desk, &cluster, &decision.steps).await {
            Taken::Nothing => Vec::new(),
            // Facts have changed, by us or by others.
            Taken::All => {
                proxmox = around.map(|around| around.proxmox);
                continue;
            }
            Taken::Failed(failures) => failures,
        };
        add_failures(&mut decision.standing, failures);
        let pools = around.map(|around| around.pools).unwrap_or_default();
        return report(desk, &cluster, &decision, &pools).await;
    }
    Ok(Wake::Now)
}

/// Looks at what the approach asks for, and decides. `None`: hands off.
async fn look(
    desk: &Desk,
    cluster: &ProxmoxCluster,
    proxmox: Option<Result<String, Fault>>,
) -> Option<(Decision, Option<Surroundings>)> {
    let owner = observe::owner(&desk.client, cluster).await;
    Some(match decide::approach(cluster, &owner) {
        Approach::HandsOff => return None,
        Approach::Settled(decision) => (decision, None),
        Approach::Live(name) => {
            let around = observe::surroundings(desk, cluster, &name, proxmox, now()).await;
            (decide::live(cluster, &owner, &around, now()), Some(around))
        }
        Approach::Gone => {
            let remains = observe::remains(desk, cluster).await;
            (decide::gone(cluster, &remains, now()), None)
        }
    })
}

/// What became of the steps of a decision.
enum Taken {
    /// There were none.
    Nothing,
    /// All are done, or were outdated.
    All,
    /// Some failed.
    Failed(Vec<(Target, Fault)>),
}

async fn take(desk: &Desk, cluster: &ProxmoxCluster, steps: &[Step]) -> Taken {
    let mut failures = Vec::new();
    for step in steps {
        let what = act::describe(cluster, step);
        match act::perform(&desk.client, cluster, step).await {
            Ok(Outcome::Done) => info!(step = what, "done"),
            Ok(Outcome::Outdated) => debug!(step = what, "outdated, decided again"),
            Err(fault) => {
                warn!(class = %fault.class, %fault, "step failed");
                failures.push((target_of(step), fault));
            }
        }
    }
    match (steps.is_empty(), failures.is_empty()) {
        (true, _) => Taken::Nothing,
        (false, true) => Taken::All,
        (false, false) => Taken::Failed(failures),
    }
}

fn target_of(step: &Step) -> Target {
    match step {
        Step::Patch { target, .. } => target.clone(),
        Step::CreatePool(pool) => Target::Pool(facts::key(&pool.metadata).name),
        Step::DeletePool { name, .. } => Target::Pool(name.clone()),
    }
}

fn add_failures(standing: &mut Standing, failures: Vec<(Target, Fault)>) {
    match standing {
        Standing::Paused => {}
        Standing::Live(troubles) => troubles
            .extend(failures.into_iter().map(|(target, fault)| Trouble::Failed { target, fault })),
        Standing::Deleting(remains) => {
            remains.extend(failures.into_iter().map(|(target, fault)| match target {
                Target::Pool(_) => Remainder::Pool(fault.message),
                _ => Remainder::Failed(fault),
            }));
        }
    }
}

/// Writes the status and the event, where they say something new.
async fn report(
    desk: &Desk,
    cluster: &ProxmoxCluster,
    decision: &Decision,
    pools: &[PoolFact],
) -> Result<Wake, Fault> {
    let now = now();
    let status = report::status(cluster, decision, now);
    let patch = report::status_patch(cluster, &status)
        .map_err(|error| Fault::new(Class::Bug, format!("status cannot be written: {error}")))?;
    if let Some(patch) = patch {
        match act::write_status(&desk.client, cluster, &patch).await? {
            Outcome::Done => {
                for notice in report::notices(cluster.status.as_ref(), &status.conditions) {
                    info!(reason = notice.reason, message = notice.note, "state changed");
                    publish(desk, &cluster.object_ref(&()), notice).await;
                }
            }
            Outcome::Outdated => return Ok(Wake::Now),
        }
    }
    let condition = conditions::find(&status.conditions, reasons::CLUSTER_READY);
    let before = condition.map(|condition| condition.last_transition_time.0);
    Ok(decide::wake(&decision.standing, pools, before, now))
}

/// Tells of an object that cannot be read, and so has no status to tell it in.
async fn publish_invalid(desk: &Desk, guard: &ClusterGuard) {
    let Err(invalid) = &guard.0 else { return };
    warn!(error = %invalid, "ProxmoxCluster cannot be read");
    let notice = report::Notice {
        is_warning: true,
        reason: reasons::FAILURE_INVALID_CONFIGURATION.to_owned(),
        note: format!("ProxmoxCluster cannot be read, correct it: {invalid}"),
    };
    publish(desk, &guard.object_ref(&()), notice).await;
}

/// Publishes an event. One that cannot be stored is only logged: the condition says
/// the same, and a namespace that is being deleted takes no events.
async fn publish(desk: &Desk, about: &ObjectReference, notice: report::Notice) {
    let event = Event {
        type_: if notice.is_warning { EventType::Warning } else { EventType::Normal },
        reason: notice.reason,
        note: Some(notice.note),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = desk.recorder.publish(&event, about).await {
        debug!(%error, "event not published");
    }
}

//! The controller of ProxmoxConnection: says whether a connection works, and if not, why.
//!
//! A pass reads the connection and its Secrets, asks Proxmox for its version and the privileges of
//! the credentials (`observe`), judges (`decide`) and writes status and event (`report`, `act`). It
//! is started by changes of the connection and of its Secrets, and when the endpoint is lost or
//! found; a regular look stands in for what nobody tells. Nothing else waits for it: clusters read
//! connections themselves.

mod act;
mod decide;
mod facts;
mod observe;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt, future, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Event, EventType, Reporter};
use kube::runtime::reflector::{ObjectRef, store};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{PredicateConfig, WatchStreamExt};
use kube::{Api, Client, Resource, ResourceExt};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, info, info_span, warn};

use crate::api::{Plain, ProxmoxConnection};
use crate::connections::{Connections, Source};
use crate::events::Recorder;
use crate::fault::Fault;
use crate::seen::Seen;

/// Field manager of all writes, and the source of events.
const FIELD_MANAGER: &str = "capmox-proxmoxconnection";

/// Pause after a pass that could not be reported.
const RETRY: Duration = Duration::from_secs(5);
/// Pause after a lost race.
const RETRY_SOON: Duration = Duration::from_secs(1);
/// Between two looks whether ProxmoxConnections are served and may be listed.
const INSTALLED: Duration = Duration::from_secs(30);
/// Between two looks whether kubemox is still there.
const KUBEMOX: Duration = Duration::from_mins(5);

/// A ProxmoxConnection, or why it cannot be read.
type Guard = DeserializeGuard<ProxmoxConnection>;

/// Who writes the status of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatusWriter {
    /// We do, unless kubemox is installed.
    #[default]
    Auto,
    /// We do.
    Us,
    /// Somebody else does.
    Others,
}

/// What the controller works with.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Context {
    /// The management cluster.
    pub client: Client,
    /// The Proxmox endpoints.
    pub connections: Arc<Connections>,
    /// Who writes status.
    pub writer: StatusWriter,
    /// Objects worked on at once.
    pub concurrency: u16,
}

/// What every pass works with.
struct Desk {
    client: Client,
    connections: Arc<Connections>,
    recorder: Recorder,
    writer: StatusWriter,
    /// Whether it was said that somebody else writes status.
    told: AtomicBool,
}

/// Runs until `shutdown`, and until the passes under way have ended.
pub async fn run(context: Context, shutdown: CancellationToken) {
    let Context { client, connections, writer, concurrency } = context;
    if shutdown.run_until_cancelled(installed(&client)).await.is_none() {
        return;
    }
    let (reader, store_writer) = store();
    let events = watcher(Api::<Guard>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .modify(prune)
        .reflect(store_writer)
        .touched_objects()
        .filter_map(|event| {
            let event = event.inspect_err(|error| debug!(%error, "ProxmoxConnections"));
            // Status is written by ourselves, and does not start another pass.
            future::ready(event.ok().map(Ok))
        })
        .predicate_filter(|connection: &Guard| Some(print(connection)), PredicateConfig::default());
    let changes = connections.changes().flat_map({
        let reader = reader.clone();
        move |change| {
            let known = reader.state();
            let concerned = known.iter().map(|guard| guard.name_any());
            let concerned =
                concerned.filter(|name| change.concerns(&Source::Connection(name.clone())));
            stream::iter(concerned.map(|name| ObjectRef::new(&name)).collect::<Vec<_>>())
        }
    });
    let controller = Controller::for_stream(events, reader)
        .with_config(Config::default().concurrency(concurrency.max(1)))
        .reconcile_on(changes);
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let told = AtomicBool::new(false);
    let desk = Arc::new(Desk { client, connections, recorder, writer, told });
    // kube's controller does not end before its first list; until then it has nothing in hand.
    let listed = controller.store();
    let asked = shutdown.clone();
    let ends_early = async move {
        asked.cancelled().await;
        if listed.wait_until_ready().now_or_never().is_some() {
            future::pending::<()>().await;
        }
    };
    let work = controller
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(reconcile, |_, _, _| Action::requeue(RETRY), desk)
        .for_each(async |result| {
            if let Err(error) = result {
                debug!(%error, "controller of ProxmoxConnection");
            }
        });
    tokio::select! {
        () = work => {}
        () = ends_early => {}
    }
}

/// Waits until there are connections to look after: under the definitions and roles that capmox installs
/// the kind is not served, or may not be listed. A watch of it would ask every second, since each new
/// beginning resets its pause.
async fn installed(client: &Client) {
    let connections = Api::<ProxmoxConnection>::all(client.clone());
    // Nothing tells when it comes.
    let mut looks = tokio::time::interval(INSTALLED);
    let mut is_told = false;
    loop {
        looks.tick().await;
        match connections.list_metadata(&ListParams::default().limit(1)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
                if !std::mem::replace(&mut is_told, true) {
                    info!("ProxmoxConnections are not looked after: {}", status.message);
                }
            }
            _ => return,
        }
    }
}

/// Credentials do not stay in memory but in the client that is made of them.
fn prune(connection: &mut Guard) {
    if let Ok(connection) = &mut connection.0 {
        let spec = &mut connection.spec;
        for text in [&mut spec.password, &mut spec.secret].into_iter().flatten() {
            *text = Plain::default();
        }
        connection.status = None;
    }
    let meta = connection.meta_mut();
    meta.managed_fields = None;
    // kubectl keeps what was applied last here, credentials and all.
    meta.annotations = None;
}

fn print(connection: &Guard) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let meta = connection.meta();
    let mut hash = DefaultHasher::new();
    (meta.uid.as_ref(), meta.generation, meta.deletion_timestamp.is_some()).hash(&mut hash);
    hash.finish()
}

#[expect(clippy::disallowed_methods, reason = "the driver's clock; what decides gets the time")]
fn now() -> Timestamp {
    Timestamp::now()
}

async fn reconcile(connection: Arc<Guard>, desk: Arc<Desk>) -> Result<Action, Fault> {
    let name = connection.name_any();
    let span = info_span!("proxmoxconnection", name);
    async {
        pass(&desk, &name).await.inspect_err(|fault| {
            warn!(class = %fault.class, %fault, "pass failed");
        })
    }
    .instrument(span)
    .await
}

async fn pass(desk: &Desk, name: &str) -> Result<Action, Fault> {
    if !writes_status(desk).await {
        return Ok(Action::requeue(KUBEMOX));
    }
    let read = observe::connection(&desk.client, name).await;
    let connection = match read.map_err(|error| unreadable(name, &error))? {
        None => return Ok(Action::await_change()),
        Some(DeserializeGuard(Ok(connection))) => connection,
        Some(DeserializeGuard(Err(invalid))) => {
            warn!(error = %invalid, "ProxmoxConnection cannot be read; correct it");
            return Ok(Action::await_change());
        }
    };
    if connection.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let facts = observe::facts(&desk.connections, name, now).await;
    let verdict = decide::verdict(&facts);
    let now = now();
    let status = report::status(&connection, &verdict, now);
    let patch = report::status_patch(&connection, &status)
        .map_err(|error| Fault::new(crate::fault::Class::Bug, format!("status: {error}")))?;
    if let Some(patch) = patch {
        if !act::write_status(&desk.client, &connection, &patch).await? {
            return Ok(Action::requeue(RETRY_SOON));
        }
        if let Some(notice) = report::notice(connection.status.as_ref(), &status) {
            info!(reason = notice.reason, message = notice.note, "state changed");
            publish(desk, &connection, notice).await;
        }
    }
    let before = report::ready(&status.conditions).map(|ready| ready.last_transition_time.0);
    Ok(Action::requeue(decide::wake(&verdict.ready, before, now)))
}

fn unreadable(name: &str, error: &kube::Error) -> Fault {
    let message = format!("cannot read ProxmoxConnection {name}: {error}");
    Fault::new(crate::fault::Class::Transient, message)
}

/// Whether the status is ours to write. Where it is not known, it is not.
async fn writes_status(desk: &Desk) -> bool {
    let others = match desk.writer {
        StatusWriter::Us => return true,
        StatusWriter::Others => Seen::Present(()),
        StatusWriter::Auto => observe::kubemox(&desk.client).await,
    };
    if let Seen::Unknown(why) = &others {
        debug!(why, "whether kubemox is installed is not known");
    }
    let is_ours = matches!(others, Seen::Absent);
    if matches!(others, Seen::Present(())) && !desk.told.swap(true, Ordering::Relaxed) {
        info!(
            "the status of ProxmoxConnections is left to kubemox; --connection-status=write \
             takes it over"
        );
    }
    is_ours
}

/// An event that cannot be stored is only logged: the condition says the same.
async fn publish(desk: &Desk, connection: &ProxmoxConnection, notice: report::Notice) {
    let event = Event {
        type_: if notice.is_warning { EventType::Warning } else { EventType::Normal },
        reason: notice.reason,
        note: Some(notice.note),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    if let Err(error) = desk.recorder.publish(&event, &connection.object_ref(&())).await {
        debug!(%error, "event not published");
    }
}

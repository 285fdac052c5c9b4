//! From credentials to the shared [`Endpoint`] that they open.
//!
//! A [`Source`] says where a cluster's credentials stand; reading it is all that differs between
//! sources. Equal credentials open one endpoint, whoever names them. Only this module and
//! [`crate::pve`] see secrets, and none is kept but in the client that is made of it.

mod by_hand;
mod credentials;
mod of_connection;
mod own;
mod pool;
mod read;
mod remedy;
mod source;
mod turns;
mod watched;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{Stream, stream};
use kube::{Client, ResourceExt};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::{ObservedSecret, ProxmoxCluster, reasons};
use crate::fault::{Class, Fault};
use crate::hypervisor::{CloneLimits, Endpoint, ObjectKey, Wakes};
use crate::pve::{self, ClientConfig, Fence, Limits, Observer, Tls};
use crate::seen::Seen as Known;

pub use by_hand::client;
use credentials::{Credentials, Digest};
pub use own::{Given, Own};
use pool::{Pool, Reading, Versions};
use read::{Found, Reader};
pub use remedy::{Ailment, ailment, failing, unreachable};
use source::Object;
pub use source::Source;
use turns::{Latest, Turns};
use watched::{Listener, Seen, Watched};

/// Changes that wait for a slow listener, who then looks at everything.
const BACKLOG: usize = 64;

/// What endpoints are made with.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Settings {
    /// The management cluster, in which Secrets are read.
    pub client: Client,
    /// The manager's own credentials.
    pub own: Own,
    /// Where endpoints send the objects that they wake.
    pub wakes: Wakes,
    /// Who is told of every Proxmox call.
    pub observer: Arc<dyn Observer>,
    /// Until when anything may be changed in Proxmox.
    pub fence: Fence,
    /// Clones at once at each endpoint.
    pub clones: CloneLimits,
    /// Ends the background work of all endpoints.
    pub shutdown: CancellationToken,
}

/// Sources that may give something else than before, or whose endpoint was lost or found.
#[derive(Debug, Clone)]
pub enum Change {
    /// These.
    Of(Arc<[Source]>),
    /// Any.
    Any,
}

impl Change {
    /// Whether it concerns a source.
    pub fn concerns(&self, source: &Source) -> bool {
        match self {
            Self::Of(sources) => sources.contains(source),
            Self::Any => true,
        }
    }
}

/// Two credentials that a cluster may mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedOver {
    /// Address that is used.
    pub used: String,
    /// Address of the manager's own, which is not.
    pub own: String,
}

/// A ProxmoxConnection as it was read last.
#[derive(Debug)]
pub struct Look {
    /// The Secrets that were read for it.
    pub secrets: Vec<ObservedSecret>,
    /// The endpoint, or why there is none.
    pub endpoint: Result<Arc<Endpoint>, Fault>,
    /// What would have its certificate checked, when any is believed.
    pub insecure: Option<String>,
}

/// The endpoints in use.
pub struct Connections {
    settings: Settings,
    shared: Arc<Shared>,
    watched: Watched,
    turns: Turns,
}

/// What a source gave, and the endpoint that this opens, or why it opens none.
type Settled = (Reading, Result<Arc<Endpoint>, Fault>);

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("pool", &self.shared.pool).finish_non_exhaustive()
    }
}

/// What watches and endpoints tell of, and to whom.
struct Shared {
    pool: Mutex<Pool<Source>>,
    changes: broadcast::Sender<Change>,
}

impl Shared {
    fn tell(&self, sources: Vec<Source>) {
        if !sources.is_empty() {
            // Nobody may be listening.
            let _ = self.changes.send(Change::Of(sources.into()));
        }
    }
}

impl Listener for Shared {
    fn seen(&self, object: &Object, version: Option<&str>) {
        let outdated = lock(&self.pool).outdated(object, version);
        self.tell(outdated);
    }

    fn forgotten(&self, object: &Object) {
        lock(&self.pool).forget(object);
    }
}

impl Connections {
    /// Reads nothing and connects to nothing.
    pub fn new(settings: Settings) -> Self {
        let (changes, _) = broadcast::channel(BACKLOG);
        let shared = Arc::new(Shared { pool: Mutex::default(), changes });
        let (listener, shutdown) = (Arc::clone(&shared), settings.shutdown.clone());
        let watched = Watched::new(settings.client.clone(), listener, shutdown);
        Self { settings, shared, watched, turns: Turns::default() }
    }

    /// The endpoint that a cluster uses: by `spec.connectionRef`, else by `spec.credentialsRef`,
    /// else by the manager's own credentials. One endpoint for each set of credentials, shared by
    /// all clusters that use it. Proxmox is not asked.
    ///
    /// # Errors
    ///
    /// * [`Class::Blocked`]: there are no credentials, or an object or one of its keys is missing;
    /// * [`Class::Invalid`]: a value cannot be right, with the form that is wanted;
    /// * [`Class::Denied`]: the manager may not read the object, or the cluster may not use it;
    /// * [`Class::Transient`]: the API server does not answer.
    pub async fn of(&self, cluster: &ProxmoxCluster) -> Result<Arc<Endpoint>, Fault> {
        let source = Source::of(cluster);
        let namespace = cluster.namespace().unwrap_or_default();
        let asker = format!("ProxmoxCluster {namespace}/{}", cluster.name_any());
        let (reading, endpoint) = self.look(&source, &asker).await;
        if reading.allowed.admits(&namespace) {
            endpoint
        } else {
            Err(not_allowed(&source, &namespace, &asker))
        }
    }

    /// What would make sure that it is Proxmox that a cluster speaks to, when any certificate is
    /// believed; as of the last reading.
    pub fn insecure(&self, cluster: &ProxmoxCluster) -> Option<String> {
        let source = Source::of(cluster);
        let pool = lock(&self.shared.pool);
        pool.reading(&source)?.is_insecure.then(|| remedy::three_ways(&source))
    }

    /// What the manager's own credentials open, where they are others than those that a cluster names in
    /// `spec.credentialsRef`: capmox uses them instead. As of the last readings.
    pub fn passed_over(&self, cluster: &ProxmoxCluster) -> Known<PassedOver> {
        let source = Source::of(cluster);
        if !matches!(source, Source::Secret(_)) {
            return Known::Absent;
        }
        let pool = lock(&self.shared.pool);
        let own = match (pool.known(&Source::Manager), &self.settings.own.started) {
            (Some((reading, endpoint)), _) => {
                reading.digest.map(|digest| (digest, endpoint.client().base_url().to_string()))
            }
            (None, Ok(Some(started))) => Some((started.digest(), started.base_url.to_string())),
            // Of the Secret that they may be in nothing is known before somebody uses them.
            (None, _) if self.settings.own.secret.is_some() => {
                return Known::Unknown("the manager's own credentials were not read".to_owned());
            }
            (None, _) => None,
        };
        let Some((digest, own)) = own else { return Known::Absent };
        match pool.known(&source) {
            None => Known::Unknown(format!("the credentials of {source} were not read")),
            Some((reading, _)) if reading.digest == Some(digest) => Known::Absent,
            Some((_, endpoint)) => {
                let used = endpoint.client().base_url().to_string();
                Known::Present(PassedOver { used, own })
            }
        }
    }

    /// The endpoint that a cluster used last. Nothing is read for it.
    pub fn known(&self, cluster: &ProxmoxCluster) -> Option<Arc<Endpoint>> {
        lock(&self.shared.pool).known(&Source::of(cluster)).map(|(_, endpoint)| endpoint)
    }

    /// A ProxmoxConnection, on its own behalf.
    pub async fn connection(&self, name: &str) -> Look {
        let source = Source::Connection(name.to_owned());
        let (reading, endpoint) = self.look(&source, &source.to_string()).await;
        let secrets = reading.versions.into_iter().filter_map(|(object, version)| match object {
            Object::Secret(key) => Some(ObservedSecret {
                name: key.name,
                namespace: key.namespace,
                resource_version: version?,
            }),
            Object::Connection(_) => None,
        });
        {
            let insecure = reading.is_insecure.then(|| remedy::three_ways(&source));
            Look { secrets: secrets.collect(), endpoint, insecure }
        }
    }

    /// Lets go of all that is kept for an object that is gone, at whichever endpoint.
    pub fn let_go(&self, key: &ObjectKey, uid: &str) {
        let (endpoints, ledgers) = lock(&self.shared.pool).all();
        for endpoint in endpoints {
            endpoint.unwatch(key);
        }
        for ledger in ledgers {
            lock(&ledger).forget(uid);
        }
    }

    /// Tells of every change that may concern a cluster or a connection, from now on.
    pub fn changes(&self) -> impl Stream<Item = Change> + Send + use<> {
        stream::unfold(self.shared.changes.subscribe(), |mut changes| async {
            let change = match changes.recv().await {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => Change::Any,
                Err(RecvError::Closed) => return None,
            };
            Some((change, changes))
        })
    }

    /// What is known of a source, read anew if need be.
    async fn look(&self, source: &Source, asker: &str) -> Settled {
        if let Some(current) = self.current(source) {
            return current;
        }
        let since = Instant::now();
        let turn = self.turns.of(source);
        let mut latest = turn.lock().await;
        // Who had the turn before may have read it.
        let current = self.current(source);
        let found = || latest.as_ref().and_then(|latest| latest.serves(since, asker));
        if let Some(found) = current.or_else(found) {
            return found;
        }
        let began = Instant::now();
        let Settings { client, own, .. } = &self.settings;
        let reader = Reader { client, own, watched: &self.watched, asker };
        let found = reader.read(source).await;
        let settled = self.settle(source, found);
        *latest = Some(Latest { began, asker: asker.to_owned(), settled: settled.clone() });
        drop(latest);
        // What changed between reading and watching is read again.
        if self.are_outdated(&settled.0.versions) {
            self.shared.tell(vec![source.clone()]);
        }
        settled
    }

    /// The source as it was read last, if that is what it still is.
    fn current(&self, source: &Source) -> Option<Settled> {
        let (reading, endpoint) = lock(&self.shared.pool).known(source)?;
        let is_current = !reading.versions.is_empty() && self.are_current(&reading.versions);
        is_current.then_some((reading, Ok(endpoint)))
    }

    /// Whether the watches are sure that nothing changed.
    fn are_current(&self, versions: &Versions) -> bool {
        let is_current = |(object, read): &(Object, Option<String>)| matches!(self.watched.version(object), Seen::Version(seen) if read.as_ref() == Some(&seen));
        // Every watch is asked, so that each of them goes on.
        versions.iter().filter(|one| !is_current(one)).count() == 0
    }

    fn are_outdated(&self, versions: &Versions) -> bool {
        versions.iter().any(|(object, read)| match self.watched.version(object) {
            Seen::Version(seen) => read.as_ref() != Some(&seen),
            Seen::Absent => read.is_some(),
            Seen::Unsure => false,
        })
    }

    fn settle(&self, source: &Source, found: Found) -> Settled {
        let Found { versions, allowed, credentials } = found;
        let mut pool = lock(&self.shared.pool);
        // Credentials that were taken away are not used any longer; a server that does not answer
        // has taken nothing away.
        if let Err(fault) = &credentials
            && fault.class == Class::Transient
            && let Some(before) = pool.reading(source)
        {
            return (before.clone(), Err(fault.clone()));
        }
        let is_insecure = credentials.as_ref().is_ok_and(|found| found.tls == Tls::Insecure);
        let opened = credentials.and_then(|credentials| self.open(&mut pool, source, credentials));
        let digest = opened.as_ref().ok().map(|(digest, _)| *digest);
        let reading = Reading { versions, allowed, digest, is_insecure };
        pool.settle(source.clone(), reading.clone());
        (reading, opened.map(|(_, endpoint)| endpoint))
    }

    fn open(
        &self,
        pool: &mut Pool<Source>,
        source: &Source,
        credentials: Credentials,
    ) -> Result<(Digest, Arc<Endpoint>), Fault> {
        let Settings { wakes, observer, fence, clones, shutdown, .. } = &self.settings;
        let digest = credentials.digest();
        if let Some(endpoint) = pool.endpoint(&digest) {
            return Ok((digest, endpoint));
        }
        let ledger = pool.ledger(&credentials.addresses());
        let url = credentials.base_url.to_string();
        let (who, tls) = (credentials.auth.who().to_owned(), credentials.tls.clone());
        let Credentials { base_url, others, auth, tls: wanted } = credentials;
        let config = ClientConfig { base_url, auth, tls: wanted, limits: Limits::default() };
        let client = pve::Client::failing_over(config, others, Arc::clone(observer), fence.clone())
            .map_err(|error| Fault::new(Class::Invalid, format!("{source}: {error}")))?;
        info!(url, who, credentials = %source, ?tls, "Proxmox endpoint opened");
        if tls == Tls::Insecure {
            warn_insecure(&url, source);
        }
        let endpoint = Endpoint::start(client, ledger, *clones, wakes.clone(), shutdown.clone());
        pool.add(digest, &endpoint);
        let shared = Arc::clone(&self.shared);
        let mut health = endpoint.lost();
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(async move {
            // Ends with the endpoint.
            while health.changed().await.is_ok() {
                let users = lock(&shared.pool).users(&digest);
                shared.tell(users);
            }
        }));
        Ok((digest, endpoint))
    }
}

/// Plain bookkeeping, which a panic elsewhere leaves good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_allowed(source: &Source, namespace: &str, asker: &str) -> Fault {
    Fault::new(
        Class::Denied,
        format!(
            "{source} may not be used from namespace {namespace}: add {namespace} to \
             spec.allowedNamespaces of {source}, or let spec.connectionRef of {asker} name another"
        ),
    )
    .because(reasons::CONNECTION_NOT_ALLOWED)
}

fn warn_insecure(url: &str, source: &Source) {
    warn!(
        url,
        credentials = %source,
        "the certificate of Proxmox is not checked, so anybody on the way can read the \
         credentials. {}",
        remedy::three_ways(source)
    );
}

#[cfg(test)]
mod tests;

//! The objects that credentials are read from, each watched alone and without its content.
//!
//! A pass asks for its endpoint many times. The watch tells whether an object is still the one
//! that was read, so that it is read once for each change, and tells of changes at once. A watch
//! that is not sure tells nothing, and the object is read.

use std::collections::HashMap;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::source::Object;
use crate::api::ProxmoxConnection;

/// An object that nobody asked for in this time belongs to no cluster any more: every object is
/// looked at more often.
const IDLE: Duration = Duration::from_hours(1);

/// What is known of one object.
#[derive(Debug)]
struct State {
    version: Seen,
    used: Instant,
}

/// What the watch says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// The watch is not sure.
    Unsure,
    /// There is no such object.
    Absent,
    /// This version.
    Version(String),
}

/// Who is told.
pub(super) trait Listener: Send + Sync {
    /// An object is seen in this version, or absent.
    fn seen(&self, object: &Object, version: Option<&str>);
    /// Nobody asks for the object any more.
    fn forgotten(&self, object: &Object);
}

/// All of them.
#[derive(Clone)]
pub(super) struct Watched {
    states: Arc<Mutex<HashMap<Object, State>>>,
    client: Client,
    listener: Arc<dyn Listener>,
    shutdown: CancellationToken,
}

impl Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("states", &self.states).finish_non_exhaustive()
    }
}

impl Watched {
    pub(super) fn new(
        client: Client,
        listener: Arc<dyn Listener>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { states: Arc::default(), client, listener, shutdown }
    }

    /// The object as the watch knows it. Starts the watch at the first question.
    pub(super) fn version(&self, object: &Object) -> Seen {
        let mut states = self.lock();
        if let Some(state) = states.get_mut(object) {
            state.used = Instant::now();
            return state.version.clone();
        }
        states.insert(object.clone(), State { version: Seen::Unsure, used: Instant::now() });
        let (watch, shutdown) = (self.clone().watch(object.clone()), self.shutdown.clone());
        tokio::spawn(shutdown.run_until_cancelled_owned(watch));
        Seen::Unsure
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Object, State>> {
        // Plain bookkeeping, which a panic elsewhere leaves good.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(self, object: Object) {
        let client = self.client.clone();
        match &object {
            Object::Secret(key) => {
                let api = Api::<PartialObjectMeta<Secret>>::namespaced(client, &key.namespace);
                let version = |secret: &PartialObjectMeta<Secret>| secret.resource_version();
                self.follow(&object, api, &key.name, version).await;
            }
            Object::Connection(name) => {
                let api = Api::<PartialObjectMeta<ProxmoxConnection>>::all(client);
                self.follow(&object, api, name, |it| Some(generation(&it.metadata))).await;
            }
        }
        self.listener.forgotten(&object);
    }

    /// Until nobody asks any more.
    async fn follow<K>(
        &self,
        object: &Object,
        api: Api<K>,
        name: &str,
        version: impl Fn(&K) -> Option<String> + Send,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = kube::runtime::watcher(api, only).default_backoff().boxed();
        let seen = |version: Option<String>| version.map_or(Seen::Absent, Seen::Version);
        // What a list says so far; it counts when the list is complete.
        let mut listed = None;
        loop {
            match timeout(IDLE, events.next()).await {
                Ok(Some(Ok(Event::Init))) => listed = None,
                Ok(Some(Ok(Event::InitApply(found)))) => listed = version(&found),
                Ok(Some(Ok(Event::InitDone))) => self.saw(object, &seen(listed.take())),
                Ok(Some(Ok(Event::Apply(found)))) => self.saw(object, &seen(version(&found))),
                Ok(Some(Ok(Event::Delete(_)))) => self.saw(object, &Seen::Absent),
                Ok(Some(Err(error))) => {
                    debug!(%object, %error, "cannot be watched; it is read instead");
                    self.saw(object, &Seen::Unsure);
                }
                Ok(None) | Err(_) => {}
            }
            let mut states = self.lock();
            if states.get(object).is_none_or(|state| state.used.elapsed() >= IDLE) {
                states.remove(object);
                return;
            }
        }
    }

    fn saw(&self, object: &Object, seen: &Seen) {
        if let Some(state) = self.lock().get_mut(object) {
            state.version = seen.clone();
        }
        match seen {
            Seen::Unsure => {}
            Seen::Absent => self.listener.seen(object, None),
            Seen::Version(version) => self.listener.seen(object, Some(version)),
        }
    }
}

/// The version of a ProxmoxConnection.
pub(super) fn generation(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> String {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    format!("{uid}/{}", metadata.generation.unwrap_or_default())
}

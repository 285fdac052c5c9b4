//! The Secrets in use, each watched alone and without its data.
//!
//! A pass asks for its endpoint many times. The watch tells whether the Secret is still the one
//! that was read, so that its data are read once for each change. A watch that is not sure tells
//! nothing, and the Secret is read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::hypervisor::ObjectKey;

/// A Secret that nobody asked for in this time belongs to no cluster any more: every object is
/// looked at more often.
const IDLE: Duration = Duration::from_hours(1);

/// What is known of one Secret.
#[derive(Debug)]
struct Watched {
    /// Its resourceVersion; none when it is absent or the watch is not sure.
    version: Option<String>,
    used: Instant,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(super) struct WatchedSecrets(Arc<Mutex<HashMap<ObjectKey, Watched>>>);

impl WatchedSecrets {
    /// The resourceVersion of the Secret as the watch knows it. Starts the watch at the first
    /// question; `forgotten` is called when it ends because nobody asks any more.
    pub(super) fn version(
        &self,
        client: &Client,
        key: &ObjectKey,
        shutdown: &CancellationToken,
        forgotten: impl FnOnce() + Send + 'static,
    ) -> Option<String> {
        let mut all = self.lock();
        if let Some(watched) = all.get_mut(key) {
            watched.used = Instant::now();
            return watched.version.clone();
        }
        all.insert(key.clone(), Watched { version: None, used: Instant::now() });
        let watch = self.clone().watch(client.clone(), key.clone());
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            if shutdown.run_until_cancelled_owned(watch).await.is_some() {
                forgotten();
            }
        });
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Watched>> {
        // Plain bookkeeping, which a panic elsewhere leaves good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch(self, client: Client, key: ObjectKey) {
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, &key.namespace);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
        let mut events = kube::runtime::watcher(secrets, only).default_backoff().boxed();
        // What a list says so far; it counts when the list is complete.
        let mut listed = None;
        loop {
            match timeout(IDLE, events.next()).await {
                Ok(Some(Ok(Event::Init))) => listed = None,
                Ok(Some(Ok(Event::InitApply(secret)))) => listed = secret.resource_version(),
                Ok(Some(Ok(Event::InitDone))) => self.saw(&key, listed.take()),
                Ok(Some(Ok(Event::Apply(secret)))) => self.saw(&key, secret.resource_version()),
                Ok(Some(Ok(Event::Delete(_)))) => self.saw(&key, None),
                Ok(Some(Err(error))) => {
                    debug!(secret = %key, %error, "Secret cannot be watched; it is read instead");
                    self.saw(&key, None);
                }
                Ok(None) | Err(_) => {}
            }
            let mut all = self.lock();
            if all.get(&key).is_none_or(|watched| watched.used.elapsed() >= IDLE) {
                all.remove(&key);
                return;
            }
        }
    }

    fn saw(&self, key: &ObjectKey, version: Option<String>) {
        if let Some(watched) = self.lock().get_mut(key) {
            watched.version = version;
        }
    }
}

//! Kubernetes Events, in whichever of their two API groups the manager may write.
//!
//! Today events are written in `events.k8s.io`. The roles that capmox installs know the core group only,
//! so that a manager under them tells its events there, as it was told nothing else. What stands in
//! events stands in conditions and logs too: nothing rests on one that is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Reporter};
use kube::{Client, runtime};
use serde_json::json;
use tracing::info;

/// Where events of objects without a namespace are written.
const DEFAULT_NAMESPACE: &str = "default";
/// A repetition within this time is counted, a later one is told anew; as kube does it.
const REPEATED: SignedDuration = SignedDuration::from_mins(6);

/// Publishes the events of one controller. Clones share what they remember.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    reporter: Reporter,
    warnings: runtime::events::Recorder,
    is_core_only: Arc<AtomicBool>,
    told: Arc<Mutex<HashMap<Key, Told>>>,
}

/// What makes two events the same: UID of the object, its name, type and reason.
type Key = (Option<String>, Option<String>, &'static str, String);

/// An event that was written in the core group.
#[derive(Debug, Clone)]
struct Told {
    name: String,
    count: i32,
    at: Timestamp,
}

impl Recorder {
    /// For the controller that goes by this name in its events.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self {
            warnings: runtime::events::Recorder::new(client.clone(), reporter.clone()),
            client,
            reporter,
            is_core_only: Arc::default(),
            told: Arc::default(),
        }
    }

    /// Publishes an event about an object.
    ///
    /// # Errors
    ///
    /// What the API server says when it takes the event in neither group.
    pub async fn publish(&self, event: &Event, about: &ObjectReference) -> Result<(), kube::Error> {
        if self.is_core_only.load(Ordering::Relaxed) {
            return self.publish_in_core(event, about).await;
        }
        match self.publish_today(event, about).await {
            // By want of a right, or since the namespace goes, and then it is refused here too.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                if self.publish_in_core(event, about).await.is_err() {
                    return Err(kube::Error::Api(status));
                }
                if !self.is_core_only.swap(true, Ordering::Relaxed) {
                    info!("events are written in the core group, since {}", status.message);
                }
                Ok(())
            }
            published => published,
        }
    }

    /// Steps of a life are told once each. kube's recorder would keep all of them for six minutes,
    /// some kilobytes for each, to count repetitions that do not come; those of warnings do.
    async fn publish_today(
        &self,
        event: &Event,
        about: &ObjectReference,
    ) -> Result<(), kube::Error> {
        match event.type_ {
            EventType::Warning => self.warnings.publish(event, about).await,
            EventType::Normal => {
                let once =
                    runtime::events::Recorder::new(self.client.clone(), self.reporter.clone());
                once.publish(event, about).await
            }
        }
    }

    async fn publish_in_core(
        &self,
        event: &Event,
        about: &ObjectReference,
    ) -> Result<(), kube::Error> {
        #[expect(clippy::disallowed_methods, reason = "as kube's own recorder, which is in front")]
        let now = Timestamp::now();
        let namespace = about.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace);
        let key = key(event, about);
        let repeated = self.repeated(&key, now);
        if let Some(Told { name, count, .. }) = &repeated {
            let patch = json!({
                "count": count, "lastTimestamp": Time(now), "message": event.note,
            });
            match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => {
                    self.remember(key, repeated);
                    return Ok(());
                }
                // It was cleared away meanwhile.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let written = core_event(&self.reporter, event, about, namespace, now);
        let name = written.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &written).await?;
        self.remember(key, Some(Told { name, count: 1, at: now }));
        Ok(())
    }

    /// The same event as it was told last, counted up.
    fn repeated(&self, key: &Key, now: Timestamp) -> Option<Told> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, told| now.duration_since(told.at) < REPEATED);
        let Told { name, count, .. } = told.get(key)?.clone();
        Some(Told { name, count: count.saturating_add(1), at: now })
    }

    fn remember(&self, key: Key, event: Option<Told>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.extend(event.map(|event| (key, event)));
    }
}

fn key(event: &Event, about: &ObjectReference) -> Key {
    (about.uid.clone(), about.name.clone(), type_of(event), event.reason.clone())
}

const fn type_of(event: &Event) -> &'static str {
    match event.type_ {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    }
}

/// The event in the form of the core group, with the name that it would have in the other.
fn core_event(
    reporter: &Reporter,
    event: &Event,
    about: &ObjectReference,
    namespace: &str,
    now: Timestamp,
) -> CoreEvent {
    let name = about.name.as_deref().unwrap_or(&reporter.controller);
    CoreEvent {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        reason: Some(event.reason.clone()),
        message: event.note.clone(),
        type_: Some(type_of(event).to_owned()),
        source: Some(EventSource {
            component: Some(reporter.controller.clone()),
            host: reporter.instance.clone(),
        }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..CoreEvent::default()
    }
}

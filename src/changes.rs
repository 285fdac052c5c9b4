//! Which changes of watched objects wake a controller, and how often.
//!
//! Most updates of an object tell its readers nothing: a heartbeat, a condition, a list that grew by
//! one. Passed on, one of them would start a pass for each of a thousand machines.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt, future, stream};
use kube::Resource;
use kube::runtime::watcher::{self, Event};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

/// Whose changes are compared: an object by its UID, so that one of the same name is new.
type Identity = (Option<String>, Option<String>, Option<String>);

/// Objects whose `print` differs from the last one seen, and objects that went.
///
/// The controller pauses all its triggers on an error of one, so none is passed on.
pub fn changes<K, P>(
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    print: impl Fn(&K) -> P + Send,
) -> impl Stream<Item = watcher::Result<K>> + Send
where
    K: Resource<DynamicType = ()> + Send,
    P: Serialize,
{
    let mut last: HashMap<Identity, u64> = HashMap::new();
    let mut listed: HashSet<Identity> = HashSet::new();
    events.filter_map(move |event| {
        future::ready(match event {
            Ok(Event::InitApply(object)) => {
                listed.insert(identity(&object));
                news(&mut last, object, &print)
            }
            Ok(Event::Apply(object)) => news(&mut last, object, &print),
            Ok(Event::Delete(object)) => {
                last.remove(&identity(&object));
                Some(Ok(object))
            }
            Ok(Event::Init) => {
                listed.clear();
                None
            }
            Ok(Event::InitDone) => {
                // The others went while the watch was down.
                last.retain(|object, _| listed.contains(object));
                listed.clear();
                None
            }
            Err(error) => {
                warn!(kind = %K::kind(&()), %error, "watch interrupted");
                None
            }
        })
    })
}

fn news<K, P>(
    last: &mut HashMap<Identity, u64>,
    object: K,
    print: impl Fn(&K) -> P,
) -> Option<watcher::Result<K>>
where
    K: Resource<DynamicType = ()>,
    P: Serialize,
{
    // What cannot be written down counts as changed.
    let Some(new) = digest(&print(&object)) else { return Some(Ok(object)) };
    let old = last.insert(identity(&object), new);
    (old != Some(new)).then_some(Ok(object))
}

/// Kept instead of the print itself, of which there may be thousands.
fn digest(print: &impl Serialize) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(print).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

fn identity<K: Resource>(object: &K) -> Identity {
    let meta = object.meta();
    (meta.namespace.clone(), meta.name.clone(), meta.uid.clone())
}

/// Each item at once, but the same item not again within `pause`: repetitions come as one when the
/// pause is over. None is lost.
pub fn paced<T>(
    items: impl Stream<Item = T> + Send,
    pause: Duration,
) -> impl Stream<Item = T> + Send
where
    T: Clone + Eq + Hash + Debug + Send,
{
    let state = (Box::pin(items), Paced { told: HashMap::new(), held: HashMap::new() });
    stream::unfold(state, move |(mut items, mut paced)| async move {
        loop {
            let now = Instant::now();
            if let Some(item) = paced.release(now, pause) {
                return Some((item, (items, paced)));
            }
            let next = match paced.next() {
                Some(due) => match timeout_at(due, items.next()).await {
                    Ok(next) => next,
                    Err(_) => continue,
                },
                None => pin!(items.next()).await,
            };
            let now = Instant::now();
            match next {
                Some(item) => {
                    if let Some(item) = paced.admit(item, now, pause) {
                        return Some((item, (items, paced)));
                    }
                }
                None => return paced.rest().map(|item| (item, (items, paced))),
            }
        }
    })
}

/// What was told when, and what is held back until when.
struct Paced<T> {
    told: HashMap<T, Instant>,
    held: HashMap<T, Instant>,
}

impl<T: Clone + Eq + Hash> Paced<T> {
    fn admit(&mut self, item: T, now: Instant, pause: Duration) -> Option<T> {
        match self.told.get(&item).map(|told| *told + pause) {
            Some(due) if due > now => {
                self.held.insert(item, due);
                None
            }
            _ => {
                self.told.insert(item.clone(), now);
                Some(item)
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        self.held.values().min().copied()
    }

    fn release(&mut self, now: Instant, pause: Duration) -> Option<T> {
        let due = self.held.iter().find(|(_, due)| **due <= now).map(|(item, _)| item.clone());
        if let Some(item) = &due {
            self.held.remove(item);
            self.told.retain(|_, told| *told + pause > now);
            self.told.insert(item.clone(), now);
        }
        due
    }

    /// One of those that are held back, as nothing more comes.
    fn rest(&mut self) -> Option<T> {
        let item = self.held.keys().next().cloned()?;
        self.held.remove(&item);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use tokio::sync::mpsc;

    use super::*;

    fn map(uid: &str, label: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some("m".to_owned()),
                uid: Some(uid.to_owned()),
                labels: Some([("a".to_owned(), label.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    #[test]
    fn what_tells_nothing_new_wakes_nobody() {
        let events = [
            Event::Init,
            Event::InitApply(map("1", "x")),
            Event::InitDone,
            Event::Apply(map("1", "x")),
            Event::Apply(map("1", "y")),
            // Listed again after an interruption.
            Event::Init,
            Event::InitApply(map("1", "y")),
            Event::InitDone,
            Event::Delete(map("1", "y")),
            Event::Apply(map("1", "y")),
            // Deleted and made anew while nobody looked.
            Event::Init,
            Event::InitApply(map("2", "y")),
            Event::InitDone,
        ];
        let told =
            changes(stream::iter(events.map(Ok)), |map: &ConfigMap| map.metadata.labels.clone());
        let told: Vec<_> = told
            .map(|map| {
                let meta = map.unwrap().metadata;
                (meta.uid.unwrap(), meta.labels.unwrap()["a"].clone())
            })
            .collect()
            .now_or_never()
            .unwrap();
        let wanted = [("1", "x"), ("1", "y"), ("1", "y"), ("1", "y"), ("2", "y")];
        let wanted = wanted.map(|(uid, label)| (uid.to_owned(), label.to_owned()));
        assert_eq!(told, wanted);
    }

    #[tokio::test(start_paused = true)]
    async fn repetitions_come_as_one_when_the_pause_is_over() {
        let (send, mut receive) = mpsc::unbounded_channel();
        let items = stream::poll_fn(move |context| receive.poll_recv(context));
        let mut paced = pin!(paced(items, Duration::from_secs(1)));
        let start = Instant::now();
        for item in ["a", "a", "b", "a"] {
            send.send(item).unwrap();
        }
        assert_eq!(paced.next().await, Some("a"));
        assert_eq!(paced.next().await, Some("b"));
        assert_eq!(start.elapsed(), Duration::ZERO, "the first of each comes at once");
        assert_eq!(paced.next().await, Some("a"));
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        assert!(paced.next().now_or_never().is_none(), "three became two");
        send.send("a").unwrap();
        send.send("b").unwrap();
        assert_eq!(paced.next().await, Some("b"));
        assert_eq!(paced.next().await, Some("a"));
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        send.send("a").unwrap();
        drop(send);
        assert_eq!(paced.next().await, Some("a"), "none is lost");
        assert_eq!(paced.next().await, None);
    }
}

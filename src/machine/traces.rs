//! What is kept of machines outside of their objects goes with them: by whatever hands they go, and
//! before another object takes their name.

use std::sync::Arc;

use kube::ResourceExt;
use kube::runtime::reflector::{ObjectRef, Store};

use super::memory::Memory;
use super::quiet::Bell;
use super::stores::Stored;
use crate::connections::Connections;
use crate::events::Recorder;
use crate::hypervisor::ObjectKey;

/// Where something is kept.
#[derive(Clone)]
pub(super) struct Traces {
    pub(super) bell: Bell,
    pub(super) memory: Arc<Memory>,
    pub(super) connections: Arc<Connections>,
    pub(super) recorder: Recorder,
}

impl Traces {
    /// Somebody works on this machine now. What is left of another one of its name is forgotten.
    pub(super) fn greet(&self, key: &ObjectKey, uid: &str) {
        if let Some(other) = self.memory.belongs_to(key, uid) {
            self.forget(key, &other);
            self.memory.belongs_to(key, uid);
        }
    }

    /// A machine is gone, or none of ours any more.
    pub(super) fn forget(&self, key: &ObjectKey, uid: &str) {
        self.bell.forget(key);
        self.memory.forget(key, uid);
        self.connections.let_go(key, uid);
    }

    /// The same for all that went while nobody watched.
    pub(super) fn sweep(&self, there: &Store<Stored>) {
        for (key, uid) in self.memory.owners() {
            if !holds(there, &key, &uid) {
                self.forget(&key, &uid);
            }
        }
    }
}

/// Whether a machine is among the copies.
pub(super) fn holds(there: &Store<Stored>, key: &ObjectKey, uid: &str) -> bool {
    let copy = there.get(&ObjectRef::new(&key.name).within(&key.namespace));
    copy.is_some_and(|copy| copy.uid().as_deref() == Some(uid))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::core::DeserializeGuard;
    use kube::runtime::events::Reporter;
    use kube::runtime::{reflector, watcher};
    use tokio_util::sync::CancellationToken;

    use super::super::fixture::*;
    use super::*;
    use crate::api::ProxmoxMachine;
    use crate::connections::{Own, Settings};
    use crate::pve::{Call, Observer};

    #[derive(Debug)]
    struct Nobody;

    impl Observer for Nobody {
        fn called(&self, _: &Call) {}
    }

    fn key() -> ObjectKey {
        ObjectKey { namespace: "lab".to_owned(), name: "w-1".to_owned() }
    }

    fn traces() -> Traces {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let (wakes, _) = tokio::sync::mpsc::unbounded_channel();
        let client = kube::Client::try_from(config).unwrap();
        let recorder = Recorder::new(client.clone(), Reporter::from("test"));
        let connections = Connections::new(Settings {
            client,
            own: Own::none(),
            wakes,
            observer: Arc::new(Nobody),
            fence: crate::pve::Fence::default(),
            clones: crate::hypervisor::CloneLimits::default(),
            shutdown: CancellationToken::new(),
        });
        let connections = Arc::new(connections);
        Traces { bell: Bell::default(), memory: Arc::default(), connections, recorder }
    }

    #[tokio::test]
    async fn a_machine_is_ours_to_miss_if_its_finalizer_was_seen() {
        let (traces, mut machine) = (traces(), ready().machine);
        machine.metadata.deletion_timestamp = Some(Time(now()));
        let misses = |machine: &ProxmoxMachine| traces.misses(machine);
        assert!(misses(&machine));
        machine.metadata.finalizers = Some(vec!["example.com/another".to_owned()]);
        assert!(!misses(&machine), "one before this process may have taken it off");
        traces.memory.with(&key(), |remembered| remembered.held = true);
        assert!(misses(&machine), "by others, since it was seen");
        traces.memory.with(&key(), |remembered| remembered.released = true);
        assert!(!misses(&machine));
    }

    fn untouched(traces: &Traces) -> bool {
        traces.memory.with(&key(), |remembered| remembered.untouched)
    }

    #[tokio::test]
    async fn an_object_of_the_same_name_inherits_nothing() {
        let traces = traces();
        traces.greet(&key(), "m-uid");
        traces.memory.with(&key(), |remembered| remembered.untouched = true);
        traces.bell.ring(key());
        traces.greet(&key(), "m-uid");
        assert!(untouched(&traces));
        traces.greet(&key(), "another");
        assert!(!untouched(&traces) && !traces.bell.rang(&key()));
        traces.memory.with(&key(), |remembered| remembered.untouched = true);
        traces.forget(&key(), "m-uid");
        assert!(untouched(&traces), "the one before is told late");
    }

    #[tokio::test]
    async fn machines_that_went_while_nobody_watched_are_forgotten() {
        let (traces, (there, mut copies)) = (traces(), reflector::store::<Stored>());
        traces.greet(&key(), "m-uid");
        let mut lists = |all: Vec<Stored>| {
            copies.apply_watcher_event(&watcher::Event::Init);
            for one in all {
                copies.apply_watcher_event(&watcher::Event::InitApply(one));
            }
            copies.apply_watcher_event(&watcher::Event::InitDone);
        };
        lists(vec![DeserializeGuard(Ok(fresh().machine))]);
        traces.sweep(&there);
        assert_eq!(traces.memory.owners(), [(key(), "m-uid".to_owned())]);
        lists(Vec::new());
        traces.sweep(&there);
        assert_eq!(traces.memory.owners(), []);
    }
}

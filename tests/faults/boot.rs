//! Guests that say nothing, or nothing good.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, ready};
use k8s_openapi::api::core::v1::Event;
use pve_fake::{Boot, CloudInit, Config, Guest, GuestHandle};
use serde_json::json;
use tokio::time::Instant;

use crate::case::{Case, PATIENCE};

/// Guests that do nothing but what the test lets them do.
#[derive(Default)]
struct Puppets(Mutex<BTreeMap<u32, GuestHandle>>);

impl Puppets {
    fn get(&self, vmid: u32) -> Option<GuestHandle> {
        self.0.lock().unwrap().get(&vmid).cloned()
    }
}

impl Guest for Puppets {
    fn started(&self, boot: Boot, handle: GuestHandle) -> BoxFuture<'_, ()> {
        self.0.lock().unwrap().insert(boot.vmid, handle);
        Box::pin(ready(()))
    }

    fn stopped(&self, vmid: u32) -> BoxFuture<'_, ()> {
        self.0.lock().unwrap().remove(&vmid);
        Box::pin(ready(()))
    }
}

/// A machine whose guest has just been started.
async fn booted() -> (Case, GuestHandle) {
    let puppets = Arc::new(Puppets::default());
    let config = Config::default().with_guest(Arc::clone(&puppets) as Arc<dyn Guest>);
    let case = Case::with(config, json!({})).await;
    case.machine("m", json!({})).await;
    let guest = case.sees("the guest starts", |_| puppets.get(100)).await;
    (case, guest)
}

pub(crate) async fn an_agent_that_never_answers_is_told_with_the_remedies() {
    let (case, guest) = booted().await;
    let words = ["QEMU guest agent", "qemu-guest-agent", "agent: enabled=1", "skipQemuGuestAgent"];
    case.says("m", "False Info PoweringOn", &words).await;
    guest.agent(true);
    case.says("m", "False Info PoweringOn", &["cloud-init", "finish"]).await;
    guest.cloud_init(CloudInit::Done);
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_failed_cloud_init_fails_the_machine_with_the_guests_words() {
    let (case, guest) = booted().await;
    guest.agent(true);
    guest.cloud_init(CloudInit::Error("kubeadm join: connection refused".to_owned()));
    let words = ["cloud-init failed", "status: error", "kubeadm join: connection refused"];
    let said = case.says("m", "False Error VMProvisionFailed", &words).await;
    let failed = case.until("m", "failed", |found| {
        found.status.as_ref().is_some_and(|status| status.failure_reason.is_some())
    });
    let status = failed.await.status.unwrap();
    assert_eq!(status.failure_reason.as_deref(), Some("BootstrapFailed"));
    assert_eq!(status.failure_message, Some(said));
    assert!(!status.ready);
    // Cluster API replaces it; until then it stays for people to look at.
    assert!(case.vm_of("m").running);
    case.end().await;
}

pub(crate) async fn a_degraded_cloud_init_makes_a_machine_ready_with_a_warning() {
    let (case, guest) = booted().await;
    guest.agent(true);
    guest.cloud_init(CloudInit::Degraded("deprecated key".to_owned()));
    let uid = case.ready("m").await.metadata.uid;
    // Events are written after the status that they tell of.
    let is_it = |event: &Event| {
        event.involved_object.uid == uid && event.reason.as_deref() == Some("CloudInitDegraded")
    };
    let deadline = Instant::now() + PATIENCE;
    let event = loop {
        let events: Vec<Event> = case.list().await;
        if let Some(event) = events.into_iter().find(is_it) {
            break event;
        }
        assert!(Instant::now() < deadline, "no event tells of it");
    };
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let said = event.message.unwrap_or_default();
    assert!(said.contains("status: done") && said.contains("deprecated key"), "{said}");
    case.end().await;
}

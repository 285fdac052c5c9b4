//! Trouble between client and cluster, played by our simulator.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use capmox::pve::{
    Call, Client, ClientConfig, CloneOptions, DestroyOptions, ErrorKind, Limits, Observer, Tls,
    token,
};
use pve_fake::{Action, Change, Config, Fake, FaultRule};

use crate::peer::{client, done, node};

#[derive(Debug, Default)]
struct Calls(Mutex<Vec<Call>>);

impl Observer for Calls {
    fn called(&self, call: &Call) {
        self.0.lock().unwrap().push(*call);
    }
}

async fn start(limits: Limits) -> (Fake, Client, Arc<Calls>) {
    let fake = Fake::start(Config::default()).await.unwrap();
    let auth = token(&fake.token().id, &fake.token().secret).unwrap();
    let base_url = fake.url().parse().unwrap();
    let calls = Arc::new(Calls::default());
    let observer: Arc<dyn Observer> = calls.clone();
    let config = ClientConfig { base_url, auth, tls: Tls::System, limits };
    let client = Client::observed(config, observer).unwrap();
    (fake, client, calls)
}

/// The next `times` reads of that path go wrong.
fn fail(fake: &Fake, times: u64, path: &str, action: Action) {
    let rule = FaultRule { times: Some(times), ..FaultRule::always("GET", path, action) };
    fake.faults().add(rule);
}

#[tokio::test]
async fn a_read_is_repeated_when_its_connection_breaks_and_a_write_is_not() {
    let (fake, client, calls) = start(Limits::default()).await;
    fail(&fake, 2, "version", Action::DropBefore);
    client.version().await.unwrap();
    let attempts: Vec<u32> = calls.0.lock().unwrap().iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);

    let (pve1, source) = (node("pve1"), "9000".parse().unwrap());
    let options = CloneOptions::new("130".parse().unwrap());
    fake.fail_next("POST", "nodes/*/qemu/*/clone", Action::DropAfter);
    let error = client.clone_vm(&pve1, source, &options).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Connect);
    assert!(error.outcome_unknown(), "{error}");
    assert_eq!(fake.journal().count("POST", "**"), 1);
    // The clone was made; whoever asks sees it.
    assert!(!client.vmid_is_free(options.newid).await.unwrap());
    let tasks = client.cluster_tasks().await.unwrap();
    done(&client, tasks[0].upid.clone()).await;
    let gone = client.destroy_vm(&pve1, options.newid, DestroyOptions::default()).await.unwrap();
    done(&client, gone).await;
}

#[tokio::test]
async fn three_broken_connections_are_an_error() {
    let (fake, client, calls) = start(Limits::default()).await;
    fail(&fake, 3, "version", Action::DropBefore);
    let error = client.version().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (&ErrorKind::Connect, false));
    assert_eq!(calls.0.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn odd_codes_keep_their_text_and_only_quick_ones_are_asked_again() {
    let (fake, client, calls) = start(Limits::default()).await;
    for (status, attempts) in [(595, 1), (596, 1), (500, 1), (503, 3), (599, 3)] {
        calls.0.lock().unwrap().clear();
        let text = format!("words for {status}");
        fail(&fake, 3, "cluster/status", Action::Reply { status, text });
        let error = client.cluster_status().await.unwrap_err();
        assert_eq!(error.status(), Some(status));
        assert_eq!(error.message(), format!("words for {status}"));
        assert_eq!(calls.0.lock().unwrap().len(), attempts, "{status}");
        fake.faults().clear();
    }
    let text = "Connection timed out".to_owned();
    fake.fail_next("POST", "nodes/*/qemu/*/status/stop", Action::ReplyAfter { status: 596, text });
    let error = client.stop_vm(&node("pve1"), "9000".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NodeUnreachable);
    assert!(error.outcome_unknown());
}

#[tokio::test]
async fn silence_ends_in_a_timeout_without_a_second_try() {
    let limits = Limits { read_timeout: Duration::from_millis(300), ..Limits::default() };
    let (fake, client, calls) = start(limits).await;
    fake.fail_next("GET", "version", Action::Hang);
    let error = client.version().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (&ErrorKind::Timeout, false));
    assert_eq!(calls.0.lock().unwrap().len(), 1);
    fake.fail_next("POST", "nodes/*/qemu/*/status/stop", Action::HangAfter);
    let error = client.stop_vm(&node("pve1"), "9000".parse().unwrap()).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (&ErrorKind::Timeout, true));
}

#[tokio::test]
async fn a_node_that_is_off_is_unreachable_and_its_vms_are_not_missing() {
    let (fake, client, _) = start(Limits::default()).await;
    fake.change(Change::NodeOffline { node: "pve2".to_owned() });
    let error = client.vm_config(&node("pve2"), "500".parse().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::NodeUnreachable, "{error}");
    assert!(!error.is_vm_missing());
    fake.change(Change::QuorumLost { millis: None });
    let options = CloneOptions::new("131".parse().unwrap());
    let error = client.clone_vm(&node("pve1"), "9000".parse().unwrap(), &options).await;
    assert_eq!(error.unwrap_err().kind(), &ErrorKind::NoQuorum);
}

#[tokio::test]
async fn connections_that_the_server_closed_are_replaced() {
    let (fake, client, _) = start(Limits::default()).await;
    for _ in 0..5 {
        client.version().await.unwrap();
        fake.close_connections();
    }
}

#[tokio::test]
async fn calls_under_way_are_bounded_in_all_and_for_each_node() {
    let limits = Limits { per_endpoint: 8, per_node: 3, ..Limits::default() };
    let fake = Fake::start(Config::default()).await.unwrap();
    let auth = token(&fake.token().id, &fake.token().secret).unwrap();
    let client = client(&fake.url(), auth, Tls::System, limits);
    let rule = FaultRule::always("GET", "**", Action::Delay { millis: 20 });
    fake.faults().add(rule);
    // All of one node first: without a limit of its own it would take every slot.
    let nodes = [node("pve1"), node("pve2"), node("pve3")];
    let reads = (0..30).map(|number| {
        let (client, node) = (client.clone(), nodes[number / 10].clone());
        async move { client.storages(&node).await.unwrap() }
    });
    futures::future::join_all(reads).await;
    let journal = fake.journal();
    assert!(journal.max_in_flight() <= 8, "{}", journal.max_in_flight());
    for node in ["pve1", "pve2", "pve3"] {
        assert!(journal.max_in_flight_of(node) <= 3, "{}", journal.max_in_flight_of(node));
    }
    assert!(journal.max_in_flight() > 3, "calls to different nodes run side by side");
}

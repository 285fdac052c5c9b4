use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::source::Allowed;
use super::*;
use crate::hypervisor::{Operation, Promise};
use crate::pve::Call;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn called(&self, _: &Call) {}
}

fn given(url: &str, token: &str, secret: &str) -> Given {
    Given { url: url.into(), token: token.into(), secret: secret.into(), ..Given::default() }
}

fn cluster(spec: &Value) -> ProxmoxCluster {
    serde_json::from_value(json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "ProxmoxCluster",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": spec,
    }))
    .unwrap()
}

fn plain() -> ProxmoxCluster {
    cluster(&json!({"dnsServers": ["10.0.0.1"]}))
}

/// An API server that takes connections and never answers would do as well: none is asked.
fn connections(own: Own) -> Connections {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let (wakes, _) = mpsc::unbounded_channel();
    Connections::new(Settings {
        client: Client::try_from(config).unwrap(),
        own,
        wakes,
        observer: Arc::new(Nobody),
        fence: crate::pve::Fence::default(),
        clones: crate::hypervisor::CloneLimits::default(),
        shutdown: CancellationToken::new(),
    })
}

fn own(url: &str, token: &str) -> Credentials {
    Own::new(given(url, token, UUID)).started.unwrap().unwrap()
}

/// As if the source had been read.
fn settle(
    connections: &Connections,
    source: &Source,
    credentials: Credentials,
    version: Option<&str>,
) -> Arc<Endpoint> {
    let versions = match source {
        Source::Secret(key) => vec![(Object::Secret(key.clone()), version.map(ToOwned::to_owned))],
        _ => Vec::new(),
    };
    let found = Found { versions, allowed: Allowed::All, credentials: Ok(credentials) };
    connections.settle(source, found).1.unwrap()
}

#[test]
fn what_a_cluster_names_goes_before_what_the_manager_has() {
    let secret = |namespace: &str, name: &str| {
        Source::Secret(ObjectKey { namespace: namespace.into(), name: name.into() })
    };
    for (named, wanted) in [
        (json!({"name": "creds"}), secret("ns", "creds")),
        (json!({"name": "creds", "namespace": ""}), secret("ns", "creds")),
        (json!({"name": "creds", "namespace": "other"}), secret("other", "creds")),
        (json!(null), Source::Manager),
        (json!({"name": ""}), Source::Manager),
    ] {
        let cluster = cluster(&json!({"dnsServers": ["10.0.0.1"], "credentialsRef": named}));
        assert_eq!(Source::of(&cluster), wanted, "{named}");
        let mut cluster = cluster;
        cluster.spec.connection_ref = Some(crate::api::ConnectionRef { name: "lab".to_owned() });
        assert_eq!(Source::of(&cluster), Source::Connection("lab".to_owned()), "{named}");
    }
}

#[test]
fn a_namespace_that_is_not_allowed_is_told_apart_from_one_that_is() {
    let some = |names: &[&str]| Allowed::Only(names.iter().map(|&name| name.to_owned()).collect());
    for (allowed, admitted) in
        [(Allowed::All, true), (some(&["ns"]), true), (some(&["other"]), false), (some(&[]), false)]
    {
        assert_eq!(allowed.admits("ns"), admitted, "{allowed:?}");
    }
}

#[tokio::test]
async fn clusters_with_the_managers_credentials_share_one_endpoint() {
    let own = Own::new(given("https://pve:8006/", "a@pve!b", UUID));
    let connections = connections(own);
    let one = connections.of(&plain()).await.unwrap();
    let other = connections.of(&plain()).await.unwrap();
    assert!(Arc::ptr_eq(&one, &other));
    assert!(!format!("{connections:?}").contains("0123"), "{connections:?}");
}

#[tokio::test]
async fn own_credentials_that_are_passed_over_are_known_once_both_are() {
    let connections = connections(Own::new(given("https://b:8006/", "a@pve!b", UUID)));
    let cluster =
        cluster(&json!({"dnsServers": ["10.0.0.1"], "credentialsRef": {"name": "creds"}}));
    assert_eq!(connections.passed_over(&plain()), Known::Absent);
    assert!(matches!(connections.passed_over(&cluster), Known::Unknown(_)));
    let source = Source::of(&cluster);
    settle(&connections, &source, own("https://a:8006/", "a@pve!b"), Some("1"));
    let (used, own_url) = ("https://a:8006".to_owned(), "https://b:8006".to_owned());
    let passed_over = Known::Present(PassedOver { used, own: own_url });
    assert_eq!(connections.passed_over(&cluster), passed_over);
    settle(&connections, &source, own("https://b:8006/", "a@pve!b"), Some("2"));
    assert_eq!(connections.passed_over(&cluster), Known::Absent);
}

#[tokio::test]
async fn without_any_credentials_both_ways_to_give_them_are_named() {
    let fault = connections(Own::none()).of(&plain()).await.unwrap_err();
    assert_eq!(fault.class, Class::Blocked);
    for word in ["No credentials found", "ns/c", "credentialsRef", "PROXMOX_URL"] {
        assert!(fault.message.contains(word), "{fault}");
    }
}

#[tokio::test]
async fn a_mistake_in_the_managers_credentials_is_told_by_the_clusters_that_need_them() {
    for (own, class, words) in [
        (
            given("pve", "a@pve", UUID),
            Class::Invalid,
            &["PROXMOX_TOKEN, PROXMOX_SECRET", "user@realm!name"][..],
        ),
        (given("", "a@pve!b", UUID), Class::Invalid, &["PROXMOX_URL", "not set"]),
        (given("https://pve", "a@pve!b", " "), Class::Invalid, &["not set: PROXMOX_SECRET"]),
        (
            Given { root_ca: Some(Err("cannot read /x".into())), ..given("pve", "a@pve!b", UUID) },
            Class::Blocked,
            &["--proxmox-root-cert-file", "/x"],
        ),
        (
            Given { root_ca: Some(Ok(b"junk".to_vec())), ..given("pve", "a@pve!b", UUID) },
            Class::Invalid,
            &["no certificate"],
        ),
    ] {
        let fault = connections(Own::new(own)).of(&plain()).await.unwrap_err();
        assert_eq!(fault.class, class, "{fault}");
        for word in words {
            assert!(fault.message.contains(word), "{fault}");
        }
        assert!(!fault.message.contains(UUID), "{fault}");
    }
}

#[tokio::test]
async fn a_file_of_authorities_that_is_not_wanted_does_no_harm() {
    let own = Given {
        insecure: true,
        root_ca: Some(Err("cannot read /x".into())),
        ..given("https://pve", "a@pve!b", UUID)
    };
    assert!(connections(Own::new(own)).of(&plain()).await.is_ok());
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_takes_no_credentials_away() {
    let connections = connections(Own::none());
    let named = cluster(&json!({"dnsServers": ["10.0.0.1"], "credentialsRef": {"name": "creds"}}));
    let fault = tokio::time::timeout(Duration::from_mins(1), connections.of(&named))
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(fault.class, Class::Transient, "{fault}");
    assert!(fault.message.contains("Secret ns/creds"), "{fault}");
}

#[tokio::test]
async fn one_address_has_one_ledger_whatever_the_credentials() {
    let connections = connections(Own::none());
    let open = |source: Source, token: &str, url: &str| {
        settle(&connections, &source, own(url, token), None)
    };
    let source =
        |name: &str| Source::Secret(ObjectKey { namespace: "ns".into(), name: name.into() });
    let one = open(source("a"), "a@pve!b", "https://pve:8006/");
    let other = open(source("b"), "a@pve!c", "PVE:8006");
    let elsewhere = open(source("c"), "a@pve!b", "https://pve2:8006/");
    assert!(!Arc::ptr_eq(&one, &other));
    one.ledger().mark_taken(crate::ids::VmId::MIN, tokio::time::Instant::now());
    assert_eq!(other.ledger().taken(tokio::time::Instant::now()).len(), 1);
    assert_eq!(elsewhere.ledger().taken(tokio::time::Instant::now()).len(), 0);
}

#[tokio::test]
async fn what_was_watched_is_watched_after_a_rotation_at_the_same_proxmox_only() {
    let connections = connections(Own::none());
    let source = Source::Secret(ObjectKey { namespace: "ns".into(), name: "a".into() });
    let open = |url: &str, token: &str, version: &str| {
        settle(&connections, &source, own(url, token), Some(version))
    };
    let vmid = crate::ids::VmId::MIN;
    let first = open("https://pve", "a@pve!old", "1");
    first.watch(vmid, ObjectKey { namespace: "ns".into(), name: "m".into() });
    let watched = first.watch_list();
    let elsewhere = open("https://other", "a@pve!old", "2");
    assert_ne!(elsewhere.watch_list(), watched, "VMIDs of another Proxmox are other VMs");
    // As if a wrong token had been written in between.
    let back = open("https://pve", "a@pve!new", "3");
    assert_eq!(back.watch_list(), watched);
    let rotated = open("https://pve", "a@pve!newer", "4");
    assert_eq!(rotated.watch_list(), watched);
}

#[tokio::test]
async fn a_rotation_replaces_the_endpoint_and_lets_go_of_the_one_before() {
    let connections = connections(Own::none());
    let open = |name: &str, token: &str, version: &str| {
        let source = Source::Secret(ObjectKey { namespace: "ns".into(), name: name.into() });
        settle(&connections, &source, own("https://pve", token), Some(version))
    };
    let before = open("a", "a@pve!old", "1");
    let shared = open("b", "a@pve!old", "7");
    assert!(Arc::ptr_eq(&before, &shared), "equal credentials of two Secrets");
    let key = |name: &str| Source::Secret(ObjectKey { namespace: "ns".into(), name: name.into() });
    let object = |name: &str| match key(name) {
        Source::Secret(key) => Object::Secret(key),
        other => panic!("{other}"),
    };
    let outdated = |version| lock(&connections.shared.pool).outdated(&object("a"), Some(version));
    assert_eq!(outdated("1"), []);
    assert_eq!(outdated("2"), [key("a")]);

    let after = open("a", "a@pve!new", "2");
    assert!(!Arc::ptr_eq(&before, &after));
    let still = open("b", "a@pve!old", "8");
    assert!(Arc::ptr_eq(&before, &still), "the other Secret still has the old token");
    drop((shared, still));
    let held = Arc::strong_count(&before);
    open("b", "a@pve!new", "9");
    assert_eq!(Arc::strong_count(&before), held - 1, "nobody but its users holds it");
    connections.shared.forgotten(&object("a"));
    assert!(lock(&connections.shared.pool).known(&key("a")).is_none());
    assert!(lock(&connections.shared.pool).known(&key("b")).is_some());
}

#[tokio::test]
async fn nothing_is_kept_for_an_object_that_is_gone() {
    let own = Own::new(given("https://pve:8006/", "a@pve!b", UUID));
    let connections = connections(own);
    let endpoint = connections.of(&plain()).await.unwrap();
    let key = ObjectKey { namespace: "ns".into(), name: "w-1".into() };
    let upid = "UPID:pve1:000ACD12:00BC614E:679A423B:qmclone:9000:capmox@pve!capi:";
    endpoint.follow(&key, upid.parse().unwrap(), Operation::Clone);
    let promise = Promise { owner: "uid".into(), node: None, memory: 0, group: "c/workers".into() };
    endpoint.ledger().restore("105".parse().unwrap(), promise).unwrap();
    connections.let_go(&key, "uid");
    assert_eq!(endpoint.task(&key), None);
    assert!(endpoint.ledger().promises().is_empty());
}

//! Start, end, and what is said on the way.

use std::time::{Duration, Instant};

use crate::stage::{PATIENCE, end_of, readiness, ready, says, start, world};

const SECRET: &str = "5ec4e7aa-89ab-cdef-0123-456789abcdef";

#[tokio::test]
async fn it_becomes_ready_counts_and_ends_when_asked() {
    let mut manager = ready(&[], &["--v=2"]).await;
    let metrics = manager.metrics().await.unwrap();
    assert!(metrics.contains("capmox_leader 1"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    let asked = Instant::now();
    let status = manager.stop().await.unwrap();
    assert_eq!(status.code(), Some(0), "{}", manager.log_tail(20));
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn passes_are_counted_by_kind() {
    let namespace = world().await.namespace("passes").await.unwrap();
    let client = world().await.client().await.unwrap();
    let objects = testbed::apply::documents(
        "{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: ProxmoxCluster, metadata: \
         {name: c}, spec: {dnsServers: [10.0.0.1], ipv4Config: {addresses: [10.0.0.0/24], prefix: \
         24}}}\n---\n{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: \
         ProxmoxMachine, metadata: {name: m}, spec: {sourceNode: pve1, templateID: 9000}}",
    );
    for object in objects.unwrap() {
        testbed::apply::apply(&client, &object, &namespace).await.unwrap();
    }
    let mut manager = ready(&[], &[&format!("--namespace={namespace}")]).await;
    let counted = async |kind: &str| {
        let line = format!("capmox_reconciles_total{{kind=\"{kind}\"");
        manager.metrics().await.unwrap().contains(&line)
    };
    let until = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    while !(counted("ProxmoxCluster").await && counted("ProxmoxMachine").await) {
        ticks.tick().await;
        assert!(Instant::now() < until, "{}", manager.metrics().await.unwrap());
    }
    manager.stop().await.unwrap();
}

#[tokio::test]
async fn credentials_that_cannot_be_used_are_told_and_keep_nothing_from_starting() {
    let token = format!("capmox={SECRET}");
    for (url, telling) in [
        ("https://127.0.0.1:1", "user@realm!name"),
        (SECRET, "PROXMOX_URL of the manager: holds the secret of an API token"),
    ] {
        let env = [("PROXMOX_URL", url), ("PROXMOX_TOKEN", &token), ("PROXMOX_SECRET", SECRET)];
        // As much as it ever says.
        let mut manager = ready(&env, &["--v=99"]).await;
        says(&mut manager, &[telling]).await;
        manager.stop().await.unwrap();
        let log = std::fs::read_to_string(manager.log()).unwrap();
        assert!(!log.contains(SECRET), "{log}");
    }
}

#[tokio::test]
async fn an_api_server_that_is_not_there_yet_is_waited_for() {
    let kubeconfig = world().await.folder().join("nowhere.kubeconfig");
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let mut manager = start(&[], &[&kubeconfig]).await;
    says(&mut manager, &["waiting for the API server"]).await;
    let (status, text) = readiness(&manager).await;
    assert_eq!(status, 503);
    assert!(text.contains("API server"), "{text}");
    assert_eq!(manager.stop().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn what_keeps_it_from_starting_is_told_with_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let health = format!("--health-probe-bind-address={address}");
    for (args, telling) in [
        (&["--kubeconfig=/nowhere"][..], "kubeconfig /nowhere"),
        (&[health.as_str()], "--health-probe-bind-address"),
    ] {
        let mut manager = start(&[], args).await;
        assert_eq!(end_of(&mut manager).await, Some(1));
        assert!(manager.log_tail(5).contains(telling), "{}", manager.log_tail(5));
    }
    let mut manager = start(&[], &["--leader-elekt"]).await;
    assert_eq!(end_of(&mut manager).await, Some(2));
    assert!(manager.log_tail(9).contains("'--leader-elect'"), "{}", manager.log_tail(9));
}

#[tokio::test]
async fn webhooks_without_a_certificate_are_named_as_what_readiness_waits_for() {
    let port = testbed::ports::free().unwrap().to_string();
    let args = ["--enable-webhooks=true", "--webhook-cert-dir=/nowhere", "--webhook-port", &port];
    let mut manager = start(&[], &args).await;
    says(&mut manager, &["/nowhere/tls.crt", "API server reached"]).await;
    let (status, text) = readiness(&manager).await;
    assert_eq!(status, 503);
    assert!(text.contains("--enable-webhooks=false"), "{text}");
    manager.stop().await.unwrap();

    let (_, certificates) = world().await.serving_certificate();
    let certificates = format!("--webhook-cert-dir={}", certificates.display());
    let args = ["--enable-webhooks=true", &certificates, "--webhook-port", &port];
    let mut manager = ready(&[], &args).await;
    manager.stop().await.unwrap();
}

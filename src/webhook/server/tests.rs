//! The server as the apiserver sees it: over HTTPS.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use serde_json::{Value, json};

use super::*;

/// Writes a fresh certificate for the loopback address and gives it back in PEM form.
fn write_certificate(directory: &Path) -> String {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(directory.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    std::fs::write(directory.join("tls.crt"), pair.cert.pem()).unwrap();
    pair.cert.pem()
}

fn client(trusted: &str) -> reqwest::Client {
    // The first one wins; another test may have been faster.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate = reqwest::Certificate::from_pem(trusted.as_bytes()).unwrap();
    reqwest::Client::builder()
        .tls_certs_only([certificate])
        .timeout(Duration::from_secs(10))
        .build()
        .unwrap()
}

struct Running {
    directory: tempfile::TempDir,
    address: SocketAddr,
    ready: watch::Receiver<bool>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), ServeError>>,
}

impl Running {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            cert_dir: directory.path().to_owned(),
        };
        let server = Server::bind(config).await.unwrap();
        let (address, ready) = (server.address(), server.ready());
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(server.run(shutdown.clone()));
        Self { directory, address, ready, shutdown, task }
    }

    async fn becomes_ready(&mut self) {
        let ready = self.ready.wait_for(|ready| *ready);
        timeout(Duration::from_secs(20), ready).await.expect("no certificate was loaded").unwrap();
    }

    async fn post(&self, client: &reqwest::Client, path: &str, body: &Value) -> Value {
        let url = format!("https://{}{path}", self.address);
        client.post(url).json(body).send().await.unwrap().json().await.unwrap()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        timeout(Duration::from_secs(20), self.task).await.expect("no end").unwrap().unwrap();
    }
}

fn review(kind: &str, object: &Value) -> Value {
    let group = "infrastructure.cluster.x-k8s.io";
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5",
            "kind": {"group": group, "version": "v1alpha1", "kind": kind},
            "resource": {"group": group, "version": "v1alpha1", "resource": "any"},
            "operation": "CREATE",
            "userInfo": {"username": "somebody"},
            "object": object,
            "oldObject": null,
        },
    })
}

#[tokio::test]
async fn it_answers_at_the_paths_of_the_peer() {
    let mut server = Running::start().await;
    let client = client(&write_certificate(server.directory.path()));
    server.becomes_ready().await;

    let machine = |network: Value| {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ProxmoxMachine",
            "metadata": {"generateName": "m-", "namespace": "ns"},
            "spec": {"sourceNode": "pve1", "templateID": 900, "network": network},
        })
    };
    let good = review("ProxmoxMachine", &machine(json!({"default": {"bridge": "vmbr0"}})));
    let answer = server.post(&client, MACHINE_PATH, &good).await;
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["response"]["uid"], "705ab4f5");
    assert_eq!(answer["response"]["allowed"], true);

    let bad = review("ProxmoxMachine", &machine(json!({})));
    let answer = server.post(&client, MACHINE_PATH, &bad).await;
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["code"], 422);
    assert_eq!(answer["response"]["warnings"].as_array().unwrap().len(), 1);

    let cluster = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": "ProxmoxCluster",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"dnsServers": ["10.0.0.1"]},
    });
    let answer = server.post(&client, CLUSTER_PATH, &review("ProxmoxCluster", &cluster)).await;
    assert_eq!(answer["response"]["status"]["code"], 403);

    let answer = server.post(&client, CLUSTER_PATH, &json!({"kind": "Pod"})).await;
    assert_eq!(answer["response"]["allowed"], false);
    server.stop().await;
}

#[tokio::test]
async fn it_waits_for_a_certificate_and_follows_its_renewal() {
    let mut server = Running::start().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let early = client(&write_certificate(elsewhere.path()));
    let url = format!("https://{}{MACHINE_PATH}", server.address);
    assert!(early.post(&url).body("{}").send().await.is_err(), "no certificate, no answer");
    assert!(!*server.ready.borrow());

    let first = client(&write_certificate(server.directory.path()));
    server.becomes_ready().await;
    assert!(first.post(&url).body("{}").send().await.is_ok());

    let renewed = client(&write_certificate(server.directory.path()));
    let deadline = Instant::now() + Duration::from_secs(20);
    while renewed.post(&url).body("{}").send().await.is_err() {
        assert!(Instant::now() < deadline, "the renewed certificate is not served");
        tokio::task::yield_now().await;
    }
    server.stop().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bind = taken.local_addr().unwrap();
    let error = Server::bind(Config { bind, cert_dir: "/nowhere".into() }).await.unwrap_err();
    assert!(error.to_string().contains(&bind.to_string()), "{error}");
}

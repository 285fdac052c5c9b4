//! One script of calls, played on this simulator and on fakepve.

use std::time::{Duration, Instant};

use hyper::ext::ReasonPhrase;
use pve_fake::peer::Fakepve;
use pve_fake::seed::UserSeed;
use pve_fake::{Config, Fake, Seed, StorageSeed, Timings};
use reqwest::{Client, Method};
use serde_json::Value;

use crate::divergences::KNOWN;
use crate::shape::differences;
use crate::steps::{LIFE, POOR, Step, get};

const POOR_TOKEN: &str = "poor@pve!t=p";

struct Side {
    http: Client,
    url: String,
    token: String,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    text: String,
    body: Value,
}

impl Side {
    fn new(url: &str, certificate: Option<&str>, token: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = Client::builder().no_proxy();
        if let Some(pem) = certificate {
            let certificate = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
            http = http.tls_certs_only([certificate]);
        }
        Self { http: http.build().unwrap(), url: url.to_owned(), token: token.to_owned() }
    }

    fn calling_as(self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self }
    }

    async fn send(&self, step: &Step) -> Answer {
        let url = format!("{}/api2/json{}", self.url, step.path);
        let mut request = self.http.request(step.method.clone(), url);
        request = request.header("Authorization", format!("PVEAPIToken={}", self.token));
        request = match step.method {
            Method::GET | Method::DELETE => request.query(step.params),
            _ => request.form(step.params),
        };
        let response = request.send().await.unwrap();
        let status = response.status();
        let sent = response.extensions().get::<ReasonPhrase>();
        let sent = sent.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        let text = sent.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().to_owned());
        let body = response.text().await.unwrap();
        let body = serde_json::from_str(&body).unwrap_or(Value::Null);
        Answer { status: status.as_u16(), text, body }
    }

    /// Waits for a started task and gives its exit text.
    async fn settle(&self, answer: &Answer) -> Option<String> {
        let upid = answer.body["data"].as_str().filter(|data| data.starts_with("UPID:"))?;
        let node = upid.split(':').nth(1)?;
        let path: &'static str = format!("/nodes/{node}/tasks/{upid}/status").leak();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.send(&get("task", path)).await;
            if let Some(exit) = status.body["data"]["exitstatus"].as_str() {
                return Some(exit.to_owned());
            }
            assert!(Instant::now() < deadline, "{upid} does not end: {status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Every difference of a step, one line each.
async fn compare(step: &Step, ours: &Side, theirs: &Side) -> Vec<String> {
    let (mine, other) = (ours.send(step).await, theirs.send(step).await);
    let mut lines = Vec::new();
    if mine.status != other.status {
        lines.push(format!("status: {} | {}", mine.status, other.status));
    }
    if mine.text != other.text {
        lines.push(format!("text: {} | {}", mine.text, other.text));
    }
    if mine.body["errors"] != other.body["errors"] {
        lines.push(format!("errors: {} | {}", mine.body["errors"], other.body["errors"]));
    }
    lines.extend(differences(&mine.body["data"], &other.body["data"]));
    let exits = (ours.settle(&mine).await, theirs.settle(&other).await);
    if exits.0 != exits.1 {
        lines.push(format!("exit: {:?} | {:?}", exits.0, exits.1));
    }
    lines.into_iter().map(|line| format!("{}: {line}", step.name)).collect()
}

fn seed() -> Seed {
    let seed = Seed::three_nodes().with_token("poor@pve!t", "p", false).with_acl(
        "/",
        "poor@pve",
        &["VM.Audit"],
    );
    let local = StorageSeed::new("local", "dir", false, "iso,vztmpl,backup");
    let mut seed = seed.with_storage(local);
    seed.users.push(UserSeed { id: "poor@pve".into(), password: String::new() });
    seed.nodes.truncate(2);
    seed
}

#[tokio::test]
async fn both_simulators_answer_one_script_alike_but_for_the_listed_divergences() {
    let seed = seed();
    let zero = Timings {
        lock_wait: Duration::from_secs(10),
        keep_alive: Duration::from_secs(5),
        ticket: Duration::from_hours(2),
        // fakepve is never stale.
        broadcast: Duration::from_millis(1),
        ..Timings::default().scaled(0.0)
    };
    let config = Config { timings: zero, ..Config::default() };
    let fake = Fake::start(config.with_seed(seed.clone())).await.unwrap();
    let peer = tokio::task::spawn_blocking(move || Fakepve::start(&seed, 0.0)).await.unwrap();
    let peer = peer.unwrap();
    let token = format!("{}={}", fake.token().id, fake.token().secret);
    let ours = Side::new(&fake.url(), None, &token);
    let theirs = Side::new(peer.url(), Some(peer.certificate_pem()), &token);
    let mut found = Vec::new();
    for step in LIFE {
        found.extend(compare(step, &ours, &theirs).await);
    }
    let (ours, theirs) = (ours.calling_as(POOR_TOKEN), theirs.calling_as(POOR_TOKEN));
    for step in POOR {
        found.extend(compare(step, &ours, &theirs).await);
    }
    let known: Vec<&str> = KNOWN.iter().flat_map(|(_, lines)| lines.iter().copied()).collect();
    let new: Vec<&String> = found.iter().filter(|line| !known.contains(&line.as_str())).collect();
    let gone: Vec<&&str> =
        known.iter().filter(|line| !found.iter().any(|other| other == *line)).collect();
    assert!(new.is_empty(), "new divergences (ours | theirs):\n{new:#?}");
    assert!(gone.is_empty(), "listed divergences that are none any more: {gone:#?}");
    fake.take_violations();
}

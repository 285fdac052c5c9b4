//! Several addresses of one Proxmox cluster.

use std::sync::Arc;

use capmox::pve::{
    Auth, Call, Client, ClientConfig, ErrorKind, Fence, Limits, Observer, Tls, token,
};
use pve_fake::{Action, Config, Fake, FaultRule};
use tokio::net::TcpListener;
use tokio::time::Instant;

#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn called(&self, _: &Call) {}
}

fn client(auth: Auth, tls: Tls, urls: &[&str]) -> Client {
    fenced(auth, tls, urls, Fence::default())
}

fn fenced(auth: Auth, tls: Tls, urls: &[&str], fence: Fence) -> Client {
    let mut urls = urls.iter().map(|url| url.parse().unwrap());
    let base_url = urls.next().unwrap();
    let config = ClientConfig { base_url, auth, tls, limits: Limits::default() };
    Client::failing_over(config, urls.collect(), Arc::new(Nobody), fence).unwrap()
}

fn auth(fake: &Fake) -> Auth {
    token(&fake.token().id, &fake.token().secret).unwrap()
}

/// Where nobody listens.
async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn the_next_address_is_asked_when_no_connection_comes_about_and_stays() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let (down, up) = (nowhere().await, fake.url());
    let client = client(auth(&fake), Tls::System, &[&down, &up]);
    assert_eq!(client.active_url().to_string(), down);
    // A write was not sent either, and so may go to the next one.
    let node = "pve1".parse().unwrap();
    let vmid = capmox::ids::VmId::MIN;
    assert!(client.start_vm(&node, vmid).await.is_ok(), "the second address took it");
    assert_eq!(client.active_url().to_string(), up);
    assert_eq!(client.base_url().to_string(), down, "the name stays the first");
    assert!(client.version().await.is_ok());
}

#[tokio::test]
async fn a_password_works_at_whichever_address_answers() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let user = "capmox@pve".to_owned();
    let auth = Auth::Ticket { user, password: "secret".into() };
    let (down, up) = (nowhere().await, fake.url());
    let client = client(auth, Tls::System, &[&down, &up]);
    assert!(client.version().await.is_ok());
    let tickets = fake.journal().entries().filter(|call| call.path.ends_with("/ticket")).count();
    assert_eq!(tickets, 1);
}

#[tokio::test]
async fn an_answer_is_final_whatever_it_says() {
    let first = Fake::start(Config::default()).await.unwrap();
    let second = Fake::start(Config::default()).await.unwrap();
    let reply = |status| Action::Reply { status, text: "no".to_owned() };
    let client = client(auth(&first), Tls::System, &[&first.url(), &second.url()]);
    for status in [401, 403, 500, 595] {
        first.faults().clear();
        first.faults().add(FaultRule::always("GET", "version", reply(status)));
        assert_eq!(client.version().await.unwrap_err().status(), Some(status));
    }
    assert_eq!(second.journal().total(), 0);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_leads_nowhere_else() {
    let first = Fake::start(Config::default().with_tls()).await.unwrap();
    let second = Fake::start(Config::default().with_tls()).await.unwrap();
    let tls = Tls::Fingerprints(vec![second.fingerprint().unwrap()]);
    let client = client(auth(&first), tls, &[&first.url(), &second.url()]);
    assert_eq!(client.version().await.unwrap_err().kind(), &ErrorKind::Tls);
    assert_eq!(second.journal().total(), 0);
}

#[tokio::test]
async fn when_all_are_down_the_last_one_is_told() {
    let (one, other) = (nowhere().await, nowhere().await);
    let auth = token("a@pve!t", "0123-secret").unwrap();
    let client = client(auth, Tls::System, &[&one, &other]);
    let error = client.version().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Connect);
    assert!(error.to_string().contains(&other), "{error}");
}

#[tokio::test]
async fn whoever_may_lead_no_more_reads_and_changes_nothing() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let fence = Fence::default();
    let client = fenced(auth(&fake), Tls::System, &[&fake.url()], fence.clone());
    let node = "pve1".parse().unwrap();
    let start = || client.start_vm(&node, capmox::ids::VmId::MIN);
    fence.open_until(Instant::now());
    let error = start().await.unwrap_err();
    assert!(error.to_string().contains("not sent"), "{error}");
    assert!(!error.outcome_unknown());
    assert!(client.version().await.is_ok());
    assert_eq!(fake.journal().count("POST", "/nodes/*/qemu/*/status/start"), 0);
    fence.open_until(Instant::now() + std::time::Duration::from_mins(1));
    start().await.unwrap();
    assert_eq!(fake.journal().count("POST", "/nodes/*/qemu/*/status/start"), 1);
}

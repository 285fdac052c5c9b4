//! Tickets: fetched once, renewed in time and once after a refusal.

use std::time::Duration;

use capmox::pve::{Auth, Client, ErrorKind, Limits, Tls};
use futures::future::join_all;
use pve_fake::{Config, Fake};

use crate::peer::{client, node};
use crate::script::{Reaction, Script, json};

fn with_password(script: &Script, limits: Limits) -> Client {
    let auth = Auth::Ticket { user: "root@pam".to_owned(), password: "hunter22".into() };
    client(&script.url, auth, Tls::System, limits)
}

fn ticket(name: &str) -> Reaction {
    let ticket = format!("PVE:root@pam:{name}::a+b/c==");
    let body = format!(r#"{{"data":{{"ticket":"{ticket}","CSRFPreventionToken":"csrf-{name}"}}}}"#);
    json("200 OK", &body)
}

fn version() -> Reaction {
    json("200 OK", r#"{"data":{"version":"9.1.4"}}"#)
}

/// First lines of the requests, with the name of the ticket they carry.
fn told(script: &Script) -> Vec<String> {
    let of = |request: &String| {
        let line = request.split(" HTTP").next().unwrap_or_default().to_owned();
        let carried = request.split("root@pam:").nth(1).and_then(|rest| rest.split("::").next());
        format!("{} {}", line.replace("/api2/json", ""), carried.unwrap_or("-"))
    };
    script.seen().iter().map(of).collect()
}

#[tokio::test]
async fn a_refused_ticket_is_replaced_once() {
    let refused = || json("401 permission denied - invalid PVE ticket", "");
    let upid = r#"{"data":"UPID:pve1:1:2:3:qmstart:100:root@pam:"}"#;
    let script = Script::play([
        ticket("one"),
        version(),
        refused(),
        ticket("two"),
        json("200 OK", upid),
        refused(),
        ticket("three"),
        refused(),
    ])
    .await;
    let client = with_password(&script, Limits::default());
    client.version().await.unwrap();
    client.start_vm(&node("pve1"), "100".parse().unwrap()).await.unwrap();
    let error = client.version().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unauthorized);
    assert_eq!(
        told(&script),
        [
            "POST /access/ticket -",
            "GET /version one",
            "POST /nodes/pve1/qemu/100/status/start one",
            "POST /access/ticket -",
            "POST /nodes/pve1/qemu/100/status/start two",
            "GET /version two",
            "POST /access/ticket -",
            "GET /version three",
        ]
    );
    let seen = script.seen();
    assert!(seen[0].ends_with(r#"{"password":"hunter22","username":"root@pam"}"#), "{}", seen[0]);
    assert!(seen[4].to_ascii_lowercase().contains("csrfpreventiontoken: csrf-two"), "{}", seen[4]);
    assert!(!seen[1].to_ascii_lowercase().contains("csrfpreventiontoken"), "{}", seen[1]);
    assert!(seen[1].contains("PVEAuthCookie=PVE:root@pam:one::a+b/c=="), "{}", seen[1]);
}

#[tokio::test]
async fn an_old_ticket_is_replaced_before_it_is_refused() {
    let script = Script::play([ticket("one"), version(), ticket("two"), version()]).await;
    let limits = Limits { ticket_age: Duration::ZERO, ..Limits::default() };
    let client = with_password(&script, limits);
    client.version().await.unwrap();
    client.version().await.unwrap();
    assert_eq!(told(&script)[2..], ["POST /access/ticket -", "GET /version two"]);
}

#[tokio::test]
async fn no_ticket_is_fetched_from_a_server_that_asks_to_be_left_alone() {
    let rest = json("429 Too Many Requests\r\nRetry-After: 60", r#"{"data":null}"#);
    let script = Script::play([ticket("one"), rest, ticket("two"), version()]).await;
    let limits = Limits { ticket_age: Duration::ZERO, ..Limits::default() };
    let client = with_password(&script, limits);
    client.version().await.unwrap_err();
    let error = client.version().await.unwrap_err();
    assert!(error.to_string().contains("left alone"), "{error}");
    assert_eq!(told(&script), ["POST /access/ticket -", "GET /version one"]);
}

#[tokio::test]
async fn callers_that_come_together_share_one_ticket() {
    let script = Script::play([ticket("one"), version(), version(), version()]).await;
    let client = with_password(&script, Limits::default());
    let (a, b, c) = tokio::join!(client.version(), client.version(), client.version());
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!(script.seen().len(), 4);
}

#[tokio::test]
async fn many_calls_that_find_a_ticket_old_at_once_fetch_one() {
    const CALLS: usize = 20;
    let fake = Fake::start(Config::default()).await.unwrap();
    let auth = Auth::Ticket { user: "root@pam".to_owned(), password: "secret".into() };
    let client = client(&fake.url(), auth, Tls::System, Limits::default());
    let tickets = || fake.journal().count("POST", "access/ticket");
    client.version().await.unwrap();
    assert_eq!(tickets(), 1);
    fake.advance(Duration::from_hours(3));
    let calls = (0..CALLS).map(|_| client.version());
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(tickets(), 2);
}

#[tokio::test]
async fn a_password_that_is_refused_is_not_tried_again_by_everybody_who_waited() {
    const CALLS: usize = 20;
    let fake = Fake::start(Config::default()).await.unwrap();
    let auth = Auth::Ticket { user: "root@pam".to_owned(), password: "wrong".into() };
    let client = client(&fake.url(), auth, Tls::System, Limits::default());
    let calls = (0..CALLS).map(|_| client.version());
    let all = join_all(calls).await;
    assert!(all.iter().all(|one| *one.as_ref().unwrap_err().kind() == ErrorKind::Unauthorized));
    assert_eq!(fake.journal().count("POST", "access/ticket"), 1);
    // Later calls do try again.
    client.version().await.unwrap_err();
    assert_eq!(fake.journal().count("POST", "access/ticket"), 2);
}

#[tokio::test]
async fn a_second_factor_and_a_wrong_password_are_told() {
    let tfa = r#"{"data":{"ticket":"PVE:!tfa!x","NeedTFA":1}}"#;
    for (answer, telling) in [
        (json("200 OK", tfa), "second factor"),
        (json("200 OK", r#"{"data":null}"#), "no ticket"),
        (json("401 authentication failure", r#"{"data":null}"#), "authentication failure"),
    ] {
        let script = Script::play([answer]).await;
        let error = with_password(&script, Limits::default()).version().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unauthorized);
        assert!(error.message().contains(telling), "{error}");
        assert_eq!(script.seen().len(), 1);
    }
}

//! What pveproxy takes and how it says no.

use std::time::Duration;

use pve_fake::{Change, Config, Release, Timings};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Client;

#[tokio::test]
async fn an_error_is_told_in_the_status_line_and_closes_the_connection() {
    for (release, message) in [(Release::V8, false), (Release::V9, true)] {
        let client = Client::with(Config::default().with_release(release)).await;
        let answer = client.get("/nodes/pve1/qemu/555/config").await;
        let text = "Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist";
        assert_eq!((answer.status, answer.reason.as_str()), (500, text));
        assert!(answer.closes);
        assert_eq!(answer.body["data"], json!(null));
        assert_eq!(answer.body.get("message").is_some(), message);
        assert!(!client.get("/version").await.closes);
    }
}

#[tokio::test]
async fn unknown_paths_and_silent_nodes_have_their_codes() {
    let client = Client::start().await;
    let answer = client.get("/nope").await;
    assert_eq!(
        (answer.status, answer.reason.as_str()),
        (501, "Method 'GET /nope' not implemented")
    );
    client.fake.change(Change::NodeOffline { node: "pve2".into() });
    let answer = client.get("/nodes/pve2/qemu").await;
    assert_eq!((answer.status, answer.reason.as_str()), (595, "No route to host"));
    client.fake.change(Change::NodeSilent { node: "pve3".into(), millis: None });
    let answer = client.get("/nodes/pve3/qemu").await;
    assert_eq!((answer.status, answer.reason.as_str()), (596, "Connection timed out"));
}

#[tokio::test]
async fn bodies_are_taken_as_forms_and_as_json() {
    let client = Client::start().await;
    let vm = client.cloned(101).await;
    let path = format!("{vm}/config");
    let body = json!({ "cores": 3, "onboot": true, "tags": "a;b", "name": null });
    let answer = client.send(client.request(Method::POST, &path).json(&body)).await.unwrap();
    assert_eq!(client.exit(&answer).await, "OK");
    let config = client.get(&path).await.body["data"].clone();
    assert_eq!((&config["cores"], &config["onboot"]), (&json!(3), &json!(1)));
    assert_eq!((&config["tags"], &config["name"]), (&json!("a;b"), &json!("m101")));
    let raw = client
        .request(Method::PUT, &path)
        .header("content-type", "application/x-www-form-urlencoded");
    let answer = client.send(raw.body("tags=c;d")).await.unwrap();
    assert_eq!(answer.status, 400, "a raw semicolon cuts the value: {answer:?}");
    let raw = client.request(Method::PUT, &path).header("content-type", "text/plain");
    assert_eq!(client.send(raw.body("x")).await.unwrap().status, 506);
    let nested = client.request(Method::PUT, &path).json(&json!({ "tags": { "a": 1 } }));
    assert_eq!(client.send(nested).await.unwrap().status, 400);
}

#[tokio::test]
async fn what_pveproxy_does_not_take_is_refused() {
    let client = Client::start().await;
    let delete = client.request(Method::DELETE, "/nodes/pve1/qemu/101").body("purge=1");
    let answer = client.send(delete).await.unwrap();
    assert_eq!(
        (answer.status, answer.reason.as_str()),
        (501, "Unexpected content for method 'DELETE'")
    );
    let big = "x".repeat(513 << 10);
    let answer = client.post("/nodes/pve1/qemu/101/config", &[("description", &big)]).await;
    assert_eq!((answer.status, answer.reason.as_str()), (501, "for data too large"));
    assert_eq!(client.send(client.request(Method::HEAD, "/version")).await.unwrap().status, 501);
    let address = client.fake.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "POST /api2/json/pools HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                   0\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 501 chunked transfer encoding not supported\r\n"), "{text}");
}

#[tokio::test]
async fn a_file_is_uploaded_by_multipart() {
    let client = Client::start().await;
    let form = reqwest::multipart::Form::new()
        .text("content", "iso")
        .part("filename", reqwest::multipart::Part::bytes(vec![7; 2 << 20]).file_name("u.iso"));
    let request = client.request(Method::POST, "/nodes/pve2/storage/local/upload").multipart(form);
    let answer = client.send(request).await.unwrap();
    assert_eq!(client.exit(&answer).await, "OK");
    let list = client.get("/nodes/pve2/storage/local/content").await.body["data"].clone();
    assert_eq!((&list[0]["volid"], &list[0]["size"]), (&json!("local:iso/u.iso"), &json!(2 << 20)));
    let volume = client.get("/nodes/pve2/storage/local/content/local%3Aiso%2Fu.iso").await;
    assert_eq!(volume.status, 200, "{volume:?}");
}

#[tokio::test]
async fn https_has_a_certificate_that_can_be_pinned_or_trusted() {
    let client = Client::with(Config::default().with_tls()).await;
    assert!(client.fake.url().starts_with("https://"));
    assert_eq!(client.get("/version").await.status, 200);
    assert!(client.fake.fingerprint().is_some_and(|bytes| bytes != [0; 32]));
}

#[tokio::test]
async fn a_ticket_works_as_a_cookie() {
    let client = Client::start().await;
    let url = format!("{}/api2/json", client.fake.url());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let login = [("username", "root@pam"), ("password", "secret")];
    let request = http.post(format!("{url}/access/ticket")).form(&login);
    let made = client.send(request).await.unwrap().body["data"].clone();
    let cookie = format!("PVEAuthCookie={}", made["ticket"].as_str().unwrap());
    let request = http.get(format!("{url}/nodes")).header("Cookie", &cookie);
    assert_eq!(client.send(request).await.unwrap().status, 200);
    let create =
        || http.post(format!("{url}/pools")).header("Cookie", &cookie).form(&[("poolid", "p")]);
    let answer = client.send(create()).await.unwrap();
    assert_eq!(
        (answer.status, answer.reason.as_str()),
        (401, "Permission denied - invalid csrf token")
    );
    let csrf = made["CSRFPreventionToken"].as_str().unwrap();
    let request = create().header("CSRFPreventionToken", csrf);
    assert_eq!(client.send(request).await.unwrap().status, 200);
}

#[tokio::test]
async fn the_journal_has_every_call_without_secrets() {
    let client = Client::start().await;
    client.cloned(101).await;
    client.post("/access/ticket", &[("username", "root@pam"), ("password", "hush")]).await;
    let journal = client.fake.journal();
    assert_eq!(journal.count("POST", "/nodes/*/qemu/*/clone"), 1);
    let clone = journal.calls("POST", "/nodes/*/qemu/*/clone").next().unwrap();
    assert_eq!((clone.status, clone.params["name"].as_str()), (200, "m101"));
    assert!(clone.effect.as_deref().unwrap().starts_with("UPID:pve1:"));
    assert_eq!(journal.counts()["POST /nodes/{node}/qemu/{vmid}/clone"], 1);
    assert!(!format!("{journal:?}").contains("hush"));
    assert!(journal.max_in_flight() >= 1);
    assert_eq!(journal.writes().len(), 2);
}

#[tokio::test]
async fn a_connection_is_kept_for_a_while_and_for_a_hundred_requests() {
    let timings =
        Timings { keep_alive: Duration::from_millis(300), ..Timings::default().scaled(0.0) };
    let client = Client::with(Config { timings, ..Config::default() }).await;
    let address = client.fake.url().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let request = "GET /api2/json/version HTTP/1.1\r\nHost: x\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let read = stream.read_to_string(&mut text);
    tokio::time::timeout(Duration::from_secs(10), read)
        .await
        .expect("idle connections end")
        .unwrap();
    assert!(text.starts_with("HTTP/1.1 401 No ticket"), "{text}");
    assert_eq!(text.matches("HTTP/1.1").count(), 1, "an error ends the connection");
    let mut answers = 0;
    while !client.get("/version").await.closes {
        answers += 1;
        assert!(answers < 101, "the connection is not closed");
    }
    assert!(answers >= 90, "closed after {answers}");
}

#[tokio::test]
async fn a_synchronous_change_waits_for_the_tasks_of_its_vm() {
    let client = Client::start().await;
    let vm = client.cloned(101).await;
    let path = format!("{vm}/config");
    let task = client.post(&path, &[("description", "first")]).await;
    let request = client.request(Method::PUT, &path).form(&[("description", "second")]);
    let answer = client.send(request).await.unwrap();
    assert_eq!((answer.status, answer.reason.as_str()), (200, "OK"));
    assert_eq!(client.exit(&task).await, "OK");
    assert_eq!(client.get(&path).await.body["data"]["description"], "second");
}

#[tokio::test]
async fn numbers_can_be_texts() {
    let client = Client::start().await;
    client.fake.change(Change::TextNumbers { on: true });
    let entry = client.get("/nodes").await.body["data"][0].clone();
    assert_eq!(entry["maxcpu"], "16");
}

//! A bare client.

use std::time::{Duration, Instant};

use hyper::ext::ReasonPhrase;
use pve_fake::{Config, Fake};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;

pub(crate) struct Client {
    pub fake: Fake,
    http: reqwest::Client,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub reason: String,
    pub closes: bool,
    pub body: Value,
}

impl Client {
    pub(crate) async fn start() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let fake = Fake::start(config).await.unwrap();
        // The provider is chosen once for the process; a second choice is the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder().no_proxy();
        if let Some(pem) = fake.certificate_pem() {
            let certificate = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
            http = http.tls_certs_only([certificate]);
        }
        Self { fake, http: http.build().unwrap() }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let token = self.fake.token();
        let url = format!("{}/api2/json{path}", self.fake.url());
        let header = format!("PVEAPIToken={}={}", token.id, token.secret);
        self.http.request(method, url).header("Authorization", header)
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> reqwest::Result<Answer> {
        let response = request.send().await?;
        let status = response.status();
        let sent = response.extensions().get::<ReasonPhrase>();
        let reason = sent.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        let usual = status.canonical_reason().unwrap_or_default().to_owned();
        let closes = response.headers().get("connection").is_some_and(|value| value == "close");
        let text = response.text().await?;
        Ok(Answer {
            status: status.as_u16(),
            reason: reason.unwrap_or(usual),
            closes,
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
        })
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> Answer {
        self.send(self.request(Method::POST, path).form(form)).await.unwrap()
    }

    /// The exit text of a started task.
    pub(crate) async fn exit(&self, answer: &Answer) -> String {
        let upid = answer.body["data"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
        let node = upid.split(':').nth(1).unwrap().to_owned();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.get(&format!("/nodes/{node}/tasks/{upid}/status")).await;
            if let Some(exit) = status.body["data"]["exitstatus"].as_str() {
                return exit.to_owned();
            }
            assert!(Instant::now() < deadline, "{upid} does not end: {status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn cloned(&self, newid: u32) -> String {
        let id = newid.to_string();
        let name = format!("m{newid}");
        let form = [("newid", id.as_str()), ("name", name.as_str())];
        let answer = self.post("/nodes/pve1/qemu/9000/clone", &form).await;
        assert_eq!(self.exit(&answer).await, "OK");
        format!("/nodes/pve1/qemu/{newid}")
    }
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

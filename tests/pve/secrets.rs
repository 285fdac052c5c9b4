//! Nothing that is printed anywhere carries a secret.

use std::io::Write;
use std::sync::{Arc, Mutex};

use capmox::pve::{Auth, Limits, Tls, token};
use tracing_subscriber::fmt::MakeWriter;

use crate::peer::{client, node};
use crate::script::{Script, json};

#[derive(Debug, Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Sink {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

const SECRETS: [&str; 4] = ["s3cret-of-token", "s3cret-of-user", "s3cret-of-ticket", "s3cret-csrf"];

#[tokio::test]
async fn logs_errors_and_debug_texts_are_free_of_secrets() {
    let sink = Sink::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(sink.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let mut printed = Vec::new();

    // A server that gives back what it was sent.
    let echo = r#"{"data":null,"message":"bad header s3cret-of-token"}"#;
    let body = r#"{"data":null,"errors":{"x":"s3cret-of-token"}}"#;
    let script = Script::play([
        json("500 wrong PVEAPIToken=a@pve!t=s3cret-of-token", echo),
        json("400 Bad Request", body),
    ])
    .await;
    let auth = token("a@pve!t", SECRETS[0]).unwrap();
    let with_token = client(&script.url, auth, Tls::System, Limits::default());
    for _ in 0..2 {
        let error = with_token.stop_vm(&node("pve1"), "100".parse().unwrap()).await.unwrap_err();
        printed.push(format!("{error} {error:?}"));
        assert!(error.message().contains("***"), "{error}");
    }

    let ticket = r#"{"data":{"ticket":"s3cret-of-ticket","CSRFPreventionToken":"s3cret-csrf"}}"#;
    let script =
        Script::play([json("200 OK", ticket), json("500 no such cookie s3cret-of-ticket", "")])
            .await;
    let auth = Auth::Ticket { user: "root@pam".to_owned(), password: SECRETS[1].into() };
    printed.push(format!("{auth:?}"));
    let with_ticket = client(&script.url, auth, Tls::System, Limits::default());
    let error = with_ticket.stop_vm(&node("pve1"), "100".parse().unwrap()).await.unwrap_err();
    printed.push(format!("{error} {error:?} {with_token:?} {with_ticket:?}"));
    drop(guard);
    let printed = printed.join("\n");

    let log = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("Proxmox call"), "nothing was logged: {log}");
    assert!(log.contains("/nodes/pve1/qemu/100/status/stop"), "{log}");
    for secret in SECRETS {
        assert!(!log.contains(secret), "{secret} in the log:\n{log}");
        assert!(!printed.contains(secret), "{secret} in {printed}");
    }
}

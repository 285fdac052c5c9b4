//! Credentials that cannot be right, are refused, or lead nowhere.

use std::collections::BTreeMap;
use std::time::Duration;

use capmox::api::reasons;
use futures::future::join_all;
use pve_fake::seed::PROVIDER_PRIVILEGES;
use pve_fake::{Action, Change, Config, FaultRule};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::case::Case;

const UNREACHABLE: &str = "False Warning ProxmoxUnreachable";
const CLUSTER_UNREACHABLE: &str = "False Error ProxmoxUnreachable";
const USER: &str = "capmox@pve";

/// A case whose Secret lacks or has other keys than it should.
async fn with_keys(config: Config, change: &[(&'static str, Option<&str>)]) -> Case {
    let case = Case::empty(config).await;
    case.write_credentials(&changed(case.credentials(), change)).await;
    case.cluster(json!({})).await;
    case.machine("m", json!({})).await;
    case
}

fn changed(
    mut keys: BTreeMap<&'static str, String>,
    change: &[(&'static str, Option<&str>)],
) -> BTreeMap<&'static str, String> {
    for (key, text) in change {
        match text {
            Some(text) => keys.insert(key, (*text).to_owned()),
            None => keys.remove(key),
        };
    }
    keys
}

/// Mends the Secret, and sees the machine come up and go.
async fn mend(case: Case) {
    assert!(case.is_untouched());
    case.write_credentials(&case.credentials()).await;
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_url_that_cannot_be_is_told_with_the_form_that_is_wanted() {
    let token = "8f1d2a5e-5a3c-4a56-9d0c-3f3f3c1e7b11";
    let case = with_keys(Config::default(), &[("url", Some(""))]).await;
    let form = "https://pve.example.com:8006";
    for (url, words) in [
        ("", &["is empty", form][..]),
        ("not a url", &["\"not a url\" is not a URL", form]),
        ("ftp://pve:8006", &["scheme \"ftp\"", form]),
        ("https://root:hunter2@pve:8006", &["carries credentials", "give a token"]),
        ("https://pve:8006/?node=pve1", &["has a query", form]),
        ("https://pve:8006/api2/json/nodes", &["leave out '/api2'"]),
        ("https://:8006", &["is not a URL", form]),
        ("https://pve:99999", &["is not a URL", form]),
        ("capmox@pve!capi", &["holds an API token", form]),
        (token, &["holds the secret of an API token", form]),
    ] {
        let keys = changed(case.credentials(), &[("url", Some(url))]);
        case.write_credentials(&keys).await;
        let key = format!("key url of Secret {}/proxmox", case.namespace);
        let words: Vec<&str> = words.iter().copied().chain([key.as_str()]).collect();
        let said = case.cluster_says(CLUSTER_UNREACHABLE, &words).await;
        let of_machine = case.says("m", UNREACHABLE, &words).await;
        for secret in ["hunter2", token] {
            assert!(!said.contains(secret) && !of_machine.contains(secret), "{said}");
        }
    }
    assert!(!case.stage.log().contains("hunter2"));
    mend(case).await;
}

pub(crate) async fn missing_keys_of_the_secret_are_named() {
    let case = with_keys(Config::default(), &[("token", None), ("secret", None)]).await;
    let name = format!("Secret {}/proxmox lacks the keys token, secret", case.namespace);
    case.cluster_says(CLUSTER_UNREACHABLE, &[&name, "it has url"]).await;
    case.says("m", UNREACHABLE, &[&name]).await;
    case.write_credentials(&changed(case.credentials(), &[("url", None)])).await;
    let name = format!("Secret {}/proxmox lacks the key url", case.namespace);
    case.says("m", UNREACHABLE, &[&name, "it has secret, token"]).await;
    mend(case).await;
}

pub(crate) async fn a_missing_secret_is_named_and_waited_for() {
    let case = Case::empty(Config::default()).await;
    case.cluster(json!({})).await;
    case.machine("m", json!({})).await;
    let name = format!("Secret {}/proxmox of spec.credentialsRef does not exist", case.namespace);
    case.cluster_says(CLUSTER_UNREACHABLE, &[&name, "create it"]).await;
    case.says("m", UNREACHABLE, &["Secret proxmox", &case.namespace, "create it"]).await;
    mend(case).await;
}

pub(crate) async fn a_refused_token_is_told_with_its_secret() {
    let wrong = "8f1d2a5e-5a3c-4a56-9d0c-3f3f3c1e7b12";
    let case = with_keys(Config::default(), &[("secret", Some(wrong))]).await;
    let remedy = format!("check token and secret in Secret {}/proxmox", case.namespace);
    case.cluster_says(CLUSTER_UNREACHABLE, &["401", &remedy]).await;
    case.says("m", UNREACHABLE, &["401", &remedy]).await;
    assert!(!case.stage.log().contains(wrong));
    mend(case).await;
}

fn rights(case: &Case, privileges: &[&str]) {
    let privileges = privileges.iter().map(|&name| name.to_owned()).collect();
    case.fake.change(Change::Rights { path: "/".into(), who: USER.into(), privileges });
}

pub(crate) async fn a_token_that_sees_nothing_is_told_what_it_lacks() {
    let case = Case::sound().await;
    rights(&case, &[]);
    case.machine("m", json!({})).await;
    case.says("m", "False Warning CloningFailed", &["9000", "VM.Audit", "VM.Clone"]).await;
    assert!(case.is_untouched());
    rights(&case, PROVIDER_PRIVILEGES);
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_missing_privilege_is_named_with_its_path() {
    let case = Case::sound().await;
    let without = |missing: &str| -> Vec<&str> {
        PROVIDER_PRIVILEGES.iter().copied().filter(|name| *name != missing).collect()
    };
    rights(&case, &without("VM.Clone"));
    case.machine("m", json!({})).await;
    let words = ["403", "/vms/9000", "VM.Clone", "privilege"];
    case.says("m", "False Warning CloningFailed", &words).await;
    assert!(case.is_untouched());
    rights(&case, &without("Datastore.AllocateTemplate"));
    let words = ["403", "/storage/local", "Datastore.AllocateTemplate", "privilege"];
    case.says("m", "False Warning VMProvisionFailed", &words).await;
    assert_eq!(case.vms_of("m").len(), 1);
    rights(&case, PROVIDER_PRIVILEGES);
    case.ready("m").await;
    assert_eq!(case.vms_of("m").len(), 1);
    case.end().await;
}

pub(crate) async fn a_revoked_token_keeps_a_machine_ready_and_its_vm_from_harm() {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let token = case.fake.token().id.clone();
    case.fake.change(Change::TokenRevoked { token: token.clone() });
    case.delete("m").await;
    let remedy = format!("check token and secret in Secret {}/proxmox", case.namespace);
    case.says("m", "False Warning Deleting", &["401", &remedy]).await;
    assert!(case.vm_of("m").running);
    case.fake.change(Change::TokenRestored { token });
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn an_endpoint_that_is_down_is_told_and_waited_for() {
    let case = Case::empty(Config::default()).await;
    let port = testbed::ports::free().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let keys = changed(case.credentials(), &[("url", Some(&url))]);
    case.write_credentials(&keys).await;
    case.cluster(json!({})).await;
    case.machine("m", json!({})).await;
    case.cluster_says(CLUSTER_UNREACHABLE, &[&url, "can be reached"]).await;
    case.says("m", UNREACHABLE, &[&url, "can be reached"]).await;
    // It comes up without anybody touching an object.
    let backend = case.fake.url().trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let gate = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&backend).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    case.ready("m").await;
    case.end().await;
    gate.abort();
}

pub(crate) async fn an_endpoint_that_hangs_holds_up_nobody_else() {
    // More machines than the manager works on at once.
    const MACHINES: usize = 15;
    let stuck = Case::sound().await;
    stuck.fake.faults().add(FaultRule::always("", "/**", Action::Hang));
    let names: Vec<String> = (0..MACHINES).map(|number| format!("m{number}")).collect();
    for name in &names {
        stuck.machine(name, json!({"memoryMiB": 2048})).await;
    }
    stuck.sees("calls hang", |fake| (fake.journal().total() > 0).then_some(())).await;
    let start = Instant::now();
    let sound = Case::sound().await;
    sound.machine("m", json!({})).await;
    sound.ready("m").await;
    let took = start.elapsed();
    assert!(took < Duration::from_secs(45), "held up for {took:?}");
    sound.end().await;
    stuck.says("m0", UNREACHABLE, &[&stuck.fake.url(), "can be reached"]).await;
    stuck.fake.faults().clear();
    stuck.fake.close_connections();
    join_all(names.iter().map(|name| stuck.ready(name))).await;
    stuck.end().await;
}

pub(crate) async fn a_certificate_that_is_not_trusted_is_told_with_the_remedy() {
    let case = with_keys(Config::default().with_tls(), &[("insecure", Some("false"))]).await;
    let remedy = format!("root_ca of Secret {}/proxmox", case.namespace);
    case.cluster_says(CLUSTER_UNREACHABLE, &[&remedy]).await;
    case.says("m", UNREACHABLE, &[&remedy]).await;
    assert_eq!(case.fake.journal().total(), 0, "no token was sent");
    let pem = case.fake.certificate_pem().unwrap().to_owned();
    let keys = changed(case.credentials(), &[("insecure", Some("false")), ("root_ca", Some(&pem))]);
    case.write_credentials(&keys).await;
    let ready = case.ready("m").await;
    assert_eq!(ready.status.unwrap().vm_status.as_deref(), Some(reasons::VM_STATUS_READY));
    case.end().await;
}

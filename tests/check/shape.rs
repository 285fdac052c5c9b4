//! The table as it is printed, and a simulator that shares no code with ours.

use pve_fake::peer::Fakepve;
use pve_fake::{Config, Fake, Seed};

use crate::command::{check, check_fake};

const EXAMPLE: &str = "https://pve.example.com:8006";

#[tokio::test]
async fn the_table_is_the_documented_one() {
    let mut seed = Seed::three_nodes();
    for entry in &mut seed.acl {
        entry.privileges.retain(|name| name != "Datastore.Allocate");
    }
    let fake = Fake::start(Config::default().with_tls().with_seed(seed)).await.unwrap();
    let (url, token) = (fake.url(), fake.token());
    let environment =
        [("PROXMOX_URL", &*url), ("PROXMOX_TOKEN", &token.id), ("PROXMOX_SECRET", &token.secret)];
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("pve-root-ca.pem");
    std::fs::write(&ca, fake.certificate_pem().unwrap()).unwrap();
    let wanted = ["--template", "9000", "--bridge", "vmbr1:7", "--vmid-range", "2000-2099"];
    let answer =
        check(&environment, &[&["--ca", ca.to_str().unwrap()], &wanted[..]].concat()).await;
    assert_eq!((answer.code, answer.errors.as_str()), (1, ""));
    let docs = include_str!("../../docs/check.md");
    let table = docs.split("```text").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(
        squeezed(&answer.text.replace(&url, EXAMPLE)),
        squeezed(table.trim_matches('\n')),
        "\n{}",
        answer.text.replace(&url, EXAMPLE)
    );
}

/// Lines without the width of their columns, which the address's port changes.
fn squeezed(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn json_has_a_result_and_one_object_a_check() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let json = check_fake(&fake, &["--template", "9000"]).await.json();
    assert_eq!(json["result"], "good");
    for check in json["checks"].as_array().unwrap() {
        for key in ["check", "subject", "result", "found"] {
            assert!(check[key].is_string(), "{check}");
        }
    }
}

#[tokio::test]
async fn another_simulator_is_read_without_a_false_alarm() {
    let seed = Seed::three_nodes();
    let start = move || (Fakepve::start(&seed, 0.0).unwrap(), seed);
    let (process, seed) = tokio::task::spawn_blocking(start).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, process.certificate_pem()).unwrap();
    let (ca, token) = (ca.to_str().unwrap(), &seed.tokens[0]);
    let given = ["--url", process.url(), "--token", &token.id, "--secret", &token.secret];
    let arguments = [&given[..], &["--ca", ca, "--template", "9000", "-o", "json"]].concat();
    let answer = check(&[], &arguments).await;
    let failed: Vec<String> =
        answer.bad().into_iter().filter(|line| line.starts_with("failed")).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{}", answer.text);
}

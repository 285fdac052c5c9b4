//! Third parties: a client that shares no code with ours drives the simulator; a simulator that
//! shares no code with ours answers the same script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod divergences;
mod script;
mod shape;
mod steps;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use pve_fake::{Config, Fake, peer};
use serde_json::{Value, json};

#[tokio::test]
async fn proxmoxer_takes_a_vm_through_its_life() {
    let fake = Fake::start(Config::default().with_tls()).await.unwrap();
    let token = fake.token().clone();
    let (user, name) = token.id.split_once('!').unwrap();
    let mut command = Command::new(peer::python().unwrap());
    command.arg(peer::folder().join("drive_proxmoxer.py"));
    command.args([fake.url().trim_start_matches("https://"), user, name, &token.secret]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kinds = [
        "qmclone",
        "qmconfig",
        "resize",
        "imgcopy",
        "qmconfig",
        "qmstart",
        "qmstop",
        "qmdestroy",
        "imgdel",
    ];
    assert_eq!(seen["tasks"], json!(kinds.map(|kind| json!([kind, "OK"]))));
    assert_eq!((&seen["version"], &seen["status"]), (&json!("9.1"), &json!("running")));
    assert_eq!(seen["config"]["tags"], "a;b");
    assert_eq!(seen["config"]["ide0"], "local:iso/user-data-100.iso,media=cdrom,size=70000");
    assert_eq!(seen["refused"], json!([500, "VM 100 is running - destroy failed"]));
    let gone = "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist";
    assert_eq!(seen["gone"], json!([500, gone]));
    assert_eq!(seen["bad"][0], 400);
    assert_eq!(seen["bad"][1]["newid"], "property is missing and it is not optional");
    assert_eq!(seen["log"], "TASK OK");
    assert_eq!(fake.take_violations().len(), 1, "only the destruction of a running VM");
}

/// The simulator as a process of its own, as the demo and other clients use it.
#[test]
fn go_proxmox_takes_a_vm_through_its_life_at_the_binary() {
    let program = peer::go_proxmox().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_pve-fake"))
        .args(["--tls", "--time-scale", "0.02"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let place: Value = serde_json::from_str(&line).unwrap();
    let word = |key: &str| place[key].as_str().unwrap().to_owned();
    let output =
        Command::new(program).args([word("url"), word("token"), word("secret")]).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gone = "500 Configuration file 'nodes/pve2/qemu-server/100.conf' does not exist";
    let expected = json!({
        "version": "9.1", "memory": 64_u64 << 30, "resources": 2, "storage": "local",
        "status": "running", "tags": "a;b", "name": "by-go-proxmox",
        "cloud-init": "status: done\n", "gone": gone,
    });
    assert_eq!(seen, expected);
    assert_eq!(word("fingerprint").split(':').count(), 32);
}

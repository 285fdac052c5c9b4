//! Third parties: a client that shares no code with ours drives the simulator; a simulator that
//! shares no code with ours answers the same script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod divergences;
mod script;
mod shape;
mod steps;

use std::process::Command;

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

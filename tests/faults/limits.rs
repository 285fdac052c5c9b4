//! A proxy in front of Proxmox that limits how often it is asked.

use std::time::Duration;

use futures::future::join_all;
use pve_fake::{Action, FaultRule};
use serde_json::json;

use crate::case::Case;

const MACHINES: usize = 10;
/// How long it wants to be left alone, and how much of that is looked at.
const REST: u32 = 15;
const WATCHED: Duration = Duration::from_secs(8);
/// Calls that were on their way when it said so.
const ON_THEIR_WAY: u64 = 4;

pub(crate) async fn a_proxy_that_asks_to_be_left_alone_is() {
    let case = Case::sound().await;
    let names: Vec<String> = (0..MACHINES).map(|number| format!("m{number}")).collect();
    for name in &names {
        case.machine(name, json!({"memoryMiB": 2048})).await;
    }
    // All are about to be made, and much is asked for.
    case.sees("a clone", |fake| {
        (fake.journal().count("POST", "/nodes/*/qemu/*/clone") > 0).then_some(())
    })
    .await;
    case.fake.faults().add(FaultRule::once("", "/**", Action::Limit { seconds: REST }));
    case.sees("the limit is told", |fake| {
        fake.faults().rules().iter().any(|rule| rule.seen > 0).then_some(())
    })
    .await;
    let asked = case.fake.journal().total();
    case.machine("late", json!({"memoryMiB": 2048})).await;
    let words = [&case.fake.url(), "asks to be left alone for a while (Retry-After)"];
    case.says("late", "False Warning ProxmoxUnreachable", &words).await;
    case.stays(WATCHED, "the proxy is left alone", |fake| {
        fake.journal().total() <= asked + ON_THEIR_WAY
    })
    .await;
    let all: Vec<_> = join_all(names.iter().map(|name| case.ready(name))).await;
    let late = case.ready("late").await;
    for machine in all.iter().chain([&late]) {
        let attempts = machine.status.as_ref().unwrap().clone_attempts;
        assert!(attempts.unwrap_or(0) <= 1, "what was not sent did not fail: {attempts:?}");
    }
    case.end().await;
}

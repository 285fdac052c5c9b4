//! Calls that go wrong by script, and tests that step in at a call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use pve_fake::{Action, Change, Config, FaultRule, HookCall, When};
use reqwest::Method;
use serde_json::json;

use crate::client::{Client, until};

const CLONE: &str = "/nodes/*/qemu/*/clone";

#[tokio::test]
async fn a_clone_whose_answer_is_lost_is_made_all_the_same() {
    let client = Client::start().await;
    client.fake.fail_next("POST", CLONE, Action::DropAfter);
    let form = [("newid", "101"), ("name", "m1")];
    let request = client.request(Method::POST, "/nodes/pve1/qemu/9000/clone").form(&form);
    assert!(client.send(request).await.is_err());
    assert!(client.fake.model().vm_view(101).is_some());
    let journal = client.fake.journal();
    let entry = journal.calls("POST", CLONE).next().unwrap();
    assert_eq!((entry.status, entry.has_effect()), (0, true));
}

#[tokio::test]
async fn faults_before_the_effect_have_none() {
    let client = Client::start().await;
    let path = "/nodes/pve1/qemu/9000/clone";
    let request = || client.request(Method::POST, path).form(&[("newid", "101")]);
    client.fake.fail_next("POST", CLONE, Action::DropBefore);
    assert!(client.send(request()).await.is_err());
    let text = "got timeout".to_owned();
    client.fake.fail_next("POST", CLONE, Action::Reply { status: 500, text });
    let answer = client.send(request()).await.unwrap();
    assert_eq!((answer.status, answer.reason.as_str()), (500, "got timeout"));
    client.fake.fail_next("POST", CLONE, Action::Limit { seconds: 7 });
    assert_eq!(client.send(request()).await.unwrap().status, 429);
    client.fake.fail_next("POST", CLONE, Action::Hang);
    let answer = client.send(request().timeout(Duration::from_millis(200))).await;
    assert!(answer.unwrap_err().is_timeout());
    assert!(client.fake.model().vm_view(101).is_none());
    assert_eq!(client.send(request()).await.unwrap().status, 200);
}

#[tokio::test]
async fn an_answer_is_replaced_after_the_effect_and_tasks_fail_to_order() {
    let client = Client::start().await;
    let text = "Connection timed out".to_owned();
    client.fake.fail_next("POST", CLONE, Action::ReplyAfter { status: 596, text });
    let answer = client.post("/nodes/pve1/qemu/9000/clone", &[("newid", "101")]).await;
    assert_eq!(answer.status, 596);
    until("the clone ends", || {
        client.fake.model().vm_view(101).is_some_and(|vm| vm.lock.is_none())
    })
    .await;
    let fail = Action::FailTask { text: "start failed: x".into(), with_effect: true };
    client.fake.faults().add(FaultRule::nth(2, "POST", "/nodes/*/qemu/*/status/start", fail));
    let answer = client.post("/nodes/pve1/qemu/9000/status/start", &[]).await;
    assert!(client.exit(&answer).await.contains("template"));
    let answer = client.post("/nodes/pve1/qemu/101/status/start", &[]).await;
    assert_eq!(client.exit(&answer).await, "start failed: x");
    assert!(client.fake.model().vm_view(101).unwrap().running);
}

#[tokio::test]
async fn the_world_changes_at_a_call() {
    let client = Client::start().await;
    client.fake.fail_next("POST", CLONE, Action::Change(Change::VmGone { vmid: 9000 }));
    let answer = client.post("/nodes/pve1/qemu/9000/clone", &[("newid", "101")]).await;
    assert_eq!(answer.reason, "unable to find configuration file for VM 9000 on node 'pve1'");
}

#[tokio::test]
async fn a_hook_is_called_before_and_after_and_the_call_is_carried_through_without_its_client() {
    let client = Client::start().await;
    let seen: Arc<Mutex<Vec<HookCall>>> = Arc::default();
    let gate = Arc::new(tokio::sync::Notify::new());
    let (list, open) = (Arc::clone(&seen), Arc::clone(&gate));
    client.fake.set_hook(Some(Arc::new(move |call: HookCall| {
        let (list, open) = (Arc::clone(&list), Arc::clone(&open));
        async move {
            let waits = call.when == When::Before;
            list.lock().unwrap().push(call);
            if waits {
                open.notified().await;
            }
        }
        .boxed()
    })));
    let request = client.request(Method::POST, "/nodes/pve1/qemu/9000/clone");
    let request = request.form(&[("newid", "101")]).timeout(Duration::from_millis(100));
    assert!(client.send(request).await.is_err(), "the client gives up");
    assert!(client.fake.model().vm_view(101).is_none());
    gate.notify_one();
    until("the call ends", || seen.lock().unwrap().len() == 2).await;
    assert!(client.fake.model().vm_view(101).is_some());
    let calls = seen.lock().unwrap();
    assert_eq!(
        (calls[0].when, calls[0].seq, calls[0].params["newid"].as_str()),
        (When::Before, 1, "101")
    );
    assert_eq!((calls[1].when, calls[1].status), (When::After, Some(200)));
}

#[tokio::test]
async fn the_admin_door_takes_faults_and_changes_as_json() {
    let client = Client::start().await;
    let admin = |method: Method, path: &str| {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        http.request(method, format!("{}/fake/{path}", client.fake.url()))
    };
    let rule = json!({
        "method": "GET", "path": "/version", "times": 1,
        "action": { "reply": { "status": 502, "text": "bad" } },
    });
    let added = admin(Method::POST, "faults").json(&rule).send().await.unwrap();
    assert_eq!(added.status(), 200);
    assert_eq!(client.get("/version").await.status, 502);
    let change = json!({ "node-offline": { "node": "pve2" } });
    assert_eq!(admin(Method::POST, "change").json(&change).send().await.unwrap().status(), 200);
    assert_eq!(client.get("/nodes/pve2/qemu").await.status, 595);
    let wrong = admin(Method::POST, "change").json(&json!({ "nope": 1 })).send().await.unwrap();
    assert_eq!(wrong.status(), 400);
    let journal = admin(Method::GET, "journal").send().await.unwrap().text().await.unwrap();
    assert!(journal.contains("/nodes/pve2/qemu"));
}

#[tokio::test]
async fn time_can_be_skipped() {
    let client = Client::with(Config::default().with_time_scale(1.0)).await;
    let answer =
        client.post("/nodes/pve1/qemu/9000/clone", &[("newid", "101"), ("full", "1")]).await;
    client.fake.advance(Duration::from_secs(30));
    assert_eq!(client.exit(&answer).await, "OK");
}

#[tokio::test]
async fn rules_that_were_broken_fail_the_test_unless_taken() {
    let client = Client::start().await;
    client.post("/nodes/pve1/qemu/0/status/start", &[]).await;
    let fake = client.fake;
    assert_eq!(fake.check().len(), 1);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(fake)));
    let text = failed.unwrap_err().downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("BadVmid"), "{text}");
    let client = Client::start().await;
    client.post("/nodes/pve1/qemu/0/status/start", &[]).await;
    assert_eq!(client.fake.take_violations().len(), 1);
}

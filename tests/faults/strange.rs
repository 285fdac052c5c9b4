//! Proxmox's API as others implement it: no tasks, tasks of another kind, lists with gaps.

use pve_fake::{Action, Change, FaultRule};
use serde_json::{Value, json};

use crate::case::Case;

/// Every call that starts a task.
const TASKS: &[(&str, &str)] = &[
    ("POST", "/nodes/*/qemu/*/clone"),
    ("POST", "/nodes/*/qemu/*/config"),
    ("PUT", "/nodes/*/qemu/*/resize"),
    ("POST", "/nodes/*/qemu/*/status/**"),
    ("DELETE", "/nodes/*/qemu/*"),
    ("POST", "/nodes/*/storage/*/upload"),
    ("DELETE", "/nodes/*/storage/*/content/**"),
];

/// From nothing to a machine without its seed, and back, on a server that answers every call which
/// starts a task with this.
async fn life_with_tasks_answered_by(data: Value) {
    let case = Case::sound().await;
    for (method, path) in TASKS {
        let answer = Action::AnswerWith { data: data.clone() };
        case.fake.faults().add(FaultRule::always(method, path, answer));
    }
    case.machine("m", json!({})).await;
    case.ready("m").await;
    case.join_without_seed("m").await;
    let journal = case.fake.journal();
    let clones = journal.calls("POST", "/nodes/*/qemu/*/clone").filter(|call| call.has_effect());
    assert_eq!(clones.count(), 1, "made once");
    assert_eq!(journal.count("GET", "/nodes/*/tasks/**"), 0, "there is nothing to ask for");
    drop(journal);
    case.end().await;
}

pub(crate) async fn a_server_that_names_no_task_is_looked_at_instead() {
    life_with_tasks_answered_by(Value::Null).await;
}

pub(crate) async fn a_server_with_task_ids_of_its_own_kind_is_looked_at_instead() {
    life_with_tasks_answered_by(json!("task-17")).await;
}

pub(crate) async fn a_server_that_tells_nothing_of_its_tasks_is_looked_at_instead() {
    let case = Case::sound().await;
    let reply = Action::Reply { status: 501, text: "Method not implemented".to_owned() };
    case.fake.faults().add(FaultRule::always("GET", "/nodes/*/tasks/**", reply));
    case.machine("m", json!({})).await;
    case.ready("m").await;
    case.join_without_seed("m").await;
    let journal = case.fake.journal();
    let clones = journal.calls("POST", "/nodes/*/qemu/*/clone").filter(|call| call.has_effect());
    assert_eq!(clones.count(), 1, "made once");
    drop(journal);
    case.end().await;
}

pub(crate) async fn what_the_list_of_the_cluster_lacks_is_asked_for() {
    let allowed = json!({"allowedNodes": ["pve1", "pve2"]});
    // Each node's own status tells its memory when no list does.
    for lists in [&["/cluster/resources"][..], &["/cluster/resources", "/nodes"]] {
        let case = Case::with(pve_fake::Config::default(), allowed.clone()).await;
        for path in lists {
            let fields = ["maxmem", "mem", "status"].map(str::to_owned).to_vec();
            let rule = FaultRule::always("GET", path, Action::AnswerWithout { fields });
            case.fake.faults().add(rule);
        }
        case.machine("m", json!({})).await;
        case.ready("m").await;
        // More than any node has is still refused, with the figures.
        case.machine("huge", json!({"memoryMiB": 1_000_000})).await;
        case.says("huge", "False Warning CloningFailed", &["pve1 has", "pve2 has", "MiB free"])
            .await;
        case.end().await;
    }
}

pub(crate) async fn numbers_that_are_texts_make_no_difference() {
    let allowed = json!({"allowedNodes": ["pve1", "pve2"]});
    let case = Case::with(pve_fake::Config::default(), allowed).await;
    case.fake.change(Change::TextNumbers { on: true });
    case.machine("m", json!({})).await;
    case.ready("m").await;
    case.join_without_seed("m").await;
    case.end().await;
}

pub(crate) async fn a_server_that_refuses_purge_destroys_without_it() {
    let case = Case::sound().await;
    let text = "Parameter verification failed.".to_owned();
    case.fake.fail_next("DELETE", "/nodes/*/qemu/*", Action::Reply { status: 400, text });
    case.machine("m", json!({})).await;
    case.ready("m").await;
    case.delete("m").await;
    case.gone("m").await;
    let journal = case.fake.journal();
    let asked: Vec<bool> = journal
        .calls("DELETE", "/nodes/*/qemu/*")
        .map(|call| call.params.contains_key("purge"))
        .collect();
    assert_eq!(asked, [true, false]);
    drop(journal);
    case.end().await;
}

//! A node that accepts calls and does not answer, at each step of a machine's life. Nothing is made
//! twice, nothing is destroyed, and the machine goes on when the node does.

use std::time::Duration;

use capmox::api::ProxmoxMachine;
use pve_fake::{Action, Change, Config, FaultRule, Seed, VmSeed};
use serde_json::json;

use crate::case::{Case, said, text};

const TEMPLATE_NODE: &str = "pve3";
const VM_NODE: &str = "pve2";

/// The template is on pve3, the VM goes to pve2, and pve1 answers for both.
async fn stage() -> Case {
    let template = VmSeed::new(9002, TEMPLATE_NODE, "template", "shared").template();
    let seed = Seed::three_nodes().with_vm(template);
    Case::with(Config::default().with_seed(seed), json!({})).await
}

async fn machine(case: &Case) {
    let spec = json!({"sourceNode": TEMPLATE_NODE, "templateID": 9002, "target": VM_NODE});
    case.machine("m", spec).await;
}

fn silent(node: &str) -> Change {
    Change::NodeSilent { node: node.to_owned(), millis: None }
}

/// Waits until the machine says that the node does not answer, or is down.
async fn is_told(case: &Case, node: &str) {
    let path = format!("/nodes/{node}/");
    let told = |found: &ProxmoxMachine| {
        said(found).is_some_and(|condition| {
            let text = text(condition);
            let code = text.contains("595") || text.contains("596");
            condition.status != "True" && code && text.contains(&path)
        })
    };
    case.until("m", &format!("{node} is said not to answer"), told).await;
}

/// The node falls silent with the effect of a call; nothing is made or lost meanwhile.
async fn at(node: &str, method: &str, path: &str) {
    happens_at(silent(node), node, method, path).await;
}

/// The same with a node that loses its power, and with it its tasks and running VMs.
async fn goes_down_at(node: &str, method: &str, path: &str) {
    let down = Change::NodeOffline { node: node.to_owned() };
    happens_at(down, node, method, path).await;
}

async fn happens_at(change: Change, node: &str, method: &str, path: &str) {
    let case = stage().await;
    let path = format!("/nodes/{node}/{path}");
    case.fake.faults().add(FaultRule::once(method, &path, Action::ChangeAfter(change)));
    machine(&case).await;
    is_told(&case, node).await;
    sees_nothing_happen(&case).await;
    case.fake.change(Change::NodeOnline { node: node.to_owned() });
    case.ready("m").await;
    assert_eq!(case.vm_of("m").node, VM_NODE);
    let clones = format!("/nodes/{TEMPLATE_NODE}/qemu/9002/clone");
    let journal = case.fake.journal();
    assert_eq!(journal.calls("POST", &clones).filter(|call| call.has_effect()).count(), 1);
    case.end().await;
}

/// Neither a VM more nor one less.
async fn sees_nothing_happen(case: &Case) {
    let before = case.vms_of("m").len();
    assert!(before <= 1);
    let still = |fake: &pve_fake::Fake| {
        let model = fake.model();
        // A clone under way goes on.
        let now = model.vms().iter().filter(|vm| vm.name.as_deref() == Some("m")).count();
        now <= 1 && now >= before && fake.journal().count("DELETE", "/nodes/*/qemu/*") == 0
    };
    case.stays(Duration::from_secs(5), "the VM is what it was", still).await;
}

pub(crate) async fn of_the_templates_node_before_the_clone() {
    let case = stage().await;
    case.fake.change(silent(TEMPLATE_NODE));
    machine(&case).await;
    is_told(&case, TEMPLATE_NODE).await;
    assert!(case.is_untouched());
    case.fake.change(Change::NodeOnline { node: TEMPLATE_NODE.to_owned() });
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn of_the_templates_node_during_the_clone() {
    at(TEMPLATE_NODE, "POST", "qemu/9002/clone").await;
}

pub(crate) async fn of_the_vms_node_at_its_configuration() {
    at(VM_NODE, "POST", "qemu/*/config").await;
}

pub(crate) async fn of_the_vms_node_when_it_goes_down_at_its_configuration() {
    goes_down_at(VM_NODE, "POST", "qemu/*/config").await;
}

pub(crate) async fn of_the_vms_node_when_it_goes_down_at_the_boot() {
    goes_down_at(VM_NODE, "POST", "qemu/*/agent/exec").await;
}

pub(crate) async fn of_the_vms_node_at_the_upload() {
    at(VM_NODE, "POST", "storage/local/upload").await;
}

pub(crate) async fn of_the_vms_node_at_the_start() {
    at(VM_NODE, "POST", "qemu/*/status/start").await;
}

pub(crate) async fn of_the_vms_node_at_the_boot() {
    at(VM_NODE, "POST", "qemu/*/agent/exec").await;
}

pub(crate) async fn of_the_vms_node_when_it_is_ready() {
    let case = stage().await;
    machine(&case).await;
    let ready = case.ready("m").await;
    case.fake.change(silent(VM_NODE));
    sees_nothing_happen(&case).await;
    let now = case.api::<ProxmoxMachine>().get("m").await.unwrap();
    assert_eq!(said(&now).unwrap().status, "True", "{ready:?}");
    case.delete("m").await;
    let words = ["nothing is destroyed while the state of the VM is not known", "/nodes/pve2/"];
    case.says("m", "False Warning Deleting", &words).await;
    sees_nothing_happen(&case).await;
    case.fake.change(Change::NodeOnline { node: VM_NODE.to_owned() });
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn of_the_vms_node_when_its_seed_goes() {
    let case = stage().await;
    machine(&case).await;
    case.ready("m").await;
    let config = format!("/nodes/{VM_NODE}/qemu/*/config");
    let rule = FaultRule::once("POST", &config, Action::ChangeAfter(silent(VM_NODE)));
    case.fake.faults().add(rule);
    case.join("m").await;
    case.sees("the seed is ejected", |fake| {
        fake.faults().rules().iter().any(|rule| rule.seen > 0).then_some(())
    })
    .await;
    sees_nothing_happen(&case).await;
    let now = case.api::<ProxmoxMachine>().get("m").await.unwrap();
    assert_eq!(said(&now).unwrap().status, "True", "housekeeping makes no machine unready");
    case.fake.change(Change::NodeOnline { node: VM_NODE.to_owned() });
    case.join_without_seed("m").await;
    case.end().await;
}

pub(crate) async fn of_the_whole_cluster_without_quorum() {
    let case = stage().await;
    case.fake.change(Change::QuorumLost { millis: None });
    machine(&case).await;
    let told = |found: &ProxmoxMachine| {
        said(found).is_some_and(|condition| {
            let text = text(condition);
            text.contains("no quorum, bring its nodes back")
        })
    };
    case.until("m", "the lost quorum is told", told).await;
    assert!(case.is_untouched());
    case.fake.change(Change::QuorumBack);
    case.ready("m").await;
    case.fake.change(Change::QuorumLost { millis: None });
    case.delete("m").await;
    case.until("m", "the lost quorum is told", |found| {
        said(found)
            .is_some_and(|condition| text(condition).contains("no quorum, bring its nodes back"))
    })
    .await;
    assert_eq!(case.vms_of("m").len(), 1);
    case.fake.change(Change::QuorumBack);
    case.gone("m").await;
    case.end().await;
}

/// The node falls silent while the machine is being deleted.
async fn at_the_end(method: &str, path: &str) {
    let case = stage().await;
    machine(&case).await;
    case.ready("m").await;
    let path = format!("/nodes/{VM_NODE}/{path}");
    let rule = FaultRule::once(method, &path, Action::ChangeAfter(silent(VM_NODE)));
    case.fake.faults().add(rule);
    case.delete("m").await;
    is_told(&case, VM_NODE).await;
    case.fake.change(Change::NodeOnline { node: VM_NODE.to_owned() });
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn of_the_vms_node_at_the_stop() {
    at_the_end("POST", "qemu/*/status/stop").await;
}

pub(crate) async fn of_the_vms_node_at_the_end() {
    at_the_end("DELETE", "qemu/*").await;
}

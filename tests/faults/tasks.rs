//! Tasks that fail, locks, protection, and a number that somebody else takes.

use pve_fake::{Action, Change, Config, FaultRule, Seed, VmSeed};
use serde_json::json;

use crate::case::Case;

const CLONE: &str = "/nodes/*/qemu/*/clone";
const START: &str = "/nodes/*/qemu/*/status/start";

fn failure(text: &str) -> Action {
    Action::FailTask { text: text.to_owned(), with_effect: false }
}

pub(crate) async fn a_vmid_that_somebody_else_takes_is_given_up() {
    let case = Case::sound().await;
    let vm = VmSeed::new(100, "pve2", "other", "shared").foreign();
    case.fake.fail_next("POST", CLONE, Action::Change(Change::VmAppears { vm }));
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let other = case.fake.model().vm_view(100).expect("the other VM is there");
    assert_eq!(other.name.as_deref(), Some("other"));
    assert!(other.running, "it was not touched");
    assert_ne!(case.vm_of("m").vmid, 100);
    case.end().await;
}

pub(crate) async fn a_vmid_that_a_guest_takes_whom_nobody_shows_us_is_given_up() {
    let seed = Seed::three_nodes().with_acl("/vms/100", "capmox@pve", &["VM.Allocate"]);
    let case = Case::with(Config::default().with_seed(seed), json!({})).await;
    let vm = VmSeed::new(100, "pve3", "tenant", "shared").foreign();
    case.fake.fail_next("POST", CLONE, Action::Change(Change::VmAppears { vm }));
    case.machine("m", json!({})).await;
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, 101);
    assert!(case.fake.model().vm_view(100).is_some_and(|vm| vm.running), "it was touched");
    case.end().await;
}

pub(crate) async fn a_clone_that_fails_once_is_tried_again() {
    let case = Case::sound().await;
    case.fake.fail_next("POST", CLONE, failure("clone failed: out of luck"));
    case.machine("m", json!({})).await;
    let words = ["clone the template", "out of luck", "UPID:pve1:", "status.retryAfter"];
    case.says("m", "False Info TaskFailure", &words).await;
    let ready = case.ready("m").await;
    assert_eq!(ready.status.unwrap().clone_attempts, Some(1));
    assert_eq!(case.fake.journal().count("POST", CLONE), 2);
    case.end().await;
}

pub(crate) async fn a_clone_that_always_fails_is_tried_less_and_less() {
    let case = Case::sound().await;
    case.fake.faults().add(FaultRule::always("POST", CLONE, failure("clone failed: no luck")));
    case.machine("m", json!({})).await;
    case.sees("the fourth clone", |fake| (fake.journal().count("POST", CLONE) >= 4).then_some(()))
        .await;
    case.says("m", "False Info TaskFailure", &["no luck"]).await;
    let times: Vec<u64> = case.fake.journal().calls("POST", CLONE).map(|call| call.at).collect();
    let pauses: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // A busy host makes each of them longer, and no longer in order.
    let least = [2000, 4000, 8000];
    assert!(pauses.iter().zip(least).all(|(pause, least)| *pause >= least), "{pauses:?}");
    assert!(case.vms_of("m").is_empty());
    case.fake.faults().clear();
    let ready = case.ready("m").await;
    assert!(ready.status.unwrap().failure_reason.is_none());
    case.end().await;
}

pub(crate) async fn a_clone_that_was_cut_short_is_told_with_the_remedy() {
    let case = Case::sound().await;
    // The node loses its power while it copies.
    let down = Change::NodeOffline { node: "pve1".into() };
    case.fake.fail_next("POST", CLONE, Action::ChangeAfter(down));
    case.machine("m", json!({})).await;
    case.sees("the clone has begun", |fake| fake.model().vm_view(100).map(drop)).await;
    case.fake.change(Change::NodeOnline { node: "pve1".into() });
    let words = ["VM 100", "clone", "cut short", "qm destroy 100 --skiplock"];
    case.says("m", "False Info VMProvisionStarted", &words).await;
    let half = case.fake.model().vm_view(100).expect("what there is of the VM is left alone");
    assert_eq!(half.lock.as_deref(), Some("clone"));
    case.fake.change(Change::VmGone { vmid: 100 });
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, 100);
    case.end().await;
}

pub(crate) async fn a_start_that_fails_is_told_and_tried_again() {
    let case = Case::sound().await;
    let broken = failure("start failed: QEMU exited with code 1");
    case.fake
        .faults()
        .add(FaultRule { times: Some(2), ..FaultRule::always("POST", START, broken) });
    case.machine("m", json!({})).await;
    let words = ["start the VM", "QEMU exited with code 1", "status.retryAfter"];
    case.says("m", "False Info TaskFailure", &words).await;
    case.ready("m").await;
    assert_eq!(case.fake.journal().count("POST", START), 3);
    assert!(case.vm_of("m").running);
    case.end().await;
}

pub(crate) async fn a_locked_vm_is_waited_for_before_its_configuration() {
    let case = Case::sound().await;
    let locked = |lock: Option<&str>| Change::VmLocked { vmid: 100, lock: lock.map(str::to_owned) };
    let at = "/nodes/*/qemu/*/resize";
    case.fake.fail_next("PUT", at, Action::Change(locked(Some("backup"))));
    case.machine("m", json!({})).await;
    let words = ["VM 100", "locked (backup)", "qm unlock 100"];
    case.says("m", "False Info VMProvisionStarted", &words).await;
    case.fake.change(locked(None));
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, 100);
    case.end().await;
}

pub(crate) async fn a_locked_vm_is_waited_for_before_its_end() {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let vmid = case.vm_of("m").vmid;
    case.fake.change(Change::VmLocked { vmid, lock: Some("backup".into()) });
    case.delete("m").await;
    case.says("m", "False Info Deleting", &["locked (backup)", "qm unlock"]).await;
    assert!(case.vm_of("m").running, "a VM that is being saved is not stopped");
    case.fake.change(Change::VmLocked { vmid, lock: None });
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn a_protected_vm_is_left_alone_until_the_protection_goes() {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let vm = case.vm_of("m");
    let protect = |on: &str| {
        let guard = VmSeed {
            vmid: vm.vmid,
            node: vm.node.clone(),
            config: vm.config.clone(),
            running: true,
            foreign: false,
        };
        case.fake.change(Change::VmAppears { vm: guard.with("protection", on) });
    };
    protect("1");
    case.delete("m").await;
    let words = ["protected against removal", "clear its protection option"];
    case.says("m", "False Warning Deleting", &words).await;
    assert!(case.vm_of("m").running, "a VM that stays is not stopped");
    protect("0");
    case.gone("m").await;
    case.end().await;
}

/// The call takes effect after its connection broke, and no other of its kind does.
async fn late(method: &str, path: &str) -> Case {
    let case = Case::sound().await;
    let refused = Action::Reply { status: 500, text: "too busy".to_owned() };
    case.fake.fail_next(method, path, Action::DropThenEffect { millis: 12_000 });
    case.fake.faults().add(FaultRule { from: 2, ..FaultRule::always(method, path, refused) });
    case.machine("m", json!({})).await;
    // The lost one is in the journal when it has taken effect.
    case.sees("the second call", |fake| (fake.journal().count(method, path) >= 1).then_some(()))
        .await;
    case.delete("m").await;
    case
}

pub(crate) async fn a_clone_that_comes_after_its_answer_was_lost_is_not_left_behind() {
    let case = late("POST", CLONE).await;
    case.says("m", "False Info Deleting", &["clone the template", "may still take effect"]).await;
    case.gone("m").await;
    let journal = case.fake.journal();
    let made = journal.calls("POST", CLONE).filter(|call| call.has_effect()).count();
    assert_eq!(made, 1, "it came");
    drop(journal);
    case.end().await;
}

pub(crate) async fn an_upload_that_comes_after_its_answer_was_lost_is_not_left_behind() {
    let case = late("POST", "/nodes/*/storage/*/upload").await;
    case.gone("m").await;
    let journal = case.fake.journal();
    let made = journal.calls("POST", "/nodes/*/storage/*/upload").filter(|call| call.has_effect());
    assert_eq!(made.count(), 1, "it came");
    drop(journal);
    case.end().await;
}

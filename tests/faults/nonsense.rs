//! Objects that no person and no controller would write: no panic, no loop, nobody else concerned.

use std::time::Duration;

use capmox::api::ProxmoxMachine;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use pve_fake::Fake;
use serde_json::{Value, json};

use tokio::time::timeout;

use crate::case::{Case, PATIENCE};

/// How long the manager is watched for going round in circles.
const WATCHED: Duration = Duration::from_secs(15);
/// Decisions that a machine may take in that time: a guest that boots is asked every 0.7 s at most, in
/// two passes of three decisions each.
const DECISIONS: usize = 100;

/// Makes all machines, beside a sound one, and sees that none of them keeps the manager busy.
async fn hold(case: &Case, machines: &[(&str, Value)]) {
    for (name, change) in machines {
        case.machine(name, change.clone()).await;
    }
    case.machine("sound", json!({})).await;
    case.ready("sound").await;
    is_calm(case, machines.iter().map(|(name, _)| *name)).await;
}

/// Nothing is decided again and again.
async fn is_calm(case: &Case, machines: impl Iterator<Item = &str>) {
    let machines: Vec<&str> = machines.collect();
    assert!(decisions(case, "sound") > 0, "decisions are not found in the log");
    let before: Vec<usize> = machines.iter().map(|name| decisions(case, name)).collect();
    let calls = case.fake.journal().total();
    case.stays(WATCHED, "the sound VM runs", |fake: &Fake| {
        fake.model().vms().iter().any(|vm| vm.name.as_deref() == Some("sound") && vm.running)
    })
    .await;
    for (name, before) in machines.iter().zip(before) {
        let passes = decisions(case, name) - before;
        assert!(passes <= DECISIONS, "{name}: {passes} decisions in {WATCHED:?}");
    }
    let calls = case.fake.journal().total() - calls;
    assert!(calls <= 20 * machines.len() as u64, "{calls} calls in {WATCHED:?}");
}

/// How often something was decided for a machine since it was made.
fn decisions(case: &Case, machine: &str) -> usize {
    let mark = format!("namespace={} name=\"{machine}\"", case.namespace);
    let log = case.stage.log();
    log.lines().filter(|line| line.contains(&mark) && line.contains("decided")).count()
}

pub(crate) async fn numbers_that_no_field_can_hold() {
    let case = Case::sound().await;
    let volume = |size: i64| json!({"disks": {"bootVolume": {"disk": "scsi0", "sizeGb": size}}});
    let machines = [
        ("vmid-huge", json!({"virtualMachineID": i64::MAX})),
        ("vmid-low", json!({"virtualMachineID": 7})),
        ("vmid-negative", json!({"virtualMachineID": -1})),
        ("template-huge", json!({"templateID": 1_u64 << 40})),
        ("template-low", json!({"templateID": 1})),
        ("cores-many", json!({"numCores": i32::MAX})),
        ("cores-beyond", json!({"numCores": 1_u64 << 33})),
        ("memory-huge", json!({"memoryMiB": 2_147_483_640, "allowedNodes": ["pve1"]})),
        ("memory-beyond", json!({"memoryMiB": 1_u64 << 50})),
        ("memory-negative", json!({"memoryMiB": -8})),
        ("disk-huge", volume(i64::from(i32::MAX))),
        ("disk-beyond", volume(1 << 40)),
    ];
    hold(&case, &machines).await;
    for (name, _) in &machines {
        // Not even a number too large to be read keeps an object from being deleted.
        case.delete(name).await;
        case.gone(name).await;
    }
    case.end().await;
}

pub(crate) async fn names_that_lead_elsewhere() {
    let case = Case::sound().await;
    let device = |bridge: &str| json!({"network": {"default": {"bridge": bridge}}});
    let disk = |disk: &str| json!({"disks": {"bootVolume": {"disk": disk, "sizeGb": 12}}});
    let machines = [
        ("source-path", json!({"sourceNode": "../../access"})),
        ("source-query", json!({"sourceNode": "pve1?x=1"})),
        ("target-path", json!({"target": "pve1/qemu/9000"})),
        ("allowed-empty", json!({"allowedNodes": [""]})),
        ("storage-path", json!({"storage": "../x"})),
        ("pool-odd", json!({"pool": "no/such pool"})),
        ("snap-odd", json!({"snapName": "no such"})),
        ("bridge-options", device("vmbr0,firewall=0,link_down=1")),
        ("bridge-unknown", device("vmbr99")),
        ("disk-key", disk("scsi0,size=1")),
        ("disk-net", disk("net0")),
        ("description-long", json!({"description": "x".repeat(60_000)})),
    ];
    hold(&case, &machines).await;
    case.says("bridge-options", "False Warning VMProvisionFailed", &["spec.network", "bridge"])
        .await;
    case.says("source-path", "False Warning CloningFailed", &["spec.sourceNode"]).await;
    case.says("target-path", "False Warning CloningFailed", &["spec.target"]).await;
    for vm in case.fake.model().vms() {
        let nic = vm.config.get("net0").cloned().unwrap_or_default();
        assert!(!nic.contains("link_down"), "options came in through a name: {nic}");
    }
    let journal = case.fake.journal();
    assert!(journal.entries().all(|entry| !entry.path.contains("..")), "a path leads elsewhere");
    drop(journal);
    case.end().await;
}

pub(crate) async fn status_that_nobody_wrote() {
    let case = Case::sound().await;
    let upid = "UPID:pve1:000ACD12:00BC614E:679A423B:qmclone:100:capmox@pve!capi:";
    let statuses = [
        ("task-garbage", json!({"taskRef": "UPID:garbage"})),
        ("task-unknown", json!({"taskRef": upid})),
        ("retry-never", json!({"retryAfter": "2999-12-31T23:59:59Z"})),
        ("template-nowhere", json!({"templateRef": {"node": "../x", "vmid": -1}})),
        ("iso-elsewhere", json!({"bootstrapISO": "local:iso/../../etc/passwd"})),
        ("node-odd", json!({"proxmoxNode": "no such/node"})),
        ("attempts-many", json!({"cloneAttempts": i32::MAX})),
        ("seeded", json!({"bootstrapDataProvided": true})),
    ];
    let names = statuses.iter().map(|(name, _)| *name);
    // Written while nobody looks, as by an older or a broken controller.
    let pause = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    for (name, status) in &statuses {
        case.paused_machine(name, pause.clone()).await;
        let mut status = status.clone();
        status["ready"] = json!(false);
        let patch = Patch::Merge(json!({"status": status}));
        let api = case.api::<ProxmoxMachine>();
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        let go = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}});
        case.change::<ProxmoxMachine>(name, go).await;
    }
    case.machine("sound", json!({})).await;
    case.ready("sound").await;
    for name in names.clone().filter(|name| *name != "seeded") {
        case.ready(name).await;
    }
    // A machine that boots has calls to make: how many depends on how busy the host is.
    is_calm(&case, names).await;
    case.end().await;
}

pub(crate) async fn a_machine_that_cannot_be_read_any_more_is_left_alone_and_can_be_deleted() {
    let case = Case::sound().await;
    case.machine("sound", json!({})).await;
    case.ready("sound").await;
    let api = case.dynamic(capmox::api::GROUP, capmox::api::VERSION, "ProxmoxMachine");
    let cores = async |number: u64| {
        let patch = Patch::Merge(json!({"spec": {"numCores": number}}));
        api.patch("sound", &PatchParams::default(), &patch).await.unwrap();
    };
    cores(1 << 33).await;
    is_calm(&case, ["sound"].into_iter()).await;
    assert!(case.stage.log().contains("cannot be read"));
    let told = async || {
        let events: Vec<Event> = case.list().await;
        events
            .iter()
            .any(|event| event.note.as_deref().is_some_and(|note| note.contains("cannot be read")))
    };
    assert!(told().await, "an event says so");
    // Mended or not, it can be deleted, and takes its VM along.
    api.delete("sound", &DeleteParams::background()).await.unwrap();
    let is_gone = |found: Option<&DynamicObject>| found.is_none();
    let ended = timeout(PATIENCE, await_condition(api.clone(), "sound", is_gone)).await;
    ended.expect("it goes in time").unwrap();
    let log = case.stage.log();
    let interrupted = |line: &&str| line.contains(&case.namespace) && line.contains("interrupted");
    assert_eq!(log.lines().find(interrupted), None, "its writes are written");
    case.gone("sound").await;
    case.end().await;
}

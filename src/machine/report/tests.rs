//! What people and Cluster API are told.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::super::facts::{Address, ClaimFact, Facts, VmSeen};
use super::super::fixture::*;
use super::*;
use crate::hypervisor::Position;

fn said(facts: &Facts, conclusion: &Conclusion) -> (String, String, String) {
    let pause = conclusion.is_fault().then_some(Duration::from_secs(10));
    let status = status(facts, conclusion, pause, now());
    let condition = conditions::find(&status.conditions, reasons::VM_PROVISIONED).unwrap();
    let reason = condition.reason.clone().unwrap_or_default();
    (condition.status.clone(), reason, condition.message.clone().unwrap_or_default())
}

fn waiting(waiting: Waiting) -> Conclusion {
    Conclusion::Decided(Decision::Wait(waiting, Wake::OnChange))
}

#[test]
fn ready_is_told_with_addresses_and_stays() {
    let mut facts = cloned();
    facts.status().bootstrap_data_provided = Some(true);
    let up = status(&facts, &Conclusion::Decided(Decision::Ready(None)), None, now());
    assert!(up.ready);
    assert_eq!(up.vm_status.as_deref(), Some("ready"));
    assert_eq!(up.ip_addresses["net0"].ipv4.as_deref(), Some("10.0.0.10"));
    let addresses: Vec<&str> = up.addresses.iter().map(|a| a.address.as_str()).collect();
    assert_eq!(addresses, ["w-1", "10.0.0.10"]);
    assert_eq!(up.conditions[0].type_, "Ready");
    assert_eq!(up.conditions[0].status, "True");
    facts.machine.status = Some(up);
    facts.vm = Some(VmSeen::Absent);
    let lost = status(&facts, &waiting(Waiting::Lost(vmid())), None, now());
    assert!(lost.ready, "Cluster API takes an infrastructure that was ready for ready");
    assert_eq!(lost.vm_status.as_deref(), Some("notfound"));
    assert_eq!(lost.conditions[0].status, "False");
}

#[test]
fn addresses_are_not_told_before_the_vm_has_its_seed() {
    let facts = cloned();
    let told = status(&facts, &waiting(Waiting::CloudInit), None, now());
    assert!(told.addresses.is_empty());
    assert!(!told.ip_addresses.is_empty());
}

/// Machine `w-1` with net0 on the cluster's two pools and net1 on two of its own.
fn on_two_networks() -> Facts {
    let mut facts = cloned();
    let pool = |name| json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": name});
    let network = json!({"default": {"bridge": "vmbr0"}, "additionalDevices": [{
        "name": "net1", "bridge": "vmbr1", "ipv4PoolRef": pool("b4"), "ipv6PoolRef": pool("b6"),
    }]});
    facts.machine.spec.network = Some(serde_json::from_value(network).unwrap());
    let six = json!({"addresses": ["fd00::10"], "prefix": 64});
    facts.infra.as_mut().unwrap().spec.ipv6_config = Some(serde_json::from_value(six).unwrap());
    wish(&mut facts);
    for (fact, ip) in
        facts.addresses.iter_mut().zip(["10.0.0.10", "fd00::10", "10.1.0.9", "fd01::9"])
    {
        fact.claim = Some(ClaimFact { ours: true, message: None });
        let ip = ip.parse().unwrap();
        fact.address = Some(Address { ip, prefix: 24, gateway: None, metric: None });
    }
    facts.status().bootstrap_data_provided = Some(true);
    facts
}

fn told(facts: &Facts) -> ProxmoxMachineStatus {
    status(facts, &waiting(Waiting::CloudInit), None, now())
}

fn texts(status: &ProxmoxMachineStatus) -> Vec<&str> {
    status.addresses.iter().map(|told| told.address.as_str()).collect()
}

#[test]
fn addresses_of_all_devices_are_told_those_of_the_first_before_the_others() {
    let up = told(&on_two_networks());
    assert_eq!(texts(&up), ["w-1", "10.0.0.10", "fd00::10", "10.1.0.9", "fd01::9"]);
    assert_eq!(up.addresses[0].type_, MachineAddressType::Hostname);
    assert!(up.addresses[1..].iter().all(|it| it.type_ == MachineAddressType::InternalIP));
    let of = |device: &str| (&up.ip_addresses[device].ipv4, &up.ip_addresses[device].ipv6);
    assert_eq!(of("net0"), (&Some("10.0.0.10".to_owned()), &Some("fd00::10".to_owned())));
    assert_eq!(of("net1"), (&Some("10.1.0.9".to_owned()), &Some("fd01::9".to_owned())));
}

#[test]
fn addresses_follow_the_cluster_until_the_guest_has_been_told_them() {
    let mut facts = on_two_networks();
    facts.status().bootstrap_data_provided = None;
    facts.machine.status = Some(told(&facts));
    facts.addresses.retain(|fact| fact.slot.family == Family::V4);
    let without = told(&facts);
    assert_eq!(without.ip_addresses["net0"].ipv6, None, "{:?}", without.ip_addresses);
    facts.machine.status = Some(told(&on_two_networks()));
    assert_eq!(texts(&told(&facts)).len(), 5, "the guest has what it was given");
}

/// As after `clusterctl move`, which loses the status.
#[test]
fn addresses_are_found_again_though_the_cluster_got_another_family_since() {
    let mut facts = on_two_networks();
    for fact in facts.addresses.iter_mut().filter(|fact| fact.slot.family == Family::V6) {
        (fact.claim, fact.address) = (None, None);
    }
    assert_eq!(texts(&told(&facts)), ["w-1", "10.0.0.10", "10.1.0.9"]);
    facts.addresses[2].address = None;
    assert!(told(&facts).addresses.is_empty(), "what was claimed is waited for");
    facts.status().bootstrap_data_provided = None;
    assert!(told(&facts).ip_addresses.is_empty(), "before the seed all are wanted");
}

#[test]
fn waits_have_the_severity_that_capmox_gives_them() {
    let mut deleted = cloned();
    deleted.machine.metadata.deletion_timestamp = Some(Time(now()));
    let task = |operation| Waiting::Task { operation, upid: UPID.to_owned(), trouble: None };
    let busy = Fault::new(Class::TaskFailed, "busy");
    let (live, gone) = (&cloned(), &deleted);
    for (facts, conclusion, reason, wanted) in [
        (live, waiting(Waiting::ClusterInfrastructure), "WaitingForClusterInfrastructure", "Info"),
        (live, waiting(Waiting::BootstrapDataName), "WaitingForBootstrapData", "Info"),
        (live, waiting(task(Operation::Clone)), "Cloning", "Info"),
        (live, waiting(task(Operation::Start)), "PoweringOn", "Info"),
        (live, waiting(Waiting::Placement("full".into())), "CloningFailed", "Warning"),
        (
            live,
            waiting(Waiting::Addresses("claim x".into())),
            "WaitingForStaticIPAllocation",
            "Info",
        ),
        (live, waiting(Waiting::Invalid("no scsi0".into())), "VMProvisionFailed", "Warning"),
        (gone, waiting(task(Operation::Stop)), "Deleting", "Info"),
        (gone, Conclusion::Faulted(Operation::Destroy, busy), "DeletionFailed", "Warning"),
    ] {
        let said = status(facts, &conclusion, None, now());
        let said = conditions::find(&said.conditions, reasons::VM_PROVISIONED).unwrap();
        assert_eq!(said.reason.as_deref(), Some(reason));
        assert_eq!(said.severity.as_deref(), Some(wanted), "{reason}");
    }
}

#[test]
fn every_wait_names_what_is_waited_for() {
    let task = Waiting::Task {
        operation: Operation::Clone,
        upid: UPID.to_owned(),
        trouble: Some("no route".to_owned()),
    };
    let cases = [
        (Waiting::Owner, "WaitingForClusterInfrastructure", "owner reference"),
        (Waiting::Cluster, "WaitingForClusterInfrastructure", "Cluster one"),
        (Waiting::InfraCluster, "WaitingForClusterInfrastructure", "Cluster one"),
        (Waiting::ClusterInfrastructure, "WaitingForClusterInfrastructure", "ProxmoxCluster"),
        (Waiting::BootstrapDataName, "WaitingForBootstrapData", "dataSecretName"),
        (Waiting::BootstrapData("gone".to_owned()), "WaitingForBootstrapData", "w-1-data"),
        (task, "Cloning", UPID),
        (Waiting::Placement("node full".to_owned()), "CloningFailed", "node full"),
        (Waiting::Unknown("node down".to_owned()), "Unknown", "node down"),
        (Waiting::Lost(vmid()), "NotFound", "105"),
        (
            Waiting::Locked { vmid: vmid(), lock: "backup".into() },
            "VMProvisionStarted",
            "qm unlock",
        ),
        (Waiting::Addresses("claim x".to_owned()), "WaitingForStaticIPAllocation", "claim x"),
        (Waiting::Invalid("no scsi0".to_owned()), "VMProvisionFailed", "no scsi0"),
        (Waiting::SeedStorage("pve2".parse().unwrap()), "VMProvisionFailed", "content type iso"),
        (Waiting::Agent("down".to_owned()), "PoweringOn", "qemu-guest-agent"),
        (Waiting::CloudInit, "PoweringOn", "cloud-init"),
    ];
    for (case, reason, text) in cases {
        let (_, told, message) = said(&cloned(), &waiting(case));
        assert_eq!(told, reason, "{message}");
        assert!(message.contains(text), "{text} in {message}");
    }
}

#[test]
fn a_fault_is_told_with_its_remedy_and_when_it_is_tried_again() {
    let fault = Fault::new(Class::Denied, "403 Permission check failed (/vms/105, VM.Clone)");
    let conclusion = Conclusion::Faulted(Operation::Clone, fault);
    let (told, reason, message) = said(&reserved(), &conclusion);
    assert_eq!((told.as_str(), reason.as_str()), ("False", "CloningFailed"));
    assert!(message.contains("VM.Clone") && message.contains("privileges"), "{message}");
    let told = status(&reserved(), &conclusion, Some(Duration::from_secs(10)), now());
    assert_eq!(told.clone_attempts, Some(1));
    let at = told.retry_after.unwrap().0;
    assert!(at > now() && at.as_second() <= now().as_second() + 11);
}

#[test]
fn a_pause_keeps_telling_the_fault() {
    let mut facts = reserved();
    let fault = Fault::new(Class::TaskFailed, "no space left");
    let faulted = Conclusion::Faulted(Operation::Clone, fault);
    facts.machine.status = Some(status(&facts, &faulted, Some(Duration::from_secs(10)), now()));
    let before = facts.machine.status.clone();
    let told = status(&facts, &waiting(Waiting::Retry), None, now());
    assert_eq!(Some(told), before);
}

#[test]
fn a_clone_that_failed_goes_on_telling_why_while_it_waits_for_its_turn() {
    let turn = |number| {
        let at = "pve1".to_owned();
        waiting(Waiting::Turn(Position { number, of: 3, at, limit: 1 }))
    };
    assert!(!turn(1).is_progress(), "it may fail again, and is not to be tried faster");
    let (_, reason, message) = said(&reserved(), &turn(2));
    assert_eq!(reason, "Cloning");
    assert!(message.starts_with("waiting for its turn: clone 2 of 3 on pve1"), "{message}");
    for (class, reason) in [(Class::TaskFailed, "TaskFailure"), (Class::Transient, "CloningFailed")]
    {
        let mut facts = reserved();
        let faulted = Conclusion::Faulted(Operation::Clone, Fault::new(class, "no space left"));
        for conclusion in [faulted, turn(3), turn(2)] {
            facts.machine.status = Some(status(&facts, &conclusion, None, now()));
        }
        let (_, told, message) = said(&facts, &turn(1));
        assert_eq!(told, reason);
        assert!(message.contains("no space left"), "{message}");
        assert_eq!(message.matches("tried again").count(), 1, "{message}");
        assert!(message.contains("again at its turn: clone 1 of 3"), "{message}");
    }
}

#[test]
fn housekeeping_does_not_unready_a_machine() {
    let mut facts = ready();
    facts.machine.status =
        Some(status(&facts, &Conclusion::Decided(Decision::Ready(None)), None, now()));
    let eject = Waiting::Task { operation: Operation::Eject, upid: UPID.into(), trouble: None };
    let fault = Fault::new(Class::Transient, "timeout");
    for conclusion in [
        waiting(eject),
        waiting(Waiting::Unknown("node down".into())),
        Conclusion::Faulted(Operation::DeleteSeed, fault.clone()),
    ] {
        assert_eq!(said(&facts, &conclusion).0, "True", "{conclusion:?}");
    }
    assert_eq!(said(&facts, &Conclusion::Faulted(Operation::Start, fault)).1, "PoweringOnFailed");
}

#[test]
fn what_is_tried_again_has_the_severity_that_capmox_gives_it() {
    let severity = |operation, class| {
        let faulted = Conclusion::Faulted(operation, Fault::new(class, "no luck"));
        let told = status(&cloned(), &faulted, None, now());
        let found = conditions::find(&told.conditions, "VMProvisioned").unwrap().clone();
        (found.reason.unwrap_or_default(), found.severity.unwrap_or_default())
    };
    for (operation, class, reason, wanted) in [
        (Operation::Clone, Class::TaskFailed, "TaskFailure", "Info"),
        (Operation::Start, Class::TaskFailed, "TaskFailure", "Info"),
        (Operation::Start, Class::Transient, "PoweringOnFailed", "Info"),
        (Operation::Clone, Class::Blocked, "CloningFailed", "Warning"),
        (Operation::Configure, Class::Transient, "VMProvisionFailed", "Warning"),
    ] {
        let told = severity(operation, class);
        assert_eq!(told, (reason.to_owned(), wanted.to_owned()), "{operation:?} {class:?}");
    }
}

#[test]
fn a_failure_for_good_is_told_to_cluster_api() {
    let failure = Failure { reason: "BootstrapFailed", message: "cloud-init failed".to_owned() };
    let told = status(&cloned(), &Conclusion::Decided(Decision::Fail(failure)), None, now());
    assert_eq!(told.failure_reason.as_deref(), Some("BootstrapFailed"));
    assert_eq!(told.failure_message.as_deref(), Some("cloud-init failed"));
}

#[test]
fn a_running_task_is_recorded_until_it_ends() {
    let mut facts = reserved();
    facts.task = Some(running(Operation::Clone));
    let told = status(&facts, &waiting(Waiting::Retry), None, now());
    assert_eq!(told.task_ref.as_deref(), Some(UPID));
    facts.task = None;
    assert_eq!(status(&facts, &waiting(Waiting::CloudInit), None, now()).task_ref, None);
}

#[test]
fn deletion_tells_what_keeps_it() {
    let mut facts = cloned();
    facts.machine.metadata.deletion_timestamp = Some(Time(now()));
    let (_, reason, message) = said(&facts, &waiting(Waiting::Protected(vmid())));
    assert_eq!(reason, "Deleting");
    assert!(message.contains("protection"), "{message}");
    let fault = Fault::new(Class::TaskFailed, "busy");
    assert_eq!(said(&facts, &Conclusion::Faulted(Operation::Destroy, fault)).1, "DeletionFailed");
}

#[test]
fn who_waits_for_a_change_looks_now_and_then_all_the_same() {
    for wait in [Waiting::Paused, Waiting::InfraCluster, Waiting::Owner] {
        assert_eq!(wake(&waiting(wait), None), REGULAR);
    }
    let soon = Decision::Wait(Waiting::CloudInit, Wake::seconds(5));
    assert_eq!(wake(&Conclusion::Decided(soon), None), Wake::seconds(5));
}

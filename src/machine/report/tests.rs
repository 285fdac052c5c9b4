//! What people and Cluster API are told.
#![allow(clippy::unwrap_used)]

use super::super::facts::{Facts, VmSeen};
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

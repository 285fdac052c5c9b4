//! Every stage of a machine's life, and what is to happen there.
#![allow(clippy::unwrap_used, clippy::panic)]

mod doubtful;
mod taken_over;
mod untold;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::super::decision::{Decision, Look, Step, Waiting};
use super::super::facts::{Facts, GuestFact, Power, VmSeen};
use super::super::fixture::*;
use super::super::seed;
use super::{decide, mark};
use crate::api::MACHINE_FINALIZER;
use crate::fault::{Class, Fault};
use crate::hypervisor::{Exit, GuestEntry, GuestKind, Operation};
use crate::seen::Seen;

fn decided(facts: &Facts) -> Decision {
    decide(facts, now())
}

#[track_caller]
fn waits(facts: &Facts, wanted: impl Fn(&Waiting) -> bool) {
    match decided(facts) {
        Decision::Wait(waiting, _) if wanted(&waiting) => {}
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn does(facts: &Facts, wanted: impl Fn(&Step) -> bool) {
    match decided(facts) {
        Decision::Do(step) if wanted(&step) => {}
        other => panic!("{other:?}"),
    }
}

fn deleted(mut facts: Facts) -> Facts {
    facts.machine.metadata.deletion_timestamp = Some(Time(now()));
    facts
}

fn seeded() -> Facts {
    let mut facts = cloned();
    let mut status = json!({"ready": false, "proxmoxNode": "pve2", "bootstrapDataProvided": true});
    status["bootstrapISO"] = json!("local:iso/user-data-105.iso");
    set_status(&mut facts, &status);
    set_config(&mut facts, config_with(&[("ide0", "local:iso/user-data-105.iso,media=cdrom")]));
    facts
}

#[test]
fn each_thing_that_cluster_api_provides_is_waited_for_by_name() {
    let mut facts = fresh();
    facts.owner = None;
    waits(&facts, |w| matches!(w, Waiting::Owner));
    let mut facts = fresh();
    facts.cluster = None;
    waits(&facts, |w| matches!(w, Waiting::Cluster));
    let mut facts = fresh();
    facts.infra = None;
    waits(&facts, |w| matches!(w, Waiting::InfraCluster));
    let mut facts = fresh();
    facts.cluster.as_mut().unwrap().status = None;
    waits(&facts, |w| matches!(w, Waiting::ClusterInfrastructure));
    let mut facts = fresh();
    facts.owner.as_mut().unwrap().spec.bootstrap.data_secret_name = None;
    waits(&facts, |w| matches!(w, Waiting::BootstrapDataName));
}

#[test]
fn nothing_is_done_for_a_machine_that_is_paused_or_failed() {
    let mut facts = fresh();
    facts.cluster.as_mut().unwrap().spec.paused = Some(true);
    waits(&facts, |w| matches!(w, Waiting::Paused));
    waits(&deleted(facts), |w| matches!(w, Waiting::Paused));
    let mut facts = cloned();
    set_status(&mut facts, &json!({"ready": false, "failureReason": "BootstrapFailed"}));
    waits(&facts, |w| matches!(w, Waiting::Failed));
}

#[test]
fn a_finalizer_comes_with_the_vmid_or_the_first_wait_and_before_any_claim_or_clone() {
    let mut facts = fresh();
    facts.connection = None;
    assert_eq!(decided(&facts), Decision::Look(Look::Connection));
    facts.connection = Some(Ok(()));
    assert_eq!(decided(&facts), Decision::Look(Look::Placement));
    let mut waiting = [facts.clone(), facts.clone()];
    waiting[0].connection = Some(Err(Fault::new(Class::Transient, "no route")));
    waiting[1].placement = Some(Seen::Unknown("no answer".to_owned()));
    for mut facts in waiting {
        does(&facts, |s| *s == Step::AddFinalizer);
        facts.machine.metadata.finalizers = Some(vec![MACHINE_FINALIZER.to_owned()]);
        does(&facts, |s| matches!(s, Step::Claim(slots) if slots.len() == 1));
        facts.addresses.clear();
        waits(&facts, |w| matches!(w, Waiting::Connection(_) | Waiting::Unknown(_)));
    }
    // The VMID brings it; without it somebody took it away.
    let mut facts = reserved();
    wish(&mut facts);
    does(&facts, |s| matches!(s, Step::Claim(slots) if slots.len() == 1));
    facts.machine.metadata.finalizers = None;
    does(&facts, |s| *s == Step::AddFinalizer);
}

#[test]
fn a_vm_is_cloned_only_when_the_cluster_says_that_there_is_none() {
    let mut facts = reserved();
    assert_eq!(decided(&facts), Decision::Look(Look::Vm));
    facts.vm = Some(VmSeen::Unknown("node pve2 does not answer".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.vm = Some(VmSeen::Hidden("no privilege".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.vm = Some(VmSeen::Absent);
    assert_eq!(decided(&facts), Decision::Look(Look::IsoStorages));
    facts.iso_storages = Some(Seen::Unknown("no answer".to_owned()));
    does(&facts, |s| {
        matches!(s, Step::Clone { vmid: id, node, template } if *id == vmid()
        && node.as_str() == "pve2" && template.node.as_str() == "pve1")
    });
}

#[test]
fn a_number_that_somebody_else_has_is_given_up_only_when_that_is_certain() {
    let mut facts = reserved();
    facts.clone_refused = true;
    facts.vm = Some(VmSeen::Absent);
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.vm = Some(VmSeen::Hidden("no privilege".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.vmid_foreign = true;
    does(&facts, |s| *s == Step::GiveUpVmId(vmid()));
    facts.vmid_foreign = false;
    facts.task = Some(ended(Operation::Clone, Exit::Failure("VM 105 already exists".to_owned())));
    does(&facts, |s| *s == Step::ForgetTask);
    facts.past.sole_clone = true;
    does(&facts, |s| *s == Step::GiveUpVmId(vmid()));
    does(&deleted(facts), |s| *s == Step::ReleaseClaims);
    let mut facts = reserved();
    set_config(&mut facts, config_with(&[("name", "database")]));
    does(&facts, |s| *s == Step::GiveUpVmId(vmid()));
    let other = mark("lab", "w-1", "another-uid");
    set_config(&mut facts, config_with(&[("description", &other)]));
    does(&facts, |s| *s == Step::GiveUpVmId(vmid()));
}

#[test]
fn an_interrupted_clone_is_found_again_by_its_mark() {
    let mut facts = reserved();
    set_config(&mut facts, config_with(&[("name", ""), ("lock", "clone")]));
    waits(&facts, |w| matches!(w, Waiting::Locked { .. }));
    let own = mark("lab", "w-1", "m-uid");
    set_config(&mut facts, config_with(&[("name", "renamed"), ("description", &own)]));
    does(&facts, |s| matches!(s, Step::SetProviderId(id) if id.ends_with(UUID)));
}

#[test]
fn a_vm_that_was_provisioned_and_is_gone_is_never_made_again() {
    let mut facts = cloned();
    facts.vm = Some(VmSeen::Absent);
    waits(&facts, |w| matches!(w, Waiting::Lost(_)));
    set_config(
        &mut facts,
        config_with(&[("smbios1", "uuid=00000000-0000-4000-8000-00000000dead")]),
    );
    waits(&facts, |w| matches!(w, Waiting::Foreign(_)));
}

#[test]
fn disk_options_addresses_and_seed_come_in_this_order() {
    let mut facts = cloned();
    set_config(&mut facts, config_with(&[("scsi0", "local-lvm:d,size=10G"), ("net0", "")]));
    does(&facts, |s| matches!(s, Step::Configure(options) if options.contains_key("net0")));
    set_config(&mut facts, config());
    facts.addresses[0].address = None;
    assert_eq!(decided(&facts), Decision::Look(Look::Pools));
    facts.addresses[0].pool_trouble = Some(": it is full".to_owned());
    waits(&facts, |w| matches!(w, Waiting::Addresses(text) if text.contains("w-1-net0-inet")));
    let mut facts = cloned();
    assert_eq!(decided(&facts), Decision::Look(Look::Bootstrap));
    facts.bootstrap = Some(Seen::Absent);
    waits(&facts, |w| matches!(w, Waiting::BootstrapData(_)));
    facts.bootstrap = Some(bootstrap());
    assert_eq!(decided(&facts), Decision::Look(Look::IsoStorages));
    facts.iso_storages = Some(Seen::Present(Vec::new()));
    waits(&facts, |w| matches!(w, Waiting::SeedStorage(_)));
    facts.iso_storages = Some(Seen::Present(vec!["local".parse().unwrap()]));
    does(&facts, |s| *s == Step::RecordSeed("local:iso/user-data-105.iso".to_owned()));
}

#[test]
fn a_boot_volume_grows_once_and_last_before_the_start() {
    let mut facts = cloned();
    facts.status().bootstrap_iso = Some("local:iso/user-data-105.iso".to_owned());
    let changes =
        [("scsi0", "local-lvm:d,size=10G"), ("ide0", "local:iso/user-data-105.iso,media=cdrom")];
    set_config(&mut facts, config_with(&changes));
    does(&facts, |s| matches!(s, Step::Resize { disk, gib: 20 } if disk == "scsi0"));
    // Asked for once, though the size that is shown stays what it was.
    facts.grown = Some(20);
    does(&facts, |s| *s == Step::RecordSeeded);
}

#[test]
fn a_guest_that_boots_is_asked_when_it_is_worth_it_and_then_less_and_less() {
    let mut facts = seeded();
    facts.task = Some(ended(Operation::Start, Exit::Success));
    facts.guest_wait = Some(std::time::Duration::from_secs(7));
    waits(&facts, |w| *w == Waiting::Boot);
    facts.guest = Some(GuestFact::CloudInitRunning);
    let Decision::Wait(Waiting::CloudInit, wake) = decided(&facts) else { panic!("no wait") };
    assert_eq!(wake, super::super::decision::Wake::seconds(7));
}

#[test]
fn the_seed_is_recorded_then_stored_then_attached_then_the_vm_starts() {
    let mut facts = cloned();
    facts.bootstrap = Some(bootstrap());
    facts.status().bootstrap_iso = Some("local:iso/user-data-105.iso".to_owned());
    does(&facts, |s| matches!(s, Step::StoreSeed(storage) if storage.as_str() == "local"));
    facts.task = Some(running(Operation::Upload));
    waits(&facts, |w| matches!(w, Waiting::Task { operation: Operation::Upload, .. }));
    facts.task = Some(ended(Operation::Upload, Exit::Success));
    does(&facts, |s| matches!(s, Step::AttachSeed(options) if options.contains_key("ide0")));
    facts.task = Some(ended(Operation::Configure, Exit::Success));
    set_config(&mut facts, config_with(&[("ide0", "local:iso/user-data-105.iso,media=cdrom")]));
    does(&facts, |s| *s == Step::RecordSeeded);
    let mut facts = seeded();
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Start(Power::Stopped));
    facts.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&facts), Decision::Look(Look::Guest));
}

#[test]
fn a_configuration_is_left_alone_once_the_vm_has_its_seed() {
    let mut facts = seeded();
    facts.machine.spec.memory_mib = Some(9999);
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| matches!(s, Step::Start(_)));
}

#[test]
fn the_guest_is_waited_for_as_its_checks_say() {
    let mut facts = seeded();
    facts.power = Some(Seen::Present(Power::Running));
    facts.guest = Some(GuestFact::AgentDown("not running".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Agent(_)));
    facts.guest = Some(GuestFact::CloudInitRunning);
    waits(&facts, |w| matches!(w, Waiting::CloudInit));
    facts.guest = Some(GuestFact::Unknown("timeout".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.guest = Some(GuestFact::CloudInitDone(Some("degraded".to_owned())));
    assert_eq!(decided(&facts), Decision::Ready(Some("degraded".to_owned())));
    facts.guest = Some(GuestFact::CloudInitFailed("exit 1".to_owned()));
    assert!(
        matches!(decided(&facts), Decision::Fail(failure) if failure.message.contains("exit 1"))
    );
    facts.guest = None;
    facts.machine.spec.checks =
        Some(serde_json::from_value(json!({"skipQemuGuestAgent": true})).unwrap());
    assert_eq!(decided(&facts), Decision::Ready(None));
}

#[test]
fn a_vm_that_stops_while_it_boots_is_started_again() {
    let mut facts = seeded();
    facts.task = Some(ended(Operation::Start, Exit::Success));
    assert_eq!(decided(&facts), Decision::Look(Look::Guest));
    facts.guest = Some(GuestFact::AgentDown("VM 105 not running".to_owned()));
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Start(Power::Stopped));
}

#[test]
fn a_failed_task_is_told_once_and_tried_again_after_a_pause() {
    let failure = || Exit::Failure("no space left".to_owned());
    for operation in [Operation::Clone, Operation::Upload, Operation::Resize, Operation::Configure]
    {
        let mut facts = reserved();
        facts.task = Some(ended(operation, failure()));
        does(&facts, |s| *s == Step::ForgetTask);
    }
    let mut facts = reserved();
    let later = now().checked_add(SignedDuration::from_secs(20)).unwrap();
    facts.status().retry_after = Some(Time(later));
    waits(&facts, |w| matches!(w, Waiting::Retry));
    assert_eq!(decide(&facts, later), Decision::Look(Look::Vm));
    // The clock was put back meanwhile.
    let far = now().checked_add(SignedDuration::from_mins(3)).unwrap();
    facts.status().retry_after = Some(Time(far));
    assert_eq!(decided(&facts), Decision::Look(Look::Vm));
}

#[test]
fn a_start_that_is_reported_failed_is_judged_by_the_vm() {
    let mut facts = seeded();
    facts.task = Some(ended(Operation::Start, Exit::Failure("timeout".to_owned())));
    facts.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&facts), Decision::Look(Look::Guest));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::ForgetTask);
}

#[test]
fn a_vm_whose_status_was_lost_is_not_touched_while_it_runs() {
    let mut facts = cloned();
    facts.machine.status = None;
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Running));
    does(&facts, |s| *s == Step::RecordSeeded);
    facts.power = Some(Seen::Unknown("no answer".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.power = Some(Seen::Present(Power::Stopped));
    assert_eq!(decided(&facts), Decision::Look(Look::Bootstrap), "it never started: go on");
}

fn listed(status: &str, tags: &[&str]) -> Seen<GuestEntry> {
    Seen::Present(GuestEntry {
        kind: GuestKind::Vm,
        node: "pve2".parse().unwrap(),
        name: None,
        status: Some(status.to_owned()),
        template: false,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        lock: None,
        memory: None,
    })
}

fn joined() -> Facts {
    let mut facts = ready();
    let status = json!({"bootstrapReady": true, "nodeRef": {"name": "w-1"}});
    facts.owner.as_mut().unwrap().status = Some(serde_json::from_value(status).unwrap());
    facts
}

#[test]
fn a_machine_that_is_up_costs_no_call_of_its_own() {
    let mut facts = ready();
    facts.listed = listed("running", &[]);
    assert_eq!(decided(&facts), Decision::Ready(None));
    facts.listed = Seen::Unknown("no answer".to_owned());
    assert_eq!(decided(&facts), Decision::Ready(None));
}

#[test]
fn a_machine_that_was_stopped_is_started_and_one_that_vanished_is_told() {
    let mut facts = ready();
    facts.listed = listed("stopped", &[]);
    assert_eq!(decided(&facts), Decision::Look(Look::Vm), "nothing is started by number alone");
    set_config(&mut facts, config_with(&[("lock", "backup")]));
    waits(&facts, |w| matches!(w, Waiting::Locked { .. }));
    set_config(
        &mut facts,
        config_with(&[("smbios1", "uuid=00000000-0000-4000-8000-00000000dead")]),
    );
    waits(&facts, |w| matches!(w, Waiting::Foreign(_)));
    set_config(&mut facts, config());
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&facts), Decision::Ready(None));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Start(Power::Stopped));
    let mut facts = ready();
    facts.listed = listed("running", &[]);
    facts.status().proxmox_node = Some("pve3".to_owned());
    assert_eq!(decided(&facts), Decision::Look(Look::Vm), "it may have moved");
    let mut facts = ready();
    facts.listed = Seen::Absent;
    assert_eq!(decided(&facts), Decision::Look(Look::Vm));
    facts.vm = Some(VmSeen::Unknown("no answer".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.vm = Some(VmSeen::Absent);
    waits(&facts, |w| matches!(w, Waiting::Lost(_)));
}

#[test]
fn the_seed_goes_when_the_node_has_joined_and_is_recorded_until_it_is_gone() {
    let iso = "local:iso/user-data-105.iso";
    let mut facts = joined();
    facts.listed = listed("running", &[seed::TAG]);
    assert_eq!(decided(&facts), Decision::Look(Look::Vm));
    let drive = format!("{iso},media=cdrom");
    set_config(&mut facts, config_with(&[("ide0", &drive), ("tags", seed::TAG)]));
    does(&facts, |s| *s == Step::RecordSeed(iso.to_owned()));
    facts.status().bootstrap_iso = Some(iso.to_owned());
    does(&facts, |s| matches!(s, Step::Eject(options) if options["ide0"].starts_with("none")));
    set_config(&mut facts, config_with(&[("ide0", "none,media=cdrom")]));
    does(&facts, |s| *s == Step::DeleteSeed(iso.to_owned()));
    facts.task = Some(ended(Operation::DeleteSeed, Exit::Success));
    does(&facts, |s| *s == Step::ForgetSeed);
    facts.status().bootstrap_iso = None;
    // The list may show the tag for a while longer.
    assert_eq!(decided(&facts), Decision::Ready(None));
    facts.listed = listed("running", &[]);
    assert_eq!(decided(&facts), Decision::Ready(None));
}

#[test]
fn deletion_stops_destroys_and_cleans_in_this_order() {
    let iso = "local:iso/user-data-105.iso";
    let mut facts = deleted(seeded());
    facts.status().bootstrap_iso = None;
    does(&facts, |s| *s == Step::RecordSeed(iso.to_owned()));
    facts.status().bootstrap_iso = Some(iso.to_owned());
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Running));
    does(&facts, |s| *s == Step::Stop);
    facts.task = Some(running(Operation::Stop));
    waits(&facts, |w| matches!(w, Waiting::Task { operation: Operation::Stop, .. }));
    facts.task = Some(ended(Operation::Stop, Exit::Success));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Destroy);
    facts.task = Some(ended(Operation::Destroy, Exit::Success));
    facts.vm = Some(VmSeen::Absent);
    does(&facts, |s| *s == Step::DeleteSeed(iso.to_owned()));
    facts.status().bootstrap_iso = None;
    does(&facts, |s| *s == Step::ReleaseClaims);
    facts.claims.clear();
    does(&facts, |s| *s == Step::RemoveFinalizer);
    facts.machine.metadata.finalizers = None;
    assert_eq!(decided(&facts), Decision::Gone);
}

#[test]
fn deletion_never_acts_on_what_is_not_known_or_not_ours() {
    let mut facts = deleted(cloned());
    facts.vm = Some(VmSeen::Unknown("node down".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.vm = Some(VmSeen::Hidden("no privilege".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.vm = Some(VmSeen::Absent);
    waits(&facts, |w| matches!(w, Waiting::Unknown(text) if text.contains("once more")));
    facts.absence_confirmed = true;
    does(&facts, |s| *s == Step::ReleaseClaims);
    facts.vm = Some(VmSeen::Foreign("a container".to_owned()));
    does(&facts, |s| *s == Step::ReleaseClaims);
    set_config(&mut facts, config_with(&[("protection", "1")]));
    waits(&facts, |w| matches!(w, Waiting::Protected(_)));
    set_config(&mut facts, config_with(&[("lock", "backup")]));
    waits(&facts, |w| matches!(w, Waiting::Locked { lock, .. } if lock == "backup"));
    set_config(
        &mut facts,
        config_with(&[("smbios1", "uuid=00000000-0000-4000-8000-00000000dead"), ("name", "other")]),
    );
    does(&facts, |s| *s == Step::ReleaseClaims);
}

#[test]
fn deletion_leaves_the_seed_of_a_vm_that_took_over_the_number() {
    let iso = "local:iso/user-data-105.iso";
    let mut facts = deleted(seeded());
    let other = "uuid=00000000-0000-4000-8000-00000000dead";
    set_config(
        &mut facts,
        config_with(&[
            ("smbios1", other),
            ("name", "other"),
            ("ide0", &format!("{iso},media=cdrom")),
        ]),
    );
    does(&facts, |s| *s == Step::ReleaseClaims);
    set_config(&mut facts, config_with(&[("smbios1", other), ("name", "other")]));
    does(&facts, |s| *s == Step::DeleteSeed(iso.to_owned()));
}

#[test]
fn a_provider_id_without_a_number_is_never_placed_anew() {
    let mut facts = cloned();
    facts.machine.spec.virtual_machine_id = None;
    waits(&facts, |w| matches!(w, Waiting::Foreign(_)));
    waits(&deleted(facts), |w| matches!(w, Waiting::Unknown(_)));
}

#[test]
fn a_clone_that_started_by_itself_is_stopped_before_it_is_seeded() {
    let mut facts = cloned();
    facts.listed = listed("running", &[]);
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Running));
    does(&facts, |s| *s == Step::Stop);
}

#[test]
fn a_machine_without_a_number_is_deleted_without_proxmox() {
    let mut facts = deleted(fresh());
    facts.machine.metadata.finalizers = Some(vec![MACHINE_FINALIZER.to_owned()]);
    facts.connection = None;
    facts.owner = None;
    facts.infra = None;
    does(&facts, |s| *s == Step::RemoveFinalizer);
}

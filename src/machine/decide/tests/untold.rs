//! Calls whose outcome nobody tells, servers that answer otherwise, and VMs that look like ours.

use std::time::Duration;

use serde_json::json;

use super::super::super::facts::{Call, Halt};
use super::*;
use crate::machine::seed::volume;

fn call(operation: Operation, age: u64) -> Call {
    Call { operation, age: Duration::from_secs(age) }
}

const ISO: &str = "local:iso/user-data-105.iso";

fn stores() -> Facts {
    let mut facts = cloned();
    facts.bootstrap = Some(bootstrap());
    facts.status().bootstrap_iso = Some(ISO.to_owned());
    facts
}

#[test]
fn what_was_accepted_without_a_task_is_waited_for_before_it_is_asked_for_again() {
    let mut facts = reserved();
    facts.vm = Some(VmSeen::Absent);
    facts.iso_storages = Some(Seen::Absent);
    facts.past.accepted = Some(call(Operation::Clone, 3));
    waits(&facts, |w| *w == Waiting::Effect(Operation::Clone));
    facts.past.accepted = Some(call(Operation::Clone, 40));
    does(&facts, |s| matches!(s, Step::Clone { .. }));

    let mut facts = seeded();
    facts.power = Some(Seen::Present(Power::Stopped));
    facts.past.accepted = Some(call(Operation::Start, 0));
    waits(&facts, |w| *w == Waiting::Effect(Operation::Start));
    facts.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&facts), Decision::Look(Look::Guest), "it took effect at once");

    let mut facts = deleted(seeded());
    facts.power = Some(Seen::Present(Power::Running));
    facts.past.accepted = Some(call(Operation::Stop, 0));
    waits(&facts, |w| *w == Waiting::Effect(Operation::Stop));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Destroy);
    facts.past.accepted = Some(call(Operation::Destroy, 1));
    waits(&facts, |w| *w == Waiting::Effect(Operation::Destroy));
}

#[test]
fn an_upload_without_a_task_is_done_when_the_image_is_listed_whole() {
    let mut facts = stores();
    facts.past.accepted = Some(call(Operation::Upload, 0));
    assert_eq!(decided(&facts), Decision::Look(Look::Stored(ISO.to_owned())));
    facts.stored = Some(Seen::Absent);
    waits(&facts, |w| *w == Waiting::Effect(Operation::Upload));
    facts.stored = Some(Seen::Unknown("no route".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.stored = Some(Seen::Present(()));
    does(&facts, |s| matches!(s, Step::AttachSeed(_)));
    // Nobody can tell how a task ended whose log is lost; the storage can.
    let mut facts = stores();
    facts.task = Some(ended(Operation::Upload, Exit::Unknown("no such task".to_owned())));
    assert_eq!(decided(&facts), Decision::Look(Look::Stored(ISO.to_owned())));
    facts.stored = Some(Seen::Present(()));
    does(&facts, |s| matches!(s, Step::AttachSeed(_)));
    facts.stored = Some(Seen::Absent);
    does(&facts, |s| *s == Step::ForgetTask);
}

#[test]
fn a_seed_is_deleted_when_its_storage_says_so_where_its_task_cannot() {
    let unclear = || Some(ended(Operation::DeleteSeed, Exit::Unknown("no such task".to_owned())));
    let mut up = joined();
    up.listed = listed("running", &[]);
    set_config(&mut up, config());
    let mut going = deleted(ready());
    going.vm = Some(VmSeen::Absent);
    going.absence_confirmed = true;
    for mut facts in [up, going] {
        facts.status().bootstrap_iso = Some(ISO.to_owned());
        does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
        facts.task = unclear();
        assert_eq!(decided(&facts), Decision::Look(Look::Stored(ISO.to_owned())));
        facts.stored = Some(Seen::Absent);
        does(&facts, |s| *s == Step::ForgetSeed);
        facts.stored = Some(Seen::Present(()));
        does(&facts, |s| *s == Step::ForgetTask);
        facts.stored = Some(Seen::Unknown("no route".to_owned()));
        waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    }
}

#[test]
fn a_storage_that_would_not_take_the_seed_is_left_for_the_next_one() {
    let names = ["a", "local", "z"].map(|name| name.parse().unwrap());
    let mut facts = stores();
    facts.past.refusing = Some("local".parse().unwrap());
    assert_eq!(decided(&facts), Decision::Look(Look::IsoStorages));
    facts.iso_storages = Some(Seen::Present(names.to_vec()));
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
    facts.task = Some(ended(Operation::DeleteSeed, Exit::Success));
    does(&facts, |s| *s == Step::RecordSeed(volume(&names[2], vmid())));
    facts.status().bootstrap_iso = Some(volume(&names[2], vmid()));
    facts.task = None;
    does(&facts, |s| *s == Step::StoreSeed(names[2].clone()));
    facts.past.refusing = Some(names[2].clone());
    facts.seed_deleted = true;
    does(&facts, |s| *s == Step::RecordSeed(volume(&names[0], vmid())));
    // Of what was never sent nothing has to be deleted first.
    facts.seed_deleted = false;
    does(&facts, |s| matches!(s, Step::DeleteSeed(_)));
    facts.past.unsent_seed = true;
    does(&facts, |s| *s == Step::RecordSeed(volume(&names[0], vmid())));
    // With nothing else it is tried again where it was.
    let mut facts = stores();
    facts.past.refusing = Some("local".parse().unwrap());
    for seen in [Seen::Present(vec!["local".parse().unwrap()]), Seen::Unknown("x".to_owned())] {
        facts.iso_storages = Some(seen);
        does(&facts, |s| matches!(s, Step::StoreSeed(_)));
    }
}

#[test]
fn a_seed_that_was_recorded_with_the_clone_is_deleted_only_if_it_can_have_been_stored() {
    let mut facts = deleted(stores());
    facts.vm = Some(VmSeen::Absent);
    facts.absence_confirmed = true;
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
    // The storage may be off by now, and nothing was ever sent there.
    facts.past.unsent_seed = true;
    does(&facts, |s| !matches!(s, Step::DeleteSeed(_)));
    facts.past.unsent_seed = false;
    // Before its VM was known to be ours nothing was; the file may be that of another's VM.
    facts.machine.spec.provider_id = None;
    does(&facts, |s| *s == Step::ReleaseClaims);
    facts.vm = Some(VmSeen::Foreign("a container".to_owned()));
    does(&facts, |s| *s == Step::ReleaseClaims);
}

#[test]
fn a_machine_does_not_go_while_a_lost_clone_or_upload_may_still_take_effect() {
    let mut facts = deleted(reserved());
    facts.vm = Some(VmSeen::Absent);
    facts.absence_confirmed = true;
    facts.past.lost = Some(call(Operation::Clone, 10));
    let clone_in_thirty = |w: &Waiting| matches!(w, Waiting::Late { operation: Operation::Clone, left } if left.as_secs() == 30);
    waits(&facts, clone_in_thirty);
    // Another process may have asked for it, and died before it heard the answer.
    facts.past.lost = None;
    does(&facts, |s| *s == Step::ReleaseClaims);
    facts.past.inherited = Some(Duration::from_secs(10));
    waits(&facts, clone_in_thirty);
    facts.past.lost = Some(call(Operation::Clone, 60));
    waits(&facts, clone_in_thirty);
    facts.past.inherited = Some(Duration::from_mins(1));
    set_config(&mut facts, config_with(&[("description", &mark("lab", "w-1", "m-uid"))]));
    assert_eq!(decided(&facts), Decision::Look(Look::Power), "it came, and goes");
    facts.vm = Some(VmSeen::Absent);
    facts.past.lost = Some(call(Operation::Clone, 41));
    does(&facts, |s| *s == Step::ReleaseClaims);

    let mut facts = deleted(stores());
    facts.vm = Some(VmSeen::Absent);
    facts.absence_confirmed = true;
    facts.past.lost = Some(call(Operation::Upload, 0));
    waits(&facts, |w| matches!(w, Waiting::Late { operation: Operation::Upload, .. }));
    facts.past.lost = Some(call(Operation::Upload, 60));
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
}

#[test]
fn an_equal_name_is_no_proof_where_a_mark_is_due() {
    // (templateRef recorded, clone known, description, whether it is ours)
    let own = mark("lab", "w-1", "m-uid");
    let before_the_move = mark("lab", "w-1", "uid-before");
    let other = mark("prod", "w-1", "other");
    let longer = mark("lab", "w-10", "uid-before");
    for (chosen, cloned, description, ours) in [
        (true, false, own.as_str(), true),
        (true, false, "", false),
        (true, true, "", true),
        (true, true, other.as_str(), false),
        (true, false, before_the_move.as_str(), false),
        (false, false, before_the_move.as_str(), true),
        (false, false, longer.as_str(), false),
        (false, false, other.as_str(), false),
        // By capmox's own rule.
        (false, false, "", true),
        (false, false, "rack 7", true),
    ] {
        let mut facts = reserved();
        if !chosen {
            facts.status().template_ref = None;
        }
        facts.past.cloned = cloned;
        set_config(&mut facts, config_with(&[("description", description)]));
        let case = format!("{chosen} {cloned} {description:?}");
        let decision = decided(&facts);
        if ours {
            assert!(
                matches!(decision, Decision::Do(Step::SetProviderId(_))),
                "{case}: {decision:?}"
            );
        } else {
            assert_eq!(decision, Decision::Do(Step::GiveUpVmId(vmid())), "{case}");
            let mut facts = deleted(facts);
            facts.power = Some(Seen::Present(Power::Stopped));
            let decision = decided(&facts);
            let harms =
                matches!(decision, Decision::Do(Step::Stop | Step::Destroy | Step::LeaveHa));
            assert!(!harms, "{case}: {decision:?}");
        }
    }
}

#[test]
fn a_vm_that_is_paused_goes_on_and_one_that_is_stuck_is_told() {
    let mut facts = ready();
    facts.listed = listed("paused", &[]);
    assert_eq!(decided(&facts), Decision::Look(Look::Vm));
    set_config(&mut facts, config());
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Paused));
    does(&facts, |s| *s == Step::Start(Power::Paused));
    facts.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&facts), Decision::Ready(None), "the list lags");
    facts.power = Some(Seen::Present(Power::Halted(Halt::IoError)));
    waits(&facts, |w| matches!(w, Waiting::Halted { word, .. } if word == "io-error"));
    // A backup or a snapshot pauses a VM for a moment.
    for lock in ["backup", "snapshot", "migrate"] {
        set_config(&mut facts, config_with(&[("lock", lock)]));
        waits(&facts, |w| matches!(w, Waiting::Locked { .. }));
    }
    // Hibernated: its processors and memory are on disk.
    set_config(&mut facts, config_with(&[("lock", "suspended")]));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Start(Power::Stopped));
    for status in ["prelaunch", "unknown", "running"] {
        let mut facts = ready();
        facts.listed = listed(status, &[]);
        assert_eq!(decided(&facts), Decision::Ready(None), "{status}");
    }
}

#[test]
fn a_vm_leaves_ha_before_it_is_stopped_and_shuts_down_first_where_asked() {
    let mut facts = deleted(cloned());
    facts.in_ha = true;
    for power in [Power::Running, Power::Paused, Power::Stopped] {
        facts.power = Some(Seen::Present(power));
        does(&facts, |s| *s == Step::LeaveHa);
    }
    facts.past.outside_ha = true;
    facts.power = Some(Seen::Present(Power::Running));
    does(&facts, |s| *s == Step::Stop);
    let annotation = crate::api::SHUTDOWN_TIMEOUT_ANNOTATION.to_owned();
    facts.machine.metadata.annotations = Some([(annotation, "90s".to_owned())].into());
    does(&facts, |s| *s == Step::Shutdown(Duration::from_secs(90)));
    facts.past.shutdown_asked = true;
    facts.task = Some(ended(Operation::Shutdown, Exit::Failure("got timeout".to_owned())));
    does(&facts, |s| *s == Step::Stop);
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Destroy);
    // Neither is done to a VM that is somebody else's.
    let other = [("smbios1", "uuid=00000000-0000-4000-8000-00000000dead"), ("name", "else")];
    set_config(&mut facts, config_with(&other));
    does(&facts, |s| *s == Step::ReleaseClaims);
}

#[test]
fn a_seed_is_known_by_the_node_that_it_was_put_on() {
    let mut facts = ready();
    set_status(
        &mut facts,
        &json!({"ready": true, "bootstrapISO": ISO, "bootstrapISONode": "pve1"}),
    );
    assert_eq!(facts.seed_node().unwrap().as_str(), "pve1");
    set_status(
        &mut facts,
        &json!({"ready": true, "bootstrapISO": ISO, "bootstrapISONode": "../x"}),
    );
    assert_eq!(facts.seed_node(), None);
}

#[test]
fn the_seed_of_a_vm_that_was_moved_is_deleted_where_it_is_and_made_anew() {
    // The VM is on pve2.
    let mut facts = stores();
    facts.status().bootstrap_iso_node = Some("pve1".to_owned());
    facts.seed_shared = Some(Seen::Absent);
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
    // What may still come there is waited for first: nobody would look there again.
    facts.past.lost = Some(call(Operation::Upload, 10));
    waits(&facts, |w| matches!(w, Waiting::Late { operation: Operation::Upload, .. }));
    facts.past.lost = Some(call(Operation::Upload, 41));
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
    facts.seed_deleted = true;
    facts.iso_storages = Some(Seen::Present(vec!["local".parse().unwrap()]));
    does(&facts, |s| *s == Step::RecordSeed(ISO.to_owned()));
    facts.seed_deleted = false;
    facts.past.unsent_seed = true;
    does(&facts, |s| *s == Step::RecordSeed(ISO.to_owned()));
    facts.past.unsent_seed = false;
    facts.seed_shared = Some(Seen::Present(()));
    does(&facts, |s| matches!(s, Step::StoreSeed(_)));
    // In the drive, it is taken out first; what runs has had it.
    facts.seed_shared = Some(Seen::Absent);
    set_config(&mut facts, config_with(&[("ide0", "local:iso/user-data-105.iso,media=cdrom")]));
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Running));
    does(&facts, |s| *s == Step::RecordSeeded);
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| matches!(s, Step::Eject(_)));
}

#[test]
fn a_vm_that_was_moved_is_not_started_with_a_drive_that_it_left_behind() {
    let mut facts = seeded();
    facts.status().bootstrap_iso_node = Some("pve1".to_owned());
    facts.seed_shared = Some(Seen::Absent);
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Reseed);
    facts.status().ready = true;
    facts.listed = listed("stopped", &[]);
    does(&facts, |s| matches!(s, Step::Eject(_)));
    facts.status().bootstrap_iso_node = Some("pve2".to_owned());
    facts.seed_shared = None;
    does(&facts, |s| matches!(s, Step::Start(_)));
}

#[test]
fn a_seed_that_is_elsewhere_is_given_up_only_when_its_storage_is_known_not_to_be_shared() {
    let drive = [("ide0", "local:iso/user-data-105.iso,media=cdrom")];
    let (mut stopped, mut up) = (seeded(), seeded());
    up.status().ready = true;
    up.listed = listed("stopped", &[]);
    for facts in [&mut stopped, &mut up] {
        facts.power = Some(Seen::Present(Power::Stopped));
    }
    let (mut stored, mut attached) = (stores(), stores());
    set_config(&mut attached, config_with(&drive));
    for facts in [&mut stopped, &mut up, &mut stored, &mut attached] {
        facts.status().bootstrap_iso_node = Some("pve1".to_owned());
        assert_eq!(decided(facts), Decision::Look(Look::SeedShared), "as after a restart");
        facts.seed_shared = Some(Seen::Unknown("no route".to_owned()));
        waits(facts, |w| matches!(w, Waiting::Unknown(_)));
        facts.seed_shared = Some(Seen::Present(()));
        let keeps =
            |s: &Step| matches!(s, Step::Start(_) | Step::StoreSeed(_) | Step::RecordSeeded);
        does(facts, keeps);
    }
}

#[test]
fn what_is_at_a_number_called_taken_is_read_before_it_is_given_up() {
    let mut facts = reserved();
    facts.vmid_foreign = true;
    facts.vm = Some(VmSeen::Unknown("node pve2 does not answer".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(why) if why.contains("pve2")));
    facts.vm = Some(VmSeen::Absent);
    does(&facts, |s| *s == Step::GiveUpVmId(vmid()));
    set_config(&mut facts, config_with(&[("name", ""), ("lock", "clone")]));
    waits(&facts, |w| matches!(w, Waiting::Locked { .. }));
    set_config(&mut facts, config_with(&[("name", "")]));
    does(&facts, |s| *s == Step::GiveUpVmId(vmid()));
}

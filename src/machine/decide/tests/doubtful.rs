//! A VM at the recorded VMID that has not the recorded uuid, when its machine goes.

use serde_json::json;

use super::super::super::double::Double;
use super::super::identity::mark;
use super::*;

const OTHER: &str = "uuid=00000000-0000-4000-8000-00000000dead";

fn going() -> Facts {
    let mut facts = deleted(cloned());
    let status = facts.machine.status.as_mut().unwrap();
    let known = json!([{"macAddr": "bc:24:11:00:00:01"}]);
    status.network = serde_json::from_value(known).unwrap();
    status.ip_addresses = serde_json::from_value(json!({"net0": {"ipv4": "10.0.0.10"}})).unwrap();
    facts
}

#[test]
fn a_vm_without_the_recorded_uuid_that_looks_like_ours_is_neither_destroyed_nor_given_up() {
    let foreign =
        [("name", "else"), ("net0", "virtio=BC:24:11:00:00:99,bridge=vmbr0"), ("tags", "")];
    let with = |changes: &[(&str, &str)]| {
        let mut all = foreign.to_vec();
        all.extend_from_slice(changes);
        config_with(&all)
    };
    let mac = "virtio=bc:24:11:00:00:01,bridge=vmbr1";
    for (what, config, trace) in [
        ("another uuid", with(&[("smbios1", OTHER), ("name", "w-1")]), Some("its name")),
        ("no uuid", with(&[("smbios1", ""), ("name", "w-1")]), Some("its name")),
        ("its MAC address", with(&[("smbios1", OTHER), ("net0", mac)]), Some("MAC address bc:24")),
        (
            "its address",
            with(&[("smbios1", OTHER), ("tags", "a;ip_net0_10.0.0.10")]),
            Some("tag ip_net0_10.0.0.10"),
        ),
        ("another address", with(&[("smbios1", OTHER), ("tags", "ip_net0_10.0.0.11")]), None),
        ("nothing of ours", with(&[("smbios1", OTHER)]), None),
        (
            "another machine's mark",
            with(&[("smbios1", OTHER), ("name", "w-1"), ("description", &mark("lab", "x", "y"))]),
            None,
        ),
        (
            "our mark",
            with(&[
                ("smbios1", OTHER),
                ("name", "renamed"),
                ("description", &mark("lab", "w-1", "m-uid")),
            ]),
            Some("its mark"),
        ),
    ] {
        let mut facts = going();
        set_config(&mut facts, config);
        match (decided(&facts), trace) {
            (Decision::Wait(Waiting::Unknown(text), _), Some(trace)) => {
                for part in [trace, "qm set 105 --smbios1 uuid=9a8b7c6d", "remove the finalizer"] {
                    assert!(text.contains(part), "{what}: {part:?} is missing in {text}");
                }
            }
            (Decision::Do(Step::ReleaseClaims), None) => {}
            (decision, _) => panic!("{what}: {decision:?}"),
        }
    }
}

#[test]
fn a_vm_whose_uuid_another_machine_records_is_that_machines() {
    let mut facts = going();
    set_config(&mut facts, config_with(&[("smbios1", OTHER)]));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    // A machine in another Proxmox cluster may have the same number.
    facts.vmid_shared = true;
    facts.others_ids = vec!["proxmox://00000000-0000-4000-8000-00000000beef".to_owned()];
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.others_ids.push("proxmox://00000000-0000-4000-8000-00000000dead".to_owned());
    does(&facts, |s| *s == Step::ReleaseClaims);
}

#[test]
fn without_a_recorded_uuid_the_mark_decides_as_before() {
    let mut facts = going();
    facts.machine.spec.provider_id = None;
    set_config(&mut facts, config_with(&[("smbios1", OTHER)]));
    does(&facts, |s| *s == Step::ReleaseClaims);
}

#[test]
fn a_second_clone_that_came_late_goes_unless_it_runs() {
    let mut facts = going();
    let marked = [("smbios1", OTHER), ("description", &mark("lab", "w-1", "m-uid")), ("tags", "")];
    set_config(&mut facts, config_with(&marked));
    assert_eq!(decided(&facts), Decision::Look(Look::Power));
    facts.power = Some(Seen::Present(Power::Running));
    waits(&facts, |w| matches!(w, Waiting::Unknown(text) if text.contains("its mark")));
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Destroy);
}

fn double(namespace: &str, name: &str, is_deleted: bool) -> Double {
    Double { namespace: namespace.to_owned(), name: name.to_owned(), is_deleted }
}

#[test]
fn a_machine_that_was_copied_with_the_vm_of_another_neither_uses_nor_destroys_it() {
    let mut copy = cloned();
    copy.vmid_shared = true;
    copy.others_ids = copy.machine.spec.provider_id.iter().cloned().collect();
    copy.double = Some(double("lab", "w-0", false));
    set_config(&mut copy, config_with(&[("name", "w-0")]));
    copy.power = Some(Seen::Present(Power::Running));
    waits(&copy, |w| {
        matches!(w, Waiting::Foreign(text) if text.contains("ProxmoxMachine lab/w-0")
            && text.contains("ProxmoxMachineTemplate"))
    });
    does(&deleted(copy.clone()), |s| *s == Step::ReleaseClaims);

    // The other one goes on as if there were no copy.
    let mut own = seeded();
    own.double = Some(double("lab", "w-2", false));
    own.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&own), Decision::Look(Look::Guest));
    does(&deleted(own), |s| *s == Step::Stop);
}

#[test]
fn a_vm_that_two_machines_of_one_name_record_is_destroyed_when_both_go() {
    let mut facts = seeded();
    facts.double = Some(double("restored", "w-1", false));
    facts.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&facts), Decision::Look(Look::Guest), "either may be the one");
    waits(&deleted(facts.clone()), |w| {
        matches!(w, Waiting::Unknown(text) if text.contains("ProxmoxMachine restored/w-1")
            && text.contains("remove the finalizer"))
    });
    facts.double = Some(double("restored", "w-1", true));
    does(&deleted(facts), |s| *s == Step::Stop);
}

#[test]
fn a_vm_that_was_renamed_is_destroyed_only_if_no_other_machine_records_it() {
    let mut facts = deleted(seeded());
    set_config(&mut facts, config_with(&[("name", "renamed")]));
    facts.power = Some(Seen::Present(Power::Stopped));
    facts.double = Some(double("lab", "w-2", false));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.double = None;
    does(&facts, |s| *s == Step::Destroy);
}

#[test]
fn the_protection_of_a_template_is_not_that_of_its_clones() {
    let mut facts = cloned();
    let marked = mark("lab", "w-1", "m-uid");
    let as_cloned = [("protection", "1"), ("cores", "2"), ("description", &*marked)];
    set_config(&mut facts, config_with(&as_cloned));
    let unprotects =
        |step: &Step| matches!(step, Step::Configure(options) if options["protection"] == "0");
    does(&facts, |s| {
        unprotects(s)
            && matches!(s, Step::Configure(options) if options["cores"] == "4"
            && options["description"].is_empty())
    });
    // The machine goes before it comes to that.
    does(&deleted(facts.clone()), unprotects);
    // What people set later is theirs.
    set_config(&mut facts, config_with(&[("protection", "1")]));
    waits(&deleted(facts), |w| matches!(w, Waiting::Protected(_)));
    let mut later = seeded();
    let attached = ("ide0", "local:iso/user-data-105.iso,media=cdrom");
    set_config(&mut later, config_with(&[("protection", "1"), attached]));
    later.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&later), Decision::Look(Look::Guest));
    waits(&deleted(later), |w| matches!(w, Waiting::Protected(_)));
}

//! A VM at the recorded VMID that has not the recorded uuid, when its machine goes.

use serde_json::json;

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

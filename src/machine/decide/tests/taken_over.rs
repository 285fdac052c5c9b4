//! What capmox, or a template, left otherwise than this provider would have.

use super::*;
use crate::api::capi::MachineStatus;

const ISO: &str = "local:iso/user-data-105.iso";

/// Tagged, with an empty drive, and nothing recorded.
fn cut_short(mut facts: Facts) -> Facts {
    let tags = format!("{};prod", seed::TAG);
    set_config(&mut facts, config_with(&[("tags", &tags), ("ide0", "none,media=cdrom")]));
    facts
}

#[test]
fn a_vm_without_a_bios_uuid_is_waited_for_and_gets_no_provider_id() {
    for smbios in ["", "base64=1,manufacturer=UUVNVQ==", "uuid="] {
        let mut facts = cloned();
        facts.machine.spec.provider_id = None;
        set_config(
            &mut facts,
            config_with(&[("smbios1", smbios), ("description", &mark("lab", "w-1", "m-uid"))]),
        );
        waits(&facts, |w| matches!(w, Waiting::Invalid(why) if why.contains("smbios1")));
    }
}

#[test]
fn a_number_that_capmox_recorded_without_a_vm_is_placed_anew_under_it() {
    let mut facts = reserved();
    set_status(&mut facts, &json!({"ready": false, "proxmoxNode": "pve2"}));
    facts.vm = Some(VmSeen::Absent);
    assert_eq!(decided(&facts), Decision::Look(Look::Placement));
    // The clone that capmox asked for is followed before that.
    facts.task = Some(running(Operation::Clone));
    waits(&facts, |w| matches!(w, Waiting::Task { operation: Operation::Clone, .. }));
}

#[test]
fn a_seed_that_capmox_stored_and_never_attached_goes_with_its_machine() {
    let mut facts = cut_short(deleted(cloned()));
    assert_eq!(decided(&facts), Decision::Look(Look::Stray));
    facts.stray = Some(Seen::Unknown("no route".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.stray = Some(Seen::Present(ISO.to_owned()));
    does(&facts, |s| *s == Step::RecordSeed(ISO.to_owned()));
    facts.status().bootstrap_iso = Some(ISO.to_owned());
    facts.power = Some(Seen::Present(Power::Stopped));
    does(&facts, |s| *s == Step::Destroy);
    facts.records_lost = true;
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
    facts.records_lost = false;
    facts.task = Some(ended(Operation::Destroy, Exit::Success));
    facts.vm = Some(VmSeen::Absent);
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
}

#[test]
fn a_seed_that_was_stored_and_never_recorded_is_made_anew_where_it_is() {
    let mut facts = cut_short(cloned());
    facts.bootstrap = Some(bootstrap());
    facts.iso_storages = Some(Seen::Present(vec!["cephfs".parse().unwrap()]));
    assert_eq!(decided(&facts), Decision::Look(Look::Stray));
    facts.stray = Some(Seen::Unknown("no route".to_owned()));
    waits(&facts, |w| matches!(w, Waiting::Unknown(_)));
    facts.stray = Some(Seen::Present(ISO.to_owned()));
    does(&facts, |s| *s == Step::RecordSeed(ISO.to_owned()));
    facts.status().bootstrap_iso = Some(ISO.to_owned());
    does(&facts, |s| matches!(s, Step::StoreSeed(storage) if storage.as_str() == "local"));
    facts.status().bootstrap_iso = None;
    facts.stray = Some(Seen::Absent);
    does(&facts, |s| *s == Step::RecordSeed("cephfs:iso/user-data-105.iso".to_owned()));
}

#[test]
fn without_its_tag_or_a_storage_no_file_is_deleted_by_name() {
    let mut plain = deleted(cloned());
    set_config(&mut plain, config_with(&[("tags", "prod")]));
    let mut nowhere = cut_short(deleted(cloned()));
    nowhere.stray = Some(Seen::Absent);
    for mut facts in [plain, nowhere] {
        facts.power = Some(Seen::Present(Power::Stopped));
        does(&facts, |s| *s == Step::Destroy);
        facts.task = Some(ended(Operation::Destroy, Exit::Success));
        facts.vm = Some(VmSeen::Absent);
        does(&facts, |s| *s == Step::ReleaseClaims);
    }
}

#[test]
fn a_seed_that_capmox_left_on_its_storage_is_deleted_before_its_tag_goes() {
    let mut facts = cut_short(ready());
    facts.status().bootstrap_iso = None;
    let joined = json!({"bootstrapReady": true, "nodeRef": {"name": "w-1"}});
    let joined: MachineStatus = serde_json::from_value(joined).unwrap();
    facts.owner.as_mut().unwrap().status = Some(joined);
    facts.listed = Seen::Present(GuestEntry {
        kind: GuestKind::Vm,
        node: "pve2".parse().unwrap(),
        name: Some("w-1".to_owned()),
        status: Some("running".to_owned()),
        template: false,
        tags: vec![seed::TAG.to_owned(), "prod".to_owned()],
        lock: None,
        memory: None,
    });
    assert_eq!(decided(&facts), Decision::Look(Look::Stray));
    facts.stray = Some(Seen::Present(ISO.to_owned()));
    does(&facts, |s| *s == Step::DeleteSeed(ISO.to_owned()));
    facts.seed_deleted = true;
    does(&facts, |s| matches!(s, Step::Untag(options) if options["tags"] == "prod"));
    facts.seed_deleted = false;
    facts.stray = Some(Seen::Absent);
    does(&facts, |s| matches!(s, Step::Untag(options) if options["tags"] == "prod"));
}

#[test]
fn without_a_recorded_node_that_of_the_cluster_counts_and_then_the_templates() {
    let mut facts = reserved();
    set_status(&mut facts, &json!({"ready": false, "proxmoxNode": "pve2"}));
    facts.machine.spec.source_node = Some("pve1".to_owned());
    let at = |name: &str| {
        let here = json!({"machine": {"name": name}, "node": "pve3"});
        json!({"ready": true, "nodeLocations": {"controlPlane": [], "workers": [here]}})
    };
    let node = |facts: &Facts| facts.recorded_node().unwrap().to_string();
    facts.infra.as_mut().unwrap().status = serde_json::from_value(at("w-1")).unwrap();
    assert_eq!(node(&facts), "pve2");
    set_status(&mut facts, &json!({"ready": false}));
    assert_eq!(node(&facts), "pve3");
    facts.infra.as_mut().unwrap().status = serde_json::from_value(at("w-2")).unwrap();
    assert_eq!(node(&facts), "pve1");
}

//! Two machines that record one VM: by a template written from a machine, or by a backup that was
//! restored beside what it was made of.

use super::super::super::facts::Double;
use super::*;

fn double(namespace: &str, name: &str, is_deleted: bool) -> Option<Double> {
    Some(Double { namespace: namespace.to_owned(), name: name.to_owned(), is_deleted })
}

#[test]
fn a_machine_that_was_copied_with_the_vm_of_another_neither_uses_nor_destroys_it() {
    let mut copy = cloned();
    copy.vmid_shared = true;
    copy.others_ids = copy.machine.spec.provider_id.iter().cloned().collect();
    copy.double = double("lab", "w-0", false);
    set_config(&mut copy, config_with(&[("name", "w-0")]));
    copy.power = Some(Seen::Present(Power::Running));
    waits(&copy, |w| {
        matches!(w, Waiting::Foreign(text) if text.contains("ProxmoxMachine lab/w-0")
            && text.contains("ProxmoxMachineTemplate"))
    });
    does(&deleted(copy.clone()), |s| *s == Step::ReleaseClaims);

    // The other one goes on as if there were no copy.
    let mut own = seeded();
    own.double = double("lab", "w-2", false);
    own.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&own), Decision::Look(Look::Guest));
    does(&deleted(own), |s| *s == Step::Stop);
}

#[test]
fn a_vm_that_two_machines_of_one_name_record_is_destroyed_when_both_go() {
    let mut facts = seeded();
    facts.double = double("restored", "w-1", false);
    facts.power = Some(Seen::Present(Power::Running));
    assert_eq!(decided(&facts), Decision::Look(Look::Guest), "either may be the one");
    waits(&deleted(facts.clone()), |w| {
        matches!(w, Waiting::Unknown(text) if text.contains("ProxmoxMachine restored/w-1")
            && text.contains("remove the finalizer"))
    });
    facts.double = double("restored", "w-1", true);
    does(&deleted(facts), |s| *s == Step::Stop);
}

#[test]
fn a_vm_that_was_renamed_is_destroyed_only_if_no_other_machine_records_it() {
    let mut facts = deleted(seeded());
    set_config(&mut facts, config_with(&[("name", "renamed")]));
    facts.power = Some(Seen::Present(Power::Stopped));
    facts.double = double("lab", "w-2", false);
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

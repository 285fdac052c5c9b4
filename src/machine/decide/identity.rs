//! Whose VM it is. VMIDs are reused as soon as a VM is destroyed, so a number alone proves nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::double::Double;
use super::super::facts::{Facts, VmFact};
use crate::hypervisor::{Operation, TaskState};
use crate::ipam::DEFAULT_DEVICE;

/// Whose VM sits at the recorded VMID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Identity {
    /// Ours.
    Ours,
    /// A clone that has no name yet: whose it is shows when the clone is done.
    Nascent,
    /// Somebody else's, with what tells.
    Foreign(String),
}

/// The line in a VM's description by which it is found again: it goes in with the clone itself.
pub(crate) fn mark(namespace: &str, name: &str, uid: &str) -> String {
    format!("{} ({MARK}{uid})", named(namespace, name))
}

fn named(namespace: &str, name: &str) -> String {
    format!("Cluster API machine {namespace}/{name}")
}

/// The part of the mark that stays the same when a machine is moved.
fn who(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    format!("{} (", named(namespace, metadata.name.as_deref().unwrap_or_default()))
}

const MARK: &str = "capmox-uid: ";

/// Whether a description carries a mark of this provider, whosever it is.
pub(super) fn is_marked(description: &str) -> bool {
    marked_uid(description).is_some()
}

/// Whether a VM carries the mark of this very machine.
pub(super) fn is_marked_as_ours(facts: &Facts, vm: &VmFact) -> bool {
    vm.config.description().as_deref().and_then(marked_uid) == Some(facts.uid())
}

/// The UID in the mark of a description, if it carries one.
fn marked_uid(description: &str) -> Option<&str> {
    let (_, rest) = description.rsplit_once(MARK)?;
    rest.split(')').next().map(str::trim).filter(|uid| !uid.is_empty())
}

/// Whether the VM at a number that is called taken is the clone of this machine after all. One without
/// a name that no clone locks is not going to get one: it is somebody's.
pub(super) fn is_made_in_spite(facts: &Facts, vm: &VmFact) -> bool {
    match identity(facts, vm) {
        Identity::Ours => true,
        Identity::Nascent => vm.config.lock().is_some(),
        Identity::Foreign(_) => false,
    }
}

/// A description without our mark; `None` when nothing is left.
pub(crate) fn without_mark(description: &str) -> Option<String> {
    let kept: Vec<&str> =
        description.lines().filter(|line| !line.contains(&format!("({MARK}"))).collect();
    let text = kept.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Strongest sign first: the BIOS uuid once it is recorded, then our mark, then the name, which is
/// all that a VM made by capmox carries.
pub(super) fn identity(facts: &Facts, vm: &VmFact) -> Identity {
    if let Some(recorded) = &facts.machine.spec.provider_id {
        return match vm.config.uuid() {
            Some(uuid) if provider_id(&uuid) == *recorded => of_double(facts, vm),
            Some(uuid) => Identity::Foreign(format!(
                "its BIOS uuid is {uuid}, recorded is spec.providerID {recorded}"
            )),
            None => Identity::Foreign("it has no BIOS uuid".to_owned()),
        };
    }
    let description = vm.config.description();
    let chosen = facts.recorded_template().is_some();
    if let Some(uid) = description.as_deref().and_then(marked_uid) {
        // Another management cluster, to which the machine was moved, gives it another uid.
        let moved = !chosen
            && description
                .as_deref()
                .is_some_and(|text| text.contains(&who(&facts.machine.metadata)));
        return if uid == facts.uid() || moved {
            Identity::Ours
        } else {
            Identity::Foreign(format!("it is marked as the machine with uid {uid}"))
        };
    }
    match vm.config.name() {
        // What this provider cloned carries its mark until its uuid is recorded. A server that
        // drops descriptions is believed when it took the clone.
        Some(name) if name == facts.name() && chosen && !was_cloned(facts) => Identity::Foreign(
            format!("its name is {name:?}, but it lacks the mark of this machine's clone"),
        ),
        Some(name) if name == facts.name() => Identity::Ours,
        Some(_) if matches!(vm.config.lock(), Some("clone" | "create")) => Identity::Nascent,
        Some(name) => Identity::Foreign(format!("its name is {name:?}")),
        // A clone gets its name last.
        None => Identity::Nascent,
    }
}

/// Whose a VM is that has the recorded uuid: another machine may record the same VM, because it was
/// copied into a template together with what identifies it, or restored beside the one it was saved
/// from. Then the name tells; where it tells nothing, either may go on using it.
fn of_double(facts: &Facts, vm: &VmFact) -> Identity {
    let name = vm.config.name();
    match &facts.double {
        Some(double) if name == Some(&double.name) && name != Some(facts.name()) => {
            Identity::Foreign(format!(
                "it has the name of {}, which records the same spec.providerID and \
                 spec.virtualMachineID. If these stand in a ProxmoxMachineTemplate, make one without \
                 them",
                named_double(double)
            ))
        }
        _ => Identity::Ours,
    }
}

/// Why a VM must not be destroyed though it has the recorded uuid: it may be that of another machine,
/// which stays.
pub(super) fn shared_with(facts: &Facts, vm: &VmFact) -> Option<String> {
    let double = facts.double.as_ref().filter(|double| !double.is_deleted)?;
    let name = vm.config.name();
    let is_ours = name == Some(facts.name()) && name != Some(&double.name);
    (!is_ours).then(|| {
        format!(
            "{} records the same VM by spec.providerID and spec.virtualMachineID. Delete that one too, \
             or remove the finalizer of the one that is to go without its VM",
            named_double(double)
        )
    })
}

fn named_double(double: &Double) -> String {
    format!("ProxmoxMachine {}/{}", double.namespace, double.name)
}

/// What tells that a VM with another BIOS uuid than the recorded one is this machine's after all: the
/// uuid of a VM can be changed or lost, by hand or with a backup that is restored. `None` where
/// nothing does, or where it is known to be another machine's.
pub(super) fn traces(facts: &Facts, vm: &VmFact) -> Option<String> {
    let marked = vm.config.description().as_deref().and_then(marked_uid).map(str::to_owned);
    let uuid = vm.config.uuid().map(|uuid| provider_id(&uuid));
    let is_others = uuid.is_some_and(|id| facts.others_ids.contains(&id));
    let is_marked = marked.as_deref() == Some(facts.uid());
    if is_others || (marked.is_some() && !is_marked) {
        return None;
    }
    if is_marked {
        return Some("its mark".to_owned());
    }
    let status = facts.machine.status.as_ref();
    let devices = vm.config.net_devices();
    let tags = vm.config.tags();
    let known = |mac: &str| {
        let mut recorded = status.iter().flat_map(|status| &status.network);
        recorded.any(|device| device.mac_addr.eq_ignore_ascii_case(mac))
    };
    let mut addresses = status.iter().flat_map(|status| status.ip_addresses.values());
    if vm.config.name() == Some(facts.name()) {
        return Some("its name".to_owned());
    }
    let mac = devices.iter().find_map(|(_, device)| device.mac().filter(|mac| known(mac)));
    if let Some(mac) = mac {
        return Some(format!("its MAC address {mac}"));
    }
    let tag = addresses.find_map(|device| {
        let tag = format!("ip_{DEFAULT_DEVICE}_{}", device.ipv4.as_ref()?);
        tags.contains(&tag).then_some(tag)
    });
    tag.map(|tag| format!("its tag {tag}"))
}

/// Whether this process knows of a clone under the recorded VMID that was not refused.
fn was_cloned(facts: &Facts) -> bool {
    let task = match &facts.task {
        Some(TaskState::Running { operation, .. }) => Some(*operation),
        Some(TaskState::Ended(ended)) => Some(ended.operation),
        None => None,
    };
    facts.past.cloned || task == Some(Operation::Clone)
}

/// The provider id of a VM with this BIOS uuid.
pub(crate) fn provider_id(uuid: &str) -> String {
    format!("proxmox://{}", uuid.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_read_back_from_a_description_that_says_more() {
        let text = format!("rack 7\n{}\nedited by hand", mark("default", "w-1", "abc-1"));
        assert_eq!(marked_uid(&text), Some("abc-1"));
        assert_eq!(marked_uid("rack 7"), None);
        assert_eq!(marked_uid("capmox-uid: )"), None);
        assert_eq!(without_mark(&text).as_deref(), Some("rack 7\nedited by hand"));
        assert_eq!(without_mark(&mark("default", "w-1", "abc-1")), None);
    }

    proptest::proptest! {
        #[test]
        fn whatever_people_write_around_it_the_mark_is_found_and_taken_off(
            before in "[^\n]{0,30}", after in "[^\n]{0,30}", uid in "[0-9a-f-]{1,36}",
        ) {
            let (before, after) = (before.replace(MARK, ""), after.replace(MARK, ""));
            let text = format!("{before}\n{}\n{after}", mark("lab", "w-1", &uid));
            proptest::prop_assert_eq!(marked_uid(&text), Some(uid.as_str()));
            let kept = without_mark(&text).unwrap_or_default();
            proptest::prop_assert!(marked_uid(&kept).is_none());
            proptest::prop_assert!(kept.contains(before.trim()) && kept.contains(after.trim()));
        }

        #[test]
        fn no_description_makes_a_panic(text in ".{0,80}", rest in "(capmox-uid: )?.{0,20}") {
            let text = format!("{text}{rest}");
            let _ = (marked_uid(&text), without_mark(&text), is_marked(&text));
        }
    }
}

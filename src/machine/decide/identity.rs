//! Whose VM it is. VMIDs are reused as soon as a VM is destroyed, so a number alone proves nothing.

use super::super::facts::{Facts, VmFact};

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
    format!("Cluster API machine {namespace}/{name} ({MARK}{uid})")
}

const MARK: &str = "capmox-uid: ";

/// Whether a description carries a mark of this provider, whosever it is.
pub(super) fn is_marked(description: &str) -> bool {
    marked_uid(description).is_some()
}

/// The UID in the mark of a description, if it carries one.
fn marked_uid(description: &str) -> Option<&str> {
    let (_, rest) = description.rsplit_once(MARK)?;
    rest.split(')').next().map(str::trim).filter(|uid| !uid.is_empty())
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
            Some(uuid) if provider_id(&uuid) == *recorded => Identity::Ours,
            Some(uuid) => Identity::Foreign(format!(
                "its BIOS uuid is {uuid}, recorded is spec.providerID {recorded}"
            )),
            None => Identity::Foreign("it has no BIOS uuid".to_owned()),
        };
    }
    if let Some(uid) = vm.config.description().as_deref().and_then(marked_uid) {
        return if uid == facts.uid() {
            Identity::Ours
        } else {
            Identity::Foreign(format!("it is marked as the machine with uid {uid}"))
        };
    }
    match vm.config.name() {
        Some(name) if name == facts.name() => Identity::Ours,
        Some(_) if matches!(vm.config.lock(), Some("clone" | "create")) => Identity::Nascent,
        Some(name) => Identity::Foreign(format!("its name is {name:?}")),
        // A clone gets its name last.
        None => Identity::Nascent,
    }
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

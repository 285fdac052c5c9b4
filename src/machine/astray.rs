//! Addresses that a guest has and nobody holds for it any more: somebody deleted its claim, or changed
//! what was given. A guest keeps what it was seeded with, so that only people can help. Pure.

use super::facts::{AddressFact, Facts};
use crate::ipam::Family;

/// What is astray of the addresses of a guest, with the remedy. Of one that is paused they may be on
/// their way to another cluster, and of one that is deleted they are given back.
pub(super) fn astray(facts: &Facts) -> Option<String> {
    if facts.is_paused() || facts.is_deleted() {
        return None;
    }
    let status = facts.machine.status.as_ref().filter(|_| facts.is_seeded())?;
    let found = facts.addresses.iter().filter_map(|fact| {
        let given = status.ip_addresses.get(&fact.slot.device)?;
        let held = match fact.slot.family {
            Family::V4 => given.ipv4.as_deref(),
            Family::V6 => given.ipv6.as_deref(),
        }?;
        let claim = fact.slot.claim_name(facts.name());
        Some(format!("IPAddressClaim {claim} {}", trouble(fact, held)?))
    });
    let found: Vec<String> = found.collect();
    (!found.is_empty()).then(|| {
        format!(
            "{}. The guest keeps the address that it was set up with, and another machine may be given \
             it: delete the Machine to have it replaced",
            found.join("; ")
        )
    })
}

fn trouble(fact: &AddressFact, held: &str) -> Option<String> {
    match (&fact.claim, &fact.address) {
        (None, _) => Some(format!("is gone, under which the guest has {held}")),
        (Some(_), Some(address)) if held.parse() != Ok(address.ip) => {
            Some(format!("is given {}, and the guest has {held}", address.ip))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::fixture::*;
    use super::*;

    #[test]
    fn a_claim_that_is_gone_or_given_something_else_is_astray() {
        let mut facts = ready();
        let given = serde_json::json!({
            "ready": true, "bootstrapDataProvided": true,
            "ipAddresses": {"net0": {"ipv4": "10.0.0.10"}},
        });
        set_status(&mut facts, &given);
        assert_eq!(astray(&facts), None);
        let mut gone = facts.clone();
        (gone.addresses[0].claim, gone.addresses[0].address) = (None, None);
        let text = astray(&gone).unwrap_or_default();
        assert!(
            text.contains("w-1-net0-inet is gone, under which the guest has 10.0.0.10"),
            "{text}"
        );
        let mut changed = facts.clone();
        if let Some(address) = &mut changed.addresses[0].address {
            address.ip = [10, 0, 0, 77].into();
        }
        let text = astray(&changed).unwrap_or_default();
        assert!(text.contains("is given 10.0.0.77, and the guest has 10.0.0.10"), "{text}");
        changed.machine.status = None;
        assert_eq!(astray(&changed), None);
        let mut moved = gone.clone();
        moved.machine.metadata.annotations =
            Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into_iter().collect());
        assert_eq!(astray(&moved), None, "clusterctl move takes the claims along");
        gone.machine.metadata.deletion_timestamp = Some(Time(now()));
        assert_eq!(astray(&gone), None);
    }
}

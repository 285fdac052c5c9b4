//! Status of claims and pools, from what was decided. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::decide::{Decision, Reason, Standing, Target};
use super::facts::{Facts, Pool, key};
use crate::api::conditions::Condition;
use crate::api::ipam::{IPAddressClaim, InClusterIPPoolStatusIPAddresses};
use crate::ipam::pool::Usage;

/// Condition of a claim by the IPAM contract.
const READY: &str = "Ready";

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::AllocationFailed => "AllocationFailed",
            Self::PoolNotReady => "PoolNotReady",
            Self::PoolExhausted => "PoolExhausted",
        }
    }
}

/// A status to write.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub(super) target: Target,
    /// UID of the object, so that the status is not written to another one of its name.
    pub(super) uid: String,
    pub(super) status: Value,
    /// What a claim waits for.
    pub(super) waits: Option<(Reason, String)>,
}

/// All statuses that should change.
pub(super) fn reports(facts: &Facts, decision: &Decision, now: &Time) -> Vec<Report> {
    let claims = facts.claims.iter().filter_map(|claim| {
        let key = key(&claim.metadata);
        let standing = decision.claims.get(&key)?;
        Some(Report {
            status: claim_status(claim, standing, now)?,
            target: Target::Claim(key),
            uid: claim.metadata.uid.clone().unwrap_or_default(),
            waits: match standing {
                Standing::Waiting(reason, why) => Some((*reason, why.clone())),
                Standing::LeftAlone | Standing::Moving | Standing::Bound => None,
            },
        })
    });
    let pools = decision.pools.iter().filter_map(|(key, usage)| {
        let pool = facts.pools.get(key)?;
        Some(Report {
            status: pool_status(pool, usage)?,
            target: Target::Pool(key.clone()),
            uid: pool.metadata.uid.clone().unwrap_or_default(),
            waits: None,
        })
    });
    claims.chain(pools).collect()
}

/// The status a claim should have, where it should change.
fn claim_status(claim: &IPAddressClaim, standing: &Standing, now: &Time) -> Option<Value> {
    let status = claim.status.clone().unwrap_or_default();
    let mut address_ref = status.address_ref.clone().map(|reference| reference.name);
    let ready = match standing {
        Standing::LeftAlone | Standing::Moving => return None,
        Standing::Bound => {
            address_ref.clone_from(&claim.metadata.name);
            ready_condition(now, None)
        }
        Standing::Waiting(reason, message) => ready_condition(now, Some((*reason, message))),
    };
    let mut conditions = status.conditions.clone().unwrap_or_default();
    match conditions.iter_mut().find(|condition| condition.type_ == READY) {
        Some(old) if says_the_same(old, &ready) => {}
        Some(old) => *old = ready,
        None => conditions.insert(0, ready),
    }
    let unchanged = status.conditions.as_ref() == Some(&conditions)
        && status.address_ref.map(|reference| reference.name) == address_ref;
    let address_ref = address_ref.map(|name| json!({ "name": name }));
    let mut wanted = json!({ "conditions": conditions });
    if let (Some(address_ref), Some(object)) = (address_ref, wanted.as_object_mut()) {
        object.insert("addressRef".to_owned(), address_ref);
    }
    (!unchanged).then_some(wanted)
}

fn ready_condition(now: &Time, trouble: Option<(Reason, &String)>) -> Condition {
    Condition {
        type_: READY.to_owned(),
        status: if trouble.is_none() { "True" } else { "False" }.to_owned(),
        severity: trouble.map(|_| "Warning".to_owned()),
        last_transition_time: now.clone(),
        reason: trouble.map(|(reason, _)| reason.as_str().to_owned()),
        message: trouble.map(|(_, message)| message.clone()),
    }
}

/// Equal but for the time.
fn says_the_same(a: &Condition, b: &Condition) -> bool {
    let timeless = |c: &Condition| Condition {
        last_transition_time: b.last_transition_time.clone(),
        ..c.clone()
    };
    timeless(a) == timeless(b)
}

/// The status a pool should have, where it should change.
fn pool_status(pool: &Pool, usage: &Usage) -> Option<Value> {
    let Usage { total, used, free, out_of_range } = *usage;
    let wanted = InClusterIPPoolStatusIPAddresses { total, free, used, out_of_range };
    (pool.shown.as_ref() != Some(&wanted)).then(|| json!({ "ipAddresses": wanted }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn time(text: &str) -> Time {
        serde_json::from_value(json!(text)).unwrap()
    }

    fn claim(status: &Value) -> IPAddressClaim {
        serde_json::from_value(json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1beta1",
            "kind": "IPAddressClaim",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"poolRef": {
                "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p",
            }},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_waiting_claim_says_why_once_and_recovers() {
        let (early, late) = (time("2026-01-01T00:00:00Z"), time("2026-01-01T00:05:00Z"));
        let waiting = Standing::Waiting(Reason::PoolExhausted, "full".to_owned());
        let first = claim_status(&claim(&json!({})), &waiting, &early).unwrap();
        assert_eq!(
            first,
            json!({"conditions": [{
                "type": "Ready",
                "status": "False",
                "severity": "Warning",
                "reason": "PoolExhausted",
                "message": "full",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]})
        );
        assert_eq!(claim_status(&claim(&first), &waiting, &late), None);
        assert_eq!(
            claim_status(&claim(&first), &Standing::Bound, &late),
            Some(json!({
                "addressRef": {"name": "c"},
                "conditions": [{
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T00:05:00Z",
                }],
            }))
        );
    }

    #[test]
    fn conditions_of_others_and_a_claim_left_alone_stay() {
        let now = time("2026-01-01T00:00:00Z");
        let other = json!({
            "type": "Other", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z",
        });
        let with_other = claim(&json!({"conditions": [other]}));
        let status = claim_status(&with_other, &Standing::Bound, &now).unwrap();
        assert_eq!(status["conditions"][0]["type"], "Ready");
        assert_eq!(status["conditions"][1], other);
        assert_eq!(claim_status(&with_other, &Standing::LeftAlone, &now), None);
        assert_eq!(claim_status(&with_other, &Standing::Moving, &now), None);
    }
}

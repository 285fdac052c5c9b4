//! The lease's record: who holds it, and until when as seen from here. Computes only.

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::time::Duration;
use tokio::time::Instant;

use super::LeaseTimes;

/// A record and when it was first seen like that. The holder's own times are not looked at: clocks
/// differ between hosts. A holder is given up when its record did not change for as long as the
/// record says, by the clock here.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub(super) spec: LeaseSpec,
    pub(super) at: Instant,
}

/// Whose the lease is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody's, or of somebody who is gone.
    Nobody,
    /// Ours.
    Us,
    /// Somebody else's.
    Other(String),
}

impl Sighting {
    /// The sighting after `spec` was read at `now`.
    pub(super) fn update(before: Option<Self>, spec: LeaseSpec, now: Instant) -> Self {
        match before {
            Some(before) if before.spec == spec => before,
            _ => Self { spec, at: now },
        }
    }

    /// Whose it is at `now`.
    pub(super) fn holder(&self, us: &str, now: Instant) -> Holder {
        let seconds = self.spec.lease_duration_seconds.unwrap_or_default();
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        match self.spec.holder_identity.as_deref() {
            None | Some("") => Holder::Nobody,
            Some(holder) if holder == us => Holder::Us,
            Some(_) if now >= self.at + lasts => Holder::Nobody,
            Some(holder) => Holder::Other(holder.to_owned()),
        }
    }
}

/// The record with which `us` takes or renews the lease.
pub(super) fn taken(
    before: Option<&LeaseSpec>,
    us: &str,
    times: &LeaseTimes,
    now: MicroTime,
) -> LeaseSpec {
    let mut spec = before.cloned().unwrap_or_default();
    if spec.holder_identity.as_deref() != Some(us) {
        let transitions = spec.lease_transitions.map_or(0, |count| count.saturating_add(1));
        spec.lease_transitions = Some(transitions);
        spec.acquire_time = Some(now.clone());
        spec.holder_identity = Some(us.to_owned());
    }
    spec.lease_duration_seconds = i32::try_from(times.duration.as_secs()).ok();
    spec.renew_time = Some(now);
    spec
}

/// The record with which a holder that ends gives the lease away, as client-go does.
pub(super) fn released(before: &LeaseSpec, now: MicroTime) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        ..before.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> MicroTime {
        serde_json::from_value(serde_json::json!(text)).unwrap()
    }

    fn spec(holder: &str, renewed: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(time(renewed)),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_holder_is_given_up_when_its_record_stood_still_for_as_long_as_it_says() {
        // Hours behind by its own clock, which does not matter.
        let first = spec("other", "2020-01-01T00:00:00.000000Z");
        let start = Instant::now();
        let seen = Sighting::update(None, first.clone(), start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let other = Holder::Other("other".to_owned());
        assert_eq!(seen.holder("us", at(14)), other);
        assert_eq!(seen.holder("us", at(15)), Holder::Nobody);

        let same = Sighting::update(Some(seen.clone()), first, at(10));
        assert_eq!(same.holder("us", at(15)), Holder::Nobody);
        let renewed = spec("other", "2020-01-01T00:00:02.000000Z");
        let renewed = Sighting::update(Some(seen), renewed, at(10));
        assert_eq!(renewed.holder("us", at(24)), other);
        assert_eq!(renewed.holder("us", at(25)), Holder::Nobody);
    }

    #[test]
    fn a_lease_without_a_holder_is_free_and_ours_is_ours() {
        let now = Instant::now();
        for (holder, wanted) in [("", Holder::Nobody), ("us", Holder::Us)] {
            let seen = Sighting::update(None, spec(holder, "2020-01-01T00:00:00.000000Z"), now);
            assert_eq!(seen.holder("us", now), wanted);
        }
        let empty = Sighting::update(None, LeaseSpec::default(), now);
        assert_eq!(empty.holder("us", now), Holder::Nobody);
    }

    #[test]
    fn taking_counts_a_transition_and_renewing_does_not() {
        let times = LeaseTimes::default();
        let now = time("2026-01-01T00:00:00.000000Z");
        let first = taken(None, "us", &times, now.clone());
        assert_eq!(first.lease_transitions, Some(0));
        assert_eq!(first.lease_duration_seconds, Some(15));
        assert_eq!(first.acquire_time, Some(now.clone()));

        let before = spec("other", "2020-01-01T00:00:00.000000Z");
        let next = taken(Some(&before), "us", &times, now.clone());
        assert_eq!(next.lease_transitions, Some(4));
        assert_eq!(next.holder_identity.as_deref(), Some("us"));

        let later = time("2026-01-01T00:00:02.000000Z");
        let renewed = taken(Some(&next), "us", &times, later.clone());
        assert_eq!(renewed.lease_transitions, Some(4));
        assert_eq!(renewed.acquire_time, Some(now));
        assert_eq!(renewed.renew_time, Some(later.clone()));

        let free = released(&renewed, later);
        assert_eq!(free.holder_identity.as_deref(), Some(""));
        assert_eq!(free.lease_transitions, Some(4));
    }
}

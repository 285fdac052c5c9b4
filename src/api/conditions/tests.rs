//! Conditions over time, in both generations.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn types(conditions: &[Condition]) -> Vec<&str> {
    conditions.iter().map(|condition| condition.type_.as_str()).collect()
}

#[test]
fn ready_copies_the_only_condition() {
    let wanted = [("VMProvisioned", State::waiting("Cloning", "clone of 100 runs"))];
    let written = v1beta1(&[], &wanted, at(0));
    assert_eq!(
        serde_json::to_value(&written).unwrap(),
        json!([
            {"type": "Ready", "status": "False", "severity": "Info", "reason": "Cloning",
             "message": "clone of 100 runs", "lastTransitionTime": "2023-11-14T22:13:20Z"},
            {"type": "VMProvisioned", "status": "False", "severity": "Info", "reason": "Cloning",
             "message": "clone of 100 runs", "lastTransitionTime": "2023-11-14T22:13:20Z"},
        ])
    );
}

#[test]
fn true_carries_neither_reason_nor_severity() {
    let written = v1beta1(&[], &[("ClusterReady", State::True)], at(0));
    assert_eq!(
        serde_json::to_value(&written[0]).unwrap(),
        json!({"type": "Ready", "status": "True", "lastTransitionTime": "2023-11-14T22:13:20Z"})
    );
}

#[test]
fn time_stays_while_the_same_is_said_and_moves_with_the_message() {
    let wanted = |message: &str| [("VMProvisioned", State::waiting("Cloning", message))];
    let first = v1beta1(&[], &wanted("10 %"), at(0));
    assert_eq!(v1beta1(&first, &wanted("10 %"), at(60)), first);
    let second = v1beta1(&first, &wanted("20 %"), at(60));
    assert_eq!(second[0].last_transition_time.0, at(60));
    assert_eq!(changed(&first, &second).len(), 2);
    assert!(changed(&second, &second).is_empty());
}

#[test]
fn fractions_of_a_second_are_dropped() {
    let time = Timestamp::from_millisecond(1_700_000_000_999).unwrap();
    let written = v1beta1(&[], &[("A", State::True)], time);
    assert_eq!(written[0].last_transition_time.0, at(0));
}

#[test]
fn others_conditions_stay() {
    let foreign = condition("Custom", &State::True, at(0));
    let written = v1beta1(std::slice::from_ref(&foreign), &[("VMProvisioned", State::True)], at(9));
    assert_eq!(types(&written), ["Ready", "Custom", "VMProvisioned"]);
    assert_eq!(written[1], foreign);
}

#[test]
fn worst_state_is_the_summary() {
    let unknown = State::Unknown { reason: "Unknown", message: String::new() };
    let info = State::waiting("A", "");
    let warning = State::not(Severity::Warning, "B", "");
    let error = State::not(Severity::Error, "C", "");
    let of = |states: &[&State]| {
        summary(&states.iter().map(|state| ("X", (*state).clone())).collect::<Vec<_>>())
    };
    assert_eq!(of(&[]), State::True);
    assert_eq!(of(&[&unknown, &State::True]), State::True);
    assert_eq!(of(&[&State::True, &info]), info);
    assert_eq!(of(&[&info, &warning, &State::True]), warning);
    assert_eq!(of(&[&warning, &error, &info]), error);
}

#[test]
fn v1beta2_has_ready_and_paused_and_keeps_time_by_status() {
    let wanted = |message: &str| [("VMProvisioned", State::waiting("Cloning", message))];
    let first = v1beta2(&[], &wanted("10 %"), false, Some(3), at(0));
    let shape: Vec<_> = first
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str(), c.observed_generation))
        .collect();
    assert_eq!(
        shape,
        [
            ("Ready", "False", "Cloning", Some(3)),
            ("VMProvisioned", "False", "Cloning", Some(3)),
            ("Paused", "False", "NotPaused", Some(3)),
        ]
    );
    let second = v1beta2(&first, &wanted("20 %"), false, Some(3), at(60));
    assert_eq!(second[0].last_transition_time.0, at(0));
    assert_eq!(second[0].message, "20 %");
    let third = v1beta2(&second, &[("VMProvisioned", State::True)], true, Some(4), at(90));
    assert_eq!(third[0].last_transition_time.0, at(90));
    assert_eq!((third[0].reason.as_str(), third[0].message.as_str()), ("Ready", ""));
    assert_eq!((third[2].status.as_str(), third[2].reason.as_str()), ("True", "Paused"));
}

#[test]
fn long_messages_fit_the_schema() {
    let long = "ä".repeat(40_000);
    let wanted = [("VMProvisioned", State::waiting("TaskFailure", long))];
    let one = v1beta1(&[], &wanted, at(0));
    assert_eq!(one[0].message.as_ref().unwrap().chars().count(), 10240);
    let two = v1beta2(&[], &wanted, false, None, at(0));
    assert_eq!(two[0].message.chars().count(), 32768);
}

fn any_state() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::True),
        (0..3usize, ".{0,3}").prop_map(|(severity, message)| {
            let all = [Severity::Error, Severity::Warning, Severity::Info];
            State::not(all[severity], "Reason", message)
        }),
        ".{0,3}".prop_map(|message| State::Unknown { reason: "Unknown", message }),
    ]
}

proptest! {
    #[test]
    fn writing_twice_changes_nothing(states in prop::collection::vec(any_state(), 1..4)) {
        let names = ["VMProvisioned", "ClusterReady", "Custom"];
        let wanted: Vec<Wanted> = names.into_iter().zip(states).collect();
        let first = v1beta1(&[], &wanted, at(0));
        prop_assert_eq!(&v1beta1(&first, &wanted, at(5)), &first);
        for condition in &first {
            prop_assert_eq!(condition.severity.is_some(), condition.status == "False");
        }
        let modern = v1beta2(&[], &wanted, false, Some(1), at(0));
        prop_assert_eq!(&v1beta2(&modern, &wanted, false, Some(1), at(5)), &modern);
    }
}

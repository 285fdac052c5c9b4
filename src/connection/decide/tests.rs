use serde_json::json;

use super::*;
use crate::pve::Permissions;

fn fault(text: &str) -> Fault {
    Fault::new(Class::Denied, text)
}

fn facts(endpoint: Result<Probe, Fault>) -> Facts {
    Facts { secrets: Vec::new(), endpoint }
}

fn ailing(ailment: Ailment) -> Facts {
    let version = Err((ailment, fault("what and how")));
    facts(Ok(Probe { address: "https://pve:8006".to_owned(), insecure: None, version }))
}

/// Everything on `/`, as an administrator has it, but for some.
fn held(without: &[&str]) -> Permissions {
    let all = needs(9, &Scope::default());
    let names = all.iter().map(|need| need.privilege).filter(|name| !without.contains(name));
    let held: serde_json::Map<_, _> = names.map(|name| (name.to_owned(), json!(1))).collect();
    serde_json::from_value(json!({ "/": held })).unwrap()
}

fn answering(permissions: Result<Permissions, String>, ahead: i64) -> Facts {
    let ahead = Some(SignedDuration::from_secs(ahead));
    let version = Ok(Answer { version: "9.1.4".to_owned(), permissions, ahead });
    facts(Ok(Probe { address: "https://pve:8006".to_owned(), insecure: None, version }))
}

fn reason_of(state: &State) -> &str {
    match state {
        State::True => "",
        State::False { reason, .. } | State::Unknown { reason, .. } => reason,
    }
}

/// The conditions that are there, as `Type` or `Type=Reason`.
fn told(verdict: &Verdict) -> Vec<String> {
    let there =
        verdict.conditions.iter().filter_map(|(type_, state)| Some((type_, state.as_ref()?)));
    there
        .map(|(type_, state)| match reason_of(state) {
            "" => (*type_).to_owned(),
            reason => format!("{type_}={reason}"),
        })
        .collect()
}

#[test]
fn each_ailment_has_its_condition_and_reason_and_what_lies_behind_it_is_not_told() {
    for (ailment, reason, conditions) in [
        (Ailment::Down, "EndpointDown", &["EndpointReachable=EndpointDown"][..]),
        (Ailment::NotProxmox, "NotProxmox", &["EndpointReachable=NotProxmox"]),
        (Ailment::NoQuorum, "NoQuorum", &["EndpointReachable=NoQuorum"]),
        (
            Ailment::NotTrusted,
            "CertificateNotTrusted",
            &["EndpointReachable", "CertificateTrusted=CertificateNotTrusted"],
        ),
        (
            Ailment::NotTrustedNow,
            "CertificateNotValidNow",
            &["EndpointReachable", "CertificateTrusted=CertificateNotValidNow"],
        ),
        (
            Ailment::Expired,
            "CredentialsExpired",
            &["EndpointReachable", "CertificateTrusted", "CredentialsAccepted=CredentialsExpired"],
        ),
        (
            Ailment::Refused,
            "CredentialsRefused",
            &["EndpointReachable", "CertificateTrusted", "CredentialsAccepted=CredentialsRefused"],
        ),
        (
            Ailment::Disabled,
            "UserDisabled",
            &["EndpointReachable", "CertificateTrusted", "CredentialsAccepted=UserDisabled"],
        ),
    ] {
        let verdict = verdict(&ailing(ailment));
        assert_eq!(reason_of(&verdict.ready), reason);
        assert_eq!(told(&verdict), conditions);
        assert_eq!(verdict.version, None, "the last one known is kept");
    }
}

#[test]
fn a_connection_with_all_privileges_is_ready() {
    let verdict = verdict(&answering(Ok(held(&[])), 2));
    assert_eq!(verdict.ready, State::True);
    assert_eq!(verdict.version.as_deref(), Some("9.1.4"));
    assert_eq!(told(&verdict).len(), 5);
    assert!(told(&verdict).iter().all(|one| !one.contains('=')), "{:?}", told(&verdict));
}

#[test]
fn missing_privileges_are_listed_with_their_paths() {
    let verdict = verdict(&answering(Ok(held(&["VM.Clone"])), 0));
    let State::False { reason, message, .. } = &verdict.ready else { panic!("{verdict:?}") };
    assert_eq!(*reason, "PrivilegesMissing");
    assert!(message.contains("VM.Clone on /") && message.contains("grant"), "{message}");
    assert_eq!(verdict.missing.len(), 1);
    assert_eq!(verdict.missing[0].privilege, "VM.Clone");
}

#[test]
fn privileges_that_are_not_known_are_not_missing() {
    let verdict = verdict(&answering(Err("timeout".to_owned()), 0));
    assert_eq!(verdict.ready, State::True);
    assert!(told(&verdict).contains(&"PermissionsSufficient=Unknown".to_owned()));
}

#[test]
fn clocks_that_differ_are_told_and_do_no_harm() {
    for (ahead, words) in [(400, "400 s ahead of"), (-3600, "3600 s behind")] {
        let verdict = verdict(&answering(Ok(held(&[])), ahead));
        assert_eq!(verdict.ready, State::True);
        let clock = verdict.conditions.last().unwrap().1.clone().unwrap();
        let State::False { message, .. } = clock else { panic!("{clock:?}") };
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn without_an_endpoint_the_reason_is_that_of_the_fault() {
    for (fault, reason) in [
        (Fault::new(Class::Blocked, "x").because(reasons::SECRET_NOT_FOUND), "SecretNotFound"),
        (Fault::new(Class::Denied, "x").because(reasons::SECRET_FORBIDDEN), "SecretForbidden"),
        (Fault::new(Class::Invalid, "x"), "InvalidConnection"),
        (Fault::new(Class::Transient, "x"), "Unknown"),
    ] {
        let verdict = verdict(&facts(Err(fault)));
        assert_eq!(reason_of(&verdict.ready), reason);
        assert!(told(&verdict).is_empty());
    }
}

#[test]
fn what_fails_for_long_is_looked_at_less_often() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let failing = State::not(Severity::Error, "X", "");
    assert_eq!(wake(&State::True, None, at(0)), REGULAR);
    assert_eq!(wake(&failing, Some(at(0)), at(1)), RETRY_FIRST);
    assert_eq!(wake(&failing, Some(at(0)), at(20)), Duration::from_secs(20));
    assert_eq!(wake(&failing, Some(at(0)), at(9999)), RETRY_LAST);
}

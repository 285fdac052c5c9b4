use super::*;

#[test]
fn each_ailment_has_a_remedy_of_its_own() {
    let all = [
        Ailment::Down,
        Ailment::NotTrusted,
        Ailment::NotTrustedNow,
        Ailment::Refused,
        Ailment::Expired,
        Ailment::Disabled,
        Ailment::TokenUnknown,
        Ailment::NotPermitted,
        Ailment::NotProxmox,
        Ailment::NoQuorum,
    ];
    for source in [Source::Manager, Source::Connection("c".to_owned())] {
        let texts: std::collections::BTreeSet<String> =
            all.iter().map(|one| remedy(&source, *one, "https://pve:8006", false)).collect();
        assert_eq!(texts.len(), all.len());
    }
}

#[test]
fn a_forgotten_port_is_thought_of_when_nothing_answers() {
    let source = Source::Connection("c".to_owned());
    let text = remedy(&source, Ailment::Down, "https://pve", true);
    assert!(text.contains("port 8006") && text.contains("spec.endpoint"), "{text}");
    assert!(!remedy(&source, Ailment::NotProxmox, "https://pve", true).contains("8006"));
}

#[test]
fn three_ways_to_check_the_certificate_are_named_for_each_source() {
    for (source, words) in [
        (Source::Manager, ["PROXMOX_INSECURE=false", "--proxmox-root-cert-file"]),
        (Source::Connection("c".to_owned()), ["spec.caBundle", "spec.fingerprint"]),
    ] {
        let text = three_ways(&source);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(["(1)", "(2)", "(3)"].iter().all(|number| text.contains(number)), "{text}");
    }
}

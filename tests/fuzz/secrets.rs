//! What people and bootstrap providers put into Secrets.

use capmox::bootstrap::network::{Ethernet, Static};
use capmox::bootstrap::{Format, Metadata, NetworkPlan, SeedFiles, asks_for_place};
use capmox::pve::{BaseUrl, parse_fingerprint, token};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use crate::near::{json, spoiled};

const URLS: &[&str] = &[
    "https://pve.example.com:8006",
    "https://[fd00::1]:8006/api2/json/",
    "pve:8006",
    "\"https://10.0.0.1/prefix/api2/json\"",
    "https://user:hunter2hunter2@pve:8006/",
    "https://pve:8006/#v1:0:18:4",
];
const TOKENS: &[&str] = &[
    "capmox@pve!capi=01234567-89ab-cdef-0123-456789abcdef",
    "capmox@pve!capi",
    "01234567-89ab-cdef-0123-456789abcdef",
    "PVEAPIToken=root@pam!t=01234567-89ab-cdef-0123-456789abcdef",
];
const IGNITION: &[&str] = &[
    r#"{"ignition":{"version":"2.3.0"},"storage":{"files":[]},"systemd":{"units":null}}"#,
    r#"{"ignition":{"version":"2.0.0"},"networkd":{"units":[{"name":"a.network"}]}}"#,
    r#"{"ignition":{"version":"3.1.0"}}"#,
];

fn metadata(hostname: &str) -> Metadata {
    Metadata {
        instance_id: "9a8b7c6d-0000-4000-8000-000000000001".to_owned(),
        hostname: hostname.to_owned(),
        ..Metadata::default()
    }
}

fn plan(address: &str) -> NetworkPlan {
    let ipv4 = Static { address: address.to_owned(), gateway: None, metric: None };
    let first = Ethernet { ipv4: Some(ipv4), ..Ethernet::new(0, "net0", "BC:24:11:00:00:01") };
    NetworkPlan { ethernets: vec![first], vrfs: Vec::new() }
}

proptest! {
    #[test]
    fn an_address_is_refused_or_read_back_and_never_shows_a_password(text in spoiled(URLS)) {
        match text.parse::<BaseUrl>() {
            Ok(url) => {
                prop_assert_eq!(url.to_string().parse::<BaseUrl>(), Ok(url.clone()));
                let _ = url.host();
            }
            Err(error) if text.contains(":hunter2hunter2@") => {
                prop_assert!(!error.to_string().contains("hunter2"), "{}", error);
            }
            Err(_) => {}
        }
    }

    #[test]
    fn a_token_is_refused_or_taken_and_never_shown(
        id in spoiled(TOKENS), secret in spoiled(TOKENS),
    ) {
        match token(&id, &secret) {
            Ok(auth) => {
                let shown = format!("{auth:?} {}", auth.who());
                prop_assert!(!shown.contains("-89ab-cdef-0123-"), "{}", shown);
            }
            Err(error) => prop_assert!(!error.to_string().contains("456789abcdef")
                || !id.contains('!'), "{}", error),
        }
    }

    #[test]
    fn a_fingerprint_is_refused_or_taken(text in "([0-9A-Fa-f]{0,3}:?){0,40}.{0,2}") {
        let _ = parse_fingerprint(&text);
    }

    #[test]
    fn any_format_and_payload_gives_a_seed_or_a_reason(
        format in proptest::option::of(vec(any::<u8>(), 0..16)), payload in vec(any::<u8>(), 0..300),
    ) {
        let _ = asks_for_place(&payload);
        if let Ok(format) = Format::from_secret(format.as_deref()) {
            let _ = SeedFiles::render(format, &payload, &metadata("m-0"), &plan("10.0.0.9/24"));
        }
        let _ = SeedFiles::render(Format::Ignition, &payload, &metadata("m-0"), &plan("10.0.0.9/24"));
    }

    #[test]
    fn an_ignition_config_is_refused_or_kept_and_extended(text in spoiled(IGNITION)) {
        let read = SeedFiles::render(
            Format::Ignition, text.as_bytes(), &metadata("m-0"), &plan("10.0.0.9/24"),
        );
        if let Ok(seed) = read {
            let config: Value = serde_json::from_slice(&seed.user_data).expect("JSON");
            prop_assert!(config["storage"]["files"].as_array().is_some_and(|all| all.len() >= 2));
            prop_assert_eq!(&config["ignition"]["version"], "2.3.0");
        }
    }

    #[test]
    fn an_ignition_config_may_have_anything_anywhere(
        storage in json(), systemd in json(), networkd in json(), version in json(),
    ) {
        let config = serde_json::json!({
            "ignition": {"version": version}, "storage": storage, "systemd": systemd,
            "networkd": networkd,
        });
        let config = config.to_string();
        let _ = SeedFiles::render(
            Format::Ignition, config.as_bytes(), &metadata("m-0"), &plan("10.0.0.9/24"),
        );
    }

    #[test]
    fn what_is_rendered_is_yaml_with_the_same_texts(hostname in ".{0,70}", address in ".{0,40}") {
        let read = SeedFiles::render(Format::CloudConfig, b"", &metadata(&hostname), &plan(&address));
        if let Ok(seed) = read {
            let meta: Value = serde_yaml::from_str(&seed.meta_data).expect("YAML");
            prop_assert_eq!(meta["local-hostname"].as_str(), Some(hostname.as_str()));
            let _: Value = serde_yaml::from_str(&seed.network_config).expect("YAML");
        }
    }
}

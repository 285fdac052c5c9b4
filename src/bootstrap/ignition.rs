//! Extends an Ignition config with what cloud-init's guests learn from meta-data and
//! network-config: hostname, identity and network units.
//!
//! Flatcar reads Ignition spec 2, and so does this; spec 3 has another layout and is refused. The
//! config belongs to the bootstrap provider: everything in it is kept, and what is added comes
//! last, where Ignition lets it win. Facts: the Ignition 2.3 schema, and the paths and variables
//! that the peer's Flatcar templates read.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::bootstrap::metadata::Metadata;
use crate::bootstrap::network::{self, NetworkPlan};
use crate::bootstrap::problem::Problem;

/// The version written: the oldest that knows every key used here, and the newest that capmox and
/// Flatcar's Ignition read. What is in a newer one would be lost under it.
const VERSION: &str = "2.3.0";

/// The versions read.
const READ: [&str; 4] = ["2.0.0", "2.1.0", "2.2.0", VERSION];

/// The config of `payload` with the guest's identity and network.
///
/// # Errors
/// [`Problem::Ignition`] when the payload is not a config of spec 2, and the errors of the network
/// plan.
pub(super) fn enriched(
    payload: &[u8],
    metadata: &Metadata,
    plan: &NetworkPlan,
) -> Result<Vec<u8>, Problem> {
    let mut config = parsed(payload)?;
    append(
        &mut config,
        "storage",
        "files",
        [
            file("/etc/hostname", &metadata.hostname),
            file("/etc/proxmox-env", &environment(metadata, plan)),
        ],
    )?;
    // "enable" is the key of spec 1 that spec 2 still takes; the peer's guests got it.
    let resolved = json!({"name": "systemd-resolved.service", "enable": true});
    append(&mut config, "systemd", "units", [resolved])?;
    let units = network::networkd_units(plan)?;
    let units = units.into_iter().map(|unit| json!({"name": unit.name, "contents": unit.contents}));
    append(&mut config, "networkd", "units", units)?;
    serde_json::to_vec(&config).map_err(|_| refusal("cannot be written back as JSON"))
}

fn refusal(reason: impl Into<String>) -> Problem {
    Problem::Ignition(reason.into())
}

fn parsed(payload: &[u8]) -> Result<Map<String, Value>, Problem> {
    // serde_json names the place, never the text at it.
    let config: Value = serde_json::from_slice(payload).map_err(|error| {
        refusal(format!("is not JSON (line {}, column {})", error.line(), error.column()))
    })?;
    let Value::Object(mut config) = config else {
        return Err(refusal("is not a JSON object"));
    };
    let header = config.get_mut("ignition").and_then(Value::as_object_mut);
    let Some(header) = header else {
        return Err(refusal("has no object \"ignition\" with a version"));
    };
    match header.get("version").and_then(Value::as_str) {
        Some(version) if READ.contains(&version) => {
            header.insert("version".into(), VERSION.into());
            Ok(config)
        }
        Some(version) => Err(refusal(format!(
            "has version {version:?}; expected 2.0.0 to {VERSION}, as Flatcar reads and the kubeadm \
             bootstrap provider writes"
        ))),
        None => Err(refusal("has no ignition.version")),
    }
}

/// Appends to the list `section.list`, which is made where it is missing.
fn append(
    config: &mut Map<String, Value>,
    section: &str,
    list: &str,
    entries: impl IntoIterator<Item = Value>,
) -> Result<(), Problem> {
    let wrong = || refusal(format!("{section}.{list} is not a list inside an object"));
    let parent = nullable(config.entry(section), || json!({})).as_object_mut().ok_or_else(wrong)?;
    let entries_there =
        nullable(parent.entry(list), || json!([])).as_array_mut().ok_or_else(wrong)?;
    entries_there.extend(entries);
    Ok(())
}

/// The entry's value; Go writers leave `null` where nothing is set.
fn nullable(entry: serde_json::map::Entry<'_>, empty: impl FnOnce() -> Value) -> &mut Value {
    let value = entry.or_insert(Value::Null);
    if value.is_null() {
        *value = empty();
    }
    value
}

fn file(path: &str, content: &str) -> Value {
    json!({
        "filesystem": "root",
        "path": path,
        "mode": 0o644,
        "overwrite": true,
        "contents": {"source": format!("data:,{}", percent_encoded(content))},
    })
}

/// `/etc/proxmox-env`, which the Flatcar templates source.
fn environment(metadata: &Metadata, plan: &NetworkPlan) -> String {
    let first = plan.ethernets.first();
    let address = |fixed: Option<&network::Static>| fixed.map(|fixed| fixed.address.clone());
    let lines = [
        ("HOSTNAME", Some(metadata.hostname.clone())),
        ("INSTANCE_ID", Some(metadata.instance_id.clone())),
        // Always there, whatever spec.metadataSettings says: the kubelet's flags refer to it.
        ("PROVIDER_ID", Some(format!("proxmox://{}", metadata.instance_id))),
        ("PRIVATE_IPV4", address(first.and_then(|one| one.ipv4.as_ref()))),
        ("PRIVATE_IPV6", address(first.and_then(|one| one.ipv6.as_ref()))),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "COREOS_CUSTOM_{name}={value}");
        }
    }
    text
}

/// The text for a data URL (RFC 3986): all but the unreserved characters as `%XX`.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::network::{Ethernet, Static};

    fn guest() -> (Metadata, NetworkPlan) {
        let metadata = Metadata {
            instance_id: "9a8b7c6d-0000-4000-8000-000000000001".into(),
            hostname: "lab-cp-0".into(),
            ..Metadata::default()
        };
        let ethernet = Ethernet {
            ipv4: Some(Static {
                address: "10.0.0.5/24".into(),
                gateway: Some("10.0.0.1".into()),
                metric: None,
            }),
            ..Ethernet::new(0, "net0", "bc:24:11:00:00:01")
        };
        (metadata, NetworkPlan { ethernets: vec![ethernet], vrfs: Vec::new() })
    }

    fn enrich(payload: &str) -> Result<Value, Problem> {
        let (metadata, plan) = guest();
        enriched(payload.as_bytes(), &metadata, &plan)
            .map(|bytes| serde_json::from_slice(&bytes).expect("is JSON"))
    }

    #[test]
    fn what_the_payload_holds_is_kept_and_ours_comes_last() {
        let config = enrich(
            r#"{"ignition": {"version": "2.2.0", "config": {}}, "passwd": {"users": [{"name": "core"}]},
                "storage": {"files": [{"path": "/etc/kubeadm.yml"}]}, "systemd": {"units": null}}"#,
        )
        .expect("is spec 2");
        assert_eq!(config["ignition"], json!({"version": "2.3.0", "config": {}}));
        assert_eq!(config["passwd"]["users"][0]["name"], "core");
        let files = config["storage"]["files"].as_array().expect("a list");
        let paths: Vec<_> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/etc/kubeadm.yml", "/etc/hostname", "/etc/proxmox-env"]);
        assert_eq!(files[1]["contents"]["source"], "data:,lab-cp-0");
        assert_eq!(files[1]["mode"], 420);
        assert_eq!(config["systemd"]["units"][0]["name"], "systemd-resolved.service");
        assert_eq!(config["networkd"]["units"][0]["name"], "00-eth0.network");
    }

    #[test]
    fn every_version_of_spec_2_that_capmox_reads_is_read() {
        for version in READ {
            let payload = format!(r#"{{"ignition": {{"version": "{version}"}}}}"#);
            let config = enrich(&payload).expect(version);
            assert_eq!(config["ignition"]["version"], VERSION);
        }
    }

    #[test]
    fn the_environment_has_the_addresses_there_are() {
        let (metadata, plan) = guest();
        assert_eq!(
            environment(&metadata, &plan),
            "COREOS_CUSTOM_HOSTNAME=lab-cp-0\n\
             COREOS_CUSTOM_INSTANCE_ID=9a8b7c6d-0000-4000-8000-000000000001\n\
             COREOS_CUSTOM_PROVIDER_ID=proxmox://9a8b7c6d-0000-4000-8000-000000000001\n\
             COREOS_CUSTOM_PRIVATE_IPV4=10.0.0.5/24\n"
        );
    }

    #[test]
    fn data_urls_hold_no_character_that_a_url_would_cut_at() {
        assert_eq!(percent_encoded("a=b/c#\n"), "a%3Db%2Fc%23%0A");
    }

    #[test]
    fn what_is_not_spec_2_is_refused_without_showing_it() {
        let cases = [
            (r#"{"token": "secret""#, "is not JSON"),
            (r#"["secret"]"#, "is not a JSON object"),
            (r#"{"storage": "secret"}"#, "has no object \"ignition\""),
            (r#"{"ignition": {"version": "3.4.0"}, "x": "secret"}"#, "has version \"3.4.0\""),
            (r#"{"ignition": {"version": "2.4.0"}, "x": "secret"}"#, "has version \"2.4.0\""),
            (r#"{"ignition": {"version": "2.3.0"}, "storage": "secret"}"#, "storage.files is not"),
        ];
        for (payload, expected) in cases {
            let refusal = enrich(payload).unwrap_err().to_string();
            assert!(refusal.contains(expected) && !refusal.contains("secret"), "{refusal}");
        }
    }
}

//! The whole seed, out of the image and through cloud-init's own NoCloud source.

use std::fs;

use capmox::bootstrap::{Format, Metadata, NetworkPlan, Place, SeedFiles};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::plans::{self, Stack};
use crate::tools::{BSDTAR, PYTHON, arg};

/// What cloud-init makes of the seed's image.
fn read(seed: &SeedFiles) -> Value {
    let folder = TempDir::new().expect("a temporary folder");
    let image = folder.path().join("seed.iso");
    fs::write(&image, seed.image().expect("renders")).expect("written");
    let seed = folder.path().join("seed/nocloud");
    fs::create_dir_all(&seed).expect("made");
    BSDTAR.stdout(&["-xf", arg(&image), "-C", arg(&seed)]);
    let script = include_str!("nocloud.py");
    let output = PYTHON.stdout(&["-c", script, arg(folder.path())]);
    serde_json::from_slice(&output).expect("is JSON")
}

fn plan() -> NetworkPlan {
    NetworkPlan { ethernets: vec![plans::ethernet(0, Stack::Dual, true)], vrfs: Vec::new() }
}

#[test]
fn templates_see_the_identity_under_the_names_they_use() {
    let uuid = "9a8b7c6d-0000-4000-8000-000000000001";
    let metadata = Metadata {
        instance_id: uuid.into(),
        hostname: "lab-cp-0".into(),
        provider_id: Some(format!("proxmox://{uuid}")),
        kubernetes_version: Some("v1.34.4".into()),
        place: Some(Place { node: "pve1".into(), zone: "rack-1".into() }),
    };
    let payload = "## template: jinja\n#cloud-config\n\
        runcmd: ['{{ ds.meta_data.instance_id }}', '{{ ds.meta_data.provider_id }}', \
        '{{ ds.meta_data.local_hostname }}', '{{ ds.meta_data.kubernetes_version }}', \
        '{{ ds.meta_data.proxmox_node }}', '{{ ds.meta_data.zone }}']\n";
    let seed = SeedFiles::render(Format::CloudConfig, payload.as_bytes(), &metadata, &plan());
    let found = read(&seed.expect("renders"));
    assert_eq!(found["found"], true);
    assert_eq!(
        found["user_data"],
        format!(
            "#cloud-config\nruncmd: ['{uuid}', 'proxmox://{uuid}', 'lab-cp-0', 'v1.34.4', \
             'pve1', 'rack-1']\n"
        )
    );
}

/// cloud-init reads YAML 1.1, in which every one of these is something else without its quotes.
#[test]
fn what_looks_like_a_number_a_date_or_a_truth_stays_a_text() {
    let lookalikes = ["1234", "1e3", "0x1f", "no", "2026-01-02", "12:34:56", "~", "null"];
    for names in lookalikes.chunks(4) {
        let metadata = Metadata {
            instance_id: names[0].into(),
            hostname: names[1].into(),
            provider_id: Some(names[2].into()),
            kubernetes_version: Some(names[3].into()),
            place: None,
        };
        let seed = SeedFiles::render(Format::CloudConfig, b"#cloud-config\n", &metadata, &plan());
        let found = read(&seed.expect("renders"));
        let keys = ["instance-id", "hostname", "provider-id", "kubernetes-version"];
        for (key, name) in keys.iter().zip(names) {
            assert_eq!(found["metadata"][key], *name, "{key}");
        }
        let ethernet = &found["network"]["network"]["ethernets"]["eth0"];
        assert_eq!(ethernet["match"], json!({"macaddress": "12:34:56:01:02:00"}));
    }
}

#[test]
fn an_ignition_guest_is_told_to_leave_the_network_alone() {
    let metadata =
        Metadata { instance_id: "x".into(), hostname: "lab-cp-0".into(), ..Metadata::default() };
    let payload = br#"{"ignition": {"version": "2.3.0"}}"#;
    let seed = SeedFiles::render(Format::Ignition, payload, &metadata, &plan()).expect("renders");
    let found = read(&seed);
    assert_eq!(found["network"], json!({"version": 1, "config": []}));
    let config: Value =
        serde_json::from_str(found["user_data"].as_str().expect("a text")).expect("is JSON");
    assert_eq!(config["networkd"]["units"][0]["name"], "00-eth0.network");
}

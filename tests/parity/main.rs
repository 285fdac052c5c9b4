//! Holds our CRDs against what capmox v0.7.7 serves: nothing may be lost, and nothing that it
//! accepts may be refused.
//!
//! The facts are in `capmox-0.7.7.tsv`. Additions of ours are free as long as they ask nothing of
//! objects that were written for capmox.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod compare;
mod facts;
mod mutations;

use std::fs;
use std::path::Path;

use capmox::api::crd;
use capmox::runtime::rbac;

/// Findings that are accepted, each with its reason: kind, start of the finding, why.
const ACCEPTED: &[(&str, &str, &str)] = &[];

#[test]
fn nothing_of_capmox_is_lost_or_tightened() {
    let table = facts::read();
    let ours = crd::infrastructure();
    let mut findings = compare::all(&table, &ours);
    for (kind, start, why) in ACCEPTED {
        assert!(!why.is_empty());
        let before = findings.len();
        findings.retain(|finding| !(finding.kind == *kind && finding.what.starts_with(start)));
        assert!(findings.len() < before, "{kind} {start} is accepted but does not occur");
    }
    assert!(findings.is_empty(), "{}", compare::listing(&findings));
}

/// What kubemox v0.6.6 serves as a ProxmoxConnection.
#[test]
fn nothing_of_a_connection_of_kubemox_is_lost() {
    let crd = crd::connection();
    let spec = &crd["spec"];
    assert_eq!(spec["group"], "proxmox.alperen.cloud");
    assert_eq!(spec["scope"], "Cluster");
    assert_eq!(spec["names"]["plural"], "proxmoxconnections");
    assert_eq!(spec["names"]["singular"], "proxmoxconnection");
    assert_eq!(spec["names"]["listKind"], "ProxmoxConnectionList");
    assert_eq!(spec["names"]["shortNames"], serde_json::json!(["pxc"]));
    let version = &spec["versions"][0];
    assert_eq!(version["name"], "v1alpha1");
    assert!(version["subresources"]["status"].is_object());
    let properties = &version["schema"]["openAPIV3Schema"]["properties"];
    assert_eq!(properties["spec"]["required"], serde_json::json!(["endpoint"]));
    for (path, wanted) in [
        ("spec/properties/endpoint", "string"),
        ("spec/properties/username", "string"),
        ("spec/properties/password", "string"),
        ("spec/properties/tokenID", "string"),
        ("spec/properties/secret", "string"),
        ("spec/properties/insecureSkipVerify", "boolean"),
        ("status/properties/connectionStatus", "string"),
        ("status/properties/version", "string"),
        ("status/properties/conditions", "array"),
    ] {
        let found = properties.pointer(&format!("/{path}"));
        assert_eq!(found.unwrap()["type"], wanted, "{path}");
    }
    assert_eq!(properties["spec"]["properties"]["insecureSkipVerify"]["default"], false);
}

#[test]
fn table_is_complete() {
    let table = facts::read();
    let sizes: Vec<_> = table.iter().map(|kind| (kind.name.as_str(), kind.fields.len())).collect();
    assert_eq!(
        sizes,
        [
            ("ProxmoxCluster", 159),
            ("ProxmoxClusterTemplate", 140),
            ("ProxmoxMachine", 134),
            ("ProxmoxMachineTemplate", 109),
        ]
    );
}

#[test]
fn committed_files_are_what_the_types_generate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let generated = crd::all().unwrap().into_iter().map(|(name, text)| ("crd/bases", name, text));
    let pools = crd::pools().unwrap().into_iter().map(|(name, text)| ("ipam/bases", name, text));
    let role = ("rbac", "role.yaml".to_owned(), rbac::yaml().unwrap());
    for (folder, name, text) in generated.chain(pools).chain([role]) {
        let path = root.join(folder).join(&name);
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{folder}/{name} is out of date: run `cargo xtask generate`");
    }
}

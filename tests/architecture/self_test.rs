//! Each rule catches what it is for, and lets the lawful neighbour pass.

use crate::rules::{
    Rule, layers, length, module_doc, names, purity, pve_knows_no_kubernetes, unfinished, waiting,
    writing_files,
};
use crate::source::Source;

fn breaks(rule: Rule, path: &str, text: &str) -> bool {
    !rule(&Source::new(path, text)).is_empty()
}

#[test]
fn layers_catch_a_dependency_that_points_up() {
    for (path, text) in [
        ("src/pve/client.rs", "use crate::api::ProxmoxMachine;"),
        ("src/api/machine.rs", "use crate::pve::Upid;"),
        ("src/bootstrap/seed.rs", "use crate::{ids::VmId, machine};"),
        ("src/machine/act.rs", "fn f() { crate::cluster::reconcile(); }"),
        ("src/cluster/mod.rs", "use super::machine::Facts;"),
        ("src/webhook/mod.rs", "use crate::pve::Client;"),
        ("src/brand_new/mod.rs", "use crate::ids::VmId;"),
    ] {
        assert!(breaks(layers, path, text), "{path}: {text}");
    }
    for (path, text) in [
        ("src/machine/act.rs", "use crate::pve::Client; use super::facts::Facts;"),
        ("src/runtime/mod.rs", "use crate::machine;"),
        ("src/main.rs", "use capmox::cli;"),
        ("src/api/mod.rs", "#[cfg(test)] mod tests { use crate::webhook; }"),
    ] {
        assert!(!breaks(layers, path, text), "{path}: {text}");
    }
}

#[test]
fn purity_catches_the_world_in_a_pure_file() {
    for (path, text) in [
        ("src/placement/mod.rs", "async fn f() {}"),
        ("src/ipam/mod.rs", "use tokio::sync::Mutex;"),
        ("src/bootstrap/seed.rs", "use std::{fmt, fs};"),
        ("src/machine/decide.rs", "fn f() { let t = k8s_openapi::jiff::Timestamp::now(); }"),
        ("src/machine/decide/live.rs", "use crate::pve::Client;"),
        ("src/cluster/report.rs", "use kube::Api;"),
        ("src/webhook/rules.rs", "fn f() { std::env::var(\"X\"); }"),
        ("src/api/machine.rs", "fn f() { uuid::Uuid::new_v4(); }"),
    ] {
        assert!(breaks(purity, path, text), "{path}: {text}");
    }
    for (path, text) in [
        ("src/machine/observe.rs", "async fn f() { tokio::join!(); }"),
        ("src/machine/facts.rs", "use crate::pve::Upid; use std::time::Duration;"),
        ("src/api/machine.rs", "use kube::CustomResource;"),
        ("src/placement/mod.rs", "/// Never async.\nfn f() { let asynchronous = 1; }"),
    ] {
        assert!(!breaks(purity, path, text), "{path}: {text}");
    }
}

#[test]
fn waiting_catches_a_sleep_by_any_path() {
    for text in ["fn f() { tokio::time::sleep(d); }", "fn f() { sleep(d); }"] {
        assert!(breaks(waiting, "src/runtime/mod.rs", text), "{text}");
    }
    assert!(!breaks(waiting, "src/runtime/mod.rs", "fn f() { timeout(d, x); let sleep = 1; }"));
}

#[test]
fn nothing_is_written_to_files_such_as_a_seed_to_tmp() {
    for text in [
        "fn f() { std::fs::write(\"/tmp/user-data-105.iso\", image); }",
        "use tokio::fs; async fn f() { fs::write(path, image).await; }",
        "use std::fs::File; fn f() { File::create(path); }",
        "fn f() { std::fs::OpenOptions::new(); }",
        "fn f() { let folder = std::env::temp_dir(); }",
        "fn f() { tempfile::tempfile(); }",
    ] {
        assert!(breaks(writing_files, "src/machine/act.rs", text), "{text}");
    }
    for text in [
        "async fn f() { tokio::fs::read(path).await; }",
        "fn f() { buffer.write(bytes); }",
        "#[cfg(test)] mod tests { fn f() { std::fs::write(path, text); } }",
    ] {
        assert!(!breaks(writing_files, "src/machine/act.rs", text), "{text}");
    }
}

#[test]
fn pve_catches_kubernetes() {
    assert!(breaks(pve_knows_no_kubernetes, "src/pve/mod.rs", "use kube::Client;"));
    assert!(breaks(pve_knows_no_kubernetes, "src/pve/mod.rs", "use k8s_openapi::jiff;"));
    assert!(breaks(pve_knows_no_kubernetes, "src/hypervisor/mod.rs", "use kube::Client;"));
    assert!(!breaks(pve_knows_no_kubernetes, "src/machine/mod.rs", "use kube::Client;"));
}

#[test]
fn length_counts_lines() {
    assert!(breaks(length, "src/ids.rs", &"\n".repeat(501)));
    assert!(!breaks(length, "src/ids.rs", &"\n".repeat(500)));
}

#[test]
fn module_doc_wants_a_sentence() {
    assert!(breaks(module_doc, "src/ids.rs", "//! Ids.\nstruct A;"));
    assert!(breaks(module_doc, "src/ids.rs", "//! Placeholder; to be written later."));
    assert!(breaks(module_doc, "src/ids.rs", "// Names and numbers of Proxmox.\nstruct A;"));
    assert!(!breaks(module_doc, "src/ids.rs", "//! Names and numbers of Proxmox.\nstruct A;"));
}

#[test]
fn unfinished_catches_what_is_not_made_yet() {
    for text in [
        concat!("fn f() { to", "do!() }"),
        concat!("fn f() { unimple", "mented!() }"),
        concat!("#[ig", "nore] fn f() {}"),
        concat!("fn f() { unreach", "able!() }"),
    ] {
        assert!(breaks(unfinished, "src/ids.rs", text), "{text}");
    }
    let said = concat!("fn f() { unreach", "able!(\"parsed above\") }");
    assert!(!breaks(unfinished, "src/ids.rs", said));
}

#[test]
fn names_catch_a_drawer_for_everything() {
    assert!(breaks(names, "src/utils.rs", ""));
    assert!(breaks(names, "crates/testbed/src/common/mod.rs", ""));
    assert!(!breaks(names, "src/runtime/lease.rs", ""));
}

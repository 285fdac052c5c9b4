//! The house rules that a compiler does not hold: which module may use which, what is pure, how
//! long a file is, what the project builds on, and that the documentation holds together.
//! ARCHITECTURE.md lists them as invariants.
//!
//! Reads files of the repository and runs `cargo metadata`; nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod book;
mod cited;
mod dependencies;
mod rules;
mod self_test;
mod source;

use rules::Rule;
use source::{Source, sources};

fn violations(rules: &[Rule], sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(|source| rules.iter().flat_map(move |rule| rule(source))).collect()
}

#[test]
fn the_shipping_crate_keeps_its_rules() {
    let found = violations(rules::SHIPPING, &sources("src"));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_crate_keeps_the_rules_of_the_house() {
    let mut found = Vec::new();
    for folder in ["src", "crates", "xtask", "tests"] {
        let sources = sources(folder);
        assert!(!sources.is_empty(), "{folder} has no Rust file");
        found.extend(violations(rules::EVERYWHERE, &sources));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

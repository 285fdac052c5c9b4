//! What the project builds on: every direct dependency has a line in docs/dependencies.md, and the
//! whole tree keeps to the licences, the one registry and the bans of deny.toml.
//!
//! `cargo deny` says the same and more, but takes minutes to build and wants an advisory database;
//! this needs neither.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::source::{root, sources};

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "cargo metadata: {said}");
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().expect("a list").iter()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The list that follows `key =` in deny.toml.
fn denied(key: &str) -> BTreeSet<String> {
    let file = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let start = file.find(&format!("\n{key} = [")).unwrap_or_else(|| panic!("no {key}"));
    let list = file[start..].split_once('[').expect("a list").1;
    let list = list.split_once("\n]").expect("an end").0;
    let entries = list.lines().filter_map(|line| line.split('"').nth(1));
    entries.map(str::to_owned).collect()
}

/// Whether a licence expression can be met with the allowed licences: every AND by one of its ORs.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // Before SPDX expressions, cargo took "A/B" for "A OR B".
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression.split(" AND ").all(|part| part.split(" OR ").any(|one| allowed.contains(one.trim())))
}

#[test]
fn licences_are_those_that_deny_toml_allows() {
    let allowed = denied("allow");
    for package in packages(&metadata()) {
        let licence = text(package, "license");
        assert!(is_allowed(licence, &allowed), "{}: licence {licence:?}", text(package, "name"));
    }
    assert!(!is_allowed("MIT AND GPL-3.0", &allowed));
    assert!(!is_allowed("AGPL-3.0-or-later", &allowed));
    assert!(is_allowed("GPL-2.0 OR MIT", &allowed));
}

#[test]
fn every_package_comes_from_the_one_registry_or_from_here() {
    for package in packages(&metadata()) {
        let source = text(package, "source");
        let name = text(package, "name");
        let is_known = source == "registry+https://github.com/rust-lang/crates.io-index";
        assert!(is_known || source.is_empty(), "{name} comes from {source}");
    }
}

#[test]
fn banned_packages_are_nowhere_in_the_tree() {
    let banned = denied("deny");
    assert!(banned.contains("openssl-sys"), "{banned:?}");
    for package in packages(&metadata()) {
        let name = text(package, "name");
        assert!(!banned.contains(name), "{name} is banned by deny.toml");
    }
}

/// Lines of docs/dependencies.md, by the name in backquotes that each starts with.
fn documented(page: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once('`')?;
        Some((name.to_owned(), rest.to_owned()))
    };
    page.lines().filter_map(entry).collect()
}

/// What is used but not explained.
fn unexplained(used: &BTreeSet<String>, page: &str) -> Vec<String> {
    let known = documented(page);
    let is_explained = |name: &String| known.get(name).is_some_and(|rest| rest.len() > 40);
    used.iter().filter(|name| !is_explained(name)).cloned().collect()
}

/// Direct dependencies of our crates, from their manifests.
fn crates(metadata: &Value) -> BTreeSet<String> {
    let ours = packages(metadata).filter(|package| package["source"].is_null());
    let dependencies = ours.flat_map(|package| package["dependencies"].as_array().expect("a list"));
    let foreign = dependencies.filter(|dependency| dependency["path"].is_null());
    foreign.map(|dependency| text(dependency, "name").to_owned()).collect()
}

/// Direct requirements of our Go modules, and the modules of the tools that they pin.
fn go_modules() -> BTreeSet<String> {
    let mut folders = vec![root().join("crates/pve-fake/peers/go")];
    let tools = fs::read_dir(root().join("tools")).expect("tools");
    folders.extend(tools.map(|entry| entry.expect("readable").path()));
    let files = folders.iter().filter_map(|folder| fs::read_to_string(folder.join("go.mod")).ok());
    files.flat_map(|text| requirements(&text)).collect()
}

/// `require` lines without `// indirect`, and those whose module has a package named by `tool`.
fn requirements(go_mod: &str) -> Vec<String> {
    let required = entries(go_mod, "require");
    let tools = entries(go_mod, "tool");
    let is_tool = |module: &str| tools.iter().any(|tool| tool.starts_with(module));
    let names = required.iter().filter_map(|entry| {
        let module = entry.split_whitespace().next()?;
        (!entry.contains("// indirect") || is_tool(module)).then(|| module.to_owned())
    });
    names.collect()
}

/// What follows `word` in a go.mod: on its line, or in its block.
fn entries<'a>(go_mod: &'a str, word: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in go_mod.lines().map(str::trim) {
        match line.strip_prefix(word).map(str::trim) {
            Some("(") => inside = true,
            Some(entry) if !inside => found.push(entry),
            _ if line == ")" => inside = false,
            _ if inside => found.push(line),
            _ => {}
        }
    }
    found
}

/// Packages in lists of one name a line, `#` for comments, versions cut off.
fn list(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let name = |line: &str| {
        let line = line.split('#').next().unwrap_or_default();
        line.split(['=', '<', '>', '~', '[', ' ']).next().unwrap_or_default().trim().to_owned()
    };
    text.lines().map(name).filter(|name| !name.is_empty() && !name.starts_with('-')).collect()
}

/// Debian packages that `cargo xtask packages` installs: `("name", "what of it is used")`.
fn installed_packages() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("xtask/src/packages.rs")).expect("the list");
    let name = |line: &str| {
        let alone = line.split_once("&[(\"").map(|(_, rest)| rest);
        let rest = line.strip_prefix("    (\"").or(alone)?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Debian packages that tests name when their program is missing: `package: "…"`.
fn wanted_packages() -> BTreeSet<String> {
    let tests = sources("tests");
    let tools = tests.iter().filter(|source| source.path.ends_with("/tools.rs"));
    let named = tools.flat_map(|source| {
        let after = source.text.split("package: \"").skip(1);
        after.filter_map(|rest| rest.split('"').next().map(str::to_owned))
    });
    named.collect()
}

/// Everything that is used: crates, Go modules, Debian's and Python's packages.
fn used() -> BTreeSet<String> {
    let mut used = crates(&metadata());
    used.extend(go_modules());
    used.extend(installed_packages());
    used.extend(list(&root().join("crates/pve-fake/peers/requirements.txt")));
    for one in ["tokio", "k8s.io/kubernetes", "xorriso", "fakepve"] {
        assert!(used.contains(one), "{one} is not found any more where it was: {used:?}");
    }
    used
}

#[test]
fn every_direct_dependency_has_its_line() {
    let page = fs::read_to_string(root().join("docs/dependencies.md")).expect("the page");
    let missing = unexplained(&used(), &page);
    assert!(missing.is_empty(), "no line in docs/dependencies.md for {missing:?}");
}

#[test]
fn no_line_outlives_its_dependency() {
    let page = fs::read_to_string(root().join("docs/dependencies.md")).expect("the page");
    let used = used();
    let stale: Vec<_> = documented(&page).into_keys().filter(|name| !used.contains(name)).collect();
    assert!(stale.is_empty(), "docs/dependencies.md explains what is not used: {stale:?}");
}

#[test]
fn packages_that_tests_want_are_installed_with_them() {
    let installed = installed_packages();
    let missing: Vec<_> =
        wanted_packages().into_iter().filter(|name| !installed.contains(name)).collect();
    assert!(missing.is_empty(), "xtask/src/packages.rs does not install {missing:?}");
}

#[test]
fn a_dependency_without_its_line_is_found() {
    let used = BTreeSet::from(["tokio".to_owned(), "left-pad".to_owned(), "bare".to_owned()]);
    let page =
        "| `tokio` | the runtime; kept by the tokio project; async-std weighed |\n| `bare` | |";
    assert_eq!(unexplained(&used, page), ["bare", "left-pad"]);
}

#[test]
fn requirements_are_read_in_both_forms() {
    let go_mod = "module x\nrequire a.b/c v1\nrequire (\n\td.e/f v2\n\tg.h/i v3 // indirect\n\
                  \tj.k/l v4 // indirect\n)\ntool j.k/l/cmd/tool\n";
    assert_eq!(requirements(go_mod), ["a.b/c", "d.e/f", "j.k/l"]);
}

//! The documentation as a book: every page is in its table, every link leads somewhere, and every
//! reason of a condition has its entry.
//!
//! Who runs the pages' commands is held by `tests/install`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::source::root;

/// A page: its path from the root, and its text without what is fenced.
struct Page {
    path: PathBuf,
    prose: String,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(root().join(&path)).expect("is UTF-8");
        let mut fenced = false;
        let prose = text.lines().filter(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fence && !fenced
        });
        let prose = prose.collect::<Vec<_>>().join("\n");
        Self { path, prose }
    }

    /// Targets of its links. Code has none.
    fn links(&self) -> Vec<String> {
        let text: String = self.prose.split('`').step_by(2).collect();
        let ends = text.split("](").skip(1);
        ends.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    }

    /// The anchors of its headings, as GitHub and mdBook make them.
    fn anchors(&self) -> BTreeSet<String> {
        let headings = self.prose.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
    }
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The pages of the book.
fn book() -> Vec<Page> {
    let entries = fs::read_dir(root().join("docs")).expect("docs");
    let names = entries.map(|entry| PathBuf::from(entry.expect("readable").file_name()));
    let pages = names.filter(|name| name.extension().is_some_and(|extension| extension == "md"));
    pages.map(|name| Page::read(Path::new("docs").join(name))).collect()
}

/// What is wrong with a link from a page; in the book, no link may leave the folder.
fn broken(page: &Page, link: &str) -> Option<String> {
    if link.starts_with("https://") {
        return None;
    }
    let (file, wanted) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.path.parent().unwrap_or(Path::new(""));
    let target = if file.is_empty() { page.path.clone() } else { folder.join(file) };
    let here = page.path.display();
    if folder == Path::new("docs") && (file.contains('/') || file == "SUMMARY.md") {
        return Some(format!("{here}: {link} leaves the book"));
    }
    if !root().join(&target).exists() {
        return Some(format!("{here}: {link} leads nowhere"));
    }
    if !wanted.is_empty() && !Page::read(target).anchors().contains(wanted) {
        return Some(format!("{here}: {link} names no heading"));
    }
    None
}

#[test]
fn the_table_has_every_page_once_and_no_other() {
    let pages = book();
    let (table, others): (Vec<_>, Vec<_>) =
        pages.iter().partition(|page| page.path.ends_with("SUMMARY.md"));
    let listed = table[0].links();
    let unique: BTreeSet<PathBuf> =
        listed.iter().map(|link| Path::new("docs").join(link)).collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    assert_eq!(unique, others.iter().map(|page| page.path.clone()).collect());
}

#[test]
fn links_lead_to_pages_and_headings() {
    let mut pages = book();
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        pages.push(Page::read(name.into()));
    }
    let broken: Vec<_> = pages
        .iter()
        .filter(|page| !page.path.ends_with("SUMMARY.md"))
        .flat_map(|page| page.links().into_iter().filter_map(|link| broken(page, &link)))
        .collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn a_broken_link_is_noticed() {
    let page = |prose: &str| Page { path: "docs/made-up.md".into(), prose: prose.into() };
    let first = |prose: &str| broken(&page(prose), &page(prose).links()[0]);
    assert!(first("[a](install.md#versions)").is_none());
    for prose in ["[a](nowhere.md)", "[a](install.md#nowhere)", "[a](../README.md)"] {
        assert!(first(prose).is_some(), "{prose}");
    }
    assert!(page("`[a](nowhere.md)`").links().is_empty());
    assert_eq!(
        anchor(" `ClusterReady` of a ProxmoxCluster, now"),
        "clusterready-of-a-proxmoxcluster-now"
    );
}

/// The words of `src/api/reasons.rs`: those of conditions and of `failureReason`.
fn reasons() -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join("src/api/reasons.rs")).expect("reasons.rs");
    let constants = text.lines().filter_map(|line| line.strip_prefix("pub const "));
    let pairs = constants.filter_map(|line| line.split_once(": &str = \""));
    pairs.map(|(name, rest)| (name.into(), rest.trim_end_matches("\";").into())).collect()
}

#[test]
fn every_reason_has_an_entry_in_troubleshooting() {
    let page = Page::read("docs/troubleshooting.md".into());
    let reasons = reasons();
    assert!(reasons.len() > 25, "{reasons:?}");
    for (name, word) in reasons {
        // Values of status.vmStatus are no reasons.
        if !name.starts_with("VM_STATUS_") {
            let is_there = page.prose.contains(&format!("`{word}`"));
            assert!(is_there, "{word} ({name}) has no entry");
        }
    }
}

/// The privileges that the commands of docs/permissions.md give, by the heading they stand under.
fn documented_privileges() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("docs/permissions.md")).expect("the page");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for section in text.split("\n## ").skip(1) {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        for role in body.replace("\\\n", "").split("--privs \"").skip(1) {
            let names = role.split('"').next().unwrap_or_default().split_whitespace();
            found.entry(heading.into()).or_default().extend(names.map(str::to_owned));
        }
    }
    found
}

fn is_privilege(text: &str) -> bool {
    let known = ["VM.", "Datastore.", "Sys.", "SDN."];
    known.iter().any(|start| text.starts_with(start)) && !text.contains(' ')
}

#[test]
fn the_commands_give_each_release_what_it_knows() {
    let all = documented_privileges();
    let [seven, eight, nine] =
        ["7", "8", "9"].map(|release| &all[&format!("Proxmox VE {release}")]);
    let only = |one: &BTreeSet<String>, other: &BTreeSet<String>| -> Vec<String> {
        one.difference(other).cloned().collect()
    };
    assert_eq!(only(eight, seven), ["SDN.Use"]);
    assert!(only(seven, eight).is_empty());
    assert_eq!(only(nine, eight), ["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"]);
    assert_eq!(only(eight, nine), ["VM.Monitor"]);
    assert!(nine.iter().all(|name| is_privilege(name)), "{nine:?}");
}

/// The table by which privileges are checked is in code; where it is, it and the page are one.
#[test]
fn the_commands_give_what_the_table_of_needs_names() {
    let table = fs::read_to_string(root().join("src/preflight/needs.rs")).unwrap_or_default();
    let named: BTreeSet<String> =
        table.split('"').filter(|text| is_privilege(text)).map(str::to_owned).collect();
    let given: BTreeSet<String> = documented_privileges().into_values().flatten().collect();
    if !table.is_empty() {
        assert_eq!(named, given);
    }
}

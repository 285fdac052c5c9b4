//! The commands of the documentation, taken from its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use pve_fake::seed::AclSeed;
use testbed::root;

/// A fenced block: what follows the language, and the text.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) mark: String,
    pub(crate) text: String,
}

/// All fenced blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join(page)).expect(page);
    let mut blocks: Vec<Block> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        let bare = line.trim_start();
        if let Some(head) = bare.strip_prefix("```") {
            if !inside {
                let (language, mark) = head.split_once(' ').unwrap_or((head, ""));
                let (language, mark) = (language.to_owned(), mark.to_owned());
                blocks.push(Block { language, mark, text: String::new() });
            }
            inside = !inside;
        } else if let Some(block) = blocks.last_mut().filter(|_| inside) {
            // Blocks inside lists are indented as a whole.
            block.text.push_str(
                line.strip_prefix("  ").filter(|_| block.mark == "run=migrate").unwrap_or(line),
            );
            block.text.push('\n');
        }
    }
    blocks
}

/// The commands that are marked so in docs/install.md.
pub(crate) fn commands(mark: &str) -> String {
    let wanted = format!("run={mark}");
    let found: Vec<String> = blocks("docs/install.md")
        .into_iter()
        .filter(|block| block.mark == wanted)
        .map(|block| block.text)
        .collect();
    assert!(!found.is_empty(), "docs/install.md has no block {wanted}");
    found.concat()
}

/// The rights that docs/permissions.md gives, by its own commands, on release 9.
pub(crate) fn permissions() -> Vec<AclSeed> {
    let blocks = blocks("docs/permissions.md");
    let text: String = blocks.into_iter().map(|block| block.text).collect();
    let text = text.replace("\\\n", "");
    let mut roles: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut acl: Vec<AclSeed> = Vec::new();
    for line in text.lines() {
        if let Some((name, privileges)) =
            line.strip_prefix("pveum role add ").and_then(|rest| rest.split_once(" --privs "))
        {
            // A later section's role of the same name takes the place of an earlier one's.
            let words = privileges.trim_matches('"').split_whitespace().map(str::to_owned);
            roles.insert(name, words.collect());
        } else if let Some(rest) = line.strip_prefix("pveum acl modify ") {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let [path, "--users", who, "--roles", role] = words[..] else { panic!("{line}") };
            let privileges = roles[role].clone();
            acl.push(AclSeed { path: path.to_owned(), who: who.to_owned(), privileges });
        }
    }
    // The simulator's template is on a storage of another name; the page says to repeat the line.
    let disks = acl.iter().find(|entry| entry.path == "/storage/local-lvm").expect("disks");
    let shared = AclSeed { path: "/storage/shared".to_owned(), ..disks.clone() };
    acl.push(shared);
    assert!(acl.len() >= 5, "docs/permissions.md gives too little: {acl:?}");
    acl
}

/// Marks that a test of this binary runs.
const RUN: &[&str] = &[
    "all",
    "clusterctl",
    "move",
    "upgrade",
    "remove",
    "migrate",
    "operator-secret",
    "operator-manifests",
    "operator-chart",
    "restart",
    "kubectl",
    "kustomize",
    "embedded-ipam",
    "cluster",
    "describe",
    "delete",
    "sums",
];

/// What a command may need that tests do not have.
const NEEDS: &[&str] = &["registry", "key", "proxmox"];

#[test]
fn every_command_of_the_pages_is_run_here_or_says_what_it_needs() {
    let mut run = BTreeSet::new();
    for page in ["docs/install.md", "docs/permissions.md"] {
        for block in blocks(page).into_iter().filter(|block| block.language == "sh") {
            let known = match block.mark.split_once('=') {
                Some(("run", what)) => {
                    run.insert(what.to_owned());
                    RUN.contains(&what)
                }
                Some(("needs", what)) => NEEDS.contains(&what),
                _ => false,
            };
            assert!(known, "{page}: {:?} says neither who runs it nor what it needs", block.text);
        }
    }
    assert_eq!(run, RUN.iter().map(|&mark| mark.to_owned()).collect(), "{NEEDS:?}");
}

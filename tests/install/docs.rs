//! The commands of the documentation, taken from its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use pve_fake::seed::AclSeed;
use testbed::root;

/// A fenced block: what follows the language, the text, and the heading that it stands under.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) mark: String,
    pub(crate) text: String,
    pub(crate) heading: String,
}

/// All fenced blocks of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join(page)).expect(page);
    let mut blocks: Vec<Block> = Vec::new();
    // While inside a block, how far it is indented, as those in lists are.
    let mut inside = None;
    let mut heading = String::new();
    for line in text.lines() {
        let bare = line.trim_start();
        if let Some(head) = bare.strip_prefix("```") {
            if inside.take().is_none() {
                let (language, mark) = head.split_once(' ').unwrap_or((head, ""));
                let (language, mark) = (language.to_owned(), mark.to_owned());
                let heading = heading.clone();
                blocks.push(Block { language, mark, text: String::new(), heading });
                inside = Some(line.len() - bare.len());
            }
        } else if let Some((indent, block)) = inside.zip(blocks.last_mut()) {
            block.text.push_str(line.get(indent..).unwrap_or_default());
            block.text.push('\n');
        } else if line.starts_with('#') {
            line.trim_start_matches('#').trim().clone_into(&mut heading);
        }
    }
    blocks
}

/// The pages with commands: the book, and the README.
fn pages() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).expect("docs");
    let names = entries.map(|entry| entry.expect("readable").path());
    let names = names.filter(|name| name.extension().is_some_and(|extension| extension == "md"));
    let names = names.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned()));
    let mut pages: Vec<String> = names.map(|name| format!("docs/{name}")).collect();
    pages.push("README.md".to_owned());
    pages.sort();
    pages
}

/// The commands that are marked so, on whatever page. Several marks are separated by spaces.
pub(crate) fn commands(marks: &str) -> String {
    let pages = pages();
    let one = |mark: &str| {
        let wanted = format!("run={mark}");
        let found: Vec<String> = pages
            .iter()
            .flat_map(|page| blocks(page))
            .filter(|block| block.mark == wanted)
            .map(|block| block.text)
            .collect();
        assert_eq!(found.len(), 1, "blocks {wanted}");
        found.concat()
    };
    marks.split(' ').map(one).collect()
}

/// The rights that docs/permissions.md gives, by its own commands, on release 9.
pub(crate) fn permissions() -> Vec<AclSeed> {
    let blocks = blocks("docs/permissions.md").into_iter();
    let blocks = blocks.filter(|block| block.heading == "Proxmox VE 9");
    let text: String = blocks.map(|block| block.text).collect();
    let text = text.replace("\\\n", "");
    let mut roles: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut acl: Vec<AclSeed> = Vec::new();
    for line in text.lines() {
        if let Some((name, privileges)) =
            line.strip_prefix("pveum role add ").and_then(|rest| rest.split_once(" --privs "))
        {
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
    "back",
    "remove",
    "migrate",
    "operator-secret",
    "operator-manifests",
    "operator-chart",
    "restart",
    "kubectl",
    "kustomize",
    "readme-credentials",
    "readme-clusterctl",
    "readme-operator",
    "readme-kubectl",
    "readme-look",
    "embedded-ipam",
    "variables",
    "cluster",
    "flavour",
    "credentials",
    "describe",
    "conditions",
    "delete",
    "sums",
];

/// What a command may need that tests do not have; docs/README.md tells readers.
const NEEDS: &[&str] = &["registry", "key", "proxmox", "capmox", "cni"];

#[test]
fn every_command_of_the_pages_is_run_here_or_says_what_it_needs() {
    let mut run = BTreeSet::new();
    for page in pages() {
        for block in blocks(&page).into_iter().filter(|block| block.language == "sh") {
            let known = match block.mark.split_once('=') {
                Some(("run", what)) => {
                    assert!(run.insert(what.to_owned()), "{page}: run={what} is there twice");
                    RUN.contains(&what)
                }
                // The same steps by a test of another kind.
                Some(("as", what)) => root().join(what).exists(),
                Some(("needs", what)) => NEEDS.contains(&what),
                _ => false,
            };
            assert!(known, "{page}: {:?} says neither who runs it nor what it needs", block.text);
        }
    }
    assert_eq!(run, RUN.iter().map(|&mark| mark.to_owned()).collect(), "{NEEDS:?}");
}

//! Every test that the tables of compatibility and faults cite is in the tree, as a test.
//!
//! Two forms count: a function after `#[test]` or `#[tokio::test]`, and a name that stands in the
//! call of one of the macros that make tests, `cases!` and `on_both!`.

use std::collections::BTreeSet;
use std::fs;

use crate::source::{root, sources};

/// The names of the tests that a file makes.
fn made(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if marked && let Some((_, rest)) = line.split_once("fn ") {
            found.extend(rest.split(['(', '<']).next().map(str::to_owned));
            marked = false;
        }
    }
    for (call, end) in [("cases! {", "\n}"), ("on_both!(", ");")] {
        for body in text.split(call).skip(1) {
            let body = body.split(end).next().unwrap_or_default();
            found.extend(body.split([',', ' ', '\n']).filter(|w| is_name(w)).map(str::to_owned));
        }
    }
    found
}

/// What a page cites: code that is one word in lower case with at least three `_`. Fields and
/// functions have fewer.
fn cited(page: &str) -> BTreeSet<String> {
    let code = page.split('`').skip(1).step_by(2);
    code.filter(|word| is_name(word)).map(str::to_owned).collect()
}

fn is_name(word: &str) -> bool {
    word.matches('_').count() > 2
        && word.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
}

#[test]
fn every_test_that_is_cited_is_in_the_tree() {
    let files = ["src", "tests", "crates", "xtask"].into_iter().flat_map(sources);
    let made: BTreeSet<String> = files.flat_map(|file| made(&file.text)).collect();
    for page in ["docs/compatibility.md", "docs/faults.md", "docs/takeover.md"] {
        let text = fs::read_to_string(root().join(page)).expect("is UTF-8");
        let cited = cited(&text);
        assert!(!cited.is_empty(), "{page} cites no test");
        let missing: Vec<_> = cited.difference(&made).collect();
        assert!(missing.is_empty(), "{page} cites what is no test: {missing:?}");
    }
}

#[test]
fn a_name_that_is_no_test_is_noticed() {
    let text = concat!(
        "#[test]\nfn one_that_is_a_test() {}\n",
        "#[tokio::test]\n// Why.\nasync fn one_that_waits_too() {}\n",
        "on_both!(one_of_a_macro, two_of_a_macro);\n",
        "cases! {\n    \"of\" {\n        three_of_a_macro\n    }\n}\n",
        "fn one_that_only_helps_others() {}\n",
    );
    let page = "`one_that_is_a_test`, `one_that_waits_too`, `three_of_a_macro`, `two_of_a_macro`, \
                `one_that_only_helps_others`, `one_that_is_not_there`, `spec.field_of_it`";
    let missing: Vec<_> = cited(page).difference(&made(text)).cloned().collect();
    assert_eq!(missing, ["one_that_is_not_there", "one_that_only_helps_others"]);
}

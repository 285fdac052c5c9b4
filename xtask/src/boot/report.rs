//! docs/test-boot.md: how each guest went when it was booted last.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::checks::Check;
use super::root::{Release, Root};

/// File in a guest's log folder that holds its last outcome.
const OUTCOME: &str = "outcome.json";

/// How one guest went.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) suite: String,
    pub(crate) name: String,
    /// Day, in UTC.
    pub(crate) date: String,
    /// Who computed.
    pub(crate) by: String,
    pub(crate) took: String,
    pub(crate) checks: Vec<Check>,
}

impl Outcome {
    /// Checks that held, and those that did not.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let failed = self.checks.iter().filter(|check| check.instead.is_some()).count();
        (self.checks.len() - failed, failed)
    }

    /// Keeps it in the guest's log folder.
    pub(crate) fn keep(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(OUTCOME), serde_json::to_vec_pretty(self)?)
            .context("cannot keep the outcome")
    }

    /// The last one of a guest, if it was ever booted here.
    pub(crate) fn last(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(folder.join(OUTCOME)).ok()?).ok()
    }
}

/// The document. Writing to a String cannot fail.
pub(crate) fn document(
    roots: &[(Release, Root)],
    outcomes: &[Outcome],
    missing: &[String],
) -> String {
    let mut text = include_str!("preface.md").to_owned();
    let (passed, failed) = sum(outcomes);
    let _ = writeln!(text, "\n## Last result\n");
    let guests = outcomes.len();
    let _ =
        writeln!(text, "`make test-boot`: {guests} guests, {passed} passed, {failed} failed.\n");
    let names = roots.first().map(|(_, root)| root.versions.as_slice()).unwrap_or_default();
    let header = names.iter().map(|(name, _)| format!(" {name} |"));
    let _ = writeln!(text, "| suite |{}", header.collect::<String>());
    let _ = writeln!(text, "|---|{}", "---|".repeat(names.len()));
    for (release, root) in roots {
        let cells = root.versions.iter().map(|(_, version)| format!(" {version} |"));
        let _ = writeln!(text, "| {} |{}", release.suite(), cells.collect::<String>());
    }
    let _ = writeln!(
        text,
        "\n| suite | guest | passed | failed | took | day | by |\n|---|---|---|---|---|---|---|"
    );
    for outcome in outcomes {
        let (passed, failed) = outcome.counts();
        let Outcome { suite, name, date, by, took, .. } = outcome;
        let _ =
            writeln!(text, "| {suite} | {name} | {passed} | {failed} | {took} | {date} | {by} |");
    }
    if !missing.is_empty() {
        let _ = writeln!(text, "\nNot booted by this version: {}.", missing.join("; "));
    }
    for outcome in outcomes {
        let _ = writeln!(text, "\n### {}: {}\n", outcome.suite, outcome.name);
        for check in &outcome.checks {
            let _ = match &check.instead {
                None => writeln!(text, "* {}", check.what),
                Some(found) => writeln!(text, "* **failed**: {}: found {found}", check.what),
            };
        }
    }
    text
}

/// Checks of all guests: passed, failed.
pub(crate) fn sum(outcomes: &[Outcome]) -> (usize, usize) {
    outcomes.iter().map(Outcome::counts).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
}

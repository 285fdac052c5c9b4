//! The report as people and as programs read it. Pure.

use std::fmt::Write as _;

use serde_json::json;

use super::report::{Finding, Report, Verdict};

/// A table, with the remedy below the line that needs one.
pub fn table(report: &Report) -> String {
    let width = |of: fn(&Finding) -> &str, head: &str| {
        let found = report.findings.iter().map(|finding| of(finding).chars().count());
        found.chain([head.len()]).max().unwrap_or(0)
    };
    let checks = width(|finding| finding.check, "CHECK");
    // A long subject moves its own line only.
    let subjects = width(|finding| &finding.subject, "SUBJECT").min(32);
    let mut text = String::new();
    let _ = writeln!(text, "  {:checks$}  {:subjects$}  FOUND", "CHECK", "SUBJECT");
    for finding in &report.findings {
        let Finding { check, subject, result, found, remedy } = finding;
        let _ = writeln!(text, "{} {check:checks$}  {subject:subjects$}  {found}", result.sign());
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "  {:checks$}  → {remedy}", "");
        }
    }
    let _ = writeln!(
        text,
        "\n{} good, {} failed, {} not known",
        report.count(Verdict::Good),
        report.count(Verdict::Failed),
        report.count(Verdict::Unknown)
    );
    text
}

/// One JSON object: `result` and `checks`.
pub fn json(report: &Report) -> String {
    let mut text = format!("{:#}", json!({"result": report.result(), "checks": report.findings}));
    text.push('\n');
    text
}

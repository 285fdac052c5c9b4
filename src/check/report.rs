//! What was found, and what it comes to. Pure.

use serde::Serialize;

/// How one check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is as it has to be.
    Good,
    /// It is not.
    Failed,
    /// Nobody answered the question.
    Unknown,
}

impl Verdict {
    /// ✓, ✗ or ?.
    pub const fn sign(self) -> char {
        match self {
            Self::Good => '✓',
            Self::Failed => '✗',
            Self::Unknown => '?',
        }
    }
}

/// One check: what was looked at, and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of check: `api`, `template` …
    pub check: &'static str,
    /// What was looked at, such as a storage's name.
    pub subject: String,
    /// How it ended.
    pub result: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn good(check: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check, subject, Verdict::Good, found)
    }

    /// Something has to be done.
    pub fn failed(
        check: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::new(check, subject, Verdict::Failed, found)
    }

    /// Nobody knows.
    pub fn unknown(
        check: &'static str,
        subject: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::new(check, subject, Verdict::Unknown, found)
    }

    fn new(
        check: &'static str,
        subject: impl Into<String>,
        result: Verdict,
        found: impl Into<String>,
    ) -> Self {
        Self { check, subject: subject.into(), result, found: found.into(), remedy: None }
    }

    /// The same with a remedy.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// All findings, in the order in which they are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// What it comes to: failed if anything failed, else unknown if anything is.
    pub fn result(&self) -> Verdict {
        let has = |verdict| self.findings.iter().any(|finding| finding.result == verdict);
        if has(Verdict::Failed) {
            Verdict::Failed
        } else if has(Verdict::Unknown) || self.findings.is_empty() {
            Verdict::Unknown
        } else {
            Verdict::Good
        }
    }

    /// Exit code of the command: 0 good, 1 something failed, 2 something could not be found out.
    pub fn exit_code(&self) -> u8 {
        match self.result() {
            Verdict::Good => 0,
            Verdict::Failed => 1,
            Verdict::Unknown => 2,
        }
    }

    /// Findings with a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.result == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Failed, Good, Unknown};
    use super::*;

    #[test]
    fn what_failed_goes_before_what_is_not_known() {
        let report = |verdicts: &[Verdict]| Report {
            findings: verdicts
                .iter()
                .map(|&verdict| Finding::new("api", "", verdict, ""))
                .collect(),
        };
        for (verdicts, code) in [
            (&[Good, Good][..], 0),
            (&[Good, Failed], 1),
            (&[Unknown, Failed, Good], 1),
            (&[Unknown, Good], 2),
            (&[], 2),
        ] {
            assert_eq!(report(verdicts).exit_code(), code, "{verdicts:?}");
        }
    }
}

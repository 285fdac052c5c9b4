//! The same package made of somebody else's release: capmox's own, pinned to its bytes.
//!
//! Whoever can move a tag can change what lies behind an address, so sums are recorded beside the
//! version, and a file is looked at only after its sum was compared.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::components::{Recipe, covers, is_version};
use crate::files::{Files, sha256};
use crate::package;

/// One file of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// Where it is fetched from.
    pub url: String,
    /// Of its bytes, in lower-case hexadecimal digits.
    pub sha256: String,
}

/// A release, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// With the leading `v`.
    pub version: String,
    /// What is installed.
    pub components: Pinned,
    /// Release series and their contracts.
    pub metadata: Pinned,
}

impl Release {
    /// Reads the record.
    ///
    /// # Errors
    /// If it is not one, or a sum is missing: then there is nothing that a file could be held to.
    pub fn read(text: &str) -> Result<Self> {
        let record: Value = serde_yaml::from_str(text).context("the record is no YAML")?;
        let version = record["version"].as_str().unwrap_or_default().to_owned();
        ensure!(is_version(&version), "version {version:?} is not one as v1.2.3");
        Ok(Self {
            components: pinned(&record, "components")?,
            metadata: pinned(&record, "metadata")?,
            version,
        })
    }

    /// Makes the package: `operator/`, `chart/`, what it requires, and sums.
    ///
    /// `fetch` gives what is behind an address. `root` is the repository with the chart's sources.
    ///
    /// # Errors
    /// If a file cannot be had, is another than the one recorded, or is not of that version.
    pub fn package(&self, root: &Path, fetch: impl Fn(&str) -> Result<Vec<u8>>) -> Result<Files> {
        let text = |what: &Pinned| {
            let content = what.checked(fetch(&what.url)?)?;
            String::from_utf8(content).with_context(|| format!("{} is not text", what.url))
        };
        let (components, metadata) = (text(&self.components)?, text(&self.metadata)?);
        covers(&metadata, &self.version)?;
        let recipe = Recipe::new(root, Path::new("")).as_version(&self.version);
        let mut files = package::build(&recipe, &components, &metadata)?;
        files.add_sums();
        Ok(files)
    }
}

impl Pinned {
    /// The content, if it is the recorded one.
    fn checked(&self, content: Vec<u8>) -> Result<Vec<u8>> {
        let found = sha256(&content);
        ensure!(
            found == self.sha256,
            "{} has the SHA-256 sum {found}, and {} is recorded: the tag was moved, or the file was \
             changed on its way. Nothing is packaged",
            self.url,
            self.sha256
        );
        Ok(content)
    }
}

fn pinned(record: &Value, name: &str) -> Result<Pinned> {
    let text = |key: &str| record[name][key].as_str().unwrap_or_default().trim().to_owned();
    let (url, sha256) = (text("url"), text("sha256"));
    ensure!(!url.is_empty(), "{name}.url is missing");
    let is_sum = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit());
    ensure!(
        is_sum,
        "{name}.sha256 of {url} is {sha256:?}: record the SHA-256 sum of a copy that you have \
         checked, in 64 hexadecimal digits. Without it a moved tag would not be noticed"
    );
    Ok(Pinned { url, sha256: sha256.to_ascii_lowercase() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_a_sum_is_refused_with_the_remedy() {
        let sum = sha256(b"");
        let record = |sum: &str| {
            format!(
                "{{version: v0.7.7, components: {{url: a, sha256: {sum:?}}}, metadata: {{url: b, sha256: {sum:?}}}}}"
            )
        };
        assert!(Release::read(&record(&sum)).is_ok());
        for wrong in ["", "abc", &sum.replace(['0', 'e'], "x")] {
            let error = Release::read(&record(wrong)).expect_err(wrong).to_string();
            assert!(
                error.contains("components.sha256 of a") && error.contains("checked"),
                "{error}"
            );
        }
        assert!(Release::read(&record(&sum).replace("v0.7.7", "latest")).is_err());
    }

    #[test]
    fn another_content_is_refused() {
        let pin = Pinned { url: "a".to_owned(), sha256: sha256(b"content") };
        assert!(pin.checked(b"content".to_vec()).is_ok());
        let error = pin.checked(b"other".to_vec()).expect_err("moved").to_string();
        assert!(error.contains("tag was moved"), "{error}");
    }
}

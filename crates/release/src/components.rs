//! The folder `components/`: everything that installs the provider.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::files::Files;
use crate::kustomize::Config;
use crate::package;

/// What clusterctl and the operator install; variables are theirs to fill in.
pub const COMPONENTS: &str = "infrastructure-components.yaml";

/// The same for `kubectl apply`: no variables, and no Secret that applying again would empty.
pub const INSTALL: &str = "install.yaml";

/// Definitions of the pools and the role binding, for `--embedded-ipam`.
pub const EMBEDDED_IPAM: &str = "embedded-ipam.yaml";

/// Release series and their contracts.
pub const METADATA: &str = "metadata.yaml";

/// What components are made of, and as what.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The repository.
    pub root: PathBuf,
    /// The program kustomize.
    pub kustomize: PathBuf,
    /// With the leading `v`.
    pub version: String,
    /// `name:tag` or `name@digest`, as the cluster's nodes pull it.
    pub image: String,
}

impl Recipe {
    /// The version that the workspace has now, with an image that is named after it and still has
    /// to be pushed somewhere.
    pub fn new(root: &Path, kustomize: &Path) -> Self {
        let version = format!("v{}", env!("CARGO_PKG_VERSION"));
        Self {
            root: root.to_path_buf(),
            kustomize: kustomize.to_path_buf(),
            image: image(&version),
            version,
        }
    }

    /// The same as another version, whose image is named after it.
    #[must_use]
    pub fn as_version(&self, version: &str) -> Self {
        let image = image(version);
        Self { version: version.to_owned(), image, ..self.clone() }
    }

    /// Makes all files of the folder.
    ///
    /// # Errors
    /// If something cannot be read, kustomize fails, or the package outgrows its limit.
    pub fn build(&self) -> Result<Files> {
        ensure!(is_version(&self.version), "{} is not a version as v1.2.3", self.version);
        let config = Config::new(&self.kustomize, &self.root.join("config"), &self.image)?;
        let components = config.build("default")?;
        let metadata = fs::read_to_string(self.root.join(METADATA)).context("metadata.yaml")?;
        covers(&metadata, &self.version)?;

        let mut files = templates(&self.root.join("templates"))?;
        files.add_all("", package::build(self, &components, &metadata)?);
        files.add(COMPONENTS, components);
        files.add(METADATA, metadata);
        files.add(INSTALL, config.build("plain")?);
        files.add(EMBEDDED_IPAM, config.build("ipam")?);
        files.add_sums();
        Ok(files)
    }
}

/// The image as it is named where it was made. Loaded onto the nodes, it is found by this name;
/// everywhere else another name is needed.
fn image(version: &str) -> String {
    format!("localhost/capmox:{version}")
}

/// Cluster templates and ClusterClasses, by the names that clusterctl asks for: a class by the name
/// that Clusters have for it.
fn templates(folder: &Path) -> Result<Files> {
    let mut found = Files::default();
    for (path, content) in Files::read(folder)?.iter() {
        let name = path.to_string_lossy();
        if name.starts_with("cluster-template") && name.ends_with(".yaml") {
            found.add(path, content);
        } else if name.starts_with("cluster-class") && name.ends_with(".yaml") {
            let text = std::str::from_utf8(content).with_context(|| format!("{name} is text"))?;
            let class = class(text).with_context(|| format!("no ClusterClass in {name}"))?;
            found.add(format!("clusterclass-{class}.yaml"), content);
        }
    }
    Ok(found)
}

/// The name of the ClusterClass in a template, which is no YAML before its variables are filled in.
fn class(text: &str) -> Option<&str> {
    let (_, after) = text.split_once("kind: ClusterClass\n")?;
    after.lines().find_map(|line| line.strip_prefix("  name: "))
}

/// Whether the metadata has the release series of a version.
pub(crate) fn covers(metadata: &str, version: &str) -> Result<()> {
    let series = series(metadata)?;
    let fits = series.iter().any(|series| is_in(version, series));
    ensure!(fits, "metadata.yaml has no release series for {version}: {series:?}");
    Ok(())
}

/// `v1.2.3`, perhaps with a suffix after a dash.
pub(crate) fn is_version(version: &str) -> bool {
    let core = version.strip_prefix('v').unwrap_or_default();
    let core = core.split_once('-').map_or(core, |(core, _)| core);
    let parts: Vec<&str> = core.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok())
}

/// The series of a metadata.yaml, as `v1.2.`.
fn series(metadata: &str) -> Result<Vec<String>> {
    let metadata: serde_json::Value = serde_yaml::from_str(metadata).context("metadata.yaml")?;
    let series = metadata["releaseSeries"].as_array().context("metadata.yaml has no series")?;
    Ok(series.iter().map(|one| format!("v{}.{}.", one["major"], one["minor"])).collect())
}

fn is_in(version: &str, series: &str) -> bool {
    version.starts_with(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_by_its_name() {
        let text = "kind: ClusterClass\nmetadata:\n  name: fast-v1\nspec:\n  name: other\n";
        assert_eq!(class(text), Some("fast-v1"));
        assert_eq!(class("kind: Cluster\n"), None);
    }

    #[test]
    fn versions_and_series_are_told_apart() -> Result<()> {
        assert!(is_version("v0.1.0") && is_version("v1.2.3-rc.1"));
        assert!(!is_version("0.1.0") && !is_version("v0.1") && !is_version("v0.1.x"));
        let found = series("releaseSeries: [{major: 0, minor: 1}, {major: 1, minor: 12}]")?;
        assert_eq!(found, ["v0.1.", "v1.12."]);
        assert!(is_in("v0.1.4", "v0.1.") && !is_in("v0.12.4", "v0.1."));
        Ok(())
    }
}

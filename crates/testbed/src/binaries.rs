//! Where the programs are: given, cached, or built from the pinned Go modules under `tools/`.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::gobuild;

/// Programs that `KUBEBUILDER_ASSETS` may hold.
const ASSETS: &[&str] = &["etcd", "kube-apiserver", "kubectl", "kube-controller-manager"];

/// The repository's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// One line of `tools/binaries.json`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) name: String,
    /// Folder of the Go module, from the root.
    pub(crate) module: String,
    /// What to build in it.
    pub(crate) package: String,
    #[serde(default)]
    pub(crate) ldflags: String,
    /// Whether the demo does without it.
    #[serde(default)]
    pub(crate) tests_only: bool,
}

/// Finds programs, and builds what is not there.
///
/// A program is taken from, in this order: `CAPMOX_PREBUILT` (a folder with any of them),
/// `KUBEBUILDER_ASSETS` (etcd, kube-apiserver, kubectl, kube-controller-manager), `.cache/bin`
/// where its stamp fits the pinned module, and else it is built there.
#[derive(Debug)]
pub struct Binaries {
    root: PathBuf,
    found: Mutex<BTreeMap<String, PathBuf>>,
}

impl Binaries {
    /// For this repository.
    pub fn new() -> Self {
        Self { root: root(), found: Mutex::default() }
    }

    /// All names of the table, in its order.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        Ok(self.table()?.into_iter().map(|recipe| recipe.name).collect())
    }

    /// The names of what the demo runs.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub fn names_for_demo(&self) -> Result<Vec<String>> {
        let table = self.table()?.into_iter().filter(|recipe| !recipe.tests_only);
        Ok(table.map(|recipe| recipe.name).collect())
    }

    /// The program's path. Blocks while it is built, which is told on standard error.
    ///
    /// # Errors
    /// If there is no such program in the table, or it cannot be built.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = found.get(name) {
            return Ok(path.clone());
        }
        let path = match self.given(name) {
            Some(path) => path,
            None => gobuild::ensure(&self.root, &self.recipe(name)?)?,
        };
        found.insert(name.to_owned(), path.clone());
        Ok(path)
    }

    fn given(&self, name: &str) -> Option<PathBuf> {
        let dirs = [
            env::var_os("CAPMOX_PREBUILT"),
            env::var_os("KUBEBUILDER_ASSETS").filter(|_| ASSETS.contains(&name)),
        ];
        // Relative folders are meant from the root, wherever a test binary runs.
        let dirs = dirs.into_iter().flatten().filter(|dir| !dir.is_empty());
        dirs.map(|dir| self.root.join(dir).join(name)).find(|path| path.is_file())
    }

    fn recipe(&self, name: &str) -> Result<Recipe> {
        let found = self.table()?.into_iter().find(|recipe| recipe.name == name);
        found.with_context(|| format!("tools/binaries.json has no {name}"))
    }

    fn table(&self) -> Result<Vec<Recipe>> {
        let path = self.root.join("tools/binaries.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is not understood", path.display()))
    }
}

impl Default for Binaries {
    fn default() -> Self {
        Self::new()
    }
}

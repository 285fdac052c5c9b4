//! Files that are generated from the library's types and tables and from the parts of the cluster
//! templates, among them the reference of the documentation, and the check that they are up to date.
//!
//! The texts are made elsewhere; here they only meet the disk.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use capmox::api::crd;
use capmox::runtime::rbac;

use crate::{flavours, reference};

/// Every generated file: its path from the root of the repository, and its text.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let within = |folder: &'static str| {
        move |(name, text): (String, String)| (Path::new(folder).join(name), text)
    };
    let mut files: Vec<_> = crd::all()?.into_iter().map(within("config/crd/bases")).collect();
    files.extend(crd::pools()?.into_iter().map(within("config/ipam/bases")));
    files.push(("config/rbac/role.yaml".into(), rbac::yaml()?));
    files.push(("docs/reference.md".into(), reference::page()));
    files.extend(flavours::all()?.into_iter().map(within("templates")));
    Ok(files)
}

/// Writes the files that differ, and says which.
pub(crate) fn write(root: &Path) -> Result<Vec<PathBuf>> {
    let stale = drift(root)?;
    for (path, text) in files()?.into_iter().filter(|(path, _)| stale.contains(path)) {
        let target = root.join(&path);
        let folder = target.parent().unwrap_or(root);
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        fs::write(&target, text).with_context(|| format!("write {}", target.display()))?;
    }
    Ok(stale)
}

/// The generated files that are missing or say something else than they should.
pub(crate) fn drift(root: &Path) -> Result<Vec<PathBuf>> {
    let stale = |(path, text): &(PathBuf, String)| {
        fs::read_to_string(root.join(path)).map_or(true, |found| found != *text)
    };
    Ok(files()?.into_iter().filter(|file| stale(file)).map(|(path, _)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_up_to_date_and_an_edit_is_noticed() -> Result<()> {
        let root = std::env::temp_dir().join(format!("generate-{}", std::process::id()));
        assert_eq!(write(&root)?.len(), files()?.len());
        assert!(drift(&root)?.is_empty());
        let role = root.join("config/rbac/role.yaml");
        fs::write(&role, "edited")?;
        assert_eq!(drift(&root)?, [PathBuf::from("config/rbac/role.yaml")]);
        fs::remove_dir_all(&root)?;
        Ok(())
    }
}

//! A set of files below one folder, in memory until all of them are made.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Name of the file with the sums of all others.
pub const SUMS: &str = "SHA256SUMS";

/// Files by their path below the folder that they belong in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, Vec<u8>>);

impl Files {
    /// Adds a file, in place of one of the same path.
    pub fn add(&mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), content.into());
    }

    /// Adds all of `files` below `folder`.
    pub fn add_all(&mut self, folder: &str, files: Self) {
        for (path, content) in files.0 {
            self.0.insert(Path::new(folder).join(path), content);
        }
    }

    /// Those below a folder, by their paths in it.
    #[must_use]
    pub fn below(&self, folder: &str) -> Self {
        let inside = self.0.iter().filter_map(|(path, content)| {
            Some((path.strip_prefix(folder).ok()?.to_path_buf(), content.clone()))
        });
        Self(inside.collect())
    }

    /// The content of a file.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.0.get(Path::new(path)).map(Vec::as_slice)
    }

    /// The content of a file that is there and is text.
    ///
    /// # Errors
    /// If it is not.
    pub fn text(&self, path: &str) -> Result<&str> {
        let content = self.get(path).with_context(|| format!("there is no {path}"))?;
        std::str::from_utf8(content).with_context(|| format!("{path} is not text"))
    }

    /// All of them, in order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.0.iter().map(|(path, content)| (path.as_path(), content.as_slice()))
    }

    /// Adds `SHA256SUMS`, in the form that `sha256sum --check` reads.
    pub fn add_sums(&mut self) {
        self.0.remove(Path::new(SUMS));
        let mut text = String::new();
        for (path, content) in &self.0 {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{}  {}", sha256(content), path.display());
        }
        self.add(SUMS, text);
    }

    /// All files of a folder with whatever is below it.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut found = Self::default();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(next) = folders.pop() {
            let entries =
                fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))?;
            for entry in entries {
                let path = entry.with_context(|| format!("cannot read {}", next.display()))?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let content =
                    fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                found.add(path.strip_prefix(folder).unwrap_or(&path), content);
            }
        }
        Ok(found)
    }

    /// Writes them below `folder`, readable for all, whatever the umask.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (path, content) in &self.0 {
            let target = folder.join(path);
            let parent = target.parent().unwrap_or(folder);
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}", parent.display()))?;
            fs::write(&target, content)
                .with_context(|| format!("cannot write {}", target.display()))?;
            fs::set_permissions(&target, fs::Permissions::from_mode(0o644))
                .with_context(|| format!("cannot set the mode of {}", target.display()))?;
        }
        Ok(())
    }

    /// Makes `folder` hold exactly these files; gives what was written or removed.
    ///
    /// # Errors
    /// If it cannot be read or changed.
    pub fn replace(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let stale = self.drift(folder)?;
        for path in stale.iter().filter(|path| !self.0.contains_key(*path)) {
            let target = folder.join(path);
            fs::remove_file(&target)
                .with_context(|| format!("cannot remove {}", target.display()))?;
        }
        self.write(folder)?;
        Ok(stale)
    }

    /// The paths at which `folder` is not these files: missing, different, or too many.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn drift(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let found = if folder.is_dir() { Self::read(folder)? } else { Self::default() };
        let mut paths: Vec<_> = self.0.keys().chain(found.0.keys()).cloned().collect();
        paths.sort();
        paths.dedup();
        paths.retain(|path| self.0.get(path) != found.0.get(path));
        Ok(paths)
    }
}

/// The SHA-256 sum, in lower-case hexadecimal digits.
pub fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Files {
        let mut files = Files::default();
        files.add("b", "second");
        files.add("a/one", "first");
        files
    }

    #[test]
    fn what_was_written_is_what_is_read_and_every_difference_is_named() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let files = two();
        assert_eq!(files.replace(folder.path())?.len(), 2);
        assert_eq!(Files::read(folder.path())?, files);
        fs::write(folder.path().join("b"), "edited")?;
        fs::write(folder.path().join("more"), "")?;
        assert_eq!(files.drift(folder.path())?, [PathBuf::from("b"), PathBuf::from("more")]);
        files.replace(folder.path())?;
        assert!(files.drift(folder.path())?.is_empty());
        Ok(())
    }

    #[test]
    fn sums_are_in_order_and_do_not_sum_themselves() -> Result<()> {
        let mut files = two();
        files.add_sums();
        files.add_sums();
        let sums = files.text(SUMS)?;
        let names: Vec<_> = sums.lines().filter_map(|line| line.get(66..)).collect();
        assert_eq!(names, ["a/one", "b"]);
        assert!(sums.starts_with(&sha256(b"first")), "{sums}");
        Ok(())
    }
}

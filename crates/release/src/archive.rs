//! Archives that are equal for equal content.

use anyhow::{Context as _, Result};
use tar::{Builder, EntryType, Header};

use crate::files::Files;
use crate::package::gzip;

/// Something in an archive: it belongs to root and was changed at the beginning of time.
pub(crate) struct Entry<'a> {
    path: &'a str,
    mode: u32,
    kind: EntryType,
    content: &'a [u8],
    target: Option<&'a str>,
}

impl<'a> Entry<'a> {
    pub(crate) fn file(path: &'a str, mode: u32, content: &'a [u8]) -> Self {
        Self { path, mode, kind: EntryType::Regular, content, target: None }
    }

    /// The path ends in a slash.
    pub(crate) fn folder(path: &'a str, mode: u32) -> Self {
        Self { path, mode, kind: EntryType::Directory, content: &[], target: None }
    }

    /// A symbolic link to `target`.
    pub(crate) fn link(path: &'a str, target: &'a str) -> Self {
        Self { path, mode: 0o777, kind: EntryType::Symlink, content: &[], target: Some(target) }
    }
}

/// A tar archive with these entries, in this order.
pub(crate) fn tar(entries: &[Entry<'_>]) -> Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let mut header = Header::new_ustar();
        header.set_path(entry.path).with_context(|| format!("cannot archive {}", entry.path))?;
        header.set_entry_type(entry.kind);
        if let Some(target) = entry.target {
            header
                .set_link_name(target)
                .with_context(|| format!("cannot link {} to {target}", entry.path))?;
        }
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(entry.content.len() as u64);
        header.set_cksum();
        builder
            .append(&header, entry.content)
            .with_context(|| format!("cannot archive {}", entry.path))?;
    }
    builder.into_inner().context("cannot end an archive")
}

/// A Helm chart's files as the archive that `helm package` would make, all below `name`.
///
/// # Errors
/// If a path is too long for a tar archive.
pub fn chart(name: &str, files: &Files) -> Result<Vec<u8>> {
    let paths: Vec<(String, &[u8])> = files
        .iter()
        .map(|(path, content)| (format!("{name}/{}", path.display()), content))
        .collect();
    let entries: Vec<_> =
        paths.iter().map(|(path, content)| Entry::file(path, 0o644, content)).collect();
    gzip(&tar(&entries)?)
}

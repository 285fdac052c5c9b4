//! The three names of each file: its own, the one of plain ISO 9660, and Joliet's UCS-2.

use std::collections::BTreeSet;

use super::{File, ImageError};

/// A file with its names in both trees.
#[derive(Debug)]
pub(super) struct Named<'a> {
    /// Its own name, given by Rock Ridge and Joliet.
    pub(super) name: &'a str,
    /// Its name for readers that know neither, such as `USER_DAT.;1`.
    pub(super) plain: String,
    /// The content.
    pub(super) data: &'a [u8],
}

impl Named<'_> {
    /// The name in the Joliet tree, without the version number that Joliet makes optional.
    pub(super) fn joliet(&self) -> Vec<u8> {
        ucs2(self.name)
    }
}

/// The text in big-endian UCS-2.
pub(super) fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// Checks the names and gives each file its plain one.
pub(super) fn named<'a>(files: &[File<'a>]) -> Result<Vec<Named<'a>>, ImageError> {
    let mut seen = BTreeSet::new();
    let mut taken = BTreeSet::new();
    let mut named = Vec::with_capacity(files.len());
    for &File { name, data } in files {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        // 64 characters are Joliet's limit; a leading dot is where `.` and `..` live.
        if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) || name.starts_with('.') {
            return Err(ImageError::Name(name.to_owned()));
        }
        if !seen.insert(name.to_ascii_lowercase()) {
            return Err(ImageError::Duplicate(name.to_owned()));
        }
        let plain = plain_name(name, &taken);
        taken.insert(plain.clone());
        named.push(Named { name, plain, data });
    }
    Ok(named)
}

/// The level 1 name: eight and three of `A–Z 0–9 _`, a version, and a number where it is taken.
fn plain_name(name: &str, taken: &BTreeSet<String>) -> String {
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let part = |text: &str, len: usize| -> String {
        let d_character =
            |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        text.chars().take(len).map(d_character).collect()
    };
    let extension = part(extension, 3);
    let numbered = |number: String| {
        let room = 8usize.saturating_sub(number.len());
        format!("{}{number}.{extension};1", part(stem, room))
    };
    (0..=taken.len())
        .map(|n| numbered(if n == 0 { String::new() } else { n.to_string() }))
        .find(|candidate| !taken.contains(candidate))
        // Never reached: among one more candidates than there are names taken, one is free.
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(names: &[&str]) -> Vec<String> {
        let files: Vec<File<'_>> = names.iter().map(|name| File { name, data: b"" }).collect();
        named(&files).expect("valid").into_iter().map(|file| file.plain).collect()
    }

    #[test]
    fn plain_names_are_level_one() {
        assert_eq!(
            plain(&["user-data", "meta-data", "network-config", "a.yaml"]),
            ["USER_DAT.;1", "META_DAT.;1", "NETWORK_.;1", "A.YAM;1"]
        );
    }

    #[test]
    fn plain_names_stay_unique() {
        assert_eq!(
            plain(&["network-a", "network-b", "network-c"]),
            ["NETWORK_.;1", "NETWORK1.;1", "NETWORK2.;1"]
        );
    }
}

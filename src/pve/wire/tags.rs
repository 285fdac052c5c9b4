//! Tags of guests: compared without letter case and order, as Proxmox stores them by default.

use std::collections::BTreeSet;
use std::fmt;

/// A set of tags in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(BTreeSet<String>);

impl Tags {
    /// Reads a list separated by `;`, `,` or white space, as Proxmox accepts them.
    pub fn parse(text: &str) -> Self {
        text.split(|c: char| c == ';' || c == ',' || c.is_whitespace()).collect()
    }

    /// Whether `tag` is among them, in any letter case.
    pub fn contains(&self, tag: &str) -> bool {
        self.0.contains(&tag.to_lowercase())
    }

    /// Whether all of `other` are among them.
    pub fn is_superset(&self, other: &Self) -> bool {
        self.0.is_superset(&other.0)
    }

    /// Adds `tag`; false if it was there.
    pub fn insert(&mut self, tag: &str) -> bool {
        let tag = tag.trim().to_lowercase();
        !tag.is_empty() && self.0.insert(tag)
    }

    /// Takes `tag` out; false if it was not there.
    pub fn remove(&mut self, tag: &str) -> bool {
        self.0.remove(&tag.to_lowercase())
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a sorted list.
    pub fn into_vec(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}

impl<'a> FromIterator<&'a str> for Tags {
    fn from_iter<I: IntoIterator<Item = &'a str>>(tags: I) -> Self {
        let mut set = Self::default();
        for tag in tags {
            set.insert(tag);
        }
        set
    }
}

impl fmt::Display for Tags {
    /// Joined by `;`, as Proxmox stores them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(String::as_str).collect::<Vec<_>>().join(";"))
    }
}

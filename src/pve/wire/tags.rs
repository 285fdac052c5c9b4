//! Tags of guests: compared without letter case and order, as Proxmox stores them by default.

use std::collections::BTreeMap;
use std::fmt;

/// A set of tags: each as it was written, found by its lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(BTreeMap<String, String>);

impl Tags {
    /// Reads a list separated by `;`, `,` or white space, as Proxmox accepts them.
    pub fn parse(text: &str) -> Self {
        text.split(|c: char| c == ';' || c == ',' || c.is_whitespace()).collect()
    }

    /// Whether `tag` is among them, in any letter case.
    pub fn contains(&self, tag: &str) -> bool {
        self.0.contains_key(&tag.to_lowercase())
    }

    /// Whether all of `other` are among them.
    pub fn is_superset(&self, other: &Self) -> bool {
        other.0.keys().all(|tag| self.0.contains_key(tag))
    }

    /// Adds `tag`; false if it was there.
    pub fn insert(&mut self, tag: &str) -> bool {
        let tag = tag.trim();
        let lower = tag.to_lowercase();
        if lower.is_empty() || self.0.contains_key(&lower) {
            return false;
        }
        self.0.insert(lower, tag.to_owned());
        true
    }

    /// Takes `tag` out; false if it was not there.
    pub fn remove(&mut self, tag: &str) -> bool {
        self.0.remove(&tag.to_lowercase()).is_some()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As a sorted list.
    pub fn into_vec(self) -> Vec<String> {
        self.0.into_values().collect()
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
        f.write_str(&self.iter().collect::<Vec<_>>().join(";"))
    }
}

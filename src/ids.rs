//! Names and numbers of Proxmox, parsed once and then trusted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: expected {expected}")]
pub struct InvalidId {
    what: &'static str,
    value: String,
    expected: &'static str,
}

impl InvalidId {
    /// A refusal of `value` as `what`.
    pub fn new(what: &'static str, value: impl Into<String>, expected: &'static str) -> Self {
        Self { what, value: value.into(), expected }
    }
}

/// Number of a virtual machine or template, unique in a Proxmox cluster: 100 to 999 999 999.
///
/// It cannot be zero, so a forgotten id never becomes a path such as `/qemu/0/status/start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct VmId(u32);

impl VmId {
    /// The lowest id that Proxmox hands out.
    pub const MIN: Self = Self(100);
    /// The highest id that Proxmox accepts.
    pub const MAX: Self = Self(999_999_999);

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The id after this one, if there is one.
    pub fn next(self) -> Option<Self> {
        (self < Self::MAX).then(|| Self(self.0 + 1))
    }
}

impl TryFrom<i64> for VmId {
    type Error = InvalidId;

    fn try_from(value: i64) -> Result<Self, Self::Error> {
        u32::try_from(value)
            .ok()
            .map(Self)
            .filter(|id| (Self::MIN..=Self::MAX).contains(id))
            .ok_or_else(|| {
                InvalidId::new("VMID", value.to_string(), "a number from 100 to 999999999")
            })
    }
}

impl From<VmId> for i64 {
    fn from(value: VmId) -> Self {
        Self::from(value.0)
    }
}

impl FromStr for VmId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<i64>()
            .map_err(|_| InvalidId::new("VMID", text, "a number from 100 to 999999999"))
            .and_then(Self::try_from)
    }
}

impl fmt::Display for VmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            /// Refuses what could leave its segment of a URL path.
            fn try_from(text: String) -> Result<Self, Self::Error> {
                let fits = !text.is_empty()
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                    && text.bytes().any(|b| b != b'.');
                if fits {
                    Ok(Self(text))
                } else {
                    Err(InvalidId::new($what, text, "letters, digits, '-', '_' and '.'"))
                }
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// Short name of a Proxmox node, as in `/nodes/{node}`.
    NodeName,
    "node name"
);
name!(
    /// Name of a Proxmox storage, as in `/storage/{storage}`.
    StorageName,
    "storage name"
);

/// Number of a network device by Proxmox's name for it: `net0` to `net31`.
pub fn network_device(name: &str) -> Option<u8> {
    (0..=31).find(|number| name.strip_prefix("net") == Some(&number.to_string()))
}

/// Whether a name can be that of a bridge. Proxmox's own rule for the option of a network device, in
/// which a comma would begin another option.
pub fn is_bridge(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vmid_is_never_below_one_hundred() {
        for bad in [-1, 0, 99, 1_000_000_000] {
            assert!(VmId::try_from(bad).is_err(), "{bad}");
        }
        assert_eq!("100".parse(), Ok(VmId::MIN));
    }

    #[test]
    fn a_node_name_stays_in_its_path_segment() {
        for bad in ["", "..", "a/b", "a b", "a?b", "pve1\n"] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
        }
        assert!("pve-1.lab".parse::<NodeName>().is_ok());
    }
}

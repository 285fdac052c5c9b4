//! `user-data`: what the bootstrap provider wants to run in the guest.
//!
//! The payload belongs to the bootstrap provider and is secret: it is passed on and never shown.

use std::fmt;
use std::str::FromStr;

use crate::bootstrap::problem::Problem;

/// The grammar of the payload, from the key `format` of the bootstrap Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// cloud-init's own; the default of the bootstrap contract.
    #[default]
    CloudConfig,
    /// Ignition of spec 2, as Flatcar reads it.
    Ignition,
}

impl Format {
    /// Reads the Secret's key; an absent or empty one means cloud-config.
    ///
    /// # Errors
    /// [`Problem::UnknownFormat`] for anything but the two.
    pub fn from_secret(format: Option<&[u8]>) -> Result<Self, Problem> {
        let text = String::from_utf8_lossy(format.unwrap_or_default());
        let text = text.trim();
        if text.is_empty() { Ok(Self::default()) } else { text.parse() }
    }

    /// The text in the Secret.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CloudConfig => "cloud-config",
            Self::Ignition => "ignition",
        }
    }
}

impl FromStr for Format {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        [Self::CloudConfig, Self::Ignition]
            .into_iter()
            .find(|format| format.as_str() == text)
            .ok_or_else(|| Problem::UnknownFormat { format: text.to_owned() })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_format_means_cloud_config() {
        assert_eq!(Format::from_secret(None), Ok(Format::CloudConfig));
        assert_eq!(Format::from_secret(Some(b"")), Ok(Format::CloudConfig));
    }

    #[test]
    fn both_formats_are_read_as_they_are_written() {
        for format in [Format::CloudConfig, Format::Ignition] {
            assert_eq!(Format::from_secret(Some(format.as_str().as_bytes())), Ok(format));
        }
        assert_eq!(Format::from_secret(Some(b"ignition\n")), Ok(Format::Ignition));
    }

    #[test]
    fn any_other_format_is_refused_by_name() {
        let refusal = Format::from_secret(Some(b"talos")).unwrap_err().to_string();
        assert!(refusal.contains("\"talos\"") && refusal.contains("\"cloud-config\""), "{refusal}");
    }
}

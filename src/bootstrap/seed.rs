//! The seed of one guest: its three files and the image that carries them.

use std::fmt;

use crate::bootstrap::iso9660::{self, File};
use crate::bootstrap::problem::Problem;
use crate::ids::VmId;

/// The label by which NoCloud finds the image: exactly this, or the same in upper case.
pub const VOLUME_ID: &str = "cidata";

/// The files of a NoCloud seed.
#[derive(Clone, PartialEq, Eq)]
pub struct SeedFiles {
    /// The bootstrap provider's payload, enriched where its format asks for it. Secret.
    pub user_data: Vec<u8>,
    /// See [`metadata`](super::metadata).
    pub meta_data: String,
    /// See [`network_config`](super::network_config); left out of the image when empty.
    pub network_config: String,
}

impl SeedFiles {
    /// The disc image. Equal files give equal bytes.
    ///
    /// # Errors
    /// [`Problem::Image`] when a file has 4 GiB or more.
    pub fn image(&self) -> Result<Vec<u8>, Problem> {
        let mut files = vec![
            File { name: "user-data", data: &self.user_data },
            File { name: "meta-data", data: self.meta_data.as_bytes() },
        ];
        if !self.network_config.is_empty() {
            files.push(File { name: "network-config", data: self.network_config.as_bytes() });
        }
        Ok(iso9660::image(VOLUME_ID, &files)?)
    }
}

impl fmt::Debug for SeedFiles {
    /// Leaves user-data out: it holds join tokens and private keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeedFiles")
            .field("user_data", &format_args!("{} bytes", self.user_data.len()))
            .field("meta_data", &self.meta_data)
            .field("network_config", &self.network_config)
            .finish()
    }
}

/// The image's name on an ISO storage. The peer's name, so that each cleans up after the other.
pub fn file_name(vmid: VmId) -> String {
    format!("user-data-{vmid}.iso")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_named_by_its_vm() {
        assert_eq!(file_name(VmId::MIN), "user-data-100.iso");
    }

    #[test]
    fn user_data_is_not_shown() {
        let seed = SeedFiles {
            user_data: b"token: abcdef.0123456789abcdef".to_vec(),
            meta_data: "instance-id: x\n".into(),
            network_config: String::new(),
        };
        assert!(!format!("{seed:?}").contains("abcdef"));
    }
}

//! The seed of one guest: its three files and the image that carries them.

use std::fmt;

use crate::bootstrap::ignition;
use crate::bootstrap::iso9660::{self, File};
use crate::bootstrap::metadata::{Metadata, metadata};
use crate::bootstrap::network::{self, NetworkPlan, network_config};
use crate::bootstrap::problem::Problem;
use crate::bootstrap::user_data::Format;
use crate::ids::VmId;

/// The label by which NoCloud finds the image: exactly this, or the same in upper case.
pub const VOLUME_ID: &str = "cidata";

/// The files of a NoCloud seed.
#[derive(Clone, PartialEq, Eq)]
pub struct SeedFiles {
    /// The bootstrap provider's payload, enriched where its format asks for it. Secret.
    pub user_data: Vec<u8>,
    /// See [`metadata()`].
    pub meta_data: String,
    /// See [`network_config`]; left out of the image when empty.
    pub network_config: String,
}

impl SeedFiles {
    /// Renders the seed of a guest from the bootstrap Secret's `payload` in `format`.
    ///
    /// A cloud-config is passed on byte for byte. An Ignition config takes up identity and network
    /// itself, and its network-config says that there is nothing to do.
    ///
    /// # Errors
    /// The first [`Problem`] of identity, network and payload.
    pub fn render(
        format: Format,
        payload: &[u8],
        identity: &Metadata,
        plan: &NetworkPlan,
    ) -> Result<Self, Problem> {
        let meta_data = metadata(identity)?;
        let (user_data, network_config) = match format {
            Format::CloudConfig => (payload.to_vec(), network_config(plan)?),
            Format::Ignition => {
                (ignition::enriched(payload, identity, plan)?, network::EMPTY.to_owned())
            }
        };
        Ok(Self { user_data, meta_data, network_config })
    }

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
    use crate::bootstrap::network::Ethernet;

    #[test]
    fn the_image_is_named_by_its_vm() {
        assert_eq!(file_name(VmId::MIN), "user-data-100.iso");
    }

    fn identity() -> Metadata {
        Metadata { instance_id: "x".into(), hostname: "lab-cp-0".into(), ..Metadata::default() }
    }

    fn plan() -> NetworkPlan {
        let dhcp = Ethernet { dhcp4: true, ..Ethernet::new(0, "net0", "bc:24:11:00:00:01") };
        NetworkPlan { ethernets: vec![dhcp], vrfs: Vec::new() }
    }

    #[test]
    fn a_cloud_config_is_passed_on_byte_for_byte() {
        let payload = b"## template: jinja\n#cloud-config\n\xff";
        let seed = SeedFiles::render(Format::CloudConfig, payload, &identity(), &plan());
        let seed = seed.expect("renders");
        assert_eq!(seed.user_data, payload);
        assert!(seed.network_config.starts_with("network:\n"));
    }

    #[test]
    fn an_ignition_config_brings_its_own_network() {
        let payload = br#"{"ignition": {"version": "2.3.0"}}"#;
        let seed = SeedFiles::render(Format::Ignition, payload, &identity(), &plan());
        let seed = seed.expect("renders");
        assert_eq!(seed.network_config, "version: 1\nconfig: []\n");
        assert!(String::from_utf8_lossy(&seed.user_data).contains("00-eth0.network"));
        assert!(seed.meta_data.contains("lab-cp-0"));
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

//! The NoCloud data source: which CD-ROM is a seed and what must be on it.
//!
//! Knows cloud-init's rules for finding its data, not what the data says.

use pve_fake::BootCdrom;

use crate::fault::{Fault, Stage};
use crate::iso9660::Image;

/// What cloud-init takes off the seed.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed {
    /// `user-data`, byte for byte.
    pub user_data: Vec<u8>,
    /// `meta-data`, a YAML mapping.
    pub meta_data: String,
    /// `network-config`, if it is there.
    pub network_config: Option<String>,
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // user-data carries the cluster's private keys.
        f.debug_struct("Seed").field("meta_data", &self.meta_data).finish_non_exhaustive()
    }
}

/// Finds the seed among the CD-ROMs. None when no drive has a volume labelled `cidata`.
///
/// # Errors
/// [`Fault`] when a CD-ROM cannot be mounted or the seed lacks a file.
pub fn find(cdroms: &[BootCdrom]) -> Result<Option<Seed>, Fault> {
    for cdrom in cdroms.iter().filter(|cdrom| !cdrom.data.is_empty()) {
        let fault = |text: String| Fault::new(Stage::Seed, format!("{}: {text}", cdrom.volume));
        let image = Image::read(&cdrom.data).map_err(|error| fault(error.to_string()))?;
        // cloud-init looks for the label in lower and in upper case.
        if !["cidata", "CIDATA"].contains(&image.label.as_str()) {
            continue;
        }
        return take(image).map(Some).map_err(fault);
    }
    Ok(None)
}

fn take(mut image: Image) -> Result<Seed, String> {
    let present: Vec<String> = image.files.keys().cloned().collect();
    let mut file = |name: &str| image.files.remove(name);
    let missing = |name: &str| format!("the seed has no {name}, only {}", present.join(", "));
    let text = |name: &str, data: Vec<u8>| {
        String::from_utf8(data).map_err(|_| format!("{name} is no UTF-8"))
    };
    let user_data = file("user-data").ok_or_else(|| missing("user-data"))?;
    let meta_data = text("meta-data", file("meta-data").ok_or_else(|| missing("meta-data"))?)?;
    let network_config = file("network-config");
    let network_config = network_config.map(|data| text("network-config", data)).transpose()?;
    Ok(Seed { user_data, meta_data, network_config })
}

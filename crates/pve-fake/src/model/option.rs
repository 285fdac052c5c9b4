//! Grammars of configuration values: `key=value,…` strings, drives, NICs, tags, sizes.
//! Facts from qemu-server's and pve-common's documentation; written anew.

use std::collections::BTreeMap;

/// A drive option: its volume and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drive {
    pub file: String,
    pub rest: BTreeMap<String, String>,
}

impl Drive {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut file = None;
        let mut rest = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None => file = Some(part.to_owned()),
                Some(("file" | "volume", value)) => file = Some(value.to_owned()),
                Some((key, value)) => {
                    rest.insert(key.to_owned(), value.to_owned());
                }
            }
        }
        Some(Self { file: file?, rest })
    }

    pub(crate) fn is_cdrom(&self) -> bool {
        self.file == "cdrom" || self.rest.get("media").is_some_and(|media| media == "cdrom")
    }

    /// The storage of the volume; none for `none`, `cdrom`, host paths.
    pub(crate) fn storage(&self) -> Option<&str> {
        if self.file.starts_with('/') {
            return None;
        }
        self.file.split_once(':').map(|(storage, _)| storage)
    }

    pub(crate) fn size(&self) -> Option<u64> {
        parse_size(self.rest.get("size")?)
    }

    pub(crate) fn print(&self) -> String {
        with_rest(self.file.clone(), &self.rest)
    }
}

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nic {
    pub model: String,
    pub mac: Option<String>,
    pub rest: BTreeMap<String, String>,
}

const NIC_MODELS: &[&str] = &["virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"];

impl Nic {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut model = None;
        let mut mac = None;
        let mut rest = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None if NIC_MODELS.contains(&part) => model = Some(part.to_owned()),
                None => return None,
                Some(("model", value)) => model = Some(value.to_owned()),
                Some(("macaddr", value)) => mac = Some(value.to_owned()),
                Some((key, value)) if NIC_MODELS.contains(&key) => {
                    model = Some(key.to_owned());
                    mac = Some(value.to_owned());
                }
                Some((key, value)) => {
                    rest.insert(key.to_owned(), value.to_owned());
                }
            }
        }
        let nic = Self { model: model?, mac, rest };
        (NIC_MODELS.contains(&nic.model.as_str()) && nic.is_sound()).then_some(nic)
    }

    fn is_sound(&self) -> bool {
        self.mac.as_deref().is_none_or(is_unicast_mac)
            && self.rest.iter().all(|(key, value)| match key.as_str() {
                "tag" => value.parse().is_ok_and(|tag: u32| (1..=4094).contains(&tag)),
                "mtu" => value.parse().is_ok_and(|mtu: u32| (1..=65520).contains(&mtu)),
                "queues" => value.parse().is_ok_and(|queues: u32| queues <= 64),
                "rate" => value.parse::<f64>().is_ok(),
                "firewall" | "link_down" => matches!(value.as_str(), "0" | "1"),
                "bridge" | "trunks" | "host-tunnel" => !value.is_empty(),
                _ => false,
            })
    }

    pub(crate) fn print(&self) -> String {
        let mac = self.mac.as_deref().unwrap_or_default();
        with_rest(format!("{}={mac}", self.model), &self.rest)
    }
}

fn with_rest(first: String, rest: &BTreeMap<String, String>) -> String {
    rest.iter().fold(first, |text, (key, value)| format!("{text},{key}={value}"))
}

/// Six hex pairs, the first with its multicast bit clear.
pub(crate) fn is_unicast_mac(text: &str) -> bool {
    let pairs: Vec<&str> = text.split(':').collect();
    pairs.len() == 6
        && pairs.iter().all(|pair| pair.len() == 2 && u8::from_str_radix(pair, 16).is_ok())
        && u8::from_str_radix(&text[..2], 16).is_ok_and(|first| first & 1 == 0)
}

/// Bytes of `8G`, `512M`, `2252.5K`, `1024`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive")]
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1_u64 << 10),
        (at, 'M') => (&text[..at], 1 << 20),
        (at, 'G') => (&text[..at], 1 << 30),
        (at, 'T') => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let value: f64 = number.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let bytes = value * unit as f64;
    Some(bytes.round() as u64)
}

/// Bytes in the largest unit that divides them, as Proxmox prints `size=`.
pub(crate) fn print_size(bytes: u64) -> String {
    let mut value = bytes;
    for unit in ["", "K", "M", "G"] {
        if value == 0 || !value.is_multiple_of(1024) {
            return format!("{value}{unit}");
        }
        value /= 1024;
    }
    format!("{value}T")
}

/// Lower-cased, sorted, unique, `;`-joined; or the first tag that is none.
pub(crate) fn normal_tags(text: &str) -> Result<String, String> {
    let mut tags = Vec::new();
    let split = |c: char| c == ',' || c == ';' || c.is_whitespace();
    for tag in text.split(split).filter(|tag| !tag.is_empty()) {
        let first = tag.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        let rest = tag.chars().all(|c| c.is_ascii_alphanumeric() || "_-+.".contains(c));
        if !(first && rest) {
            return Err(tag.to_owned());
        }
        tags.push(tag.to_ascii_lowercase());
    }
    tags.sort();
    tags.dedup();
    Ok(tags.join(";"))
}

/// Whether `key` is `prefix` followed by a number, and which.
pub(crate) fn index_of(key: &str, prefix: &str) -> Option<u32> {
    key.strip_prefix(prefix)?.parse().ok()
}

const DRIVE_KEYS: &[(&str, u32)] =
    &[("ide", 3), ("scsi", 30), ("virtio", 15), ("sata", 5), ("efidisk", 0), ("tpmstate", 0)];

/// Every key that names a drive, in Proxmox's order.
pub(crate) fn drive_names() -> impl Iterator<Item = String> {
    DRIVE_KEYS.iter().flat_map(|&(prefix, last)| (0..=last).map(move |n| format!("{prefix}{n}")))
}

/// Whether `key` names a drive (not `unusedN`).
pub(crate) fn is_drive(key: &str) -> bool {
    DRIVE_KEYS.iter().any(|&(prefix, last)| index_of(key, prefix).is_some_and(|n| n <= last))
}

/// Whether `key` names a network device.
pub(crate) fn is_nic(key: &str) -> bool {
    index_of(key, "net").is_some_and(|n| n <= 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_stored_as_proxmox_stores_them() {
        assert_eq!(normal_tags("B;a b,Ip_net0_10.0.0.1"), Ok("a;b;ip_net0_10.0.0.1".to_owned()));
        assert_eq!(normal_tags("fd00::1"), Err("fd00::1".to_owned()));
    }

    #[test]
    fn sizes_are_printed_in_the_largest_whole_unit() {
        for (bytes, text) in [(8 << 30, "8G"), (376 << 10, "376K"), (1025, "1025"), (1 << 40, "1T")]
        {
            assert_eq!(print_size(bytes), text);
            assert_eq!(parse_size(text), Some(bytes));
        }
        assert_eq!(parse_size("1.5K"), Some(1536));
    }

    #[test]
    fn a_nic_is_printed_with_its_model_first() {
        let nic = Nic::parse("bridge=vmbr0,model=virtio,macaddr=bc:24:11:00:00:01,firewall=1");
        assert_eq!(
            nic.map(|nic| nic.print()).as_deref(),
            Some("virtio=bc:24:11:00:00:01,bridge=vmbr0,firewall=1")
        );
        assert_eq!(Nic::parse("virtio=01:00:00:00:00:01,bridge=vmbr0"), None, "multicast");
        assert_eq!(Nic::parse("virtio,bridge=vmbr0,tag=4095"), None);
    }
}

//! Option strings: `key=value,key=value`, where the first may be a bare value.

use std::fmt;

/// An option string that is edited key by key: order, unknown keys and their spelling stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct OptionString(Vec<String>);

fn pair(item: &str) -> Option<(&str, &str)> {
    item.split_once('=').map(|(key, value)| (key.trim(), value))
}

impl OptionString {
    /// Takes any text; printing it gives the same text.
    pub fn parse(text: &str) -> Self {
        if text.is_empty() {
            Self::default()
        } else {
            Self(text.split(',').map(str::to_owned).collect())
        }
    }

    /// Value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The bare value, wherever it stands.
    pub fn bare(&self) -> Option<&str> {
        self.0.iter().map(String::as_str).find(|item| !item.is_empty() && !item.contains('='))
    }

    /// Keys and values in order, without the bare value.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|item| pair(item))
    }

    /// Sets `key` where it stands, or at the end.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) {
        let item = format!("{key}={value}");
        let place = self.0.iter_mut().find(|item| pair(item).is_some_and(|(name, _)| name == key));
        match place {
            Some(place) => *place = item,
            None => self.0.push(item),
        }
    }

    /// Sets the bare value where it stands, or in front.
    pub fn set_bare(&mut self, value: &str) {
        let place = self.0.iter_mut().find(|item| !item.is_empty() && !item.contains('='));
        match place {
            Some(place) => value.clone_into(place),
            None => self.0.insert(0, value.to_owned()),
        }
    }

    /// Takes `key` out; true if it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|item| pair(item).is_none_or(|(name, _)| name != key));
        self.0.len() < before
    }
}

impl fmt::Display for OptionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// The option `netN`: `virtio=BC:24:11:00:00:01,bridge=vmbr0,…`.
///
/// The model is a key with the MAC address as its value, or a bare value, or `model=` with
/// `macaddr=`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NetDevice {
    options: OptionString,
}

/// Keys of `netN` that are not a model. A key that newer versions add has no MAC address as its
/// value, so it is not taken for a model either.
const NET_KEYS: &[&str] = &[
    "bridge",
    "firewall",
    "host-tunnel",
    "link_down",
    "macaddr",
    "model",
    "mtu",
    "queues",
    "rate",
    "tag",
    "trunks",
];

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

impl NetDevice {
    /// Takes any text.
    pub fn parse(text: &str) -> Self {
        Self { options: OptionString::parse(text) }
    }

    /// A new one without a MAC address, which Proxmox then makes.
    pub fn new(model: &str) -> Self {
        Self::parse(model)
    }

    fn model_pair(&self) -> Option<(&str, &str)> {
        self.options.pairs().find(|(key, value)| !NET_KEYS.contains(key) && is_mac(value))
    }

    /// `virtio`, `e1000` …
    pub fn model(&self) -> Option<&str> {
        self.model_pair()
            .map(|(model, _)| model)
            .or_else(|| self.options.get("model"))
            .or_else(|| self.options.bare())
    }

    /// MAC address, spelt as stored; compare it without letter case.
    pub fn mac(&self) -> Option<&str> {
        self.model_pair().map(|(_, mac)| mac).or_else(|| self.options.get("macaddr"))
    }

    /// Bridge or SDN vnet.
    pub fn bridge(&self) -> Option<&str> {
        self.options.get("bridge")
    }

    /// VLAN tag.
    pub fn vlan(&self) -> Option<u16> {
        self.options.get("tag").and_then(|tag| tag.parse().ok())
    }

    /// MTU in bytes; 1 means that of the bridge.
    pub fn mtu(&self) -> Option<u16> {
        self.options.get("mtu").and_then(|mtu| mtu.parse().ok())
    }

    /// Changes the model and keeps the MAC address.
    pub fn set_model(&mut self, model: &str) {
        match self.model_pair().map(|(old, mac)| (old.to_owned(), mac.to_owned())) {
            Some((old, mac)) => {
                for item in &mut self.options.0 {
                    if pair(item).is_some_and(|(key, _)| key == old) {
                        *item = format!("{model}={mac}");
                    }
                }
            }
            None if self.options.get("model").is_some() => self.options.set("model", model),
            None => self.options.set_bare(model),
        }
    }

    /// Sets an option, such as `bridge`, `tag` or `mtu`.
    pub fn set(&mut self, key: &str, value: impl fmt::Display) {
        self.options.set(key, value);
    }

    /// Takes an option out.
    pub fn remove(&mut self, key: &str) {
        self.options.remove(key);
    }

    /// All options.
    pub fn options(&self) -> &OptionString {
        &self.options
    }
}

impl fmt::Display for NetDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// A drive: `scsi0`, `ide2` … with a volume, or `none`, and options.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Drive {
    options: OptionString,
}

impl Drive {
    /// Takes any text.
    pub fn parse(text: &str) -> Self {
        Self { options: OptionString::parse(text) }
    }

    /// Volume id, or `none` or `cdrom`.
    pub fn volume(&self) -> Option<&str> {
        self.options.get("file").or_else(|| self.options.bare())
    }

    /// Name of the storage of the volume.
    pub fn storage(&self) -> Option<&str> {
        self.volume().and_then(|volume| volume.split_once(':')).map(|(storage, _)| storage)
    }

    /// Whether it is a CD drive, with or without a disc.
    pub fn is_cdrom(&self) -> bool {
        self.options.get("media") == Some("cdrom") || self.volume() == Some("cdrom")
    }

    /// Size in bytes as noted in the configuration, which may be out of date.
    pub fn size(&self) -> Option<u64> {
        self.options.get("size").and_then(parse_size)
    }

    /// All options.
    pub fn options(&self) -> &OptionString {
        &self.options
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// Bytes of a size such as `8G`, `2252M`, `1.5T` or `1024`; units are powers of 1024.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (figure, shift) = match text.char_indices().last()? {
        (end, unit) if unit.is_ascii_alphabetic() => {
            let shift = match unit.to_ascii_uppercase() {
                'K' => 10,
                'M' => 20,
                'G' => 30,
                'T' => 40,
                _ => return None,
            };
            (text.get(..end)?, shift)
        }
        _ => (text, 0),
    };
    let (whole, fraction) = figure.split_once('.').unwrap_or((figure, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || figure.ends_with('.') {
        return None;
    }
    let unit = 1_u64 << shift;
    let bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    // Nine digits are finer than a byte in every unit that Proxmox prints.
    let fraction: String = fraction.chars().take(9).collect();
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = u128::from(fraction.parse::<u64>().unwrap_or(0)) * u128::from(unit) / scale;
    bytes.checked_add(u64::try_from(part).ok()?)
}

/// The option `boot`: `order=scsi0;ide0;net0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootOrder(Vec<String>);

impl BootOrder {
    /// Reads the order; the letters of old configurations (`cdn`) name no devices and give none.
    pub fn parse(text: &str) -> Self {
        let options = OptionString::parse(text);
        let order = options.get("order").unwrap_or_default();
        let devices = order.split([';', ' ']).filter(|device| !device.is_empty());
        Self(devices.map(str::to_owned).collect())
    }

    /// Devices in order.
    pub fn devices(&self) -> &[String] {
        &self.0
    }

    /// Whether `device` is booted from.
    pub fn contains(&self, device: &str) -> bool {
        self.0.iter().any(|listed| listed == device)
    }
}

impl<S: Into<String>> FromIterator<S> for BootOrder {
    fn from_iter<I: IntoIterator<Item = S>>(devices: I) -> Self {
        Self(devices.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for BootOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order={}", self.0.join(";"))
    }
}

//! What concerns one VM.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::ids::{NodeName, StorageName, VmId};
use crate::pve::wire::{self, BootOrder, Drive, NetDevice, OptionString, Tags};

/// A VM's configuration: options as texts, and the digest to guard a change with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmConfig {
    options: BTreeMap<String, String>,
    digest: Option<String>,
}

impl VmConfig {
    /// An option as text.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.options.get(key).map(String::as_str)
    }

    /// All options but the digest.
    pub fn options(&self) -> &BTreeMap<String, String> {
        &self.options
    }

    /// Changes with every change of the configuration.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// The same with a digest.
    #[must_use]
    pub fn with_digest(mut self, digest: impl Into<String>) -> Self {
        self.digest = Some(digest.into());
        self
    }

    /// Name; a fresh clone has none for a moment.
    pub fn name(&self) -> Option<&str> {
        self.get("name").filter(|name| !name.is_empty())
    }

    /// BIOS uuid in lower case, from `smbios1`.
    pub fn uuid(&self) -> Option<String> {
        let options = OptionString::parse(self.get("smbios1")?);
        options.get("uuid").filter(|uuid| !uuid.is_empty()).map(str::to_ascii_lowercase)
    }

    /// Tags.
    pub fn tags(&self) -> Tags {
        Tags::parse(self.get("tags").unwrap_or_default())
    }

    /// Description without white space around it.
    pub fn description(&self) -> Option<String> {
        let text = self.get("description")?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// What holds the VM, such as `clone` or `backup`.
    pub fn lock(&self) -> Option<&str> {
        self.get("lock").filter(|lock| !lock.is_empty())
    }

    /// Whether it is a template.
    pub fn is_template(&self) -> bool {
        self.is_set("template")
    }

    /// Whether `protection` forbids to destroy it.
    pub fn is_protected(&self) -> bool {
        self.is_set("protection")
    }

    fn is_set(&self, key: &str) -> bool {
        matches!(self.get(key), Some("1" | "on" | "yes" | "true"))
    }

    /// A number such as `cores`.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(|text| text.trim().parse().ok())
    }

    /// Memory in MiB: a number, or `current=…` since 8.1.
    pub fn memory_mib(&self) -> Option<u64> {
        let options = OptionString::parse(self.get("memory")?);
        options.get("current").or_else(|| options.bare())?.trim().parse().ok()
    }

    /// Network device `netN`.
    pub fn net(&self, name: &str) -> Option<NetDevice> {
        self.get(name).map(NetDevice::parse)
    }

    /// Network devices by name, in the order of their numbers.
    pub fn net_devices(&self) -> Vec<(String, NetDevice)> {
        let mut found: Vec<(u32, String, NetDevice)> = self
            .options
            .iter()
            .filter_map(|(key, value)| {
                let number = key.strip_prefix("net")?.parse().ok()?;
                Some((number, key.clone(), NetDevice::parse(value)))
            })
            .collect();
        found.sort_by_key(|(number, ..)| *number);
        found.into_iter().map(|(_, name, device)| (name, device)).collect()
    }

    /// Drive such as `scsi0` or `ide0`.
    pub fn drive(&self, name: &str) -> Option<Drive> {
        self.get(name).map(Drive::parse)
    }

    /// The volumes in its drives, which a clone copies or refers to: disks first, then discs, which
    /// Proxmox counts as well when it is to clone to another node.
    pub fn volumes(&self) -> Vec<DriveVolume> {
        const BUSES: [&str; 6] = ["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate"];
        let is_drive = |key: &str| {
            let bus = key.trim_end_matches(|c: char| c.is_ascii_digit());
            bus.len() < key.len() && BUSES.contains(&bus)
        };
        let keys = self.options().keys().filter(|key| is_drive(key));
        let mut volumes: Vec<DriveVolume> = keys
            .filter_map(|key| {
                let drive = self.drive(key)?;
                let storage = drive.storage()?.parse().ok()?;
                Some(DriveVolume { key: key.clone(), storage, is_disc: drive.is_cdrom() })
            })
            .collect();
        volumes.sort_by_key(|volume| volume.is_disc);
        volumes
    }

    /// Boot order.
    pub fn boot_order(&self) -> BootOrder {
        BootOrder::parse(self.get("boot").unwrap_or_default())
    }
}

/// A volume in a drive of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveVolume {
    /// The drive, such as `scsi0`.
    pub key: String,
    /// The storage that it is on.
    pub storage: StorageName,
    /// Whether it is in a CD drive, as an image or as cloud-init's.
    pub is_disc: bool,
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for VmConfig {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(options: I) -> Self {
        let mut options: BTreeMap<String, String> =
            options.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let digest = options.remove("digest");
        Self { options, digest }
    }
}

impl<'de> Deserialize<'de> for VmConfig {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let options = BTreeMap::<String, Value>::deserialize(d)?;
        Ok(options
            .into_iter()
            .filter_map(|(key, value)| {
                let text = match &value {
                    Value::Array(_) | Value::Object(_) => Some(value.to_string()),
                    value => wire::text_of(value),
                };
                // Some servers list what is not set with an empty text.
                Some((key, text.filter(|text| !text.is_empty())?))
            })
            .collect())
    }
}

/// Answer of `status/current`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VmStatus {
    /// `running` or `stopped`.
    #[serde(deserialize_with = "wire::text")]
    pub status: Option<String>,
    /// QEMU's own word, such as `paused`, `prelaunch`.
    #[serde(deserialize_with = "wire::text")]
    pub qmpstatus: Option<String>,
    /// Whether the HA manager looks after it.
    #[serde(rename = "ha", deserialize_with = "managed")]
    pub is_in_ha: bool,
    /// Name.
    #[serde(deserialize_with = "wire::text")]
    pub name: Option<String>,
    /// Lock of the configuration.
    #[serde(deserialize_with = "wire::text")]
    pub lock: Option<String>,
    /// Whether the agent is switched on in the configuration; not whether it answers.
    #[serde(deserialize_with = "wire::boolean")]
    pub agent: Option<bool>,
    /// Whether it is a template.
    #[serde(deserialize_with = "wire::flag")]
    pub template: bool,
    /// Seconds since its start.
    #[serde(deserialize_with = "wire::number")]
    pub uptime: Option<u64>,
    /// Configured memory in bytes.
    #[serde(deserialize_with = "wire::number")]
    pub maxmem: Option<u64>,
    /// Size of the boot disk in bytes.
    #[serde(deserialize_with = "wire::number")]
    pub maxdisk: Option<u64>,
}

impl VmStatus {
    /// `status`, or what QEMU says where there is none.
    fn word(&self) -> Option<String> {
        let word = self.status.as_deref().or(self.qmpstatus.as_deref())?;
        Some(word.trim().to_ascii_lowercase())
    }

    /// Whether a QEMU process exists, paused or not.
    pub fn is_running(&self) -> bool {
        self.word().is_some_and(|word| word == "running")
    }

    /// Whether no QEMU process exists.
    pub fn is_stopped(&self) -> bool {
        self.word().is_some_and(|word| word == "stopped")
    }

    /// Whether its processors are stopped while the process exists.
    pub fn is_paused(&self) -> bool {
        let qemu = matches!(self.qmpstatus.as_deref(), Some("paused" | "suspended"));
        self.is_running() && qemu
            || self.word().is_some_and(|word| matches!(word.as_str(), "paused" | "suspended"))
    }
}

/// The field `managed` of an object; anything else is not managed.
fn managed<'de, D: Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(d)?;
    let managed = value.get("managed").and_then(wire::text_of);
    Ok(managed.is_some_and(|text| !matches!(text.as_str(), "" | "0" | "false")))
}

/// How a VM or template is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneOptions {
    /// VMID of the copy.
    pub newid: VmId,
    /// Name of the copy.
    pub name: Option<String>,
    /// Description of the copy.
    pub description: Option<String>,
    /// All data, instead of a link to the template's.
    pub full: bool,
    /// Pool that the copy is put in.
    pub pool: Option<String>,
    /// Snapshot of the source.
    pub snapname: Option<String>,
    /// Storage for the disks; only for a full copy.
    pub storage: Option<StorageName>,
    /// `raw`, `qcow2`, `vmdk`; only for a full copy.
    pub format: Option<String>,
    /// Node for the copy; only with shared storage.
    pub target: Option<NodeName>,
}

impl CloneOptions {
    /// A linked copy without anything else.
    pub fn new(newid: VmId) -> Self {
        Self {
            newid,
            name: None,
            description: None,
            full: false,
            pool: None,
            snapname: None,
            storage: None,
            format: None,
            target: None,
        }
    }
}

/// A change of a configuration; what is not named stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigUpdate {
    /// Options to set.
    pub set: BTreeMap<String, String>,
    /// Options to take out.
    pub delete: Vec<String>,
    /// Refuse when the configuration is not the one with this digest.
    pub digest: Option<String>,
}

/// What goes with a VM that is destroyed, beside its own disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DestroyOptions {
    /// Its entries in backup jobs, replication and HA.
    pub purge: bool,
    /// Disks with its VMID that its configuration does not name.
    pub destroy_unreferenced_disks: bool,
}

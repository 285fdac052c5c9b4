//! Parameter validation with Proxmox's wording, from small tables of our own.

use std::collections::BTreeMap;

use super::option::{Drive, Nic, drive_names, is_drive, is_nic, normal_tags};
use super::request::{Param, Params};

/// What a parameter takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    /// A text of at most so many characters.
    Short(usize),
    Flag,
    /// Inclusive bounds.
    Int(i64, i64),
    Number,
    Vmid,
    DnsName,
    Node,
    StorageId,
    /// Snapshot names and the like.
    ConfigId,
    PoolId,
    OneOf(&'static [&'static str]),
    /// `[+]N[KMGT]`.
    DiskSize,
    /// Repeatable.
    List,
    Tags,
    Nic,
    Drive,
    Boot,
    Drives,
}

/// One parameter of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
}

pub(crate) const fn must(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: true }
}

pub(crate) const fn may(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, required: false }
}

/// All parameters of an endpoint besides those of its path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schema {
    Fields(&'static [Field]),
    /// Every VM option, and these.
    VmConfig(&'static [Field]),
}

const EXTRA: &str =
    "property is not defined in schema and the schema does not allow additional properties";
const MISSING: &str = "property is missing and it is not optional";

/// Checks parameters; the map says what is wrong with which.
pub(crate) fn validate(schema: Schema, params: &Params) -> Result<(), BTreeMap<String, String>> {
    let (Schema::Fields(fields) | Schema::VmConfig(fields)) = schema;
    let mut errors = BTreeMap::new();
    for (name, value) in &params.0 {
        let field = fields.iter().find(|field| field.name == name);
        let kind = field.map(|field| field.kind).or_else(|| match schema {
            Schema::VmConfig(_) => vm_option(name),
            Schema::Fields(_) => None,
        });
        let verdict = match kind {
            Some(kind) => check(kind, value),
            None => Err(EXTRA.to_owned()),
        };
        if let Err(text) = verdict {
            errors.insert(name.clone(), text);
        }
    }
    for field in fields.iter().filter(|field| field.required && !params.has(field.name)) {
        errors.insert(field.name.to_owned(), MISSING.to_owned());
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn check(kind: Kind, value: &Param) -> Result<(), String> {
    match (kind, value) {
        (_, Param::Nested) => Err("type check ('string') failed - got HASH".to_owned()),
        (Kind::List, _) => Ok(()),
        (_, Param::Many(_)) => Err("type check ('string') failed - got ARRAY".to_owned()),
        (kind, Param::One(text)) => check_text(kind, text),
    }
}

/// Checks one scalar.
pub(crate) fn check_text(kind: Kind, text: &str) -> Result<(), String> {
    let format = |good: bool, message: &str| {
        if good { Ok(()) } else { Err(format!("invalid format - {message}\n")) }
    };
    match kind {
        Kind::Short(limit) if text.chars().count() > limit => {
            Err(format!("value may only be {limit} characters long"))
        }
        Kind::Text | Kind::List | Kind::Short(_) => Ok(()),
        Kind::Flag if matches!(text, "0" | "1") => Ok(()),
        Kind::Flag => Err(format!("type check ('boolean') failed - got '{text}'")),
        Kind::Int(low, high) => check_int(text, low, high),
        Kind::Number if text.parse::<f64>().is_ok() => Ok(()),
        Kind::Number => Err(format!("type check ('number') failed - got '{text}'")),
        Kind::Vmid => {
            check_int(text, 1, i64::MAX)
                .map_err(|_| format!("type check ('integer') failed - got '{text}'"))?;
            format(is_vmid(text), "value does not look like a valid VM ID")
        }
        Kind::DnsName => format(is_dns_name(text), "value does not look like a valid DNS name"),
        Kind::Node => format(is_label(text), "value does not look like a valid node name"),
        Kind::StorageId => format(
            is_id(text, "-_.") && text.ends_with(|c: char| c.is_ascii_alphanumeric()),
            &format!("storage ID '{text}' contains illegal characters"),
        ),
        Kind::ConfigId => format(is_id(text, "-_"), &format!("invalid configuration ID '{text}'")),
        Kind::PoolId => format(
            !text.is_empty()
                && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c)),
            &format!("pool name '{text}' contains invalid characters"),
        ),
        Kind::OneOf(values) if values.contains(&text) => Ok(()),
        Kind::OneOf(values) => Err(format!(
            "value '{text}' does not have a value in the enumeration '{}'",
            values.join(", ")
        )),
        Kind::DiskSize if is_disk_size(text) => Ok(()),
        Kind::DiskSize => Err("value does not match the regex pattern".to_owned()),
        Kind::Tags => format(normal_tags(text).is_ok(), "invalid characters in tag"),
        Kind::Nic => format(Nic::parse(text).is_some(), "format error"),
        Kind::Drive => format(Drive::parse(text).is_some(), "format error"),
        Kind::Drives if is_drive(text) => Ok(()),
        Kind::Drives => Err(format!(
            "value '{text}' does not have a value in the enumeration '{}'",
            drive_names().collect::<Vec<_>>().join(", ")
        )),
        Kind::Boot => check_boot(text),
    }
}

fn check_int(text: &str, low: i64, high: i64) -> Result<(), String> {
    match text.strip_prefix('+').unwrap_or(text).parse::<i64>() {
        Err(_) => Err(format!("type check ('integer') failed - got '{text}'")),
        Ok(number) if number < low => Err(format!("value must have a minimum value of {low}")),
        Ok(number) if number > high => Err(format!("value must have a maximum value of {high}")),
        Ok(_) => Ok(()),
    }
}

/// `order=a;b` or the old letters; capmox issue 225 is what mixing them gives.
fn check_boot(text: &str) -> Result<(), String> {
    const LEGACY: &str = "boot.legacy: value does not match the regex pattern";
    for part in text.split(',') {
        let legacy = match part.split_once('=') {
            None => part,
            Some(("legacy", letters)) => letters,
            Some(("order", devices)) => {
                if let Some(bad) = devices.split(';').find(|device| !is_boot_device(device)) {
                    return Err(format!(
                        "invalid format - format error\nboot.order: invalid format - \
                         invalid boot device '{bad}'\n"
                    ));
                }
                continue;
            }
            Some((key, _)) => {
                return Err(format!("invalid format - format error\nboot.{key}: {EXTRA}\n"));
            }
        };
        let length = (1..=4).contains(&legacy.len());
        if !length || !legacy.chars().all(|c| "acdn".contains(c)) {
            return Err(format!("invalid format - format error\n{LEGACY}\n"));
        }
    }
    Ok(())
}

fn is_boot_device(text: &str) -> bool {
    text.is_empty()
        || is_drive(text)
        || is_nic(text)
        || text.starts_with("usb")
        || text.starts_with("hostpci")
}

/// Digits, 100 to 999999999.
pub(crate) fn is_vmid(text: &str) -> bool {
    (3..=9).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_digit())
        && !text.starts_with('0')
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn is_dns_name(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_id(text: &str, extra: &str) -> bool {
    text.len() >= 2
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
}

fn is_disk_size(text: &str) -> bool {
    let number = text.strip_prefix('+').unwrap_or(text);
    let number = number.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(number);
    let mut parts = number.splitn(2, '.');
    let digits = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    parts.next().is_some_and(digits) && parts.next().is_none_or(digits)
}

const TEXT_OPTIONS: &[&str] = &[
    "affinity",
    "agent",
    "args",
    "arch",
    "audio0",
    "bootdisk",
    "cdrom",
    "cicustom",
    "cipassword",
    "ciuser",
    "cpu",
    "hookscript",
    "hotplug",
    "ivshmem",
    "keyboard",
    "machine",
    "migrate_downtime",
    "migrate_speed",
    "nameserver",
    "rng0",
    "searchdomain",
    "smbios1",
    "spice_enhancements",
    "sshkeys",
    "startdate",
    "startup",
    "tdf",
    "vga",
    "vmgenid",
    "vmstatestorage",
    "watchdog",
];
const FLAG_OPTIONS: &[&str] = &[
    "acpi",
    "autostart",
    "ciupgrade",
    "freeze",
    "kvm",
    "localtime",
    "numa",
    "onboot",
    "protection",
    "reboot",
    "tablet",
    "template",
];
const OS_TYPES: &[&str] = &[
    "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24",
    "l26", "solaris",
];
const SCSI_HARDWARE: &[&str] =
    &["lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"];
const LOCKS: &[&str] = &[
    "backup",
    "clone",
    "create",
    "migrate",
    "rollback",
    "snapshot",
    "snapshot-delete",
    "suspending",
    "suspended",
];
const NUMBERED: &[&str] =
    &["hostpci", "ipconfig", "numa", "parallel", "serial", "unused", "usb", "virtiofs"];

/// The kind of a VM option, if there is one of that name.
pub(crate) fn vm_option(name: &str) -> Option<Kind> {
    let kind = match name {
        "name" => Kind::DnsName,
        "description" => Kind::Short(8192),
        "tags" => Kind::Tags,
        "boot" => Kind::Boot,
        "cores" | "sockets" | "vcpus" => Kind::Int(1, i64::MAX),
        "memory" => Kind::Text,
        "balloon" => Kind::Int(0, i64::MAX),
        "shares" => Kind::Int(0, 50_000),
        "cpuunits" => Kind::Int(1, 262_144),
        "cpulimit" => Kind::Number,
        "bios" => Kind::OneOf(&["seabios", "ovmf"]),
        "citype" => Kind::OneOf(&["configdrive2", "nocloud", "opennebula"]),
        "ostype" => Kind::OneOf(OS_TYPES),
        "scsihw" => Kind::OneOf(SCSI_HARDWARE),
        "lock" => Kind::OneOf(LOCKS),
        name if is_drive(name) => Kind::Drive,
        name if is_nic(name) => Kind::Nic,
        name if FLAG_OPTIONS.contains(&name) => Kind::Flag,
        name if TEXT_OPTIONS.contains(&name) => Kind::Text,
        name if NUMBERED.iter().any(|prefix| super::option::index_of(name, prefix).is_some()) => {
            Kind::Text
        }
        _ => return None,
    };
    Some(kind)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn wrong_values_are_told_in_proxmoxs_words() {
        let table = [
            (Kind::Flag, "yes", "type check ('boolean') failed - got 'yes'"),
            (Kind::Int(1, 4), "x", "type check ('integer') failed - got 'x'"),
            (Kind::Int(1, 4), "0", "value must have a minimum value of 1"),
            (Kind::DnsName, "a_b", "invalid format - value does not look like a valid DNS name\n"),
            (Kind::Vmid, "99", "invalid format - value does not look like a valid VM ID\n"),
            (Kind::Tags, "fd00::1", "invalid format - invalid characters in tag\n"),
            (Kind::DiskSize, "10X", "value does not match the regex pattern"),
        ];
        for (kind, value, text) in table {
            assert_eq!(check_text(kind, value), Err(text.to_owned()), "{kind:?} {value}");
        }
    }

    #[test]
    fn old_and_new_boot_syntax_do_not_mix() {
        assert_eq!(check_text(Kind::Boot, "order=scsi0;ide0;net0"), Ok(()));
        assert_eq!(check_text(Kind::Boot, "cdn"), Ok(()));
        let text = check_text(Kind::Boot, "c;ide0").unwrap_err();
        assert!(text.contains("boot.legacy: value does not match the regex pattern"), "{text}");
    }
}

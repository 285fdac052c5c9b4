//! What the VM's configuration should say, and which options bring it there. Pure.
//!
//! Only what differs is written, and what the template says besides stays: MAC addresses, firewall
//! flags and queues of network devices, tags, and devices that the machine does not name. VLAN and
//! MTU of the template go with its bridge.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::decide::{provider_id, without_mark};
use super::facts::Facts;
use crate::api::{BootVolume, NetworkModel};
use crate::ids::{is_bridge, network_device};
use crate::ipam::{DEFAULT_DEVICE, Family};
use crate::pve::{NetDevice, Tags, VmConfig};

const GIB: u64 = 1 << 30;

/// Option of a network device without a link. capmox takes it out as soon as it writes the device.
const LINK_DOWN: &str = "link_down";

/// The options to write so that the VM is as the machine asks; none when it is.
///
/// # Errors
/// A text for people when the machine asks for something that cannot be.
pub(super) fn options(
    facts: &Facts,
    config: &VmConfig,
) -> Result<BTreeMap<String, String>, String> {
    let mut options = BTreeMap::new();
    let spec = &facts.machine.spec;
    for (key, wanted) in [("sockets", spec.num_sockets), ("cores", spec.num_cores)] {
        if let Some(wanted) = wanted.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
            && config.number(key) != Some(wanted)
        {
            options.insert(key.to_owned(), wanted.to_string());
        }
    }
    if let Some(mib) = spec.memory_mib.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0)
        && config.memory_mib() != Some(mib)
    {
        options.insert("memory".to_owned(), mib.to_string());
    }
    let has = config.description();
    let wanted = match spec.description.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => Some(text.to_owned()),
        None => has.as_deref().and_then(without_mark),
    };
    // The uuid recorded by now tells whose the VM is, so the mark of the clone may go.
    if has != wanted && is_recorded(facts, config) {
        options.insert("description".to_owned(), wanted.unwrap_or_default());
    }
    options.extend(network(facts, config)?);
    if let Some(tags) = tags(facts, config) {
        options.insert("tags".to_owned(), tags);
    }
    Ok(options)
}

/// Takes off the protection that the clone has from its template, which people protect from being
/// removed: a machine could not be deleted, nor a drive be taken out.
pub(super) fn unprotected() -> BTreeMap<String, String> {
    BTreeMap::from([("protection".to_owned(), "0".to_owned())])
}

fn is_recorded(facts: &Facts, config: &VmConfig) -> bool {
    let recorded = facts.machine.spec.provider_id.as_deref();
    recorded.is_some() && config.uuid().map(|uuid| provider_id(&uuid)).as_deref() == recorded
}

/// A network device as the machine asks for it.
struct Wanted<'a> {
    bridge: &'a str,
    model: NetworkModel,
    mtu: Option<u16>,
    vlan: Option<u16>,
}

fn wanted_devices(facts: &Facts) -> Vec<(&str, Wanted<'_>)> {
    let Some(network) = &facts.machine.spec.network else { return Vec::new() };
    let default = network.default.iter().map(|device| {
        let model = device.model.unwrap_or_default();
        let (mtu, vlan) = (device.mtu, device.vlan);
        (DEFAULT_DEVICE, Wanted { bridge: &device.bridge, model, mtu, vlan })
    });
    let more = network.additional_devices.iter().flatten().map(|device| {
        let model = device.model.unwrap_or_default();
        let (mtu, vlan) = (device.mtu, device.vlan);
        (device.name.as_str(), Wanted { bridge: &device.bridge, model, mtu, vlan })
    });
    default.chain(more).collect()
}

impl Wanted<'_> {
    /// Whether a device is as the machine asks for it, in all that the machine names.
    fn is(&self, device: &NetDevice) -> bool {
        device.model() == Some(self.model.as_str())
            && device.bridge() == Some(self.bridge)
            && self.mtu.is_none_or(|mtu| device.mtu() == Some(mtu))
            && self.vlan.is_none_or(|vlan| device.vlan() == Some(vlan))
    }

    /// The device as it is to be. What the machine cannot say is kept from the one that was found.
    fn written(&self, found: Option<NetDevice>) -> NetDevice {
        let model = self.model.as_str();
        let mut device = found.unwrap_or_else(|| NetDevice::new(model));
        if device.model() != Some(model) {
            device.set_model(model);
        }
        device.set("bridge", self.bridge);
        device.remove(LINK_DOWN);
        for (key, value) in [("mtu", self.mtu), ("tag", self.vlan)] {
            match value {
                Some(value) => device.set(key, value),
                None => device.remove(key),
            }
        }
        device
    }
}

/// The devices to write. As soon as one differs, all that the machine names are written, and lose a
/// VLAN and an MTU that it does not name, as under capmox: those belong to the template's bridges,
/// and on the machine's they would put the guest into another network.
fn network(facts: &Facts, config: &VmConfig) -> Result<BTreeMap<String, String>, String> {
    let wanted = wanted_devices(facts);
    for (name, device) in &wanted {
        if network_device(name).is_none() {
            return Err(format!(
                "spec.network.additionalDevices: {name:?} is no network device of Proxmox: \
                 expected net1 to net31"
            ));
        }
        if !is_bridge(device.bridge) {
            return Err(format!(
                "spec.network: bridge {:?} of {name} is no name of a bridge of Proxmox: expected \
                 letters, digits, '-', '_' and '.'",
                device.bridge
            ));
        }
    }
    if wanted.iter().all(|(name, wanted)| config.net(name).is_some_and(|found| wanted.is(&found))) {
        return Ok(plugged_in(&wanted, config));
    }
    let written = wanted.into_iter().filter_map(|(name, wanted)| {
        let found = config.net(name);
        let device = wanted.written(found.clone());
        (found.as_ref() != Some(&device)).then(|| (name.to_owned(), device.to_string()))
    });
    Ok(written.collect())
}

/// Devices of the template whose cable is unplugged, with it plugged in: the guest would come up with an
/// address and reach nobody.
fn plugged_in(wanted: &[(&str, Wanted<'_>)], config: &VmConfig) -> BTreeMap<String, String> {
    let unplugged = wanted.iter().filter_map(|(name, _)| {
        let mut device =
            config.net(name).filter(|found| found.options().get(LINK_DOWN) == Some("1"))?;
        device.remove(LINK_DOWN);
        Some(((*name).to_owned(), device.to_string()))
    });
    unplugged.collect()
}

/// The device that the seed has to name and that has no MAC address yet.
pub(super) fn lacks_mac(facts: &Facts, config: &VmConfig) -> Option<String> {
    let has_mac = |name: &str| config.net(name).is_some_and(|device| device.mac().is_some());
    let mut named: Vec<&str> = wanted_devices(facts).into_iter().map(|(name, _)| name).collect();
    named.extend(facts.addresses.iter().map(|fact| fact.slot.device.as_str()));
    named.push(DEFAULT_DEVICE);
    named.into_iter().find(|name| !has_mac(name)).map(str::to_owned)
}

/// The tags to write, when the VM lacks some. Proxmox keeps tags in lower case.
fn tags(facts: &Facts, config: &VmConfig) -> Option<String> {
    let mut tags: Tags = config.tags();
    let mut added = false;
    for tag in facts.machine.spec.tags.iter().flatten() {
        added |= tags.insert(tag);
    }
    let address = facts.addresses.iter().find_map(|fact| {
        let default = fact.slot.device == DEFAULT_DEVICE && fact.slot.family == Family::V4;
        fact.address.as_ref().filter(|_| default).map(|address| address.ip)
    });
    if let Some(address) = address {
        added |= tags.insert(&format!("ip_{DEFAULT_DEVICE}_{address}"));
    }
    added.then(|| tags.to_string())
}

/// The size in GiB to grow the boot volume to; `None` when it is large enough.
///
/// # Errors
/// A text for people when there is no such volume.
pub(super) fn growth(volume: &BootVolume, config: &VmConfig) -> Result<Option<u32>, String> {
    let disk = &volume.disk;
    let gib = u32::try_from(volume.size_gb).map_err(|_| {
        format!("spec.disks.bootVolume.sizeGb {} is no size in GiB", volume.size_gb)
    })?;
    let Some(drive) = config.drive(disk).filter(|drive| !drive.is_cdrom()) else {
        let mut text = format!("the template has no disk {disk} (spec.disks.bootVolume.disk)");
        let mut separator = "; it has ";
        for (key, _) in config.options().iter().filter(|(key, _)| is_disk(key)) {
            if config.drive(key).is_some_and(|drive| !drive.is_cdrom()) {
                let _ = write!(text, "{separator}{key}");
                separator = ", ";
            }
        }
        return Err(text);
    };
    Ok(match drive.size() {
        Some(size) if size >= u64::from(gib) * GIB => None,
        _ => Some(gib),
    })
}

fn is_disk(key: &str) -> bool {
    ["scsi", "virtio", "sata", "ide"]
        .iter()
        .any(|bus| key.strip_prefix(bus).is_some_and(|number| number.parse::<u8>().is_ok()))
}

/// Whether claims of ours have no answer and nobody says why: then their pools are looked at.
pub(super) fn has_silent_claims(facts: &Facts) -> bool {
    facts.addresses.iter().any(|fact| {
        let silent = fact.claim.as_ref().is_some_and(|claim| claim.ours && claim.message.is_none());
        fact.address.is_none() && fact.wrong.is_none() && silent && fact.pool_trouble.is_none()
    })
}

/// What is missing of the addresses, with what their provider says; `None` when all are there.
pub(super) fn missing_addresses(facts: &Facts) -> Option<String> {
    if let Some(trouble) = &facts.ipam_trouble {
        return Some(trouble.clone());
    }
    let machine = facts.name();
    let missing: Vec<String> = facts
        .addresses
        .iter()
        .filter(|fact| fact.address.is_none())
        .map(|fact| {
            let claim = fact.slot.claim_name(machine);
            let pool = &fact.slot.pool;
            match (&fact.wrong, &fact.claim) {
                (Some(wrong), _) => wrong.clone(),
                (None, Some(found)) if !found.ours => format!(
                    "IPAddressClaim {claim} belongs to another object: delete it to let this \
                     machine claim its own"
                ),
                (None, Some(found)) => match &found.message {
                    Some(message) => format!("IPAddressClaim {claim} at {pool}: {message}"),
                    None => format!(
                        "IPAddressClaim {claim} at {pool} has no answer yet{}",
                        fact.pool_trouble.as_deref().unwrap_or_default()
                    ),
                },
                (None, None) => format!("IPAddressClaim {claim} at {pool} is not made yet"),
            }
        })
        .collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

#[cfg(test)]
mod tests;

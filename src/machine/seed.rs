//! The seed of a machine: what goes into it, what it is called, and how it gets into the VM's
//! drive and out of it. Pure.

use std::collections::BTreeMap;

use secrecy::ExposeSecret;

use super::decide::provider_id;
use super::facts::{BootstrapData, Facts, VmSeen};
use crate::api::{AdditionalNetworkDevice, ProxmoxMachineStatus};
use crate::bootstrap::network::{Ethernet, NetworkPlan, Static, asked};
use crate::bootstrap::{Format, Metadata, Place, Problem, SeedFiles, asks_for_place, seed};
use crate::hypervisor::{Operation, TaskState};
use crate::ids::{StorageName, VmId};
use crate::ipam::{DEFAULT_DEVICE, Family};
use crate::pve::{BootOrder, VmConfig};
use crate::seen::Seen;

/// Tag of a VM whose seed is in use: capmox's, so that each cleans up after the other.
pub(super) const TAG: &str = "go-proxmox+cloud-init";

/// Drive that takes the seed.
const DRIVE: &str = "ide0";

/// The seed's files.
///
/// # Errors
/// A text for people that names device and field.
pub(super) fn files(
    facts: &Facts,
    config: &VmConfig,
    data: &BootstrapData,
) -> Result<SeedFiles, String> {
    let format = Format::from_secret(data.format.as_deref()).map_err(|why| why.to_string())?;
    let uuid = config.uuid().unwrap_or_default();
    let settings = facts.machine.spec.metadata_settings.as_ref();
    let injected = settings.and_then(|settings| settings.provider_id_injection) == Some(true);
    let identity = Metadata {
        provider_id: injected.then(|| provider_id(&uuid)),
        instance_id: uuid,
        hostname: facts.name().to_owned(),
        kubernetes_version: facts.owner.as_ref().and_then(|owner| owner.spec.version.clone()),
        place: place(facts).filter(|_| asks_for_place(data.value.expose_secret())),
    };
    let plan = plan(facts, config).map_err(|why| why.to_string())?;
    SeedFiles::render(format, data.value.expose_secret(), &identity, &plan)
        .map_err(|why| why.to_string())
}

/// Where the VM is, as seen now.
fn place(facts: &Facts) -> Option<Place> {
    let Some(VmSeen::Present(vm)) = &facts.vm else { return None };
    let node = vm.node.to_string();
    let domain = facts.owner.as_ref().and_then(|owner| owner.spec.failure_domain.clone());
    let zone = domain.filter(|domain| !domain.is_empty()).unwrap_or_else(|| node.clone());
    Some(Place { node, zone })
}

/// The guest's network: the default device first, then the additional ones as listed.
fn plan(facts: &Facts, config: &VmConfig) -> Result<NetworkPlan, Problem> {
    let network = facts.machine.spec.network.as_ref();
    let default = network.and_then(|network| network.default.as_ref());
    let additional = network.and_then(|network| network.additional_devices.as_deref());
    let dns = facts.infra.as_ref().map(|infra| infra.spec.dns_servers.clone()).unwrap_or_default();
    let ethernet = |index: usize, device: &str, own: Option<&Vec<String>>| {
        let mac = config.net(device).and_then(|net| net.mac().map(str::to_ascii_lowercase));
        Ethernet {
            ipv4: address(facts, device, Family::V4),
            ipv6: address(facts, device, Family::V6),
            dns_servers: own.filter(|own| !own.is_empty()).unwrap_or(&dns).clone(),
            ..Ethernet::new(index, device, mac.unwrap_or_default())
        }
    };
    let mut first =
        ethernet(0, DEFAULT_DEVICE, default.and_then(|device| device.dns_servers.as_ref()));
    // An MTU of 1 tells Proxmox to use the bridge's; it is none that a guest could set.
    first.mtu = default.and_then(|device| device.mtu).filter(|mtu| *mtu >= 576);
    let mut ethernets = vec![first];
    for (index, device) in additional.into_iter().flatten().enumerate() {
        ethernets.push(additional_ethernet(
            ethernet(index + 1, &device.name, device.dns_servers.as_ref()),
            device,
        )?);
    }
    let vrfs = network.and_then(|network| network.vrfs.as_deref());
    let vrfs = vrfs.into_iter().flatten().map(asked::vrf).collect::<Result<_, _>>()?;
    Ok(NetworkPlan { ethernets, vrfs })
}

fn additional_ethernet(
    ethernet: Ethernet,
    device: &AdditionalNetworkDevice,
) -> Result<Ethernet, Problem> {
    Ok(Ethernet {
        mtu: device.link_mtu,
        routes: asked::routes(&device.name, device.routes.as_deref())?,
        routing_policy: asked::rules(&device.name, device.routing_policy.as_deref())?,
        ..ethernet
    })
}

fn address(facts: &Facts, device: &str, family: Family) -> Option<Static> {
    let is_it = |slot: &crate::ipam::Slot| slot.device == device && slot.family == family;
    let found = facts.addresses.iter().find(|fact| is_it(&fact.slot))?.address.as_ref()?;
    Some(Static {
        address: format!("{}/{}", found.ip, found.prefix),
        gateway: found.gateway.map(|gateway| gateway.to_string()),
        metric: found.metric,
    })
}

/// Volume id of a VM's seed.
pub(super) fn volume(storage: &StorageName, vmid: VmId) -> String {
    format!("{storage}:iso/{}", seed::file_name(vmid))
}

/// Where the seed is going to be, recorded together with the task of the clone that is to get it: by
/// the time of its upload it has to be. Where that is not known yet it is a write of its own.
pub(super) fn foresee(facts: &Facts, status: &mut ProxmoxMachineStatus) {
    let clones =
        matches!(&facts.task, Some(TaskState::Running { operation: Operation::Clone, .. }));
    let (Some(vmid), Some(Seen::Present(storages))) = (facts.vmid(), &facts.iso_storages) else {
        return;
    };
    let is_due = clones && facts.machine.spec.provider_id.is_none() && !facts.is_deleted();
    if let Some(storage) = storages.first().filter(|_| is_due && status.bootstrap_iso.is_none()) {
        status.bootstrap_iso = Some(volume(storage, vmid));
        status.bootstrap_iso_node.clone_from(&status.proxmox_node);
    }
}

/// Whether a volume id is that of a VM's seed, on whatever storage.
pub(super) fn is_for(volume: &str, vmid: VmId) -> bool {
    volume
        .split_once(":iso/")
        .is_some_and(|(storage, file)| !storage.is_empty() && file == seed::file_name(vmid))
}

/// The storage of a volume.
pub(super) fn storage_of(volume: &str) -> Option<StorageName> {
    volume.split_once(':')?.0.parse().ok()
}

/// Volume id of the seed in the VM's drive, if it is there.
pub(super) fn attached(config: &VmConfig, vmid: VmId) -> Option<String> {
    let drive = config.drive(DRIVE)?;
    drive.volume().filter(|volume| is_for(volume, vmid)).map(str::to_owned)
}

/// Options that put the seed into the drive. `tags` are those about to be written, if any.
///
/// The drive is appended to an explicit boot order, as capmox does; the disk stays before it.
pub(super) fn attach(
    volume: &str,
    config: &VmConfig,
    tags: Option<&str>,
) -> BTreeMap<String, String> {
    let mut options = BTreeMap::from([(DRIVE.to_owned(), format!("{volume},media=cdrom"))]);
    let mut tags = tags.map_or_else(|| config.tags(), crate::pve::Tags::parse);
    tags.insert(TAG);
    options.insert("tags".to_owned(), tags.to_string());
    // A second NoCloud source: the guest would take either, and with it other addresses or none.
    for (key, _) in config.options().iter().filter(|(key, value)| {
        key.as_str() != DRIVE
            && value.contains("cloudinit")
            && config.drive(key).is_some_and(|drive| drive.is_cdrom())
    }) {
        options.insert(key.clone(), String::new());
    }
    let order = config.boot_order();
    let is_explicit = config.get("boot").is_some_and(|boot| boot.contains("order="));
    if is_explicit && !order.contains(DRIVE) {
        // Proxmox refuses an order that names a device which is not there, or goes with the same call.
        let stays = |device: &&String| {
            config.get(device).is_some() && options.get(*device).is_none_or(|text| !text.is_empty())
        };
        let devices = order.devices().iter().filter(stays).cloned();
        let order: BootOrder = devices.chain([DRIVE.to_owned()]).collect();
        options.insert("boot".to_owned(), order.to_string());
    }
    options
}

/// Options that take the seed out of the drive, and the tag off.
pub(super) fn detach(config: &VmConfig) -> BTreeMap<String, String> {
    let mut options = untag(config);
    options.extend(empty_drive());
    options
}

/// Options that take the seed out of the drive.
pub(super) fn empty_drive() -> BTreeMap<String, String> {
    BTreeMap::from([(DRIVE.to_owned(), "none,media=cdrom".to_owned())])
}

/// Options that take the tag off.
pub(super) fn untag(config: &VmConfig) -> BTreeMap<String, String> {
    let mut tags = config.tags();
    tags.remove(TAG);
    BTreeMap::from([("tags".to_owned(), tags.to_string())])
}

/// Whether the drive for the seed holds something that must not be thrown out.
pub(super) fn is_drive_taken(config: &VmConfig) -> bool {
    config.drive(DRIVE).is_some_and(|drive| !drive.is_cdrom())
}

#[cfg(test)]
mod tests;

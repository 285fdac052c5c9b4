//! What was seen of Proxmox, and what of it belongs to what is wanted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::SignedDuration;

use super::wanted::{self, Named, Template, Wanted};
use crate::hypervisor::for_seeds;
use crate::ids::{NodeName, StorageName, VmId};
use crate::placement::{Candidate, NoTemplate, TemplateRef, choose_template, verify_template};
use crate::preflight::{self, Need, Scope};
use crate::pve::{
    Bridge, DriveVolume, NodeSummary, Permissions, Resource, StorageStatus, Version, VmConfig, Vnet,
};
use crate::seen::Seen;

/// All that was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Version of Proxmox VE.
    pub version: Version,
    /// The server's clock less this machine's, to whole seconds.
    pub skew: Seen<SignedDuration>,
    /// Nodes.
    pub nodes: Seen<Vec<NodeSummary>>,
    /// Guests, as far as the credentials see them.
    pub guests: Seen<Vec<Candidate>>,
    /// Whether all nodes see the same volumes, by storage, where that is known.
    pub shared: BTreeMap<StorageName, bool>,
    /// Configurations of the templates that are wanted.
    pub templates: BTreeMap<VmId, Seen<VmConfig>>,
    /// Storages of the nodes that may be used.
    pub storages: BTreeMap<NodeName, Seen<Vec<StorageStatus>>>,
    /// Bridges of those nodes.
    pub bridges: BTreeMap<NodeName, Seen<Vec<Bridge>>>,
    /// Virtual networks.
    pub vnets: Seen<Vec<Vnet>>,
    /// Pools, as far as the credentials see them.
    pub pools: Seen<Vec<String>>,
    /// A VMID of each wanted range that Proxmox says is free; absent when none is.
    pub free: BTreeMap<(i64, i64), Seen<VmId>>,
    /// Privileges.
    pub permissions: Seen<Permissions>,
}

/// What ties the clones of a template to its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tie {
    /// The storage, and what is on it.
    pub why: String,
    /// What would untie them.
    pub remedy: String,
}

/// The guests in a listing.
pub fn guests(resources: &[Resource]) -> Vec<Candidate> {
    let of = |resource: &Resource| match resource {
        Resource::Vm(guest) | Resource::Container(guest) => Some(Candidate {
            node: guest.node.clone(),
            vmid: guest.vmid,
            is_template: guest.template,
            tags: guest.tags.clone(),
        }),
        _ => None,
    };
    resources.iter().filter_map(of).collect()
}

/// Which storages all nodes share, in a listing.
pub fn shared(resources: &[Resource]) -> BTreeMap<StorageName, bool> {
    let of = |resource: &Resource| match resource {
        Resource::Storage(storage) => Some((storage.storage.clone(), storage.shared?)),
        _ => None,
    };
    resources.iter().filter_map(of).collect()
}

/// Which guest is meant.
///
/// # Errors
/// A text for people.
pub fn find(template: &Template, guests: &[Candidate]) -> Result<TemplateRef, String> {
    let refused = |why: NoTemplate| why.to_string();
    match &template.named {
        Named::Tags(tags) => choose_template(tags, guests).map_err(refused),
        Named::Id { vmid, node } => {
            let vmid = VmId::try_from(*vmid).map_err(|error| error.to_string())?;
            let at = match node {
                Some(node) => node.parse::<NodeName>().map_err(|error| error.to_string())?,
                None => match guests.iter().find(|guest| guest.vmid == vmid) {
                    Some(guest) => guest.node.clone(),
                    None => return Err(refused(NoTemplate::NoSuchId { vmid })),
                },
            };
            verify_template(vmid, &at, guests).map_err(refused)
        }
    }
}

/// Storages of the template's disks, by name of the disk.
pub fn disks(config: &VmConfig) -> Vec<(String, Option<StorageName>)> {
    const BUSES: [&str; 4] = ["scsi", "virtio", "sata", "ide"];
    let is_disk = |key: &str| {
        let bus = key.trim_end_matches(|c: char| c.is_ascii_digit());
        bus.len() < key.len() && BUSES.contains(&bus)
    };
    let keys = config.options().keys().filter(|key| is_disk(key));
    keys.filter_map(|key| {
        let drive = config.drive(key).filter(|drive| !drive.is_cdrom())?;
        Some((key.clone(), drive.storage().and_then(|name| name.parse().ok())))
    })
    .collect()
}

impl Facts {
    /// What is known of a template that is wanted: where it is, and its configuration.
    pub fn template(&self, template: &Template) -> Option<(TemplateRef, &Seen<VmConfig>)> {
        let found = find(template, self.guests.present()?).ok()?;
        let config = self.templates.get(&found.vmid)?;
        Some((found, config))
    }

    /// Why Proxmox clones a template on its own node only, where storages tell that it does.
    pub fn tied(&self, template: &Template, config: &VmConfig) -> Option<Tie> {
        let is_local = |storage: &StorageName| self.shared.get(storage) == Some(&false);
        if let Some(volume) = config.volumes().into_iter().find(|it| is_local(&it.storage)) {
            let DriveVolume { key, storage, is_disc } = volume;
            let disc = if is_disc { "disc " } else { "" };
            let why = format!("its {disc}{key} is on {storage}, which is not shared");
            let vmid = self.template(template).map(|(found, _)| found.vmid.to_string());
            let remedy = match (is_disc, vmid) {
                (true, Some(vmid)) => format!("qm set {vmid} --delete {key}"),
                _ => "put it on shared storage".to_owned(),
            };
            return Some(Tie { why, remedy });
        }
        let storage = template.storage.as_ref()?.parse::<StorageName>().ok()?;
        is_local(&storage).then(|| Tie {
            why: format!("its clones go to {storage} (spec.storage), which is not shared"),
            remedy: "name shared storage in spec.storage".to_owned(),
        })
    }

    /// Whether a node answers, as the cluster says.
    pub fn is_online(&self, node: &NodeName) -> bool {
        let nodes = self.nodes.present();
        nodes.is_none_or(|nodes| {
            nodes.iter().any(|known| {
                known.node == *node && known.status.as_deref().is_none_or(|s| s == "online")
            })
        })
    }

    /// Where a bridge is in Proxmox's access rules.
    pub fn place(&self, bridge: &wanted::Bridge) -> preflight::Bridge {
        let zone = self.vnet(&bridge.name).and_then(|vnet| vnet.zone.clone());
        preflight::Bridge { zone, name: bridge.name.clone(), vlan: bridge.vlan }
    }

    /// The virtual network that a bridge is, if it is one.
    pub fn vnet(&self, name: &str) -> Option<&Vnet> {
        self.vnets.present()?.iter().find(|vnet| vnet.vnet == name)
    }
}

/// The nodes to look at: those that are wanted, or all.
pub fn nodes(wanted: &Wanted, nodes: &[NodeSummary]) -> Vec<NodeName> {
    let is_wanted =
        |node: &NodeName| wanted.nodes.is_empty() || wanted.nodes.contains(node.as_str());
    nodes.iter().map(|known| known.node.clone()).filter(is_wanted).collect()
}

/// What the provider has to be allowed for what is wanted.
pub fn scope(wanted: &Wanted, facts: &Facts) -> Scope {
    let mut scope = Scope {
        pools: wanted.pools.clone(),
        no_pool: wanted.no_pool,
        no_agent: wanted.no_agent,
        ..Scope::default()
    };
    scope.disk_storages.extend(wanted.storages.iter().filter_map(|name| name.parse().ok()));
    for template in &wanted.templates {
        let named = template.storage.as_ref().and_then(|name| name.parse().ok());
        scope.disk_storages.extend(named);
        if let Some((found, config)) = facts.template(template) {
            scope.templates.insert(found.vmid);
            if let (None, Some(config)) = (&template.storage, config.present()) {
                scope.disk_storages.extend(disks(config).into_iter().filter_map(|(_, at)| at));
            }
        } else if let Named::Id { vmid, .. } = &template.named {
            scope.templates.extend(VmId::try_from(*vmid));
        }
    }
    scope.bridges = bridges(wanted, facts).iter().map(|bridge| facts.place(bridge)).collect();
    for storages in facts.storages.values().filter_map(Seen::present) {
        // Of several the first one is taken; the others that are named stand in for it.
        let all = for_seeds(storages, &wanted.iso_storages).into_iter();
        let taken = if wanted.iso_storages.is_empty() { 1 } else { usize::MAX };
        scope.iso_storages.extend(all.take(taken).map(|found| found.storage.clone()));
    }
    scope.nodes.extend(facts.storages.keys().cloned());
    scope
}

/// The bridges that VMs are going to be on: those that are wanted, and those of the templates,
/// which their clones keep.
pub fn bridges(wanted: &Wanted, facts: &Facts) -> BTreeSet<wanted::Bridge> {
    let mut bridges = wanted.bridges.clone();
    let configs =
        wanted.templates.iter().filter_map(|template| facts.template(template)?.1.present());
    for (_, device) in configs.flat_map(VmConfig::net_devices) {
        let name = device.bridge().map(str::to_owned);
        bridges.extend(name.map(|name| wanted::Bridge { name, vlan: device.vlan() }));
    }
    bridges
}

/// Privileges for what is wanted, on the release that was seen.
pub fn needs(wanted: &Wanted, facts: &Facts) -> Vec<Need> {
    // A release that is not known is more like the latest than like any before.
    let release = facts.version.major().unwrap_or(9);
    preflight::needs(release, &scope(wanted, facts))
}

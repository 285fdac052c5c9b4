//! To which nodes Proxmox can clone a template, as far as its storages tell. Pure.
//!
//! Proxmox refuses another target node while any volume of the source, disc or disk, is on storage
//! that is not shared, or while the target storage is none that is, and a target storage that the node
//! does not have.

use super::super::facts::PlacementFacts;
use crate::api::ProxmoxMachineSpec;
use crate::ids::{NodeName, StorageName};
use crate::placement::TemplateRef;
use crate::pve::{DriveVolume, VmConfig};

/// Where clones of a template can be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// The only node, and why.
    only: Option<(NodeName, String)>,
    /// The storage that the clone goes to, with the nodes that have it, where that is known.
    storage: Option<(StorageName, std::collections::BTreeSet<NodeName>)>,
}

impl Reach {
    /// Whether a clone can be made on a node.
    ///
    /// # Errors
    /// A text for people that names the storage and the remedy.
    pub(super) fn allows(&self, node: &NodeName) -> Result<(), String> {
        if let Some((only, why)) = &self.only
            && only != node
        {
            return Err(why.clone());
        }
        match &self.storage {
            Some((storage, nodes)) if !nodes.contains(node) => Err(format!(
                "node {node} has no storage {storage} (spec.storage): make the storage available \
                 there, or leave the node out"
            )),
            _ => Ok(()),
        }
    }
}

/// Refuses what Proxmox refuses for every node.
///
/// # Errors
/// A text for people that names the fields.
pub(super) fn check(spec: &ProxmoxMachineSpec) -> Result<(), String> {
    let given = [
        ("spec.storage", spec.storage.as_deref().is_some_and(|text| !text.is_empty())),
        ("spec.format", spec.format.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given && !spec.is_full_clone()) {
        Some((field, _)) => Err(format!(
            "{field} needs a full clone: a linked clone (spec.full: false) shares the template's \
             volumes where they are. Remove {field} or spec.full"
        )),
        None => Ok(()),
    }
}

/// Works out where the template can be cloned to. What the credentials do not show is left to
/// Proxmox to judge.
pub(super) fn reach(
    spec: &ProxmoxMachineSpec,
    template: &TemplateRef,
    config: Option<&VmConfig>,
    world: &PlacementFacts,
) -> Reach {
    let is_local = |storage: &StorageName| {
        world.storages.get(storage).is_some_and(|found| found.shared == Some(false))
    };
    let local =
        config.into_iter().flat_map(VmConfig::volumes).find(|volume| is_local(&volume.storage));
    let local = local.map(|DriveVolume { key, storage, is_disc }| {
        let remedy = if is_disc {
            "take the disc or the drive out of the template"
        } else {
            "put the template on shared storage, or have one on each node"
        };
        format!(
            "volume {key} of template {template} is on storage {storage}, which is not shared, so \
             it can be cloned on {} only: {remedy}",
            template.node
        )
    });
    let storage = spec.storage.as_deref().and_then(|name| name.parse::<StorageName>().ok());
    let storage = storage.and_then(|name| {
        let nodes = world.storages.get(&name)?.nodes.clone();
        Some((name, nodes))
    });
    let to_local = || {
        let (name, _) = storage.as_ref().filter(|(name, _)| is_local(name))?;
        Some(format!(
            "storage {name} (spec.storage) is not shared, so Proxmox clones template {template} to \
             it on {} only: name shared storage, or have a template on each node",
            template.node
        ))
    };
    let only = local.or_else(to_local).map(|why| (template.node.clone(), why));
    Reach { only, storage }
}

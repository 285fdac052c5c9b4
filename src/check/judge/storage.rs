//! Storages: for the bootstrap data on every node, and for the disks.

use std::collections::{BTreeMap, BTreeSet};

use super::{gib, listed};
use crate::check::facts::{Facts, disks};
use crate::check::report::Finding;
use crate::check::wanted::{Template, Wanted};
use crate::hypervisor::for_seeds;
use crate::ids::{NodeName, StorageName};
use crate::pve::{StorageStatus, VmConfig};
use crate::seen::Seen;

const CHECK: &str = "storage";
const GIB: u64 = 1 << 30;

/// Room for the bootstrap data of a hundred machines.
const ISO_ROOM: u64 = 64 << 20;

pub(super) fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let mut findings = silent(facts);
    findings.extend(bootstrap(wanted, facts));
    for (storage, demand) in demands(wanted, facts) {
        findings.extend(for_disks(&storage, &demand, facts));
    }
    findings
}

/// Nodes whose storages are not known.
fn silent(facts: &Facts) -> Vec<Finding> {
    let of = |(node, seen): (&NodeName, &Seen<Vec<StorageStatus>>)| match seen {
        Seen::Unknown(why) => Some(Finding::unknown(CHECK, format!("all of {node}"), why)),
        Seen::Present(list) if list.is_empty() => {
            let text = "none is shown: the token may see none";
            Some(Finding::unknown(CHECK, format!("all of {node}"), text).remedy(
                "give Datastore.Audit on the storages of disks and bootstrap data \
                 (docs/permissions.md)",
            ))
        }
        Seen::Present(_) | Seen::Absent => None,
    };
    facts.storages.iter().filter_map(of).collect()
}

fn shown(facts: &Facts) -> impl Iterator<Item = (&NodeName, &Vec<StorageStatus>)> {
    let shown = facts.storages.iter().filter_map(|(node, seen)| Some((node, seen.present()?)));
    shown.filter(|(_, list)| !list.is_empty())
}

/// Each node needs a storage that takes ISO images.
fn bootstrap(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let mut good: BTreeMap<&StorageName, Vec<(&NodeName, Option<u64>)>> = BTreeMap::new();
    let mut bad = Vec::new();
    for (node, list) in shown(facts) {
        match for_seeds(list, &wanted.iso_storages).into_iter().next() {
            Some(storage) if storage.avail.is_some_and(|avail| avail < ISO_ROOM) => {
                let left = gib(storage.avail.unwrap_or(0));
                let text = format!("no room for bootstrap data on {node}: {left} left");
                bad.push(
                    Finding::failed(CHECK, storage.storage.to_string(), text)
                        .remedy("remove images or backups from it"),
                );
            }
            Some(storage) => good.entry(&storage.storage).or_default().push((node, storage.avail)),
            None => bad.push(no_iso(node, list, &wanted.iso_storages)),
        }
    }
    let good = good.into_iter().map(|(storage, nodes)| {
        let least = nodes.iter().filter_map(|(_, avail)| *avail).min();
        let free = least.map(|bytes| format!(", {} free", gib(bytes))).unwrap_or_default();
        let nodes = listed(nodes.into_iter().map(|(node, _)| node));
        let text = format!("takes ISO images for bootstrap data on {nodes}{free}");
        Finding::good(CHECK, storage.to_string(), text)
    });
    good.chain(bad).collect()
}

fn no_iso(node: &NodeName, list: &[StorageStatus], told: &[StorageName]) -> Finding {
    let has_iso = |storage: &&StorageStatus| {
        storage.content.iter().any(|kind| kind == "iso")
            && (told.is_empty() || told.contains(&storage.storage))
    };
    if !told.is_empty() && !list.iter().any(|storage| has_iso(&storage)) {
        let others = list.iter().filter(|storage| storage.takes("iso"));
        let others = listed(others.map(|storage| &storage.storage));
        let others = if others.is_empty() { "none".to_owned() } else { others };
        let names = listed(told);
        let text = format!("{names} (--iso-storage) takes no ISO images there; others: {others}");
        return Finding::failed(CHECK, format!("ISO on {node}"), text).remedy(
            "add iso to the content of one of them, or name another by --iso-storage of the manager",
        );
    }
    let off = list.iter().find(has_iso);
    let text = match off {
        Some(storage) => format!(
            "{} takes ISO images and is {}",
            storage.storage,
            if storage.enabled == Some(false) { "disabled" } else { "not active" }
        ),
        None => "no storage takes ISO images, for bootstrap data".to_owned(),
    };
    let remedy = match off {
        Some(storage) => format!("pvesm set {} --disable 0, and check it", storage.storage),
        None => "pvesm set local --content iso,vztmpl,backup (Datacenter, Storage, Content: ISO \
                 image), or give Datastore.Audit on the one there is"
            .to_owned(),
    };
    Finding::failed(CHECK, format!("ISO on {node}"), text).remedy(remedy)
}

/// What is to be put on a storage.
#[derive(Debug, Default)]
struct Demand {
    /// Nodes that it has to be on.
    nodes: BTreeSet<NodeName>,
    /// Bytes that one machine may come to take.
    bytes: u64,
}

fn demands(wanted: &Wanted, facts: &Facts) -> BTreeMap<StorageName, Demand> {
    let mut demands: BTreeMap<StorageName, Demand> = BTreeMap::new();
    let all: BTreeSet<NodeName> = facts.storages.keys().cloned().collect();
    for name in wanted.storages.iter().filter_map(|name| name.parse().ok()) {
        demands.entry(name).or_default().nodes.extend(all.iter().cloned());
    }
    for template in &wanted.templates {
        let found = facts.template(template);
        let config = found.as_ref().and_then(|(_, config)| config.present());
        let bytes = config.map_or(0, |config| size(template, config));
        let local = config.is_some_and(|config| facts.tied(template, config).is_some());
        let nodes = match &found {
            Some((found, _)) if local => [found.node.clone()].into(),
            _ => all.clone(),
        };
        let storages: Vec<StorageName> = match &template.storage {
            Some(name) => name.parse().into_iter().collect(),
            None => config.map(disks).unwrap_or_default().into_iter().filter_map(|d| d.1).collect(),
        };
        for storage in storages {
            let demand = demands.entry(storage).or_default();
            demand.nodes.extend(nodes.iter().filter(|node| all.contains(node)).cloned());
            demand.bytes = demand.bytes.max(bytes);
        }
    }
    demands
}

/// What a full clone comes to; a linked one begins with nothing.
fn size(template: &Template, config: &VmConfig) -> u64 {
    if !template.full {
        return 0;
    }
    let of = |(name, _): (String, Option<StorageName>)| {
        let found = config.drive(&name).and_then(|drive| drive.size()).unwrap_or(0);
        let grown = template.boot_volume.as_ref().filter(|(disk, _)| *disk == name);
        let grown = grown.and_then(|(_, gib)| u64::try_from(*gib).ok()).unwrap_or(0) * GIB;
        found.max(grown)
    };
    disks(config).into_iter().map(of).sum()
}

fn for_disks(name: &StorageName, demand: &Demand, facts: &Facts) -> Vec<Finding> {
    let mut good = Vec::new();
    let mut findings = Vec::new();
    for (node, list) in shown(facts).filter(|(node, _)| demand.nodes.contains(node)) {
        let found = list.iter().find(|storage| storage.storage == *name);
        match on_node(name, node, found, demand, facts) {
            Ok(avail) => good.push((node, avail)),
            Err(finding) => findings.push(finding),
        }
    }
    if !good.is_empty() {
        let least = good.iter().filter_map(|(_, avail)| *avail).min();
        let free = least.map(|bytes| format!(", {} free", gib(bytes))).unwrap_or_default();
        let nodes = listed(good.into_iter().map(|(node, _)| node));
        let text = format!("takes disks on {nodes}{free}");
        findings.insert(0, Finding::good(CHECK, name.to_string(), text));
    }
    findings
}

/// The bytes that are left, as far as they are told.
fn on_node(
    name: &StorageName,
    node: &NodeName,
    found: Option<&StorageStatus>,
    demand: &Demand,
    facts: &Facts,
) -> Result<Option<u64>, Finding> {
    let failed = |text: String| Finding::failed(CHECK, name.to_string(), text);
    let Some(storage) = found else {
        let path = format!("/storage/{name}");
        let sees = |privilege| {
            facts.permissions.present().is_some_and(|held| held.holds(&path, privilege))
        };
        if !sees("Datastore.Audit") && !sees("Datastore.AllocateSpace") {
            let text = format!("is not shown on {node}: it is not there, or may not be seen");
            return Err(Finding::unknown(CHECK, name.to_string(), text)
                .remedy(format!("give Datastore.Audit on {path}")));
        }
        return Err(failed(format!("does not exist on {node}")).remedy(
            "make it available there (Datacenter, Storage, Nodes), leave the node out of \
             allowedNodes, or correct spec.storage",
        ));
    };
    if !storage.content.iter().any(|kind| kind == "images") {
        let has = storage.content.join(",");
        return Err(failed(format!("takes no disks, but {has}"))
            .remedy(format!("pvesm set {name} --content {has},images, or another spec.storage")));
    }
    if !storage.takes("images") {
        return Err(failed(format!("is disabled or not active on {node}"))
            .remedy(format!("pvesm status --storage {name}")));
    }
    match storage.avail {
        Some(avail) if avail < demand.bytes => {
            let (left, wanted) = (gib(avail), gib(demand.bytes));
            let text = format!("{left} free on {node}, and a machine takes up to {wanted}");
            let remedy = "make room, or put the disks elsewhere (spec.storage)";
            // Elsewhere a disk takes what is written to it.
            let thick = matches!(storage.kind.as_deref(), Some("lvm"));
            Err(if thick || avail == 0 {
                failed(text).remedy(remedy)
            } else {
                Finding::unknown(CHECK, name.to_string(), text).remedy(remedy)
            })
        }
        avail => Ok(avail),
    }
}

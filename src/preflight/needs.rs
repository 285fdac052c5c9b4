//! The privileges by what they are for. Which call asks for which one is in Proxmox's API viewer;
//! docs/permissions.md has the roles to make of them.

use std::collections::BTreeSet;

use super::{Need, Place};
use crate::ids::{NodeName, StorageName, VmId};

/// A bridge or VNet that VMs are put on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bridge {
    /// SDN zone; `None` for a bridge of the nodes, which Proxmox calls `localnetwork`.
    pub zone: Option<String>,
    /// Its name, such as `vmbr0`.
    pub name: String,
    /// VLAN tag of the VM's network device.
    pub vlan: Option<u16>,
}

impl Bridge {
    /// Its path in Proxmox's access rules.
    pub fn path(&self) -> String {
        let zone = self.zone.as_deref().unwrap_or("localnetwork");
        let name = &self.name;
        match self.vlan {
            Some(vlan) => format!("/sdn/zones/{zone}/{name}/{vlan}"),
            None => format!("/sdn/zones/{zone}/{name}"),
        }
    }
}

/// What the provider is going to work with. Where nothing is named, a privilege counts wherever it
/// is held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Templates that are cloned.
    pub templates: BTreeSet<VmId>,
    /// Pools that VMs are put into (`spec.pool`).
    pub pools: BTreeSet<String>,
    /// Whether there are VMs, beside those, that are put into no pool. Without it, and without
    /// pools, privileges on any pool count.
    pub no_pool: bool,
    /// Storages that the disks of VMs are on: `spec.storage`, or those of the template.
    pub disk_storages: BTreeSet<StorageName>,
    /// Storages with content `iso` that bootstrap data is put on.
    pub iso_storages: BTreeSet<StorageName>,
    /// Nodes that VMs are placed on.
    pub nodes: BTreeSet<NodeName>,
    /// Bridges of the VMs, with those of the templates.
    pub bridges: BTreeSet<Bridge>,
    /// Whether no guest agent is asked (`spec.checks.skipQemuGuestAgent`).
    pub no_agent: bool,
}

/// Privileges on the VMs that the provider makes.
const VM: &[(&str, &str)] = &[
    ("VM.Allocate", "create and destroy VMs"),
    ("VM.Audit", "see its VMs and their configuration"),
    ("VM.Config.CDROM", "attach and eject the bootstrap data"),
    ("VM.Config.CPU", "set sockets and cores"),
    ("VM.Config.Cloudinit", "empty a cloud-init drive that the template has"),
    ("VM.Config.Disk", "grow the boot volume and set the boot order"),
    ("VM.Config.Memory", "set the memory"),
    ("VM.Config.Network", "set network devices"),
    ("VM.Config.Options", "set description and tags"),
    ("VM.PowerMgmt", "start and stop VMs"),
];

const TEMPLATE: &[(&str, &str)] =
    &[("VM.Audit", "see the template"), ("VM.Clone", "clone the template")];

/// The first release that tells what the guest agent is asked apart, and has no VM.Monitor.
const AGENT_PRIVILEGES: u32 = 9;

/// The first release on which using a bridge takes a privilege.
const BRIDGE_PRIVILEGES: u32 = 8;

/// Every privilege that the provider needs on `release` (major version: 7, 8, 9) for `scope`, each
/// once, ordered by what it is about.
pub fn needs(release: u32, scope: &Scope) -> Vec<Need> {
    let mut needs = vms(release, scope);
    needs.extend(templates(scope));
    needs.extend(storages(scope));
    needs.extend(nodes(scope));
    if release >= BRIDGE_PRIVILEGES {
        needs.extend(bridges(scope));
    }
    needs
}

fn need(
    places: &[Place],
    privilege: &'static str,
    or: Option<&'static str>,
    needed_for: &'static str,
) -> Need {
    Need { places: places.to_vec(), privilege, or, needed_for }
}

/// The VMs are not there yet, so all that comes to be below `/vms`, or in their pool, counts.
fn vms(release: u32, scope: &Scope) -> Vec<Need> {
    let below = || Place::Below("/vms".to_owned());
    let on = |pool: &String| vec![Place::On(format!("/pool/{pool}")), below()];
    let mut groups: Vec<Vec<Place>> = scope.pools.iter().map(on).collect();
    if scope.no_pool {
        groups.push(vec![below()]);
    } else if groups.is_empty() {
        groups.push(vec![below(), Place::Somewhere("/pool".to_owned())]);
    }
    let mut needs = Vec::new();
    for places in &groups {
        needs.extend(VM.iter().map(|(privilege, why)| need(places, privilege, None, why)));
        if scope.no_agent {
            continue;
        }
        if release < AGENT_PRIVILEGES {
            needs.push(need(places, "VM.Monitor", None, "ask the guest agent"));
        } else {
            let all = "VM.GuestAgent.Unrestricted";
            let why = "ask the guest agent whether the guest is up";
            needs.push(need(places, "VM.GuestAgent.Audit", Some(all), why));
            needs.push(need(places, all, None, "ask the guest how cloud-init ended"));
        }
    }
    needs
}

fn templates(scope: &Scope) -> Vec<Need> {
    let wanted = |places: &[Place]| {
        let of =
            |(privilege, why): &(&'static str, &'static str)| need(places, privilege, None, why);
        TEMPLATE.iter().map(of).collect::<Vec<_>>()
    };
    if scope.templates.is_empty() {
        let places = [Place::Somewhere("/vms".to_owned()), Place::Somewhere("/pool".to_owned())];
        // That something can be seen is asked for the VMs already.
        return wanted(&places).into_iter().filter(|need| need.privilege != "VM.Audit").collect();
    }
    let on = |vmid: &VmId| wanted(&[Place::On(format!("/vms/{vmid}"))]);
    scope.templates.iter().flat_map(on).collect()
}

fn storages(scope: &Scope) -> Vec<Need> {
    let on = |storages: &BTreeSet<StorageName>| -> Vec<Vec<Place>> {
        if storages.is_empty() {
            return vec![vec![Place::Somewhere("/storage".to_owned())]];
        }
        storages.iter().map(|name| vec![Place::On(format!("/storage/{name}"))]).collect()
    };
    let mut needs = Vec::new();
    for places in on(&scope.disk_storages) {
        let why = "put the disks of VMs on the storage";
        needs.push(need(&places, "Datastore.AllocateSpace", None, why));
        needs.push(need(&places, "Datastore.Audit", None, "see where the disks can be put"));
    }
    for places in on(&scope.iso_storages) {
        let see = "find the storage for bootstrap data and attach it";
        let see = need(&places, "Datastore.Audit", Some("Datastore.AllocateSpace"), see);
        // The same storage may hold disks too.
        if !needs.iter().any(|known| known.places == see.places && known.privilege == see.privilege)
        {
            needs.push(see);
        }
        let why = "store the bootstrap data of a machine";
        needs.push(need(&places, "Datastore.AllocateTemplate", None, why));
        let why = "delete the bootstrap data when the machine has used it";
        needs.push(need(&places, "Datastore.Allocate", None, why));
    }
    needs
}

fn nodes(scope: &Scope) -> Vec<Need> {
    let why = "see memory and processors of nodes, and logs of failed tasks";
    let audit = |place| need(&[place], "Sys.Audit", None, why);
    if scope.nodes.is_empty() {
        return vec![audit(Place::Somewhere("/nodes".to_owned()))];
    }
    scope.nodes.iter().map(|node| audit(Place::On(format!("/nodes/{node}")))).collect()
}

fn bridges(scope: &Scope) -> Vec<Need> {
    let used = |place| need(&[place], "SDN.Use", None, "connect VMs to the bridge");
    if scope.bridges.is_empty() {
        return vec![used(Place::Somewhere("/sdn/zones".to_owned()))];
    }
    scope.bridges.iter().map(|bridge| used(Place::On(bridge.path()))).collect()
}

//! What is to be looked at: the sum of what machine specs ask of Proxmox. Pure.

use std::collections::BTreeSet;

use crate::api::ProxmoxMachineSpec;
use crate::ids::StorageName;
use crate::placement::normalised_tags;

/// How a template is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// `spec.templateID`, with `spec.sourceNode` if that is said.
    Id {
        /// The number, as written.
        vmid: i64,
        /// The node.
        node: Option<String>,
    },
    /// `spec.templateSelector.matchTags`.
    Tags(Vec<String>),
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id { vmid, node: Some(node) } => write!(f, "{vmid} on {node}"),
            Self::Id { vmid, node: None } => write!(f, "{vmid}"),
            Self::Tags(tags) => write!(f, "tagged {}", tags.join(", ")),
        }
    }
}

/// A template, and what its clones are to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template {
    /// Which one.
    pub named: Named,
    /// `spec.storage`: where the clones' disks go; where the template's are when none.
    pub storage: Option<String>,
    /// Whether all data is copied.
    pub full: bool,
    /// `spec.disks.bootVolume`: disk and size in GiB.
    pub boot_volume: Option<(String, i32)>,
    /// Whether the guest agent is asked.
    pub agent: bool,
}

/// A bridge that VMs are to be on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// VLAN tag.
    pub vlan: Option<u16>,
}

impl std::fmt::Display for Bridge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.vlan {
            Some(vlan) => write!(f, "{} VLAN {vlan}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// All that is asked of Proxmox, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Templates to clone.
    pub templates: BTreeSet<Template>,
    /// Storages that are named without a template.
    pub storages: BTreeSet<String>,
    /// Nodes that may be used; all when empty.
    pub nodes: BTreeSet<String>,
    /// Bridges.
    pub bridges: BTreeSet<Bridge>,
    /// Pools.
    pub pools: BTreeSet<String>,
    /// Whether some VMs go into no pool.
    pub no_pool: bool,
    /// Storages for bootstrap data, the preferred one first; any when empty.
    pub iso_storages: Vec<StorageName>,
    /// Ranges of VMIDs, both ends included, as written.
    pub ranges: BTreeSet<(i64, i64)>,
    /// Whether no guest agent is asked.
    pub no_agent: bool,
    /// Whether some machines may go to any node.
    any_node: bool,
}

impl Wanted {
    /// The sum of what `specs` ask for; `allowed` are the nodes of the ProxmoxCluster.
    pub fn of<'a>(
        specs: impl IntoIterator<Item = &'a ProxmoxMachineSpec>,
        allowed: &[String],
    ) -> Self {
        let mut wanted = Self { no_agent: true, ..Self::default() };
        let mut none = true;
        for spec in specs {
            none = false;
            wanted.add(spec, allowed);
        }
        wanted.no_agent &= !none;
        if wanted.any_node {
            wanted.nodes.clear();
        }
        wanted
    }

    fn add(&mut self, spec: &ProxmoxMachineSpec, allowed: &[String]) {
        let agent = spec.checks.as_ref().is_none_or(|c| c.skip_qemu_guest_agent != Some(true));
        self.no_agent &= !agent;
        let storage = filled(spec.storage.as_ref());
        match named(spec) {
            Some(named) => {
                let volume = spec.disks.as_ref().and_then(|disks| disks.boot_volume.as_ref());
                self.templates.insert(Template {
                    named,
                    storage,
                    full: spec.is_full_clone(),
                    boot_volume: volume.map(|volume| (volume.disk.clone(), volume.size_gb)),
                    agent,
                });
            }
            None => self.storages.extend(storage),
        }
        let target = filled(spec.target.as_ref());
        let own = spec.allowed_nodes.as_deref().filter(|nodes| !nodes.is_empty());
        match (target, own.unwrap_or(allowed)) {
            (Some(target), _) => self.nodes.extend([target]),
            (None, []) => self.any_node = true,
            (None, nodes) => self.nodes.extend(nodes.iter().cloned()),
        }
        if let Some(network) = &spec.network {
            let default = network.default.iter().map(|device| (device.bridge.clone(), device.vlan));
            let more = network.additional_devices.iter().flatten();
            let more = more.map(|device| (device.bridge.clone(), device.vlan));
            self.bridges.extend(default.chain(more).map(|(name, vlan)| Bridge { name, vlan }));
        }
        match filled(spec.pool.as_ref()) {
            Some(pool) => self.pools.extend([pool]),
            None => self.no_pool = true,
        }
        self.ranges.extend(spec.vm_id_range.map(|range| (range.start, range.end)));
    }
}

fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

fn named(spec: &ProxmoxMachineSpec) -> Option<Named> {
    match (spec.template_id, &spec.template_selector) {
        (Some(vmid), _) => Some(Named::Id { vmid, node: filled(spec.source_node.as_ref()) }),
        (None, Some(selector)) => Some(Named::Tags(normalised_tags(&selector.match_tags))),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(value: serde_json::Value) -> ProxmoxMachineSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_several_machines_ask_for_is_asked_once() {
        let machine = |pool: Option<&str>, nodes: &[&str]| {
            spec(serde_json::json!({
                "templateID": 9000, "sourceNode": "pve1", "pool": pool, "storage": "shared",
                "allowedNodes": nodes, "vmIDRange": {"start": 200, "end": 299},
                "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
                "network": {
                    "default": {"bridge": "vmbr0", "vlan": 7},
                    "additionalDevices": [{"name": "net1", "bridge": "vmbr1"}],
                },
                "checks": {"skipQemuGuestAgent": true},
            }))
        };
        let (first, second) = (machine(None, &["pve1"]), machine(Some("lab"), &["pve2"]));
        let wanted = Wanted::of([&first, &first, &second], &["pve3".to_owned()]);
        assert_eq!(wanted.templates.len(), 1);
        assert_eq!(wanted.bridges.len(), 2);
        assert_eq!(wanted.ranges, [(200, 299)].into());
        assert_eq!(wanted.nodes, ["pve1".to_owned(), "pve2".to_owned()].into());
        assert_eq!(wanted.pools, ["lab".to_owned()].into());
        assert!(wanted.no_pool && wanted.no_agent);
    }

    #[test]
    fn a_machine_without_a_list_of_nodes_goes_where_the_cluster_says_or_anywhere() {
        let machine = spec(serde_json::json!({"storage": "shared"}));
        let listed = spec(serde_json::json!({"allowedNodes": ["pve1"]}));
        let cluster = ["pve3".to_owned()];
        assert_eq!(Wanted::of([&machine], &cluster).nodes, ["pve3".to_owned()].into());
        assert!(Wanted::of([&machine, &listed], &[]).nodes.is_empty());
        let target = spec(serde_json::json!({"target": "pve2"}));
        assert_eq!(Wanted::of([&target], &cluster).nodes, ["pve2".to_owned()].into());
        assert_eq!(Wanted::of([&machine], &[]).storages, ["shared".to_owned()].into());
    }

    #[test]
    fn where_nothing_is_said_the_agent_is_asked() {
        assert!(!Wanted::of([], &[]).no_agent);
    }
}

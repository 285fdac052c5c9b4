//! What concerns the cluster as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::ids::{NodeName, StorageName, VmId};
use crate::pve::upid::Upid;
use crate::pve::wire::{self, Tags};

/// Answer of `version`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Version {
    /// Such as `9.1.4`.
    #[serde(deserialize_with = "lenient_text")]
    pub version: String,
    /// Such as `9.1`.
    #[serde(deserialize_with = "wire::text")]
    pub release: Option<String>,
    /// Commit of the manager package.
    #[serde(deserialize_with = "wire::text")]
    pub repoid: Option<String>,
}

impl Version {
    /// Major version: 7, 8, 9.
    pub fn major(&self) -> Option<u32> {
        self.version.split(['.', '-']).next().and_then(|major| major.trim().parse().ok())
    }
}

fn lenient_text<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    wire::text(d).map(Option::unwrap_or_default)
}

/// An entry of `cluster/resources`.
///
/// Node, tags, lock and pool are current. Name, status and figures are broadcast about every ten
/// seconds, so a fresh VM lacks them for a while.
#[derive(Debug, Clone, PartialEq)]
pub enum Resource {
    /// `qemu`.
    Vm(GuestResource),
    /// `lxc`.
    Container(GuestResource),
    /// `node`.
    Node(NodeResource),
    /// `storage`, once for each node that has it.
    Storage(StorageResource),
    /// Anything else: pools, SDN, network, and entries without a usable id.
    Other,
}

/// A guest as listed.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestResource {
    /// Its number.
    pub vmid: VmId,
    /// Node that holds its configuration.
    pub node: NodeName,
    /// Name, once broadcast.
    pub name: Option<String>,
    /// `running`, `stopped`, `unknown` …, once broadcast.
    pub status: Option<String>,
    /// Whether it is a template; false too while not broadcast.
    pub template: bool,
    /// Sorted, in lower case.
    pub tags: Vec<String>,
    /// Lock of its configuration.
    pub lock: Option<String>,
    /// Pool that it is in.
    pub pool: Option<String>,
    /// State of its HA resource.
    pub hastate: Option<String>,
    /// Configured memory in bytes.
    pub maxmem: Option<u64>,
    /// Memory in use in bytes.
    pub mem: Option<u64>,
    /// Size of the boot disk in bytes.
    pub maxdisk: Option<u64>,
    /// Number of CPUs.
    pub maxcpu: Option<u64>,
    /// Seconds since its start.
    pub uptime: Option<u64>,
}

/// A node as listed.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeResource {
    /// Its name.
    pub node: NodeName,
    /// `online`, `offline`, `unknown`.
    pub status: Option<String>,
    /// State in the HA manager, such as `maintenance`.
    pub hastate: Option<String>,
    /// Physical memory in bytes.
    pub maxmem: Option<u64>,
    /// Memory in use in bytes.
    pub mem: Option<u64>,
    /// Number of CPUs.
    pub maxcpu: Option<u64>,
    /// Seconds since its start.
    pub uptime: Option<u64>,
}

/// A storage on a node as listed.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageResource {
    /// Its name.
    pub storage: StorageName,
    /// The node.
    pub node: NodeName,
    /// `available`, `unknown`.
    pub status: Option<String>,
    /// Whether all nodes see the same volumes.
    pub shared: Option<bool>,
    /// `iso`, `images` …
    pub content: Vec<String>,
    /// Size in bytes.
    pub maxdisk: Option<u64>,
    /// Bytes in use.
    pub disk: Option<u64>,
    /// `dir`, `lvmthin` …
    pub plugintype: Option<String>,
}

/// All fields that any kind of entry has.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawResource {
    #[serde(rename = "type", deserialize_with = "wire::text")]
    kind: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    id: Option<String>,
    #[serde(deserialize_with = "wire::signed")]
    vmid: Option<i64>,
    #[serde(deserialize_with = "wire::text")]
    node: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    storage: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    name: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    status: Option<String>,
    #[serde(deserialize_with = "wire::flag")]
    template: bool,
    #[serde(deserialize_with = "wire::text")]
    tags: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    lock: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    pool: Option<String>,
    #[serde(deserialize_with = "wire::text")]
    hastate: Option<String>,
    #[serde(deserialize_with = "wire::number")]
    maxmem: Option<u64>,
    #[serde(deserialize_with = "wire::number")]
    mem: Option<u64>,
    #[serde(deserialize_with = "wire::number")]
    maxdisk: Option<u64>,
    #[serde(deserialize_with = "wire::number")]
    disk: Option<u64>,
    #[serde(deserialize_with = "wire::number")]
    maxcpu: Option<u64>,
    #[serde(deserialize_with = "wire::number")]
    cpus: Option<u64>,
    #[serde(deserialize_with = "wire::number")]
    uptime: Option<u64>,
    #[serde(deserialize_with = "wire::boolean")]
    shared: Option<bool>,
    #[serde(deserialize_with = "wire::text_list")]
    content: Vec<String>,
    #[serde(deserialize_with = "wire::text")]
    plugintype: Option<String>,
}

impl RawResource {
    /// Kind and rest of the id, such as `qemu/100` or `node/pve1`.
    fn id_parts(&self) -> (Option<&str>, Option<&str>) {
        match self.id.as_deref().and_then(|id| id.split_once('/')) {
            Some((kind, rest)) => (Some(kind), Some(rest)),
            None => (None, None),
        }
    }

    fn guest(self, node: Option<NodeName>) -> Option<GuestResource> {
        let from_id = || self.id_parts().1.and_then(|rest| rest.parse().ok());
        let vmid = self.vmid.and_then(|vmid| VmId::try_from(vmid).ok()).or_else(from_id)?;
        Some(GuestResource {
            vmid,
            node: node?,
            template: self.template,
            tags: Tags::parse(self.tags.as_deref().unwrap_or_default()).into_vec(),
            name: self.name,
            status: self.status,
            lock: self.lock,
            pool: self.pool,
            hastate: self.hastate,
            maxmem: self.maxmem,
            mem: self.mem,
            maxdisk: self.maxdisk,
            maxcpu: self.maxcpu.or(self.cpus),
            uptime: self.uptime,
        })
    }

    fn node(self, node: Option<NodeName>) -> Option<NodeResource> {
        let from_id = || self.id_parts().1.and_then(|rest| rest.parse().ok());
        Some(NodeResource {
            node: node.or_else(from_id)?,
            status: self.status,
            hastate: self.hastate,
            maxmem: self.maxmem,
            mem: self.mem,
            maxcpu: self.maxcpu,
            uptime: self.uptime,
        })
    }

    fn storage(self, node: Option<NodeName>) -> Option<StorageResource> {
        Some(StorageResource {
            storage: self.storage?.parse().ok()?,
            node: node?,
            status: self.status,
            shared: self.shared,
            content: self.content,
            maxdisk: self.maxdisk,
            disk: self.disk,
            plugintype: self.plugintype,
        })
    }
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = RawResource::deserialize(d)?;
        let node = raw.node.as_deref().and_then(|node| node.parse().ok());
        let kind = raw.kind.clone().or_else(|| raw.id_parts().0.map(str::to_owned));
        let id = raw.id.clone();
        let read = match kind.as_deref() {
            Some("qemu") => raw.guest(node).map(Self::Vm),
            Some("lxc") => raw.guest(node).map(Self::Container),
            Some("node") => raw.node(node).map(Self::Node),
            Some("storage") => raw.storage(node).map(Self::Storage),
            _ => Some(Self::Other),
        };
        Ok(read.unwrap_or_else(|| {
            tracing::debug!(?kind, ?id, "an entry of cluster/resources has no usable id");
            Self::Other
        }))
    }
}

/// A guest of `nodes/{node}/qemu` or `nodes/{node}/lxc`, where the node is the path's.
pub(in crate::pve) fn guests_of(
    node: &NodeName,
    value: Value,
) -> Result<Vec<GuestResource>, String> {
    let guests: Vec<RawResource> = wire::value_list(value)?;
    Ok(guests.into_iter().filter_map(|raw| raw.guest(Some(node.clone()))).collect())
}

/// An entry of `cluster/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterStatusEntry {
    /// `cluster` or `node`; a stand-alone node has no `cluster` entry.
    #[serde(rename = "type", deserialize_with = "wire::text")]
    pub kind: Option<String>,
    /// Name of the cluster or node.
    #[serde(deserialize_with = "wire::text")]
    pub name: Option<String>,
    /// For the cluster: whether it takes writes.
    #[serde(deserialize_with = "wire::boolean")]
    pub quorate: Option<bool>,
    /// For a node: whether it is a member at present.
    #[serde(deserialize_with = "wire::boolean")]
    pub online: Option<bool>,
    /// For a node: whether it is the one that answers.
    #[serde(deserialize_with = "wire::boolean")]
    pub local: Option<bool>,
    /// For a node: its address.
    #[serde(deserialize_with = "wire::text")]
    pub ip: Option<String>,
}

/// An entry of `cluster/tasks`: the latest tasks of every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSummary {
    /// The task.
    pub upid: Upid,
    /// Seconds since 1970.
    pub starttime: Option<u64>,
    /// Seconds since 1970; none while it runs.
    pub endtime: Option<u64>,
    /// Exit status; none while it runs.
    pub status: Option<String>,
}

impl<'de> Deserialize<'de> for TaskSummary {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Raw {
            upid: String,
            #[serde(default, deserialize_with = "wire::number")]
            starttime: Option<u64>,
            #[serde(default, deserialize_with = "wire::number")]
            endtime: Option<u64>,
            #[serde(default, deserialize_with = "wire::text")]
            status: Option<String>,
        }
        let raw = Raw::deserialize(d)?;
        let upid = raw.upid.parse().map_err(serde::de::Error::custom)?;
        // Some list a running task with the word, or with 0, instead of leaving the field out.
        let status = raw.status.filter(|status| status != "running" && status != "RUNNING");
        let endtime = raw.endtime.filter(|endtime| *endtime > 0);
        Ok(Self { upid, starttime: raw.starttime, endtime, status })
    }
}

/// Answers of `access/permissions`: privileges by path, each with whether paths below inherit it.
///
/// Asked for one path, Proxmox gives all that holds there. Asked for all, it lists the top paths,
/// those that an access rule names, and guests and storages that are in a pool; a path that is not
/// listed has what the closest listed one above it hands down. A rule that takes everything away
/// (role NoAccess) is not seen in that list: ask for such a path by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permissions(BTreeMap<String, BTreeMap<String, bool>>);

impl Permissions {
    /// Whether `privilege` is held on exactly this `path` of the answer.
    pub fn has(&self, path: &str, privilege: &str) -> bool {
        self.0.get(path).is_some_and(|held| held.contains_key(privilege))
    }

    /// Whether `privilege` is held on `path`, by itself or handed down from above.
    pub fn holds(&self, path: &str, privilege: &str) -> bool {
        match self.0.get(path) {
            Some(held) => held.contains_key(privilege),
            None => above(path).is_some_and(|above| self.holds_below(above, privilege)),
        }
    }

    /// Whether paths below `path` have `privilege` from it.
    pub fn holds_below(&self, path: &str, privilege: &str) -> bool {
        match self.0.get(path) {
            Some(held) => held.get(privilege) == Some(&true),
            None => above(path).is_some_and(|above| self.holds_below(above, privilege)),
        }
    }

    /// Whether `privilege` is held on `path` or anywhere below it.
    pub fn holds_somewhere(&self, path: &str, privilege: &str) -> bool {
        let is_within = |found: &str| {
            path == "/" || found.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
        };
        self.holds(path, privilege)
            || self.0.iter().any(|(found, held)| is_within(found) && held.contains_key(privilege))
    }

    /// Takes in another answer for the same credentials; what it says of a path replaces what was
    /// said before.
    pub fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Privileges by path, each with whether paths below inherit it.
    pub fn by_path(&self) -> &BTreeMap<String, BTreeMap<String, bool>> {
        &self.0
    }
}

/// The path above, `None` for the topmost.
fn above(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some(("", "")) | None => None,
        Some(("", _)) => Some("/"),
        Some((above, _)) => Some(above),
    }
}

impl<'de> Deserialize<'de> for Permissions {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Value::Object(paths) = Value::deserialize(d)? else { return Ok(Self::default()) };
        let privileges = |value: &Value| -> BTreeMap<String, bool> {
            let held = value.as_object().into_iter().flatten();
            let held = held.filter(|(_, flag)| !flag.is_null());
            held.map(|(name, flag)| (name.clone(), wire::boolean_of(flag).unwrap_or(true)))
                .collect()
        };
        Ok(Self(paths.iter().map(|(path, value)| (path.clone(), privileges(value))).collect()))
    }
}

//! What the simulated cluster consists of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::guest::GuestState;
use super::option::{Drive, is_drive};
use crate::clock::Millis;
use crate::config::Release;

/// Whether a node answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// It does.
    #[default]
    Online,
    /// The host is down: calls to it give 595 at once.
    Offline,
    /// It accepts calls and says nothing: 596 after a while.
    Silent,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub state: NodeState,
    pub memory: u64,
    pub cpus: u32,
    pub bridges: Vec<String>,
    pub maintenance: bool,
    /// When it told the others of its tasks last, if it does not any more.
    pub told: Option<Millis>,
}

#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub kind: String,
    pub shared: bool,
    pub content: Vec<String>,
    pub nodes: Vec<String>,
    pub size: u64,
    pub used: u64,
    pub disabled: bool,
    pub full: bool,
    /// Clones that wrote to it at the same time, at most.
    pub peak_clones: usize,
}

impl Storage {
    pub(crate) fn is_on(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|name| name == node)
    }

    pub(crate) fn takes(&self, content: &str) -> bool {
        self.content.iter().any(|kind| kind == content)
    }

    /// Whether volumes are files below a directory of their owner.
    pub(crate) fn has_files(&self) -> bool {
        matches!(self.kind.as_str(), "dir" | "nfs" | "cifs" | "btrfs" | "cephfs" | "glusterfs")
    }

    pub(crate) fn can_link(&self) -> bool {
        self.kind != "lvm"
    }
}

/// A volume's place: a node for local storage, empty for shared; and its id.
pub(crate) type VolumeKey = (String, String);

#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub content: &'static str,
    pub format: &'static str,
    pub size: u64,
    pub owner: Option<u32>,
    pub created: Millis,
    pub data: Bytes,
    /// The base volume of a linked clone.
    pub parent: Option<String>,
}

/// Whether a VM's process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Run {
    #[default]
    Stopped,
    Running,
    Paused,
}

impl Run {
    pub(crate) fn status(self) -> &'static str {
        if self == Self::Stopped { "stopped" } else { "running" }
    }

    pub(crate) fn qmp(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Paused => "paused",
        }
    }
}

/// What the last status broadcast said of a VM.
#[derive(Clone, Debug)]
pub(crate) struct Broadcast {
    pub name: Option<String>,
    pub status: &'static str,
    pub template: bool,
    pub cpus: u64,
    pub memory: u64,
    pub disk: u64,
    pub uptime: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub config: BTreeMap<String, String>,
    pub description: String,
    pub taken: Millis,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Vm {
    pub node: String,
    pub config: BTreeMap<String, String>,
    /// Options that wait for the next start; none to delete.
    pub pending: BTreeMap<String, Option<String>>,
    pub run: Run,
    pub started: Millis,
    /// Counts starts, so that a late report of an earlier run is told apart.
    pub boot: u64,
    pub pid: u32,
    pub guest: GuestState,
    pub snapshots: BTreeMap<String, Snapshot>,
    pub foreign: bool,
    pub seen: Option<Broadcast>,
}

impl Vm {
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.config.get(key).map(String::as_str)
    }

    pub(crate) fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    pub(crate) fn is_template(&self) -> bool {
        self.get("template") == Some("1")
    }

    pub(crate) fn name(&self, vmid: u32) -> String {
        self.get("name").map_or_else(|| format!("VM {vmid}"), str::to_owned)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> u64 {
        let text = self.get("memory").unwrap_or("512");
        let mib = text.trim_start_matches("current=").split(',').next().unwrap_or("512");
        mib.parse::<u64>().unwrap_or(512) << 20
    }

    pub(crate) fn cpus(&self) -> u64 {
        let count = |key| self.get(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
        count("cores") * count("sockets")
    }

    pub(crate) fn drives(&self) -> Vec<(String, Drive)> {
        let drives = self.config.iter().filter(|(key, _)| is_drive(key));
        drives.filter_map(|(key, text)| Some((key.clone(), Drive::parse(text)?))).collect()
    }

    /// Size of the first disk, as lists show it.
    pub(crate) fn disk(&self) -> u64 {
        let mut disks = self.drives().into_iter().filter(|(_, drive)| !drive.is_cdrom());
        disks.find_map(|(_, drive)| drive.size()).unwrap_or(0)
    }

    pub(crate) fn agent_enabled(&self) -> bool {
        self.get("agent").is_some_and(|text| {
            let first = text.split(',').next().unwrap_or_default();
            first == "1" || first == "enabled=1"
        })
    }

    /// SHA-1 of the configuration file.
    pub(crate) fn digest(&self) -> String {
        let mut sha = Sha1::new();
        for (key, value) in &self.config {
            sha.update(format!("{key}: {value}\n"));
        }
        sha.update("[PENDING]\n");
        for (key, value) in &self.pending {
            sha.update(format!("{key}: {value:?}\n"));
        }
        for (name, snapshot) in &self.snapshots {
            sha.update(format!("[{name}]\n{:?}\n", snapshot.taken));
        }
        sha.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    pub(crate) fn broadcast(&self, now: Millis, vmid: u32) -> Broadcast {
        let running = self.run != Run::Stopped;
        Broadcast {
            name: Some(self.name(vmid)),
            status: self.run.qmp(),
            template: self.is_template(),
            cpus: self.cpus(),
            memory: self.memory(),
            disk: self.disk(),
            uptime: if running { now.since(self.started).as_secs() } else { 0 },
        }
    }
}

const NUMBERS: &[&str] = &[
    "acpi",
    "autostart",
    "balloon",
    "ciupgrade",
    "cores",
    "cpuunits",
    "kvm",
    "localtime",
    "numa",
    "onboot",
    "protection",
    "reboot",
    "shares",
    "sockets",
    "tablet",
    "template",
    "vcpus",
];

/// An option's value as the API shows it.
pub(crate) fn show_option(key: &str, value: &str, release: Release) -> Value {
    let number = NUMBERS.contains(&key) || (key == "memory" && release == Release::V7);
    match value.parse::<i64>() {
        Ok(parsed) if number => json!(parsed),
        _ if key == "cipassword" => json!("**********"),
        _ if key == "description" => json!(value.trim_end()),
        _ => json!(value),
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub node: String,
    pub name: String,
    pub memory: u64,
    pub running: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    pub comment: String,
    pub vms: BTreeSet<u32>,
    pub storages: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HaResource {
    pub state: String,
    pub comment: String,
    pub max_restart: u64,
    pub max_relocate: u64,
}

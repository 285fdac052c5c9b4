//! The simulated cluster as a value that is stepped: [`Model::handle`] takes a call,
//! [`Model::advance`] lets time pass. No IO, no clock, no threads; equal inputs, equal outputs.

mod access;
mod change;
mod endpoints;
mod guest;
mod invariant;
mod option;
mod request;
mod route;
mod schema;
mod state;
mod task;
mod view;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

pub use change::Change;
pub use guest::{Boot, BootCdrom, BootNic, CloudInit, Exec, GuestState, Interface, Report};
pub use invariant::{Rule, Violation};
pub use request::{Credentials, Param, Params, Request, Response, Upload};
pub use state::NodeState;
pub use task::{TaskFate, TaskView};
pub use view::VmView;

use crate::clock::Millis;
use crate::config::{Release, Timings};
use crate::seed::Seed;
use access::Access;
use state::{Container, HaResource, Node, Pool, Storage, Vm, Volume, VolumeKey};
use task::{Due, Lock, Task};

/// Something the world outside should know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A VM came up.
    Started(Box<Boot>),
    /// A VM went down or away.
    Stopped {
        /// The VM's id.
        vmid: u32,
    },
}

/// What plays the guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestKind {
    /// Agent and cloud-init come up by the clock if any CD-ROM is in.
    #[default]
    BuiltIn,
    /// Nothing happens unless reported by [`Model::report`].
    Reported,
}

/// The cluster. A clone goes its own way from there: simulations branch on it.
#[derive(Clone, Debug)]
pub struct Model {
    release: Release,
    timings: Timings,
    guests: GuestKind,
    now: Millis,
    born: Millis,
    cluster: String,
    /// The node that is talked to.
    local: String,
    quorate: bool,
    nodes: BTreeMap<String, Node>,
    storages: BTreeMap<String, Storage>,
    volumes: BTreeMap<VolumeKey, Volume>,
    vms: BTreeMap<u32, Vm>,
    containers: BTreeMap<u32, Container>,
    pools: BTreeMap<String, Pool>,
    ha: BTreeMap<String, HaResource>,
    /// VMs that a job replicates to another node.
    replicated: BTreeSet<u32>,
    registered_tags: Vec<String>,
    access: Access,
    tasks: BTreeMap<String, Task>,
    /// Tasks that wait for a lock, oldest first.
    waiting: BTreeMap<u64, String>,
    /// Tasks that have ended, oldest first.
    ended: VecDeque<String>,
    /// Numbers in answers are texts, as Perl is free to make them.
    text_numbers: bool,
    agenda: BTreeMap<(Millis, u64), Due>,
    locks: BTreeMap<Lock, String>,
    next_broadcast: Millis,
    counter: u64,
    dice: u64,
    fate: Option<TaskFate>,
    effects: Vec<Effect>,
    violations: Vec<Violation>,
}

/// Where the sequence of numbers begins: elsewhere in a cluster of another name, of which no two VMs
/// have one uuid.
fn dice(cluster: &str) -> u64 {
    let add = |sum: u64, byte: u8| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte);
    cluster.bytes().fold(0x5eed, add)
}

impl Model {
    /// A cluster as seeded, at `now`.
    pub fn new(
        seed: &Seed,
        release: Release,
        timings: Timings,
        guests: GuestKind,
        now: Millis,
    ) -> Self {
        let mut model = Self {
            release,
            next_broadcast: now + timings.broadcast,
            timings,
            guests,
            now,
            born: now,
            cluster: seed.cluster.clone(),
            local: seed.nodes.first().map(|node| node.name.clone()).unwrap_or_default(),
            quorate: true,
            nodes: BTreeMap::new(),
            storages: BTreeMap::new(),
            volumes: BTreeMap::new(),
            vms: BTreeMap::new(),
            containers: BTreeMap::new(),
            pools: BTreeMap::new(),
            ha: BTreeMap::new(),
            replicated: BTreeSet::new(),
            registered_tags: seed.registered_tags.clone(),
            access: Access::new(seed),
            tasks: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ended: VecDeque::new(),
            text_numbers: false,
            agenda: BTreeMap::new(),
            locks: BTreeMap::new(),
            counter: 0,
            dice: dice(&seed.cluster),
            fate: None,
            effects: Vec::new(),
            violations: Vec::new(),
        };
        model.plant(seed);
        model
    }

    fn plant(&mut self, seed: &Seed) {
        for node in &seed.nodes {
            let planted = Node {
                state: NodeState::Online,
                memory: node.memory,
                cpus: node.cpus,
                bridges: node.bridges.clone(),
                maintenance: false,
                told: None,
            };
            self.nodes.insert(node.name.clone(), planted);
        }
        for storage in &seed.storages {
            let planted = Storage {
                kind: storage.kind.clone(),
                shared: storage.shared,
                content: storage.content.clone(),
                nodes: storage.nodes.clone(),
                size: storage.size,
                used: storage.used,
                disabled: storage.disabled,
                full: false,
                peak_clones: 0,
            };
            self.storages.insert(storage.name.clone(), planted);
        }
        for vm in &seed.vms {
            self.plant_vm(vm);
        }
        for container in &seed.containers {
            let planted = Container {
                node: container.node.clone(),
                name: container.name.clone(),
                memory: container.memory,
                running: container.running,
            };
            self.containers.insert(container.vmid, planted);
        }
        for (name, vms) in &seed.pools {
            let pool = Pool { vms: vms.iter().copied().collect(), ..Pool::default() };
            self.pools.insert(name.clone(), pool);
        }
    }

    fn plant_vm(&mut self, seed: &crate::seed::VmSeed) {
        let mut vm = Vm {
            node: seed.node.clone(),
            config: seed.config.clone(),
            foreign: seed.foreign,
            ..Vm::default()
        };
        if seed.running {
            vm.run = state::Run::Running;
            vm.started = self.now;
            vm.boot = 1;
            vm.guest.agent = vm.agent_enabled();
            vm.guest.cloud_init = CloudInit::Done;
        }
        for (_, drive) in vm.drives().into_iter().filter(|(_, drive)| drive.storage().is_some()) {
            let content = if drive.file.contains(":iso/") { "iso" } else { "images" };
            let owner = (content == "images").then_some(seed.vmid);
            let size = drive.size().unwrap_or(1 << 30);
            self.insert_volume(&seed.node, &drive.file, content, size, owner);
        }
        vm.seen = Some(vm.broadcast(self.now, seed.vmid));
        self.vms.insert(seed.vmid, vm);
    }

    /// Lets time pass: everything due by `now` happens in its order.
    pub fn advance(&mut self, now: Millis) {
        loop {
            let due = self.agenda.first_key_value().map(|(&(at, _), _)| at);
            let next = due.filter(|&at| at <= now).unwrap_or(now);
            if self.next_broadcast <= next {
                self.broadcast(next);
                continue;
            }
            if due.is_none_or(|at| at > now) {
                break;
            }
            if let Some(((at, _), due)) = self.agenda.pop_first() {
                self.now = self.now.max(at);
                self.happen(due);
            }
        }
        self.now = self.now.max(now);
    }

    /// Nodes tell each other of their guests, every ten seconds or so.
    fn broadcast(&mut self, until: Millis) {
        let every = u64::try_from(self.timings.broadcast.as_millis()).unwrap_or(u64::MAX).max(1);
        let missed = until.0.saturating_sub(self.next_broadcast.0) / every;
        let at = Millis(self.next_broadcast.0 + missed * every);
        for (&vmid, vm) in &mut self.vms {
            let online =
                self.nodes.get(&vm.node).is_some_and(|node| node.state == NodeState::Online);
            if online && vm.lock() != Some("clone") {
                vm.seen = Some(vm.broadcast(at, vmid));
            }
        }
        self.next_broadcast = Millis(at.0 + every);
    }

    /// When something is due next, if anything is.
    pub fn next_due(&self) -> Option<Millis> {
        self.agenda.first_key_value().map(|(&(at, _), _)| at)
    }

    /// The time the model has been advanced to.
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Takes what happened to the outside since the last time.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn schedule(&mut self, after: std::time::Duration, due: Due) {
        self.counter += 1;
        self.agenda.insert((self.now + after, self.counter), due);
    }

    /// The next number of a fixed sequence (SplitMix64): runs repeat exactly.
    pub(crate) fn roll(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A new MAC address below Proxmox's own prefix.
    pub(crate) fn new_mac(&mut self) -> String {
        let [a, b, c, ..] = self.roll().to_be_bytes();
        format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
    }

    /// A new version 4 UUID.
    pub(crate) fn new_uuid(&mut self) -> String {
        let high = self.roll() & 0xffff_ffff_ffff_0fff | 0x4000;
        let low = self.roll() & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Place of a volume of this storage on this node.
    fn place(&self, node: &str, volid: &str) -> VolumeKey {
        let storage = volid.split(':').next().unwrap_or_default();
        let shared = self.storages.get(storage).is_some_and(|storage| storage.shared);
        (if shared { String::new() } else { node.to_owned() }, volid.to_owned())
    }

    pub(crate) fn find_volume(&self, node: &str, volid: &str) -> Option<&Volume> {
        self.volumes.get(&self.place(node, volid))
    }

    fn insert_volume(
        &mut self,
        node: &str,
        volid: &str,
        content: &'static str,
        size: u64,
        owner: Option<u32>,
    ) {
        let file = std::path::Path::new(volid);
        let qcow = file.extension().is_some_and(|extension| extension == "qcow2");
        let volume = Volume {
            content,
            format: match content {
                "iso" => "iso",
                _ if qcow => "qcow2",
                _ => "raw",
            },
            size,
            owner,
            created: self.now,
            data: bytes::Bytes::new(),
            parent: None,
        };
        self.volumes.insert(self.place(node, volid), volume);
    }

    /// Bytes in use on a storage as seen from a node.
    pub(crate) fn used(&self, name: &str, node: &str) -> u64 {
        let Some(storage) = self.storages.get(name) else { return 0 };
        if storage.full {
            return storage.size;
        }
        let place = if storage.shared { "" } else { node };
        let prefix = format!("{name}:");
        let volumes = self
            .volumes
            .iter()
            .filter(|((at, volid), _)| at == place && volid.starts_with(&prefix));
        storage.used + volumes.map(|(_, volume)| volume.size).sum::<u64>()
    }
}

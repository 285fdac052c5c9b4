//! What one pass knows about a machine. Plain data: who read it, and how, is not told here.
//!
//! Facts that cost a call to Proxmox are looked up only when [`super::decide`] asks for them; until
//! then they are `None`.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::ObjectMeta;

use super::double::Double;
use crate::api::capi::{self, Cluster, Machine};
use crate::api::{
    ProxmoxCluster, ProxmoxMachine, ProxmoxMachineStatus, SHUTDOWN_TIMEOUT_ANNOTATION,
};
use crate::fault::Fault;
use crate::hypervisor::{Ended, Exit, GuestEntry, NodeState, Operation, StorageEntry, TaskState};
use crate::ids::{NodeName, StorageName, VmId};
use crate::ipam::Slot;
use crate::placement::TemplateRef;
use crate::pve::{Cause, VmConfig};
use crate::seen::Seen;

/// All that one pass knows.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The object itself, as last read or as answered to our last write.
    pub machine: ProxmoxMachine,
    /// The Machine that owns it.
    pub owner: Option<Machine>,
    /// The Cluster it belongs to.
    pub cluster: Option<Cluster>,
    /// The ProxmoxCluster of that Cluster.
    pub infra: Option<ProxmoxCluster>,
    /// Whether Proxmox can be talked to, or why not, when it was looked up.
    pub connection: Option<Result<(), Fault>>,
    /// The addresses that are wanted, each with what has become of it.
    pub addresses: Vec<AddressFact>,
    /// Names of the claims that belong to this machine and are not being deleted.
    pub claims: Vec<String>,
    /// Why the addresses cannot be told, if they cannot.
    pub ipam_trouble: Option<String>,
    /// The task in flight or just ended.
    pub task: Option<TaskState>,
    /// The entry of the recorded VMID in the latest reading of the cluster.
    pub listed: Seen<GuestEntry>,
    /// The VM, when looked for.
    pub vm: Option<VmSeen>,
    /// That the VM is absent was seen twice, long enough apart, by a cluster with quorum.
    pub absence_confirmed: bool,
    /// Another machine records the same VMID, and not certainly that of another Proxmox cluster.
    pub vmid_shared: bool,
    /// Provider ids that other machines record together with the same VMID. Those of other Proxmox
    /// clusters are among them.
    pub others_ids: Vec<String>,
    /// Another machine that records both this one's VMID and its provider id.
    pub double: Option<Double>,
    /// How often the guest was asked since it was started.
    pub guest_looks: u32,
    /// How long to leave a guest that boots alone before it is asked, or asked again.
    pub guest_wait: Option<std::time::Duration>,
    /// Whether the VM runs, when asked.
    pub power: Option<Seen<Power>>,
    /// What is needed to choose a VMID and a node, when gathered.
    pub placement: Option<Seen<PlacementFacts>>,
    /// The bootstrap data, when read.
    pub bootstrap: Option<Seen<BootstrapData>>,
    /// Storages of the VM's node that take ISO images, in Proxmox's order, when listed.
    pub iso_storages: Option<Seen<Vec<StorageName>>>,
    /// A seed that the VM's tag alone tells of, when it was sought.
    pub stray: Option<Seen<String>>,
    /// The guest, when asked.
    pub guest: Option<GuestFact>,
    /// The size in GiB that this process has grown the boot volume to. Proxmox accepted it, and
    /// need not show it.
    pub grown: Option<u32>,
    /// The configuration of a template, when it was read.
    pub template: Option<(TemplateRef, Seen<VmConfig>)>,
    /// Whether the storage of the recorded seed is the same one on all nodes, when storages were read.
    pub seed_shared: Option<Seen<()>>,
    /// The seed was deleted in this pass.
    pub seed_deleted: bool,
    /// The API server does not keep `status.bootstrapISO`: the installed CRD is capmox's.
    pub records_lost: bool,
    /// A clone of this pass was refused because the VMID is taken.
    pub clone_refused: bool,
    /// The very first clone under the VMID was refused in this pass, because it is taken.
    pub vmid_foreign: bool,
    /// Whether the recorded seed is whole on its storage, when looked for.
    pub stored: Option<Seen<()>>,
    /// Whether the VM is a resource of the HA manager, as far as its status tells.
    pub in_ha: bool,
    /// What this process did before.
    pub past: Past,
}

/// What this process remembers of earlier passes. All of it is lost with the process.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Past {
    /// What Proxmox accepted last without a task to follow.
    pub accepted: Option<Call>,
    /// The latest call whose answer was lost, and whose effect would leave something behind.
    pub lost: Option<Call>,
    /// Another process, such as one before this, may have asked for something whose answer nobody
    /// heard: it wrote the VMID that the machine has, before its seed. How long ago that was seen.
    pub inherited: Option<Duration>,
    /// A clone under the recorded VMID was asked for, and not refused.
    pub cloned: bool,
    /// The clone that was asked for last is the very first one under the recorded VMID.
    pub sole_clone: bool,
    /// The storage that would not take the seed last.
    pub refusing: Option<StorageName>,
    /// Nothing was stored yet of the seed that is recorded.
    pub unsent_seed: bool,
    /// The VM was taken out of HA, or cannot be.
    pub outside_ha: bool,
    /// The guest was asked to shut down.
    pub shutdown_asked: bool,
}

/// A call to Proxmox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    /// What for.
    pub operation: Operation,
    /// How long ago that was when the pass began.
    pub age: Duration,
}

/// One wanted address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressFact {
    /// Device, family and pool.
    pub slot: Slot,
    /// The claim, with what its provider says of it, if it exists.
    pub claim: Option<ClaimFact>,
    /// The address, once there.
    pub address: Option<Address>,
    /// Why the address that is there cannot be used.
    pub wrong: Option<String>,
    /// What is wrong with the pool of a claim that nobody answers, when looked up.
    pub pool_trouble: Option<String>,
}

/// A claim that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimFact {
    /// Whether it belongs to this machine, or was made beforehand for it.
    pub ours: bool,
    /// What its provider says while it is not answered.
    pub message: Option<String>,
}

/// An address as its provider gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The address, without prefix.
    pub ip: std::net::IpAddr,
    /// Length of the prefix in bits.
    pub prefix: u8,
    /// Gateway, if the pool has one.
    pub gateway: Option<std::net::IpAddr>,
    /// Metric of the default route, from the pool's `metric` annotation; read with the bootstrap
    /// data.
    pub metric: Option<u32>,
}

/// What was seen at the recorded VMID.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum VmSeen {
    /// A VM, with its configuration.
    Present(VmFact),
    /// The Proxmox cluster answered that the VMID is free.
    Absent,
    /// Something is there that the credentials do not show.
    Hidden(String),
    /// Something is there that cannot be this machine's, such as a container.
    Foreign(String),
    /// No usable answer; the text says why.
    Unknown(String),
}

/// A VM that was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VmFact {
    /// Node that holds it.
    pub node: NodeName,
    /// Its configuration.
    pub config: VmConfig,
}

/// Whether a VM runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    /// It runs.
    Running,
    /// It runs but its processors are stopped.
    Paused,
    /// It does not run.
    Stopped,
    /// Its process exists and cannot go on.
    Halted(Halt),
}

/// Why a VM cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// A disk could not be read or written.
    IoError,
    /// QEMU itself.
    InternalError,
    /// The guest's kernel.
    GuestPanicked,
}

impl Halt {
    /// From QEMU's own word.
    pub(super) fn of(word: &str) -> Option<Self> {
        [Self::IoError, Self::InternalError, Self::GuestPanicked]
            .into_iter()
            .find(|halt| halt.word() == word)
    }

    /// QEMU's own word.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::IoError => "io-error",
            Self::InternalError => "internal-error",
            Self::GuestPanicked => "guest-panicked",
        }
    }
}

/// What a choice of VMID and node is made from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlacementFacts {
    /// Version of the promises that this was read with.
    pub ledger_version: u64,
    /// VMIDs that cannot be chosen: listed guests and promises.
    pub taken: std::collections::BTreeSet<VmId>,
    /// The next free VMID in Proxmox's own view, which honours the datacenter's range.
    pub next_id: Option<VmId>,
    /// Templates by VMID, as listed.
    pub guests: BTreeMap<VmId, GuestEntry>,
    /// Nodes with state, memory and load.
    pub nodes: BTreeMap<NodeName, NodeFact>,
    /// Storages that the credentials may see.
    pub storages: BTreeMap<StorageName, StorageEntry>,
}

/// A node as placement sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeFact {
    /// Whether it takes guests.
    pub state: NodeState,
    /// Physical memory in bytes.
    pub memory: Option<u64>,
    /// Memory of guests that exist or have been promised, in bytes.
    pub committed: u64,
    /// Machines of the same role of this cluster.
    pub same_role: usize,
}

/// Bootstrap data as the Secret holds it.
#[derive(Clone)]
pub(super) struct BootstrapData {
    /// The key `format`, if there is one.
    pub format: Option<Vec<u8>>,
    /// The payload, which carries join tokens and certificates.
    pub value: secrecy::SecretSlice<u8>,
}

impl std::fmt::Debug for BootstrapData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootstrapData").field("format", &self.format).finish_non_exhaustive()
    }
}

/// What the guest says through its agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GuestFact {
    /// The agent does not answer (yet).
    AgentDown(String),
    /// The agent answers, and cloud-init was not asked for.
    AgentUp,
    /// The status of cloud-init is being read.
    Asked,
    /// cloud-init runs.
    CloudInitRunning,
    /// cloud-init is done; the text tells of recoverable errors, if any.
    CloudInitDone(Option<String>),
    /// cloud-init failed, with what it says of the cause.
    CloudInitFailed(String),
    /// The question was not answered.
    Unknown(String),
}

/// Whether a machine is one of the control plane, by its Machine or by its own label.
pub(super) fn is_control_plane(own: &ObjectMeta, owner: Option<&Machine>) -> bool {
    capi::is_of_control_plane(own, owner.map(|owner| &owner.metadata))
}

impl Facts {
    /// Whether the object is being deleted.
    pub(super) fn is_deleted(&self) -> bool {
        self.machine.metadata.deletion_timestamp.is_some()
    }

    /// The VMID that was recorded for it; a number that Proxmox could not have is none.
    pub(super) fn vmid(&self) -> Option<VmId> {
        self.machine.spec.virtual_machine_id.and_then(|id| VmId::try_from(id).ok())
    }

    /// Whether the VMID is certainly somebody else's: the very first clone under it failed because it
    /// is taken, at once or by its task. What has it need not be shown to us.
    pub(super) fn is_vmid_anothers(&self) -> bool {
        let by_task = || match &self.task {
            Some(TaskState::Ended(Ended {
                operation: Operation::Clone,
                exit: Exit::Failure(text),
                ..
            })) => self.past.sole_clone && Cause::of(text) == Some(Cause::VmIdTaken),
            _ => false,
        };
        self.machine.spec.provider_id.is_none() && (self.vmid_foreign || by_task())
    }

    /// The object's UID.
    pub(super) fn uid(&self) -> &str {
        self.machine.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The object's name, which is the VM's name.
    pub(super) fn name(&self) -> &str {
        self.machine.metadata.name.as_deref().unwrap_or_default()
    }

    /// The node recorded with the VMID, else the one the cluster remembers, else the template's.
    pub(super) fn recorded_node(&self) -> Option<NodeName> {
        let remembered = || {
            let locations = self.infra.as_ref()?.status.as_ref()?.node_locations.as_ref()?;
            locations
                .control_plane
                .iter()
                .chain(&locations.workers)
                .find(|location| location.machine.name == self.name())
                .map(|location| location.node.clone())
        };
        self.machine
            .status
            .as_ref()
            .and_then(|status| status.proxmox_node.clone())
            .or_else(remembered)
            .or_else(|| self.machine.spec.source_node.clone())
            .and_then(|node| node.parse().ok())
    }

    /// The template recorded with the VMID.
    pub(super) fn recorded_template(&self) -> Option<TemplateRef> {
        let recorded = self.machine.status.as_ref()?.template_ref.as_ref()?;
        let vmid = VmId::try_from(recorded.vmid).ok()?;
        Some(TemplateRef { node: recorded.node.parse().ok()?, vmid })
    }

    /// Whether the VM once got its seed: from then on its configuration is left alone.
    pub(super) fn is_seeded(&self) -> bool {
        self.machine
            .status
            .as_ref()
            .is_some_and(|status| status.ready || status.bootstrap_data_provided == Some(true))
            || self.is_joined()
    }

    /// Whether the node joined, after which the seed is of no use.
    pub(super) fn is_joined(&self) -> bool {
        self.owner
            .as_ref()
            .and_then(|owner| owner.status.as_ref())
            .is_some_and(|status| status.bootstrap_ready == Some(true) && status.node_ref.is_some())
    }

    /// Whether the Machine is a control-plane machine.
    pub(super) fn is_control_plane(&self) -> bool {
        is_control_plane(&self.machine.metadata, self.owner.as_ref())
    }

    /// Whether nothing may be changed now.
    pub(super) fn is_paused(&self) -> bool {
        capi::is_paused(&self.machine.metadata, self.cluster.as_ref())
    }

    /// The status that is going to be written.
    pub(super) fn status(&mut self) -> &mut ProxmoxMachineStatus {
        self.machine.status.get_or_insert_default()
    }

    /// The volume id of the seed ISO as recorded.
    pub(super) fn recorded_seed(&self) -> Option<&str> {
        self.machine.status.as_ref()?.bootstrap_iso.as_deref()
    }

    /// The recorded seed, if anything can have been stored of it: it is recorded with the clone, and
    /// sent when the provider id tells whose the VM is.
    pub(super) fn left_seed(&self) -> Option<&str> {
        let stored = self.machine.spec.provider_id.is_some() && !self.past.unsent_seed;
        self.recorded_seed().filter(|_| stored)
    }

    /// The node on whose storage the seed was put, as recorded.
    pub(super) fn seed_node(&self) -> Option<NodeName> {
        self.machine.status.as_ref()?.bootstrap_iso_node.as_deref()?.parse().ok()
    }

    /// How long the guest may take to shut down before the VM is deleted; `None`: no time at all.
    pub(super) fn shutdown_timeout(&self) -> Option<Duration> {
        let annotations = self.machine.metadata.annotations.as_ref()?;
        Some(shutdown_timeout(annotations.get(SHUTDOWN_TIMEOUT_ANNOTATION)?))
    }

    /// The volume id of the seed ISO in the VM's drive.
    pub(super) fn attached_seed(&self) -> Option<String> {
        let vmid = self.vmid()?;
        super::seed::attached(&self.vm()?.config, vmid)
    }

    /// The VM, when it was looked for and found.
    pub(super) fn vm(&self) -> Option<&VmFact> {
        match &self.vm {
            Some(VmSeen::Present(vm)) => Some(vm),
            _ => None,
        }
    }

    /// Name of the Cluster, by the label of the Machine or of the object itself.
    pub(super) fn cluster_name(&self) -> Option<&str> {
        self.owner
            .as_ref()
            .and_then(|owner| capi::cluster_name(&owner.metadata))
            .or_else(|| capi::cluster_name(&self.machine.metadata))
    }
}

/// Seconds, or minutes with an `m`; what cannot be read is a wish all the same.
fn shutdown_timeout(text: &str) -> Duration {
    const UNREADABLE: Duration = Duration::from_mins(1);
    const LONGEST: Duration = Duration::from_hours(1);
    let text = text.trim();
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60),
        None => (text.trim_end_matches('s'), 1),
    };
    let seconds = number.parse::<u64>().ok().map(|number| number.saturating_mul(unit));
    seconds.map_or(UNREADABLE, Duration::from_secs).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_the_machine_counts_for_its_role_as_its_own_does() {
        let labelled = |key: &str| ObjectMeta {
            labels: Some([(key.to_owned(), String::new())].into()),
            ..ObjectMeta::default()
        };
        let (leads, works) = (labelled(capi::CONTROL_PLANE_LABEL), labelled("pool"));
        let owner = |metadata: &ObjectMeta| Machine {
            metadata: metadata.clone(),
            ..Machine::new("m", capi::MachineSpec::default())
        };
        assert!(is_control_plane(&works, Some(&owner(&leads))));
        assert!(is_control_plane(&leads, Some(&owner(&works))));
        assert!(is_control_plane(&leads, None));
        assert!(!is_control_plane(&works, Some(&owner(&works))));
        assert!(!is_control_plane(&works, None));
    }

    #[test]
    fn a_time_to_shut_down_is_read_in_seconds_and_minutes_and_bounded() {
        for (text, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("2m", 120),
            ("0", 0),
            ("soon", 60),
            ("", 60),
            ("9999m", 3600),
        ] {
            assert_eq!(shutdown_timeout(text), Duration::from_secs(seconds), "{text:?}");
        }
    }
}

//! The words in which [`super::decide`] speaks: what to look up, what to do, what is waited for.

use std::time::Duration;

use crate::fault::Fault;
use crate::hypervisor::{Operation, Position};
use crate::ids::{NodeName, StorageName, VmId};
use crate::ipam::Slot;
use crate::placement::TemplateRef;

/// What one look at the facts leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// More has to be known first.
    Look(Look),
    /// One thing to do.
    Do(Step),
    /// Nothing to do until something happens.
    Wait(Waiting, Wake),
    /// Cluster API should replace the machine.
    Fail(Failure),
    /// The machine is up; the text tells what deserves attention.
    Ready(Option<String>),
    /// Nothing is left of the machine, and its finalizer is gone.
    Gone,
}

/// A fact to look up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// The Proxmox endpoint of the cluster.
    Connection,
    /// Where the VM is, and its configuration.
    Vm,
    /// Whether it runs.
    Power,
    /// Everything a choice of VMID and node rests on.
    Placement,
    /// The configuration of the template that was chosen.
    Template(TemplateRef),
    /// The pools of claims that are not answered.
    Pools,
    /// The bootstrap Secret.
    Bootstrap,
    /// Storages that take the seed.
    IsoStorages,
    /// On which storage a seed is that nothing names but the VM's tag.
    Stray,
    /// Whether the storage of the recorded seed is the same one on all nodes.
    SeedShared,
    /// Whether this seed is whole on its storage.
    Stored(String),
    /// Agent and cloud-init.
    Guest,
}

/// One thing to do. Each is safe to do twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Put our finalizer on the object.
    AddFinalizer,
    /// Create the claims of these slots.
    Claim(Vec<Slot>),
    /// Record VMID, node and template before anything is made under them.
    Reserve {
        /// The VMID.
        vmid: VmId,
        /// The node on which the VM is going to be.
        node: NodeName,
        /// The template it is cloned from.
        template: TemplateRef,
        /// Memory of the VM in bytes.
        memory: u64,
        /// Version of the promises that the choice was made from.
        ledger_version: u64,
    },
    /// Give a VMID up that turned out to be somebody else's.
    GiveUpVmId(VmId),
    /// Clone the template to the recorded VMID.
    Clone {
        /// The recorded VMID.
        vmid: VmId,
        /// The recorded node.
        node: NodeName,
        /// The recorded template.
        template: TemplateRef,
    },
    /// Record the provider id, read from the VM.
    SetProviderId(String),
    /// Write these options of the VM.
    Configure(std::collections::BTreeMap<String, String>),
    /// Grow the boot volume to this many GiB.
    Resize {
        /// Such as `scsi0`.
        disk: String,
        /// Absolute size in GiB.
        gib: u32,
    },
    /// Record where the seed is going to be.
    RecordSeed(String),
    /// Build the seed and store it there.
    StoreSeed(StorageName),
    /// Record that the VM has its seed.
    RecordSeeded,
    /// Record that the VM needs its seed once more.
    Reseed,
    /// Record that the seed is gone from its storage.
    ForgetSeed,
    /// Take the tag off a VM whose seed is gone.
    Untag(std::collections::BTreeMap<String, String>),
    /// Put the stored seed into the drive, together with these options.
    AttachSeed(std::collections::BTreeMap<String, String>),
    /// Start the VM, or let it go on.
    Start(super::facts::Power),
    /// Take the seed out of the drive.
    Eject(std::collections::BTreeMap<String, String>),
    /// Delete the seed from its storage.
    DeleteSeed(String),
    /// Take the VM out of HA, which would start it again.
    LeaveHa,
    /// Let the guest shut down for at most this long, then stop it.
    Shutdown(Duration),
    /// Stop the VM.
    Stop,
    /// Destroy the VM and its disks.
    Destroy,
    /// Delete the claims of this machine.
    ReleaseClaims,
    /// Take our finalizer off the object.
    RemoveFinalizer,
    /// Take note of how the task ended.
    ForgetTask,
}

impl Step {
    /// The operation at Proxmox that the step starts, if it starts one.
    pub(super) fn operation(&self) -> Option<Operation> {
        Some(match self {
            Self::Clone { .. } => Operation::Clone,
            Self::Configure(_) | Self::AttachSeed(_) => Operation::Configure,
            Self::Resize { .. } => Operation::Resize,
            Self::StoreSeed(_) => Operation::Upload,
            Self::Start(_) => Operation::Start,
            Self::Eject(_) | Self::Untag(_) => Operation::Eject,
            Self::DeleteSeed(_) => Operation::DeleteSeed,
            Self::LeaveHa => Operation::LeaveHa,
            Self::Shutdown(_) => Operation::Shutdown,
            Self::Stop => Operation::Stop,
            Self::Destroy => Operation::Destroy,
            _ => return None,
        })
    }
}

/// What is waited for. `report` turns it into reason, severity and text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The object or its cluster is paused.
    Paused,
    /// A machine that has failed for good.
    Failed,
    /// The owner reference that Cluster API sets.
    Owner,
    /// The Cluster named by the label.
    Cluster,
    /// The ProxmoxCluster of that Cluster.
    InfraCluster,
    /// `Cluster.status.infrastructureReady`.
    ClusterInfrastructure,
    /// `Machine.spec.bootstrap.dataSecretName`.
    BootstrapDataName,
    /// The bootstrap Secret or its content.
    BootstrapData(String),
    /// Credentials or endpoint.
    Connection(Fault),
    /// A Proxmox task.
    Task {
        /// What it is for.
        operation: Operation,
        /// Its UPID.
        upid: String,
        /// Why its state is not known just now.
        trouble: Option<String>,
    },
    /// The effect of something that was asked for, and for which there is no task to follow.
    Effect(Operation),
    /// The end of the time in which a call can still take effect whose answer was lost.
    Late {
        /// What was asked for.
        operation: Operation,
        /// How much longer.
        left: Duration,
    },
    /// The next try after a fault, which the condition keeps telling.
    Retry,
    /// Others that are cloned before.
    Turn(Position),
    /// A template, node or VMID that can be used.
    Placement(String),
    /// A fact that is not known.
    Unknown(String),
    /// The VM exists no more although it was provisioned.
    Lost(VmId),
    /// Another VM sits at our VMID although ours was provisioned.
    Foreign(String),
    /// A lock on the VM's configuration.
    Locked {
        /// The VMID.
        vmid: VmId,
        /// Which lock.
        lock: String,
    },
    /// Addresses from the IPAM provider.
    Addresses(String),
    /// The configuration that was asked for cannot be used.
    Invalid(String),
    /// The API server refuses a write.
    Refused(String),
    /// A storage for the seed.
    SeedStorage(NodeName),
    /// The QEMU guest agent.
    Agent(String),
    /// cloud-init.
    CloudInit,
    /// A guest that need not be asked yet.
    Boot,
    /// The answer of a guest that was asked; the condition goes on saying what it said.
    Answer,
    /// The protection flag of the VM.
    Protected(VmId),
    /// The VM exists as a process and does not go on.
    Halted {
        /// The VMID.
        vmid: VmId,
        /// QEMU's own word for it.
        word: String,
    },
}

/// When to look again if nothing happens before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    /// Only a change of something watched helps.
    OnChange,
    /// At this much later, unless woken.
    After(Duration),
}

impl Wake {
    /// So many seconds later.
    pub(super) const fn seconds(seconds: u64) -> Self {
        Self::After(Duration::from_secs(seconds))
    }

    /// At so long later, at any rate within a minute; a while later when it is not told.
    pub(super) fn after(time: Option<Duration>) -> Self {
        const USUAL: Duration = Duration::from_secs(10);
        Self::After(time.unwrap_or(USUAL).min(Duration::from_mins(1)))
    }
}

/// Why a machine is given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// `status.failureReason`.
    pub reason: &'static str,
    /// `status.failureMessage`.
    pub message: String,
}

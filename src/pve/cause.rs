//! What Proxmox's texts mean. It has no error codes: nearly all is status 500 or the end of a task,
//! and only the wording tells one cause from another.

use crate::fault::Class;

/// A cause that Proxmox's wording names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The VM has no configuration on that node: destroyed, moved, or never there.
    VmMissing,
    /// The VMID is in use, on this node or another.
    VmIdTaken,
    /// Another operation holds the VM: a `lock` in its configuration or the lock file.
    VmLocked,
    /// Another allocation holds the storage's lock; common with parallel clones.
    StorageBusy,
    /// The storage is full.
    NoSpace,
    /// The storage is not there, not on that node, or not for that content.
    StorageMissing,
    /// The storage is switched off or does not answer; what it holds is there when it is back.
    StorageInactive,
    /// A volume or ISO is not there.
    VolumeMissing,
    /// The cluster has lost its quorum and takes no writes.
    NoQuorum,
    /// The configuration changed since its digest was read.
    DigestMismatch,
    /// The guest agent does not answer, or the VM that should run it does not run.
    AgentDown,
    /// The guest's agent refuses the command.
    AgentRefused,
    /// The result of that guest process has been handed out, or the agent was restarted.
    AgentPidUnknown,
    /// The VM runs already.
    AlreadyRunning,
    /// The VM does not run.
    NotRunning,
    /// The VM must be stopped first.
    StillRunning,
    /// `protection` is set.
    Protected,
    /// A resource of the HA manager.
    HaManaged,
    /// Nothing is known of the task: a typo, or its log was lost.
    TaskUnknown,
    /// The node is not a member of the cluster.
    NodeMissing,
    /// The snapshot is not there.
    SnapshotMissing,
    /// The pool is not there.
    PoolMissing,
    /// The disk is not there, or cannot be made smaller.
    DiskRefused,
}

/// One row: all of these texts must occur. The first row that fits wins.
type Row = (&'static [&'static str], Cause);

const ROWS: &[Row] = &[
    // Locks before what they were taken for: a clone that failed for a lock did not fail for good.
    (&["can't lock file", "/pve-storage-"], Cause::StorageBusy),
    (&["cfs-lock 'storage-", "got lock request timeout"], Cause::StorageBusy),
    (&["error with cfs lock 'storage-", "timeout"], Cause::StorageBusy),
    (&["'storage-", "locked command timed out"], Cause::StorageBusy),
    (&["no quorum"], Cause::NoQuorum),
    (&["unable to open file '/etc/pve/", "permission denied"], Cause::NoQuorum),
    (&["cfs-lock '", "timeout"], Cause::VmLocked),
    (&["can't lock file", "/lock-"], Cause::VmLocked),
    (&["vm is locked"], Cause::VmLocked),
    (&["ct is locked"], Cause::VmLocked),
    (&["no space left"], Cause::NoSpace),
    (&["insufficient free space"], Cause::NoSpace),
    (&["out of space"], Cause::NoSpace),
    (&["not enough free space"], Cause::NoSpace),
    (&["not enough space"], Cause::NoSpace),
    (&["out of data space"], Cause::NoSpace),
    (&["disk quota exceeded"], Cause::NoSpace),
    (&["config file already exists"], Cause::VmIdTaken),
    (&[".conf' failed: file exists"], Cause::VmIdTaken),
    (&["checksum mismatch (file change"], Cause::DigestMismatch),
    (&["detected modified configuration"], Cause::DigestMismatch),
    (&["unable to find configuration file"], Cause::VmMissing),
    (&["configuration file", "does not exist"], Cause::VmMissing),
    (&["no such vm"], Cause::VmMissing),
    (&["no such task"], Cause::TaskUnknown),
    (&["unable to parse worker upid"], Cause::TaskUnknown),
    (&["agent error: pid", "does not exist"], Cause::AgentPidUnknown),
    (&["agent error: invalid parameter 'pid'"], Cause::AgentPidUnknown),
    (&["agent error:"], Cause::AgentRefused),
    (&["guest agent is not running"], Cause::AgentDown),
    (&["no qemu guest agent configured"], Cause::AgentDown),
    (&["command 'guest-", "got timeout"], Cause::AgentDown),
    (&["command 'guest-", "unable to connect"], Cause::AgentDown),
    (&["can't remove", "protection mode enabled"], Cause::Protected),
    (&["protection mode enabled"], Cause::Protected),
    (&["used in ha resources"], Cause::HaManaged),
    (&["is running - destroy failed"], Cause::StillRunning),
    (&["already running"], Cause::AlreadyRunning),
    (&["not running"], Cause::NotRunning),
    (&["volume_size_info on", "failed"], Cause::VolumeMissing),
    (&["no such volume"], Cause::VolumeMissing),
    (&["volume '", "does not exist"], Cause::VolumeMissing),
    (&["disk image '", "does not exist"], Cause::VolumeMissing),
    // Before the rows of what is missing: the directory of a server that is down is said not to exist.
    (&["unable to activate storage"], Cause::StorageInactive),
    (&["storage '", "is disabled"], Cause::StorageInactive),
    (&["storage '", "is not online"], Cause::StorageInactive),
    (&["storage '", "does not exist"], Cause::StorageMissing),
    (&["storage '", "is not available"], Cause::StorageMissing),
    (&["no such storage"], Cause::StorageMissing),
    (&["storage '", "does not support"], Cause::StorageMissing),
    (&["can't upload to storage"], Cause::StorageMissing),
    (&["snapshot '", "does not exist"], Cause::SnapshotMissing),
    (&["pool '", "does not exist"], Cause::PoolMissing),
    (&["no such cluster node"], Cause::NodeMissing),
    (&["hostname lookup '", "failed"], Cause::NodeMissing),
    (&["disk '", "does not exist"], Cause::DiskRefused),
    (&["shrinking disks is not supported"], Cause::DiskRefused),
    (&["you can't resize a cdrom"], Cause::DiskRefused),
];

impl Cause {
    /// The cause that `text` names, whatever its letter case.
    pub fn of(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let row = ROWS.iter().find(|(parts, _)| parts.iter().all(|part| text.contains(part)));
        row.map(|(_, cause)| *cause).or_else(|| Self::of_guest(&text))
    }

    /// `VM 100 already exists`, `VM 100 does not exist`: too short for the table.
    fn of_guest(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace().peekable();
        while let Some(word) = words.next() {
            if !matches!(word, "vm" | "ct" | "vmid") {
                continue;
            }
            let number = words.peek().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
            if number.is_none_or(|number| number.parse::<u32>().is_err()) {
                continue;
            }
            let rest: Vec<&str> = words.clone().skip(1).collect();
            return match rest.join(" ").as_str() {
                rest if rest.starts_with("already exists") => Some(Self::VmIdTaken),
                rest if rest.starts_with("already in use") => Some(Self::VmIdTaken),
                rest if rest.starts_with("does not exist") => Some(Self::VmMissing),
                rest if rest.starts_with("not found") => Some(Self::VmMissing),
                _ => continue,
            };
        }
        None
    }

    /// How a fault of this cause is handled.
    pub const fn class(self) -> Class {
        match self {
            Self::VmMissing
            | Self::NoSpace
            | Self::StorageMissing
            | Self::StorageInactive
            | Self::VolumeMissing
            | Self::NodeMissing
            | Self::SnapshotMissing
            | Self::PoolMissing
            | Self::Protected
            | Self::HaManaged
            | Self::AgentRefused => Class::Blocked,
            Self::VmIdTaken
            | Self::VmLocked
            | Self::StorageBusy
            | Self::DigestMismatch
            | Self::AlreadyRunning
            | Self::NotRunning
            | Self::StillRunning
            | Self::TaskUnknown
            | Self::AgentPidUnknown => Class::Conflict,
            Self::NoQuorum | Self::AgentDown => Class::Transient,
            Self::DiskRefused => Class::Invalid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts_have_their_cause() {
        for (text, cause) in [
            (
                "Configuration file 'nodes/pve1/qemu-server/100.conf' does not exist",
                Cause::VmMissing,
            ),
            ("unable to find configuration file for VM 100 on node 'pve1'", Cause::VmMissing),
            ("VM 100 does not exist", Cause::VmMissing),
            ("no such VM ('100')", Cause::VmMissing),
            ("unable to create VM 120: config file already exists", Cause::VmIdTaken),
            ("VM 104 already exists", Cause::VmIdTaken),
            ("vmid: VM 104 already exists\n", Cause::VmIdTaken),
            (
                "clone failed: close (rename) atomic file \
                 '/etc/pve/nodes/pve1/qemu-server/120.conf' failed: File exists",
                Cause::VmIdTaken,
            ),
            ("VM is locked (clone)", Cause::VmLocked),
            (
                "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout",
                Cause::VmLocked,
            ),
            (
                "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - \
                 got timeout",
                Cause::StorageBusy,
            ),
            (
                "clone failed: cfs-lock 'storage-x' error: got lock request timeout",
                Cause::StorageBusy,
            ),
            ("'storage-ceph'-locked command timed out - aborting", Cause::StorageBusy),
            ("cfs-lock 'file-user_cfg' error: no quorum!", Cause::NoQuorum),
            ("cluster not ready - no quorum?", Cause::NoQuorum),
            ("clone failed: write error: No space left on device", Cause::NoSpace),
            ("checksum mismatch (file change by other user?)", Cause::DigestMismatch),
            ("QEMU guest agent is not running", Cause::AgentDown),
            ("VM 100 qga command 'guest-exec' failed - got timeout", Cause::AgentDown),
            ("VM 100 qmp command 'guest-ping' failed - got timeout", Cause::AgentDown),
            ("Agent error: PID 99 does not exist", Cause::AgentPidUnknown),
            ("Agent error: Command guest-exec has been disabled: x", Cause::AgentRefused),
            ("VM 100 is not running", Cause::NotRunning),
            ("VM 100 already running", Cause::AlreadyRunning),
            ("VM 100 is running - destroy failed", Cause::StillRunning),
            ("can't remove VM 100 - protection mode enabled", Cause::Protected),
            ("volume 'local:iso/a.iso' does not exist", Cause::VolumeMissing),
            ("volume_size_info on 'local:iso/a.iso' failed - no format", Cause::VolumeMissing),
            ("storage 'x' is not available on node 'pve1'", Cause::StorageMissing),
            ("storage 'x' is disabled", Cause::StorageInactive),
            ("storage 'x' is not online", Cause::StorageInactive),
            (
                "unable to activate storage 'nfs' - directory '/mnt/pve/nfs' does not exist or is \
                 unreachable",
                Cause::StorageInactive,
            ),
            ("no such cluster node 'pve9'", Cause::NodeMissing),
            ("no such task", Cause::TaskUnknown),
            ("shrinking disks is not supported", Cause::DiskRefused),
        ] {
            assert_eq!(Cause::of(text), Some(cause), "{text}");
        }
        for text in ["", "start failed: QEMU exited with code 1", "VM", "vm 1 is fine", "VM x"] {
            assert_eq!(Cause::of(text), None, "{text}");
        }
    }

    #[test]
    fn an_agent_pid_that_is_gone_is_not_a_vm_that_is_gone() {
        let text = "Agent error: PID 99 does not exist on VM 100";
        assert_eq!(Cause::of(text), Some(Cause::AgentPidUnknown));
    }
}

//! How a task stands and what its end means.

use super::cause::Cause;
use crate::fault::Class;

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStatus {
    /// It has not ended.
    Running,
    /// It has ended.
    Stopped {
        /// How.
        exit: TaskExit,
    },
}

impl TaskStatus {
    /// From the fields `status` and `exitstatus`. A missing or strange status counts as running
    /// unless an exit status shows that it is over.
    pub(super) fn of(status: Option<&str>, exit: Option<&str>) -> Self {
        match (status, exit) {
            // The word that the list of tasks has for an end.
            (Some(status), None) if TaskExit::of(status).is_success() => {
                Self::Stopped { exit: TaskExit::of(status) }
            }
            (Some("stopped"), exit) => {
                Self::Stopped { exit: TaskExit::of(exit.unwrap_or("no exit status")) }
            }
            (Some("running"), _) | (_, None) => Self::Running,
            (_, Some(exit)) => Self::Stopped { exit: TaskExit::of(exit) },
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskExit {
    /// `OK`.
    Ok,
    /// `WARNINGS: n`: done, with so many warnings in its log.
    Warnings(u32),
    /// Its end was not recorded (worker killed, node rebooted): it may have done all or nothing.
    Unknown(String),
    /// It failed with this text.
    Failed(String),
}

impl TaskExit {
    /// From Proxmox's exit status.
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        if text.eq_ignore_ascii_case("OK") {
            return Self::Ok;
        }
        let warnings = text.strip_prefix("WARNINGS:").and_then(|n| n.trim().parse().ok());
        if let Some(warnings) = warnings {
            return Self::Warnings(warnings);
        }
        match text {
            "" | "unexpected status" | "no exit status" => Self::Unknown(text.to_owned()),
            text if text.starts_with("unable to get last line from task log")
                || text.starts_with("unable to read tail") =>
            {
                Self::Unknown(text.to_owned())
            }
            text => Self::Failed(text.to_owned()),
        }
    }

    /// Whether it did what it was to do.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Ok | Self::Warnings(_))
    }

    /// The text of a failure or of an unknown end.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Ok | Self::Warnings(_) => None,
            Self::Unknown(text) | Self::Failed(text) => Some(text),
        }
    }

    /// The cause that a failure names.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Failed(text) => Cause::of(text),
            Self::Ok | Self::Warnings(_) | Self::Unknown(_) => None,
        }
    }

    /// How the end is handled; none for a success. A failure without a known cause is
    /// [`Class::TaskFailed`].
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Ok | Self::Warnings(_) => None,
            Self::Unknown(_) => Some(Class::Transient),
            Self::Failed(_) => Some(self.cause().map_or(Class::TaskFailed, Cause::class)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_success_a_failure_or_unknown() {
        for (text, exit) in [
            ("OK", TaskExit::Ok),
            ("OK\n", TaskExit::Ok),
            ("WARNINGS: 2", TaskExit::Warnings(2)),
            ("WARNINGS: many", TaskExit::Failed("WARNINGS: many".to_owned())),
            ("unexpected status", TaskExit::Unknown("unexpected status".to_owned())),
            ("VM quit/powerdown failed", TaskExit::Failed("VM quit/powerdown failed".to_owned())),
        ] {
            assert_eq!(TaskExit::of(text), exit);
        }
    }

    #[test]
    fn a_task_runs_until_something_says_that_it_ended() {
        assert_eq!(TaskStatus::of(Some("running"), None), TaskStatus::Running);
        assert_eq!(TaskStatus::of(None, None), TaskStatus::Running);
        let ok = TaskStatus::Stopped { exit: TaskExit::Ok };
        assert_eq!(TaskStatus::of(Some("stopped"), Some("OK")), ok);
        assert_eq!(TaskStatus::of(None, Some("OK")), ok);
        assert_eq!(TaskStatus::of(Some("OK"), None), ok);
        assert_eq!(TaskStatus::of(Some("queued"), None), TaskStatus::Running);
        let unknown = TaskExit::Unknown("no exit status".to_owned());
        assert_eq!(
            TaskStatus::of(Some("stopped"), None),
            TaskStatus::Stopped { exit: unknown.clone() }
        );
        assert_eq!(unknown.class(), Some(Class::Transient));
    }

    #[test]
    fn a_busy_storage_is_tried_again_and_a_full_one_waits() {
        let class = |text| TaskExit::of(text).class();
        let busy = "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-x' - \
                    got timeout";
        assert_eq!(class(busy), Some(Class::Conflict));
        assert_eq!(class("clone failed: no space left on device"), Some(Class::Blocked));
        assert_eq!(class("start failed: QEMU exited with code 1"), Some(Class::TaskFailed));
        assert_eq!(class("OK"), None);
    }
}

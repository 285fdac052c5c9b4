//! What went wrong, classified once where it arises; the class alone selects the behaviour.
//!
//! Waiting is not a fault: see the `WaitingOn` types of the controllers.

use std::fmt;

/// How a fault is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// The object contradicts itself or names something malformed; only an edit helps.
    Invalid,
    /// Something named is missing or full; it may appear without an edit.
    Blocked,
    /// Credentials are refused or lack a privilege (401, 403).
    Denied,
    /// Somebody else changed or holds the same thing; observe again.
    Conflict,
    /// The other side did not answer usefully; nothing is known.
    Transient,
    /// A Proxmox task ended without the effect that was wanted.
    TaskFailed,
    /// An answer that should be impossible.
    Bug,
}

impl Class {
    /// Stable name for logs and metrics labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Blocked => "blocked",
            Self::Denied => "denied",
            Self::Conflict => "conflict",
            Self::Transient => "transient",
            Self::TaskFailed => "task-failed",
            Self::Bug => "bug",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A classified fault with a message for people: it names the object, the field and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// How it is handled.
    pub class: Class,
    /// The reason of a condition that tells it, where the class does not say enough.
    pub reason: Option<&'static str>,
    /// One line, without secrets.
    pub message: String,
}

impl Fault {
    /// A fault of `class`.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, reason: None, message: message.into() }
    }

    /// The same, told with this reason.
    #[must_use]
    pub fn because(self, reason: &'static str) -> Self {
        Self { reason: Some(reason), ..self }
    }
}

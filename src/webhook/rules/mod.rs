//! Which objects are refused. Pure.
//!
//! An object that is being deleted is never refused: all that happens to it is that finalizers go,
//! and a rule that it breaks must not keep it from going.

mod clone_spec;
mod cluster;
mod effect;
mod guest;
mod in_place;
mod machine;
mod template;

use kube::core::{DynamicObject, Status};
use serde::de::DeserializeOwned;

use super::denial::Denial;

/// The kinds that are judged.
#[expect(clippy::enum_variant_names, reason = "they are called as the kinds are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ProxmoxCluster,
    ProxmoxClusterTemplate,
    ProxmoxMachine,
    ProxmoxMachineTemplate,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::ProxmoxCluster => "ProxmoxCluster",
            Self::ProxmoxClusterTemplate => "ProxmoxClusterTemplate",
            Self::ProxmoxMachine => "ProxmoxMachine",
            Self::ProxmoxMachineTemplate => "ProxmoxMachineTemplate",
        }
    }

    /// As the warnings of capmox v0.7 call it; for templates, which it does not judge, likewise.
    const fn in_words(self) -> &'static str {
        match self {
            Self::ProxmoxCluster => "proxmox cluster",
            Self::ProxmoxClusterTemplate => "proxmox cluster template",
            Self::ProxmoxMachine => "proxmox machine",
            Self::ProxmoxMachineTemplate => "proxmox machine template",
        }
    }
}

/// What is to be judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Review<'a> {
    pub(super) kind: Kind,
    /// Name of the object; empty while the apiserver has still to make one up.
    pub(super) name: &'a str,
    pub(super) object: &'a DynamicObject,
    /// The object as it was; absent on creation.
    pub(super) old: Option<&'a DynamicObject>,
    /// Whether the object is to be judged only, and not kept.
    pub(super) dry_run: bool,
}

/// The judgement.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Accepted,
    /// Accepted, with what the user should know.
    Doubted(Vec<String>),
    Refused {
        status: Box<Status>,
        warnings: Vec<String>,
    },
}

/// Judges one object.
pub(super) fn review(review: &Review<'_>) -> Verdict {
    if review.object.metadata.deletion_timestamp.is_some() {
        return Verdict::Accepted;
    }
    let judged = match review.kind {
        Kind::ProxmoxCluster => cluster::judge(review),
        Kind::ProxmoxMachine => machine::judge(review),
        Kind::ProxmoxClusterTemplate | Kind::ProxmoxMachineTemplate => template::judge(review),
    };
    let denial = match judged {
        Ok(doubts) if doubts.is_empty() => return Verdict::Accepted,
        Ok(doubts) => return Verdict::Doubted(doubts),
        Err(denial) => denial,
    };
    let verb = if review.old.is_none() { "create" } else { "update" };
    let warnings = if matches!(denial, Denial::BadRequest(_)) {
        vec![]
    } else {
        vec![format!("cannot {verb} {} {}", review.kind.in_words(), review.name)]
    };
    let status = denial.into_status(review.kind.as_str(), review.name);
    Verdict::Refused { status: Box::new(status), warnings }
}

/// Reads the spec of an object.
fn spec<T: DeserializeOwned>(object: &DynamicObject) -> Result<T, Denial> {
    let spec = object.data.get("spec").cloned().unwrap_or_else(|| serde_json::json!({}));
    serde_json::from_value(spec)
        .map_err(|error| Denial::BadRequest(format!("spec cannot be read: {error}")))
}

#[cfg(test)]
mod tests;

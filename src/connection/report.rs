//! What is said of a ProxmoxConnection: its status and its events, as differences to what was said
//! before. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::Verdict;
use crate::api::conditions::{self, State};
use crate::api::{ProxmoxConnection, ProxmoxConnectionStatus, reasons};

/// `status.connectionStatus` of a connection that works.
const CONNECTED: &str = "Connected";

/// The status that a connection should have.
pub(super) fn status(
    connection: &ProxmoxConnection,
    verdict: &Verdict,
    now: Timestamp,
) -> ProxmoxConnectionStatus {
    let mut status = connection.status.clone().unwrap_or_default();
    let generation = connection.metadata.generation;
    let ready = (reasons::READY, Some(verdict.ready.clone()));
    for (type_, state) in std::iter::once(&ready).chain(&verdict.conditions) {
        let all = &mut status.conditions;
        conditions::beside_v1beta2(all, type_, state.as_ref(), generation, now);
    }
    let word = match &verdict.ready {
        State::True => CONNECTED,
        State::False { reason, .. } | State::Unknown { reason, .. } => reason,
    };
    status.connection_status = Some(word.to_owned());
    status.version = verdict.version.clone().or(status.version);
    status.active_endpoint.clone_from(&verdict.address);
    status.missing_privileges.clone_from(&verdict.missing);
    status.observed_secrets.clone_from(&verdict.secrets);
    status
}

/// The JSON merge patch for `/status` that makes `new` of what the connection has; `None` when they
/// are equal.
pub(super) fn status_patch(
    connection: &ProxmoxConnection,
    new: &ProxmoxConnectionStatus,
) -> Result<Option<Value>, serde_json::Error> {
    let old = connection.status.as_ref().map_or(Ok(Value::Null), serde_json::to_value)?;
    let new = serde_json::to_value(new)?;
    let version = connection.metadata.resource_version.as_deref();
    Ok(crate::api::merge_patch(&old, &new)
        .map(|difference| json!({"metadata": {"resourceVersion": version}, "status": difference})))
}

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    /// Whether it deserves attention.
    pub(super) is_warning: bool,
    /// In one word.
    pub(super) reason: String,
    /// In a sentence.
    pub(super) note: String,
}

/// The `Ready` of a status.
pub(super) fn ready(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == reasons::READY)
}

/// The event that a change of status is worth, if any.
pub(super) fn notice(
    old: Option<&ProxmoxConnectionStatus>,
    new: &ProxmoxConnectionStatus,
) -> Option<Notice> {
    let before = old.and_then(|status| ready(&status.conditions));
    let now = ready(&new.conditions)?;
    let says = |one: &Condition| (one.status.clone(), one.reason.clone(), one.message.clone());
    if before.map(says) == Some(says(now)) {
        return None;
    }
    let works = now.status == "True";
    let version = new.version.as_deref().unwrap_or_default();
    let note = if works { format!("Proxmox VE {version} answers") } else { now.message.clone() };
    Some(Notice { is_warning: !works, reason: now.reason.clone(), note })
}

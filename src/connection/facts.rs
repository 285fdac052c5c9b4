//! What was seen of a ProxmoxConnection. Pure.

use k8s_openapi::jiff::SignedDuration;

use crate::api::ObservedSecret;
use crate::connections::Ailment;
use crate::fault::Fault;
use crate::pve::Permissions;

/// What a connection is judged by.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The Secrets that were read.
    pub(super) secrets: Vec<ObservedSecret>,
    /// The endpoint, or why there are no credentials to open one with.
    pub(super) endpoint: Result<Probe, Fault>,
}

/// What an endpoint answered.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    /// The address that was asked last.
    pub(super) address: String,
    /// How to have its certificate checked, when any is believed.
    pub(super) insecure: Option<String>,
    /// The version of Proxmox VE, or what ails it.
    pub(super) version: Result<Answer, (Ailment, Fault)>,
}

/// What an endpoint says that answers.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// Version of Proxmox VE, such as `9.1.4`.
    pub(super) version: String,
    /// The privileges of the credentials, or why they are not known.
    pub(super) permissions: Result<Permissions, String>,
    /// How far its clock is ahead of ours, if it told the time.
    pub(super) ahead: Option<SignedDuration>,
}

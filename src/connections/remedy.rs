//! What to do about an endpoint that does not answer as it should. Computes only.

use super::Source;
use crate::api::ProxmoxCluster;
use crate::fault::Fault;
use crate::hypervisor::Endpoint;
use crate::pve::{self, ErrorKind as Kind};

/// The fault of an endpoint that a cluster uses: what failed, and what helps.
pub fn unreachable(cluster: &ProxmoxCluster, endpoint: &Endpoint, error: &pve::Error) -> Fault {
    let credentials = match Source::of(cluster) {
        Source::Manager => "the manager's own credentials (PROXMOX_URL, PROXMOX_TOKEN, \
                            PROXMOX_SECRET)"
            .to_owned(),
        Source::Secret(secret) => format!("Secret {secret}"),
    };
    let base = endpoint.client().base_url().to_string();
    Fault::new(error.class(), text(&base, &credentials, error))
}

fn text(base: &str, credentials: &str, error: &pve::Error) -> String {
    let remedy = match error.kind() {
        Kind::Tls => format!(
            "put the certificate of its authority into root_ca of {credentials}, or set insecure \
             there to true"
        ),
        Kind::Unauthorized => format!("check token and secret in {credentials}"),
        Kind::Forbidden => {
            format!("give the token of {credentials} the privilege, also on the token itself")
        }
        Kind::NotImplemented | Kind::Decode => {
            format!("check that url in {credentials} leads to the API of Proxmox VE")
        }
        Kind::NoQuorum => "bring the nodes of the Proxmox cluster back".to_owned(),
        Kind::Connect
        | Kind::Timeout
        | Kind::BadRequest { .. }
        | Kind::NodeUnreachable
        | Kind::VmMissing
        | Kind::VmIdTaken
        | Kind::VmLocked
        | Kind::AgentDown
        | Kind::DigestMismatch
        | Kind::Server => {
            format!("check that {base} runs and can be reached, and url in {credentials}")
        }
    };
    // Failures to connect name the endpoint themselves.
    let error = error.to_string();
    let at = if error.contains(base) { String::new() } else { format!("{base}: ") };
    format!("{at}{error}: {remedy}")
}

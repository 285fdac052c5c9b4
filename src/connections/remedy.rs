//! What ails an endpoint that does not answer as it should, and what to do about it. Computes only.

use super::Source;
use crate::api::ProxmoxCluster;
use crate::fault::Fault;
use crate::hypervisor::Endpoint;
use crate::pve::{self, ErrorKind as Kind};

/// What ails an endpoint: one word for each remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ailment {
    /// No connection, or no answer.
    Down,
    /// The certificate is not trusted.
    NotTrusted,
    /// The certificate is not valid at the time that this computer has.
    NotTrustedNow,
    /// Token or password are refused.
    Refused,
    /// The token's time, or its user's, is over.
    Expired,
    /// The user is disabled.
    Disabled,
    /// The token does not exist (any more).
    TokenUnknown,
    /// A privilege is missing.
    NotPermitted,
    /// Something else answers than the API of Proxmox VE.
    NotProxmox,
    /// The Proxmox cluster has lost its quorum.
    NoQuorum,
    /// Proxmox answers with an error of its own.
    Failing,
}

/// What an error says of the endpoint.
pub fn ailment(error: &pve::Error) -> Ailment {
    let text = error.message().to_ascii_lowercase();
    let says = |word: &str| text.contains(word);
    match error.kind() {
        Kind::Tls if says("not valid yet") || says("certificate expired") => Ailment::NotTrustedNow,
        Kind::Tls => Ailment::NotTrusted,
        // The wording of releases up to 9.1.4 and 8.4.16; later ones say the same to everybody.
        Kind::Unauthorized if says("expired") => Ailment::Expired,
        Kind::Unauthorized if says("is disabled") => Ailment::Disabled,
        Kind::Unauthorized if says("no such token") => Ailment::TokenUnknown,
        Kind::Unauthorized => Ailment::Refused,
        Kind::Forbidden => Ailment::NotPermitted,
        Kind::NotImplemented | Kind::Decode => Ailment::NotProxmox,
        Kind::NoQuorum => Ailment::NoQuorum,
        Kind::Connect | Kind::Timeout => Ailment::Down,
        Kind::BadRequest { .. }
        | Kind::NodeUnreachable
        | Kind::VmMissing
        | Kind::VmIdTaken
        | Kind::VmLocked
        | Kind::AgentDown
        | Kind::DigestMismatch
        | Kind::Server => Ailment::Failing,
    }
}

/// The fault of an endpoint that a cluster uses: what failed, and what helps.
pub fn unreachable(cluster: &ProxmoxCluster, endpoint: &Endpoint, error: &pve::Error) -> Fault {
    failing(&Source::of(cluster), endpoint, error)
}

/// The fault of an endpoint with credentials of this source.
pub fn failing(source: &Source, endpoint: &Endpoint, error: &pve::Error) -> Fault {
    let client = endpoint.client();
    let base = client.active_url();
    let remedy = remedy(source, ailment(error), &base.to_string(), base.lacks_port());
    // Failures to connect name the endpoint themselves.
    let error_text = error.to_string();
    let base = base.to_string();
    let at = if error_text.contains(&base) { String::new() } else { format!("{base}: ") };
    Fault::new(error.class(), format!("{at}{error_text}: {remedy}"))
}

fn remedy(source: &Source, ailment: Ailment, base: &str, lacks_port: bool) -> String {
    let place = match source {
        Source::Manager => {
            "the manager's own credentials (PROXMOX_URL, PROXMOX_TOKEN, PROXMOX_SECRET)".to_owned()
        }
        Source::Secret(_) | Source::Connection(_) => source.to_string(),
    };
    let is_connection = matches!(source, Source::Connection(_));
    let (url, token) = if is_connection {
        ("spec.endpoint", "spec.tokenID or spec.username and the secret that goes with it")
    } else {
        ("url", "token and secret")
    };
    match ailment {
        Ailment::NotTrusted if is_connection => format!(
            "put the certificate of its authority (/etc/pve/pve-root-ca.pem of Proxmox) into \
             spec.caBundle of {place}, or the fingerprint of its own (pvenode cert info) into \
             spec.fingerprint"
        ),
        Ailment::NotTrusted => format!(
            "put the certificate of its authority into root_ca of {place}, or set insecure there \
             to true"
        ),
        Ailment::NotTrustedNow => "compare the clocks of Proxmox and of the manager's node; if \
                                   both are right, renew the certificate of Proxmox (pvecm \
                                   updatecerts --force)"
            .to_owned(),
        Ailment::Refused => format!(
            "check {token} in {place}; on Proxmox, whether they exist, are enabled and not expired"
        ),
        Ailment::Expired => format!(
            "prolong it on Proxmox (Datacenter, Permissions), or put a new one into {place}"
        ),
        Ailment::Disabled => {
            "enable the user on Proxmox (Datacenter, Permissions, Users)".to_owned()
        }
        Ailment::TokenUnknown => format!(
            "create the token on Proxmox (Datacenter, Permissions, API Tokens), or put an existing \
             one into {place}"
        ),
        Ailment::NotPermitted => {
            format!("give the token of {place} the privilege, also on the token itself")
        }
        Ailment::NotProxmox => {
            format!("check that {url} in {place} leads to the API of Proxmox VE")
        }
        Ailment::NoQuorum => "bring the nodes of the Proxmox cluster back".to_owned(),
        Ailment::Down | Ailment::Failing => {
            let port = if lacks_port && ailment == Ailment::Down {
                " (Proxmox itself listens on port 8006, which it does not name)"
            } else {
                ""
            };
            format!("check that {base} runs and can be reached, and {url} in {place}{port}")
        }
    }
}

/// How to have the certificate checked.
pub(super) fn three_ways(source: &Source) -> String {
    let (secure, bundle) = match source {
        Source::Manager => ("PROXMOX_INSECURE=false", "--proxmox-root-cert-file"),
        Source::Secret(_) => ("insecure: \"false\" in the Secret", "root_ca in the Secret"),
        Source::Connection(_) => ("insecureSkipVerify: false", "spec.caBundle"),
    };
    let third = if matches!(source, Source::Connection(_)) {
        "the same with the fingerprint of the node's certificate (pvenode cert info) as \
         spec.fingerprint"
            .to_owned()
    } else {
        format!(
            "the same with the certificate of the node itself (/etc/pve/local/pve-ssl.pem) as {bundle}"
        )
    };
    format!(
        "Three ways to check it: (1) a certificate of a public authority on Proxmox, and {secure}; \
         (2) the same with /etc/pve/pve-root-ca.pem of Proxmox as {bundle}; (3) {third}"
    )
}

#[cfg(test)]
mod tests;

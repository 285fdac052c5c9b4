//! The API itself: whether it answers, its clock and its nodes.

use super::listed;
use crate::check::facts::{self, Facts};
use crate::check::report::Finding;
use crate::check::wanted::Wanted;
use crate::pve::{Error, ErrorKind as Kind, Version};
use crate::seen::Seen;

/// Clocks that differ by no more do no harm.
const MAX_SKEW_SECS: i64 = 60;

/// Releases that the provider is written for.
const RELEASES: std::ops::RangeInclusive<u32> = 7..=9;

/// The API answered.
pub fn reached(url: &str, who: &str, verified: bool, version: &Version) -> Vec<Finding> {
    let text = format!("Proxmox VE {} answers {who}", version.version);
    let api = match version.major() {
        Some(major) if RELEASES.contains(&major) => Finding::good("api", url, text),
        _ => Finding::unknown("api", url, format!("{text}; releases 7 to 9 are known here"))
            .remedy("privileges are judged as for release 9"),
    };
    let certificate = if url.starts_with("http:") {
        Finding::good("certificate", url, "none, by plain HTTP: who is on the way reads the secret")
            .remedy("give an address that starts with https://")
    } else if verified {
        Finding::good("certificate", url, "trusted")
    } else {
        Finding::good("certificate", url, "not checked: who is on the way can read the secret")
            .remedy(
                "give the authority, /etc/pve/pve-root-ca.pem of Proxmox, in place of insecure: \
                 --ca FILE, or root_ca in the Secret with insecure: \"false\"",
            )
    };
    vec![api, certificate]
}

/// The API gave no usable answer. What is not an answer at all is not known.
pub fn not_reached(url: &str, who: &str, error: &Error) -> Vec<Finding> {
    let failed = |remedy: &str| Finding::failed("api", url, error.to_string()).remedy(remedy);
    let first = match error.kind() {
        Kind::Tls => failed(
            "give the authority of its certificate (--ca FILE, or root_ca in the Secret: \
             /etc/pve/pve-root-ca.pem of Proxmox); --insecure believes anybody",
        ),
        Kind::Unauthorized => failed(&format!(
            "check that token {who} exists, has not expired and is not disabled, and its secret: \
             pveum user token list {}",
            who.split('!').next().unwrap_or(who)
        )),
        Kind::Forbidden => failed("give the token privileges: docs/permissions.md"),
        Kind::NotImplemented | Kind::Decode => failed(
            "give the address of a Proxmox node as its web interface has it, such as \
             https://pve.example.com:8006",
        ),
        Kind::Connect => {
            failed("check host and port (8006 unless a proxy is in between) and that pveproxy runs")
        }
        _ => Finding::unknown("api", url, error.to_string())
            .remedy("check that the node runs and that no firewall is in between"),
    };
    vec![first, Finding::unknown("all else", url, "not looked at, as the API gave no answer")]
}

pub(super) fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![clock(facts)];
    findings.extend(nodes(wanted, facts));
    findings
}

fn clock(facts: &Facts) -> Finding {
    let check = "clock";
    match &facts.skew {
        Seen::Present(skew) => {
            let seconds = skew.as_secs();
            let (by, which) =
                (seconds.unsigned_abs(), if seconds < 0 { "behind" } else { "ahead" });
            if by > MAX_SKEW_SECS.unsigned_abs() {
                let found = format!("{by} s {which} of this machine");
                Finding::failed(check, "Proxmox", found).remedy(
                    "set both by NTP (chronyc tracking): certificates and tickets have times",
                )
            } else {
                let found = format!("within {MAX_SKEW_SECS} s of this machine's");
                Finding::good(check, "Proxmox", found)
            }
        }
        Seen::Absent => Finding::unknown(check, "Proxmox", "the server does not tell its time"),
        Seen::Unknown(why) => Finding::unknown(check, "Proxmox", why),
    }
}

fn nodes(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let check = "node";
    let nodes = match &facts.nodes {
        Seen::Present(nodes) if !nodes.is_empty() => nodes,
        Seen::Present(_) | Seen::Absent => {
            return vec![Finding::unknown(check, "all", "Proxmox lists no node")];
        }
        Seen::Unknown(why) => return vec![Finding::unknown(check, "all", why)],
    };
    let used = facts::nodes(wanted, nodes);
    let (online, offline): (Vec<_>, Vec<_>) = used.iter().partition(|node| facts.is_online(node));
    let mut findings = Vec::new();
    if !online.is_empty() {
        findings.push(Finding::good(check, listed(online), "online"));
    }
    for node in offline {
        let status = nodes.iter().find(|known| known.node == *node);
        let status = status.and_then(|known| known.status.as_deref()).unwrap_or("unknown");
        // Machines go to the others, unless this one was asked for.
        let finding = if wanted.nodes.contains(node.as_str()) {
            Finding::failed(check, node.to_string(), status)
        } else {
            let found = format!("{status}: what is on it cannot be looked at");
            Finding::unknown(check, node.to_string(), found)
        };
        findings.push(finding.remedy("bring it back, or leave it out of allowedNodes"));
    }
    let is_known = |name: &&String| nodes.iter().any(|node| node.node.as_str() == *name);
    for name in wanted.nodes.iter().filter(|name| !is_known(name)) {
        let there = listed(nodes.iter().map(|node| &node.node));
        findings.push(
            Finding::failed(check, name, "the Proxmox cluster has no such node")
                .remedy(format!("correct allowedNodes or target; it has {there}")),
        );
    }
    findings
}

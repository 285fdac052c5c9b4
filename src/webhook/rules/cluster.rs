//! Rules for ProxmoxCluster: the endpoint makes sense and no machine can be given its address.

use std::net::IpAddr;

use super::{Denial, Review, clone_spec};
use crate::api::{IpConfig, ProxmoxClusterSpec};
use crate::ipam::ranges::Addresses;

/// capmox v0.7 spells these paths so.
const ENDPOINT: &str = "spec.controlplaneEndpoint";
const ADDRESSES: [&str; 2] = ["spec.IPv4Config.addresses", "spec.IPv6Config.addresses"];

/// What the user should know of a cluster that is accepted.
pub(super) fn judge(review: &Review<'_>) -> Result<Vec<String>, Denial> {
    let Review { object, old, .. } = *review;
    let spec: ProxmoxClusterSpec = super::spec(object)?;
    if old.is_none() && spec.ipv4_config.is_none() && spec.ipv6_config.is_none() {
        return Err(Denial::Forbidden(
            "proxmox cluster must define at least one IP pool config".to_owned(),
        ));
    }
    endpoint(&spec)?;
    Ok(clone_spec::doubts(review, "/spec"))
}

fn endpoint(spec: &ProxmoxClusterSpec) -> Result<(), Denial> {
    if spec.external_managed_control_plane.unwrap_or_default() {
        return Ok(());
    }
    // capmox v0.7 panics here, which refuses the object as well, with a text that helps nobody.
    let Some(endpoint) = &spec.control_plane_endpoint else {
        return Err(Denial::Required {
            path: "spec.controlPlaneEndpoint".to_owned(),
            message: "set host and port of the control plane, or set \
                      spec.externalManagedControlPlane if a control plane provider does that"
                .to_owned(),
        });
    };
    let host = endpoint.host.as_str();
    if is_host_name(host) {
        return Ok(());
    }
    let address: IpAddr = host.parse().map_err(|_| {
        Denial::invalid(ENDPOINT, host, "provided endpoint address is not a valid IP or FQDN")
    })?;
    for (config, path) in [&spec.ipv4_config, &spec.ipv6_config].into_iter().zip(ADDRESSES) {
        if let Some(config) = config {
            outside(address, config, path)?;
        }
    }
    Ok(())
}

fn outside(endpoint: IpAddr, config: &IpConfig, path: &str) -> Result<(), Denial> {
    let addresses = Addresses::parse(&config.addresses).map_err(|_| {
        let text = "provided addresses are not valid IP addresses, ranges or CIDRs";
        Denial::invalid(path, &config.addresses, text)
    })?;
    if addresses.contains(endpoint) {
        let text = "addresses may not contain the endpoint IP";
        return Err(Denial::invalid(path, &config.addresses, text));
    }
    Ok(())
}

/// Whether capmox v0.7 takes the text for a host name and asks no further: a single label of up to
/// 253 characters, or labels of up to 63 that end in one of two or more letters.
fn is_host_name(text: &str) -> bool {
    match text.rsplit_once('.') {
        None => is_label(text, 253),
        Some((labels, last)) => {
            labels.split('.').all(|part| is_label(part, 63))
                && (2..=63).contains(&last.len())
                && last.bytes().all(|byte| byte.is_ascii_alphabetic())
        }
    }
}

fn is_label(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_told_from_addresses() {
        let longest = "a".repeat(253);
        for name in ["a", "localhost", "CP-1", "42", "api.example.com", "a.b1.io", &longest] {
            assert!(is_host_name(name), "{name}");
        }
        let too_long = "a".repeat(254);
        for no_name in [
            "",
            "10.0.0.1",
            "::1",
            "a_b",
            "api.example.com.",
            "-a",
            "a-",
            "a..io",
            "a.b.c",
            "a.1b",
            ".io",
            "a b",
            &too_long,
        ] {
            assert!(!is_host_name(no_name), "{no_name}");
        }
    }
}

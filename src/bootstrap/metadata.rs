//! `meta-data`: who the guest is.
//!
//! Templates use these keys as `{{ ds.meta_data.instance_id }}` and the like, so their names are a
//! contract with every template ever written for the provider. A changed `instance-id` makes
//! cloud-init run again as on a first boot.

use std::fmt::Write as _;

use crate::bootstrap::problem::Problem;
use crate::bootstrap::yaml::scalar;

/// The identity of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// SMBIOS UUID of the VM, as in its provider ID. Required.
    pub instance_id: String,
    /// Name of the ProxmoxMachine. Required.
    pub hostname: String,
    /// `proxmox://<SMBIOS UUID>`, given only with `spec.metadataSettings.providerIDInjection`.
    pub provider_id: Option<String>,
    /// `spec.version` of the Machine, such as `v1.34.4`; an empty text counts as none.
    pub kubernetes_version: Option<String>,
    /// Where the VM is. The peer's flavour proxmox-labels asks for it, but the peer tells nobody; so
    /// it is given only to bootstrap data that [`asks_for_place`].
    pub place: Option<Place>,
}

/// Where a VM was when its seed was made; it may be moved later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its Proxmox node.
    pub node: String,
    /// The failure domain: as Cluster API chose it, or the node.
    pub zone: String,
}

/// The variables by which templates ask for [`Metadata::place`].
const PLACE_VARIABLES: [&[u8]; 2] = [b"meta_data.proxmox_node", b"meta_data.zone"];

/// Whether bootstrap data asks where its VM is.
pub fn asks_for_place(payload: &[u8]) -> bool {
    PLACE_VARIABLES
        .iter()
        .any(|variable| payload.windows(variable.len()).any(|window| window == *variable))
}

/// Renders `meta-data`.
///
/// # Errors
/// [`Problem::Metadata`] when the instance ID or the hostname is empty.
pub fn metadata(metadata: &Metadata) -> Result<String, Problem> {
    if metadata.instance_id.is_empty() {
        return Err(Problem::Metadata {
            field: "instance-id",
            reason: "the VM has no SMBIOS UUID; its template needs smbios1 with a uuid",
        });
    }
    if metadata.hostname.is_empty() {
        return Err(Problem::Metadata { field: "hostname", reason: "the machine has no name" });
    }
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key}: {}", scalar(value));
    };
    line("instance-id", &metadata.instance_id);
    line("local-hostname", &metadata.hostname);
    line("hostname", &metadata.hostname);
    if let Some(provider_id) = metadata.provider_id.as_deref().filter(|id| !id.is_empty()) {
        line("provider-id", provider_id);
    }
    if let Some(version) = metadata.kubernetes_version.as_deref().filter(|v| !v.is_empty()) {
        line("kubernetes-version", version);
    }
    if let Some(place) = &metadata.place {
        line("proxmox-node", &place.node);
        line("zone", &place.zone);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest() -> Metadata {
        Metadata {
            instance_id: "9a8b7c6d-0000-4000-8000-000000000001".into(),
            hostname: "lab-cp-0".into(),
            ..Metadata::default()
        }
    }

    #[test]
    fn a_plain_guest_has_three_lines() {
        assert_eq!(
            metadata(&guest()).expect("renders"),
            "instance-id: 9a8b7c6d-0000-4000-8000-000000000001\n\
             local-hostname: lab-cp-0\n\
             hostname: lab-cp-0\n"
        );
    }

    #[test]
    fn provider_id_and_version_follow_when_known() {
        let full = Metadata {
            provider_id: Some("proxmox://9a8b7c6d-0000-4000-8000-000000000001".into()),
            kubernetes_version: Some("v1.34.4".into()),
            ..guest()
        };
        let text = metadata(&full).expect("renders");
        assert!(text.ends_with(
            "provider-id: proxmox://9a8b7c6d-0000-4000-8000-000000000001\n\
             kubernetes-version: v1.34.4\n"
        ));
        let unknown = Metadata { kubernetes_version: Some(String::new()), ..guest() };
        assert_eq!(metadata(&unknown), metadata(&guest()));
    }

    #[test]
    fn the_place_is_told_by_the_names_that_templates_ask_for() {
        let place = Some(Place { node: "pve2".into(), zone: "rack-1".into() });
        let text = metadata(&Metadata { place, ..guest() }).expect("renders");
        assert!(text.ends_with("hostname: lab-cp-0\nproxmox-node: pve2\nzone: rack-1\n"), "{text}");
        assert!(asks_for_place(b"node-labels: a={{ ds.meta_data.proxmox_node }}"));
        assert!(asks_for_place(b"{{ ds.meta_data.zone }}"));
        assert!(!asks_for_place(b"zone: {{ ds.meta_data.instance_id }}"));
    }

    #[test]
    fn a_hostname_of_digits_stays_a_text() {
        let text = metadata(&Metadata { hostname: "1234".into(), ..guest() }).expect("renders");
        assert!(text.contains("local-hostname: \"1234\"\nhostname: \"1234\"\n"), "{text}");
    }

    #[test]
    fn a_guest_without_identity_is_refused() {
        let no_id = metadata(&Metadata { instance_id: String::new(), ..guest() });
        assert!(no_id.unwrap_err().to_string().contains("instance-id"));
        let no_name = metadata(&Metadata { hostname: String::new(), ..guest() });
        assert!(no_name.unwrap_err().to_string().contains("hostname"));
    }
}

//! The table: which guests are booted, with which seed, and how each is to end.

use capmox::bootstrap::network::{Ethernet, NetworkPlan, Route, Rule, Static, Vrf};
use capmox::bootstrap::{Format, Metadata, SeedFiles};

use anyhow::Result;

use super::guest::Wire;
use super::root::Release;

/// As Proxmox makes it; the same for all, which never run at once.
pub(crate) const UUID: &str = "9a8b7c6d-0000-4000-8000-000000000001";

/// What a bootstrap provider for kubeadm gives, without kubeadm: the config is a jinja template that
/// asks for the node's identity.
const PAYLOAD: &str = r#"## template: jinja
#cloud-config
write_files:
- path: /run/kubeadm/kubeadm.yaml
  owner: root:root
  permissions: '0640'
  content: |
    nodeRegistration:
      name: '{{ ds.meta_data.local_hostname }}'
      kubeletExtraArgs:
        provider-id: "proxmox://{{ ds.meta_data.instance_id }}"
runcmd:
- cp -p /run/kubeadm/kubeadm.yaml /root/kubeadm.yaml
- echo "{{ ds.meta_data.provider_id }} {{ ds.meta_data.kubernetes_version }}" > /root/told
- echo "ADDRESSES $(ip -json -details address)" > /dev/ttyS1
- echo "RAN" > /dev/ttyS1
"#;

/// How a guest is to end, in the words of [`capmox::bootstrap::cloud_init::Progress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Up, and as asked in everything.
    Done,
    /// Up, without anybody to tell of it.
    Silent,
    /// cloud-init reports a failure, with this in its cause.
    Failed(&'static str),
    /// cloud-init could not read the user-data, and says so (this text) or says `done`.
    Ignored,
}

/// One guest.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) release: Release,
    pub(crate) payload: String,
    pub(crate) plan: NetworkPlan,
    pub(crate) wires: Vec<Wire>,
    pub(crate) end: End,
}

impl Case {
    fn new(name: &'static str, release: Release, devices: Vec<(Ethernet, Wire)>) -> Self {
        let (ethernets, wires) = devices.into_iter().unzip();
        let plan = NetworkPlan { ethernets, vrfs: Vec::new() };
        Self { name, release, payload: PAYLOAD.to_owned(), plan, wires, end: End::Done }
    }

    fn ends(self, end: End, payload: &str) -> Self {
        Self { end, payload: payload.to_owned(), ..self }
    }

    /// Name with release, for logs and the report.
    pub(crate) fn label(&self) -> String {
        format!("{} {}", self.release.suite(), self.name)
    }

    /// Who every guest is.
    pub(crate) fn identity() -> Metadata {
        Metadata {
            instance_id: UUID.to_owned(),
            hostname: "lab-cp-0".to_owned(),
            provider_id: Some(format!("proxmox://{UUID}")),
            kubernetes_version: Some("v1.34.4".to_owned()),
            place: None,
        }
    }

    /// The image that the provider would put into the VM's drive, by the provider's own functions.
    pub(crate) fn iso(&self) -> Result<Vec<u8>> {
        let payload = self.payload.as_bytes();
        let files = SeedFiles::render(Format::CloudConfig, payload, &Self::identity(), &self.plan)?;
        Ok(files.image()?)
    }
}

/// All guests of a release. Of the newer one only those whose programs could see it differently:
/// the fullest network, and cloud-init's words for failures.
pub(crate) fn cases(release: Release) -> Vec<Case> {
    let single = || vec![(v4(0, Some(100)), Wire::UserV4(10))];
    let telling = vec![
        vrf(release),
        Case::new("failing command", release, single())
            .ends(End::Failed("scripts"), "#cloud-config\nruncmd:\n- exit 3\n"),
        Case::new("user-data is no YAML", release, single())
            .ends(End::Ignored, "#cloud-config\nruncmd: [\n- {touch: /root/told\n"),
    ];
    if release == Release::Trixie {
        return telling;
    }
    let mut all = vec![
        Case::new("IPv4", release, single()),
        Case::new("dual stack", release, vec![(dual(0), Wire::User(10))]),
        dhcp_and_static(release),
        Case::new("no agent", release, single()).ends(End::Silent, PAYLOAD),
    ];
    all.extend(telling);
    all
}

fn mac(index: usize) -> String {
    // Upper case, as Proxmox writes it.
    format!("BC:24:11:00:0A:0{index}")
}

/// Device `index` in `10.1<index>.0.0/24`.
fn v4(index: usize, metric: Option<u32>) -> Ethernet {
    Ethernet {
        ipv4: Some(Static {
            address: format!("10.1{index}.0.5/24"),
            gateway: metric.map(|_| format!("10.1{index}.0.1")),
            metric,
        }),
        dns_servers: vec![format!("10.1{index}.0.3")],
        ..Ethernet::new(index, format!("net{index}"), mac(index))
    }
}

fn dual(index: usize) -> Ethernet {
    let metric = Some(100 + u32::try_from(index).unwrap_or_default());
    Ethernet {
        ipv6: Some(Static {
            address: format!("2001:db8:1{index}::5/64"),
            gateway: Some(format!("2001:db8:1{index}::1")),
            metric,
        }),
        dns_servers: vec![format!("10.1{index}.0.3"), format!("2001:db8:1{index}::3")],
        mtu: Some(1400),
        ..v4(index, metric)
    }
}

fn dhcp_and_static(release: Release) -> Case {
    let dhcp = Ethernet { dhcp4: true, mtu: Some(1300), ..Ethernet::new(1, "net1", mac(1)) };
    let devices = vec![(v4(0, Some(50)), Wire::UserV4(10)), (dhcp, Wire::UserV4(11))];
    Case::new("static and DHCP", release, devices)
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// Three devices: the first plain, the second with routes and rules, the third in a VRF.
fn vrf(release: Release) -> Case {
    let mut second = dual(1);
    second.routes = vec![
        Route {
            to: Some(text("172.16.0.0/12")),
            via: Some(text("10.11.0.9")),
            metric: Some(7),
            table: None,
        },
        Route {
            to: Some(text("default")),
            via: Some(text("10.11.0.9")),
            metric: None,
            table: Some(200),
        },
        Route {
            to: Some(text("192.0.2.7")),
            via: Some(text("10.11.0.9")),
            metric: None,
            table: Some(200),
        },
        Route {
            to: Some(text("2001:db8:aaaa::/48")),
            via: Some(text("2001:db8:11::9")),
            metric: Some(9),
            table: None,
        },
    ];
    second.routing_policy = vec![
        Rule { from: Some(text("10.11.0.0/24")), table: Some(200), priority: Some(99), to: None },
        Rule { to: Some(text("192.0.2.7")), table: Some(200), priority: None, from: None },
        Rule {
            from: Some(text("2001:db8:11::/64")),
            table: Some(200),
            priority: Some(98),
            to: None,
        },
    ];
    let devices =
        vec![(dual(0), Wire::User(10)), (second, Wire::Isolated), (v4(2, None), Wire::Isolated)];
    let vrf = Vrf {
        name: "vrf-ext".to_owned(),
        table: 500,
        interfaces: vec!["net2".to_owned()],
        routes: vec![Route {
            to: Some(text("default")),
            via: Some(text("10.12.0.1")),
            ..Route::default()
        }],
        routing_policy: vec![Rule { from: Some(text("10.12.0.0/24")), ..Rule::default() }],
    };
    let mut case = Case::new("routes, rules and a VRF", release, devices);
    case.plan.vrfs = vec![vrf];
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_of_the_table_can_be_made() {
        for case in cases(Release::Bookworm) {
            assert_eq!(case.wires.len(), case.plan.ethernets.len(), "{}", case.name);
            assert!(!case.iso().unwrap().is_empty(), "{}", case.name);
        }
    }
}

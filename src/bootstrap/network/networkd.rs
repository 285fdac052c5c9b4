//! The same plan as systemd-networkd units, for guests that Ignition configures.
//!
//! Unit names are the peer's. Unlike the peer, every section starts on its own line, and the
//! routes of a VRF name its table, without which networkd puts them into the main one.

use std::fmt::Write as _;

use super::check::{Document, Hop, Link, Policy, Reader, VrfLink, check};
use super::{NetworkPlan, Unit};
use crate::bootstrap::problem::Problem;

pub(super) fn units(plan: &NetworkPlan) -> Result<Vec<Unit>, Problem> {
    let document = check(plan, Reader::Networkd)?;
    let mut units = Vec::new();
    for (index, link) in document.ethernets.iter().enumerate() {
        let name = format!("{index:02}-{}.network", link.name);
        units.push(Unit { name, contents: ethernet(link, &document) });
    }
    for (count, vrf) in document.vrfs.iter().enumerate() {
        // The peer numbers a VRF's device among the VRFs, and its network among all devices.
        let index = document.ethernets.len() + count;
        let netdev =
            format!("[NetDev]\nName={}\nKind=vrf\n\n[VRF]\nTable={}\n", vrf.name, vrf.table);
        units.push(Unit { name: format!("{count:02}-vrf{count}.netdev"), contents: netdev });
        units.push(Unit {
            name: format!("{index:02}-vrf{index}.network"),
            contents: vrf_network(vrf),
        });
    }
    Ok(units)
}

/// Sections of a unit, an empty line between them. Writing to a String cannot fail.
#[derive(Default)]
struct Sections(String);

impl Sections {
    fn start(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        let _ = writeln!(self.0, "[{name}]");
    }

    fn set(&mut self, key: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{key}={value}");
    }

    fn set_some(&mut self, key: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }
}

fn ethernet(link: &Link, document: &Document) -> String {
    let mut unit = Sections::default();
    unit.start("Match");
    unit.set("MACAddress", &link.mac);
    if let Some(mtu) = link.mtu {
        unit.start("Link");
        unit.set("MTUBytes", mtu);
    }
    unit.start("Network");
    let vrf = document.vrfs.iter().find(|vrf| vrf.interfaces.contains(&link.name));
    unit.set_some("VRF", vrf.map(|vrf| &vrf.name));
    let dhcp = match (link.dhcp4, link.dhcp6) {
        (true, true) => Some("yes"),
        (true, false) => Some("ipv4"),
        (false, true) => Some("ipv6"),
        (false, false) => None,
    };
    unit.set_some("DHCP", dhcp);
    for server in &link.dns_servers {
        unit.set("DNS", server);
    }
    for address in &link.addresses {
        unit.start("Address");
        unit.set("Address", address);
    }
    routing(&mut unit, &link.routes, &link.rules, None);
    unit.0
}

fn vrf_network(vrf: &VrfLink) -> String {
    let mut unit = Sections::default();
    unit.start("Match");
    unit.set("Name", &vrf.name);
    routing(&mut unit, &vrf.routes, &vrf.rules, Some(vrf.table));
    unit.0
}

fn routing(unit: &mut Sections, routes: &[Hop], rules: &[Policy], table: Option<u32>) {
    for route in routes {
        unit.start("Route");
        unit.set("Destination", &route.to);
        unit.set_some("Gateway", route.via.as_ref());
        unit.set_some("Metric", route.metric);
        unit.set_some("Table", route.table.or(table));
    }
    for rule in rules {
        unit.start("RoutingPolicyRule");
        unit.set_some("To", rule.to.as_ref());
        unit.set_some("From", rule.from.as_ref());
        unit.set_some("Priority", rule.priority);
        unit.set_some("Table", rule.table.or(table));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Ethernet, Route, Rule, Static, Vrf};
    use super::*;

    fn plan() -> NetworkPlan {
        let fixed = |address: &str, gateway: &str| {
            Some(Static {
                address: address.into(),
                gateway: Some(gateway.into()),
                metric: Some(100),
            })
        };
        let first = Ethernet {
            ipv4: fixed("10.0.0.5/24", "10.0.0.1"),
            ipv6: fixed("2001:db8::5/64", "2001:db8::1"),
            dns_servers: vec!["192.0.2.53".into()],
            mtu: Some(1400),
            ..Ethernet::new(0, "net0", "BC:24:11:00:00:01")
        };
        let second = Ethernet { dhcp4: true, ..Ethernet::new(1, "net1", "bc:24:11:00:00:02") };
        let vrf = Vrf {
            name: "vrf-ext".into(),
            table: 500,
            interfaces: vec!["net1".into()],
            routes: vec![Route {
                to: Some("default".into()),
                via: Some("10.1.0.1".into()),
                ..Route::default()
            }],
            routing_policy: vec![Rule { from: Some("10.1.0.0/24".into()), ..Rule::default() }],
        };
        NetworkPlan { ethernets: vec![first, second], vrfs: vec![vrf] }
    }

    #[test]
    fn units_carry_the_names_the_peer_gives_them() {
        let units = units(&plan()).expect("renders");
        let names: Vec<&str> = units.iter().map(|unit| unit.name.as_str()).collect();
        assert_eq!(
            names,
            ["00-eth0.network", "01-eth1.network", "00-vrf0.netdev", "02-vrf2.network"]
        );
    }

    #[test]
    fn each_section_stands_on_its_own_lines() {
        let units = units(&plan()).expect("renders");
        assert_eq!(
            units[0].contents,
            "[Match]\nMACAddress=bc:24:11:00:00:01\n\n[Link]\nMTUBytes=1400\n\n\
             [Network]\nDNS=192.0.2.53\n\n[Address]\nAddress=10.0.0.5/24\n\n\
             [Address]\nAddress=2001:db8::5/64\n\n\
             [Route]\nDestination=0.0.0.0/0\nGateway=10.0.0.1\nMetric=100\n\n\
             [Route]\nDestination=::/0\nGateway=2001:db8::1\nMetric=100\n"
        );
        assert_eq!(
            units[1].contents,
            "[Match]\nMACAddress=bc:24:11:00:00:02\n\n[Network]\nVRF=vrf-ext\nDHCP=ipv4\n"
        );
    }

    #[test]
    fn what_belongs_to_a_vrf_names_its_table() {
        let units = units(&plan()).expect("renders");
        assert_eq!(units[2].contents, "[NetDev]\nName=vrf-ext\nKind=vrf\n\n[VRF]\nTable=500\n");
        assert_eq!(
            units[3].contents,
            "[Match]\nName=vrf-ext\n\n\
             [Route]\nDestination=0.0.0.0/0\nGateway=10.1.0.1\nTable=500\n\n\
             [RoutingPolicyRule]\nFrom=10.1.0.0/24\nTable=500\n"
        );
    }

    /// networkd takes these, and capmox writes them.
    #[test]
    fn a_gateway_may_be_missing_and_metrics_may_be_equal() {
        let mut plan = plan();
        plan.ethernets[0].ipv6 =
            Some(Static { address: "2001:db8::5/64".into(), ..Static::default() });
        plan.ethernets[1].ipv4 = Some(Static {
            address: "10.1.0.5/24".into(),
            gateway: Some("10.1.0.1".into()),
            metric: Some(100),
        });
        let written = units(&plan).expect("renders");
        assert!(!written[0].contents.contains("::/0"), "{}", written[0].contents);
        assert!(written[1].contents.contains("Gateway=10.1.0.1\nMetric=100\n"));
        plan.ethernets[0].ipv4.as_mut().expect("an address").gateway = None;
        assert!(units(&plan).is_ok());
    }

    #[test]
    fn dns_servers_are_written_in_all_forms_of_networkd() {
        let with = |server: &str| {
            let mut plan = plan();
            plan.ethernets[0].dns_servers = vec![server.into()];
            units(&plan).map(|units| units[0].contents.clone())
        };
        for server in [
            "1.1.1.1",
            "1.1.1.1#one.one.one.one",
            "1.1.1.1:853%eth0#one.one.one.one",
            "2606:4700::1111",
            "2606:4700::1111#one.one.one.one",
            "fe80::1%eth0",
            "[2606:4700::1111]:853#one.one.one.one",
        ] {
            let unit = with(server).expect(server);
            assert!(unit.contains(&format!("DNS={server}\n")), "{unit}");
        }
        for server in ["dns.lab", "", "1.1.1.1:0", "1.1.1.1#a\n[Route]", "#name"] {
            let refusal = with(server).expect_err(server).to_string();
            assert!(refusal.contains("dnsServers[0]"), "{refusal}");
        }
    }
}

//! network-config version 2, applied to the NICs of the VM.
//!
//! Knows what a guest can apply and what it cannot; a plan that would leave the guest without the
//! network it describes is a fault, where a real guest would wait and time out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use pve_fake::{BootNic, Interface};
use serde::Deserialize;

use crate::fault::{Fault, Stage};

/// The applied network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Interfaces with their addresses, in the order of the VM's NICs.
    pub interfaces: Vec<Interface>,
    /// Addresses that a kubelet picks: one of each family, on the interface of the default route.
    pub node_addresses: Vec<IpAddr>,
}

impl Network {
    /// All addresses of the guest.
    pub fn addresses(&self) -> BTreeSet<IpAddr> {
        let addresses = self.interfaces.iter().flat_map(|interface| &interface.addresses);
        addresses.map(|(address, _)| *address).collect()
    }
}

#[derive(Deserialize)]
struct File {
    network: Option<Plan>,
    #[serde(flatten)]
    bare: BTreeMap<String, serde_yaml::Value>,
}

#[derive(Deserialize)]
struct Plan {
    version: u64,
    #[serde(default)]
    ethernets: BTreeMap<String, Link>,
    #[serde(default)]
    vrfs: BTreeMap<String, Vrf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Link {
    #[serde(rename = "match")]
    matching: Option<Match>,
    set_name: Option<String>,
    #[serde(default)]
    dhcp4: bool,
    #[serde(default)]
    dhcp6: bool,
    #[serde(default)]
    addresses: Vec<String>,
    gateway4: Option<String>,
    gateway6: Option<String>,
    #[serde(default)]
    routes: Vec<Route>,
    nameservers: Option<Nameservers>,
}

#[derive(Deserialize)]
struct Match {
    macaddress: Option<String>,
}

#[derive(Deserialize)]
struct Nameservers {
    #[serde(default)]
    addresses: Vec<String>,
}

#[derive(Deserialize)]
struct Vrf {
    table: u32,
    #[serde(default)]
    interfaces: Vec<String>,
    #[serde(default)]
    routes: Vec<Route>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Route {
    to: String,
    via: Option<String>,
    #[serde(default)]
    on_link: bool,
}

fn fault(text: impl Into<String>) -> Fault {
    Fault::new(Stage::Network, text)
}

/// Applies the configuration. Without one, cloud-init asks for a lease on the first NIC.
///
/// # Errors
/// [`Fault`] that names the device and what is wrong with it.
pub fn apply(
    config: Option<&str>,
    nics: &[BootNic],
    vmid: u32,
    leases: Ipv4Net,
) -> Result<Network, Fault> {
    let lease = lease(vmid, leases);
    let Some(config) = config else {
        let first = nics.first().map(|nic| interface("eth0", &nic.mac, &[lease]));
        let interfaces: Vec<Interface> = first.into_iter().collect();
        let node_addresses = if interfaces.is_empty() { vec![] } else { vec![lease.addr()] };
        return Ok(Network { interfaces, node_addresses });
    };
    let plan = parse(config)?;
    let mut applied =
        Applied { lease, by_mac: BTreeMap::new(), addresses: BTreeMap::new(), defaults: vec![] };
    for (id, link) in &plan.ethernets {
        applied.link(id, link, nics)?;
    }
    for (id, vrf) in &plan.vrfs {
        applied.vrf(id, vrf)?;
    }
    Ok(applied.finish(nics))
}

fn parse(config: &str) -> Result<Plan, Fault> {
    let invalid =
        |error: serde_yaml::Error| fault(format!("is not a network configuration: {error}"));
    let file: File = serde_yaml::from_str(config).map_err(invalid)?;
    // The file may be the content of its `network` key.
    let plan = match file.network {
        Some(plan) => plan,
        None if file.bare.contains_key("version") => {
            serde_yaml::from_str(config).map_err(invalid)?
        }
        None => return Err(fault("has no network")),
    };
    if plan.version != 2 {
        return Err(fault(format!("is of version {}, not 2", plan.version)));
    }
    Ok(plan)
}

fn lease(vmid: u32, leases: Ipv4Net) -> IpNet {
    let size = leases.broadcast().to_bits() - leases.network().to_bits();
    let offset = 1 + vmid % size.saturating_sub(1).max(1);
    let address = Ipv4Addr::from_bits(leases.network().to_bits() + offset);
    IpNet::new(address.into(), leases.prefix_len())
        .unwrap_or_else(|_| IpNet::from(IpAddr::from(address)))
}

fn interface(name: &str, mac: &str, addresses: &[IpNet]) -> Interface {
    let addresses = addresses.iter().map(|net| (net.addr(), net.prefix_len())).collect();
    Interface { name: name.to_owned(), mac: mac.to_ascii_lowercase(), addresses }
}

struct Applied {
    lease: IpNet,
    by_mac: BTreeMap<String, Interface>,
    /// Addresses by the link's id in the plan.
    addresses: BTreeMap<String, Vec<IpNet>>,
    /// Links with a default route, in the plan's order.
    defaults: Vec<(String, bool)>,
}

impl Applied {
    fn link(&mut self, id: &str, link: &Link, nics: &[BootNic]) -> Result<(), Fault> {
        let mac = link.matching.as_ref().and_then(|matching| matching.macaddress.as_deref());
        let mac = mac.ok_or_else(|| fault(format!("ethernets.{id} matches no MAC address")))?;
        let mac = mac.to_ascii_lowercase();
        if !nics.iter().any(|nic| nic.mac.eq_ignore_ascii_case(&mac)) {
            return Err(fault(format!(
                "ethernets.{id}: not all expected physical devices present: {mac}"
            )));
        }
        let mut addresses = Vec::new();
        for text in &link.addresses {
            let address = address(id, text)?;
            if self
                .addresses
                .values()
                .flatten()
                .chain(&addresses)
                .any(|other: &IpNet| other.addr() == address.addr())
            {
                return Err(fault(format!(
                    "ethernets.{id}: address {} is given twice",
                    address.addr()
                )));
            }
            addresses.push(address);
        }
        for server in link.nameservers.iter().flat_map(|servers| &servers.addresses) {
            ip(server).map_err(|error| fault(format!("ethernets.{id}.nameservers: {error}")))?;
        }
        if link.dhcp4 {
            addresses.push(self.lease);
            self.defaults.push((id.to_owned(), false));
        }
        let gateways = link.gateway4.iter().chain(&link.gateway6);
        let gateways = gateways.map(|via| Route {
            to: "default".into(),
            via: Some(via.clone()),
            on_link: false,
        });
        let gateways: Vec<Route> = gateways.collect();
        for route in gateways.iter().chain(&link.routes) {
            if let Some(is_v6) =
                check_route(&format!("ethernets.{id}"), route, &addresses, link.dhcp6)?
            {
                self.defaults.push((id.to_owned(), is_v6));
            }
        }
        let name = link.set_name.as_deref().unwrap_or(id);
        let taken = self.by_mac.insert(mac.clone(), interface(name, &mac, &addresses));
        if taken.is_some() {
            return Err(fault(format!(
                "ethernets.{id}: another device has MAC address {mac}, too"
            )));
        }
        self.addresses.insert(id.to_owned(), addresses);
        Ok(())
    }

    fn vrf(&mut self, id: &str, vrf: &Vrf) -> Result<(), Fault> {
        if vrf.table == 0 {
            return Err(fault(format!("vrfs.{id}: table 0 cannot be used")));
        }
        let mut addresses = Vec::new();
        for member in &vrf.interfaces {
            let own = self.addresses.get(member);
            addresses.extend(own.ok_or_else(|| fault(format!("vrfs.{id}: no device {member}")))?);
        }
        // Their default routes are not those of the host.
        self.defaults.retain(|(link, _)| !vrf.interfaces.contains(link));
        for route in &vrf.routes {
            check_route(&format!("vrfs.{id}"), route, &addresses, false)?;
        }
        Ok(())
    }

    fn finish(self, nics: &[BootNic]) -> Network {
        let mut node_addresses = Vec::new();
        for family in [false, true] {
            let link = self.defaults.iter().find(|(_, is_v6)| *is_v6 == family);
            let addresses = link.and_then(|(id, _)| self.addresses.get(id)).into_iter().flatten();
            node_addresses
                .extend(addresses.map(IpNet::addr).find(|address| address.is_ipv6() == family));
        }
        let mut by_mac = self.by_mac;
        let interfaces = nics.iter().filter_map(|nic| by_mac.remove(&nic.mac.to_ascii_lowercase()));
        Network { interfaces: interfaces.collect(), node_addresses }
    }
}

fn ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is no IP address"))
}

fn address(id: &str, text: &str) -> Result<IpNet, Fault> {
    let wrong = |why: &str| fault(format!("ethernets.{id}: address {text:?} {why}"));
    if !text.contains('/') {
        return Err(wrong("has no prefix length"));
    }
    let net: IpNet = text.parse().map_err(|_| wrong("is no address with a prefix length"))?;
    let narrow = net.max_prefix_len() - net.prefix_len() < 2;
    if !narrow && net.addr() == net.network() {
        return Err(wrong("is the network itself"));
    }
    if !narrow && net.addr().is_ipv4() && net.addr() == net.broadcast() {
        return Err(wrong("is the broadcast address"));
    }
    Ok(net)
}

/// Checks a route; says of a default route whether it is one of IPv6.
fn check_route(
    place: &str,
    route: &Route,
    addresses: &[IpNet],
    router_advertisements: bool,
) -> Result<Option<bool>, Fault> {
    let wrong = |why: String| fault(format!("{place}: route to {:?} {why}", route.to));
    let via =
        route.via.as_deref().map(ip).transpose().map_err(|error| wrong(format!("via {error}")))?;
    let to: Option<IpNet> = match route.to.as_str() {
        "default" => None,
        text => {
            let net =
                text.parse().or_else(|_| text.parse().map(|address: IpAddr| IpNet::from(address)));
            Some(net.map_err(|_| wrong("has no destination".into()))?)
        }
    };
    if let Some(via) = via {
        if to.is_some_and(|to| to.addr().is_ipv6() != via.is_ipv6()) {
            return Err(wrong(format!("goes via {via} of the other family")));
        }
        if addresses.iter().any(|own| own.addr() == via) {
            return Err(wrong(format!("goes via the guest's own address {via}")));
        }
        let link_local = matches!(via, IpAddr::V6(via) if via.is_unicast_link_local());
        let reachable = route.on_link || link_local || (router_advertisements && via.is_ipv6());
        if !reachable && !addresses.iter().any(|own| own.contains(&via)) {
            return Err(wrong(format!("goes via {via}, which no address of the device reaches")));
        }
    }
    let is_default = to.is_none_or(|to| to.prefix_len() == 0);
    Ok(is_default
        .then(|| to.map_or(via.is_some_and(|via| via.is_ipv6()), |to| to.addr().is_ipv6())))
}

#[cfg(test)]
mod tests;

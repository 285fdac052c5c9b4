//! Turns a plan into a document in which every text has been parsed, or says which text is wrong.
//!
//! netplan refuses a whole document for one bad line, and the guest then has no network and no way
//! to say so. What netplan refuses is refused here, with the field's name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Ethernet, NetworkPlan, Route, Rule, Static, Vrf};
use crate::bootstrap::problem::Problem;

/// Proxmox accepts MTU 1 as "take the bridge's"; real ones start at the IPv4 minimum.
const MIN_MTU: u16 = 576;
/// Bytes of a Linux interface name (IFNAMSIZ less its terminator).
const MAX_INTERFACE_NAME: usize = 15;

/// The document, ready to be written.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) ethernets: Vec<Link>,
    pub(super) vrfs: Vec<VrfLink>,
}

/// An ethernet as it is written.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) mac: String,
    pub(super) dhcp4: bool,
    pub(super) dhcp6: bool,
    pub(super) addresses: Vec<String>,
    pub(super) routes: Vec<Hop>,
    pub(super) rules: Vec<Policy>,
    pub(super) dns_servers: Vec<String>,
    pub(super) mtu: Option<u16>,
}

/// A VRF as it is written.
#[derive(Debug)]
pub(super) struct VrfLink {
    pub(super) name: String,
    pub(super) table: u32,
    pub(super) interfaces: Vec<String>,
    pub(super) routes: Vec<Hop>,
    pub(super) rules: Vec<Policy>,
}

/// A route as it is written.
#[derive(Debug)]
pub(super) struct Hop {
    pub(super) to: String,
    pub(super) via: Option<String>,
    pub(super) metric: Option<u32>,
    pub(super) table: Option<u32>,
}

/// A routing policy rule as it is written.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) to: Option<String>,
    pub(super) from: Option<String>,
    pub(super) priority: Option<u32>,
    pub(super) table: Option<u32>,
}

/// Who reads the document. systemd-networkd leaves out what it cannot apply and takes the rest, and
/// capmox asks nothing of what it is given; so only netplan's rules are those of netplan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Netplan,
    Networkd,
}

pub(super) fn check(plan: &NetworkPlan, reader: Reader) -> Result<Document, Problem> {
    if plan.ethernets.is_empty() {
        return Err(Problem::NoDevices);
    }
    unique(plan)?;
    let plan = &without_clashes(plan);
    let ethernets = plan.ethernets.iter().enumerate();
    let ethernets = ethernets
        .map(|(index, ethernet)| link(ethernet, index == 0, reader))
        .collect::<Result<Vec<_>, _>>()?;
    if reader == Reader::Netplan {
        metrics_differ(plan)?;
    }
    let mut owners = BTreeMap::new();
    let vrfs = plan.vrfs.iter();
    let vrfs = vrfs.map(|vrf| vrf_link(vrf, plan, &mut owners)).collect::<Result<Vec<_>, _>>()?;
    Ok(Document { ethernets, vrfs })
}

/// Names and MAC addresses identify devices, in this document and in the guest.
fn unique(plan: &NetworkPlan) -> Result<(), Problem> {
    let mut names = BTreeSet::new();
    let mut macs = BTreeMap::new();
    for ethernet in &plan.ethernets {
        interface_name(&ethernet.label(), &ethernet.name)?;
        if !names.insert(ethernet.name.as_str()) {
            return Err(Problem::network(ethernet.label(), "name", "is used by two devices"));
        }
        let other = macs.insert(ethernet.mac.to_ascii_lowercase(), ethernet.label());
        // Two missing addresses are not equal; each is reported as missing.
        if let Some(other) = other.filter(|_| !ethernet.mac.is_empty()) {
            let reason = format!("{:?} is also the address of {other}", ethernet.mac);
            return Err(Problem::network(ethernet.label(), "macAddress", reason));
        }
    }
    for vrf in &plan.vrfs {
        interface_name(&vrf.name, &vrf.name)?;
        if !names.insert(vrf.name.as_str()) {
            return Err(Problem::network(&vrf.name, "name", "is used by two devices"));
        }
    }
    Ok(())
}

pub(super) fn interface_name(device: &str, name: &str) -> Result<(), Problem> {
    let fits = (1..=MAX_INTERFACE_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if fits {
        Ok(())
    } else {
        let reason = format!(
            "{name:?} is not valid: expected 1 to {MAX_INTERFACE_NAME} letters, digits, '-', '_' \
             or '.', starting with a letter or digit"
        );
        Err(Problem::network(device, "name", reason))
    }
}

fn link(ethernet: &Ethernet, first: bool, reader: Reader) -> Result<Link, Problem> {
    let device = ethernet.label();
    let mut addresses = Vec::new();
    let mut routes = Vec::new();
    for (family, fixed, dhcp) in
        [(Family::V4, &ethernet.ipv4, ethernet.dhcp4), (Family::V6, &ethernet.ipv6, ethernet.dhcp6)]
    {
        let Some(fixed) = fixed else { continue };
        addresses.push(address(&device, family, &fixed.address)?);
        match gateway(fixed) {
            Some(via) => routes.push(default_route(&device, family, via, fixed.metric)?),
            // networkd's guests may learn it from router advertisements.
            None if first && !dhcp && reader == Reader::Netplan => {
                let reason = format!(
                    "is missing, and the first device needs one for {}; set the gateway of its pool",
                    family.name()
                );
                return Err(Problem::network(device, family.field("gateway"), reason));
            }
            None => {}
        }
    }
    if addresses.is_empty() && !ethernet.dhcp4 && !ethernet.dhcp6 {
        let reason = "none given; the device needs ipv4PoolRef, ipv6PoolRef or DHCP";
        return Err(Problem::network(device, "addresses", reason));
    }
    routes.extend(hops(&device, &ethernet.routes, None)?);
    Ok(Link {
        name: ethernet.name.clone(),
        mac: mac(&device, &ethernet.mac)?,
        dhcp4: ethernet.dhcp4,
        dhcp6: ethernet.dhcp6,
        addresses,
        routes,
        rules: policies(&device, &ethernet.routing_policy, None)?,
        dns_servers: dns_servers(&device, &ethernet.dns_servers, reader)?,
        mtu: ethernet.mtu.filter(|mtu| *mtu >= MIN_MTU),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// The destination that means everything, as a prefix.
    const fn everything(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0/0",
            Self::V6 => "::/0",
        }
    }

    fn field(self, name: &str) -> String {
        match self {
            Self::V4 => format!("ipv4.{name}"),
            Self::V6 => format!("ipv6.{name}"),
        }
    }
}

fn gateway(fixed: &Static) -> Option<&str> {
    given(fixed.gateway.as_ref())
}

fn address(device: &str, family: Family, text: &str) -> Result<String, Problem> {
    match text.parse::<IpNet>() {
        Ok(net) if Family::of(net.addr()) == family => Ok(text.to_owned()),
        _ => {
            let example = if family == Family::V4 { "10.0.0.5/24" } else { "2001:db8::5/64" };
            let reason = format!(
                "{text:?} is not an {} address with a prefix length, such as {example}",
                family.name()
            );
            Err(Problem::network(device, family.field("address"), reason))
        }
    }
}

fn default_route(
    device: &str,
    family: Family,
    via: &str,
    metric: Option<u32>,
) -> Result<Hop, Problem> {
    let address = ip(device, || family.field("gateway"), via)?;
    if Family::of(address) != family {
        let reason = format!("{via} is not an {} address", family.name());
        return Err(Problem::network(device, family.field("gateway"), reason));
    }
    let to = family.everything().to_owned();
    Ok(Hop { to, via: Some(via.to_owned()), metric, table: None })
}

/// The plan without IPv6 metrics of additional devices that an earlier device has too. capmox writes
/// none there, so that pools with equal ones serve its guests; the kernel's own metric, 1024, then
/// keeps the first device's way out before the others.
fn without_clashes(plan: &NetworkPlan) -> NetworkPlan {
    let mut plan = plan.clone();
    let mut taken = BTreeSet::new();
    for fixed in plan.ethernets.iter_mut().filter_map(|ethernet| ethernet.ipv6.as_mut()) {
        if gateway(fixed).is_some()
            && let Some(metric) = fixed.metric
            && !taken.insert(metric)
        {
            fixed.metric = None;
        }
    }
    plan
}

/// Two equal metrics would leave it to chance which way packets take.
fn metrics_differ(plan: &NetworkPlan) -> Result<(), Problem> {
    let mut owners = BTreeMap::new();
    for ethernet in &plan.ethernets {
        let fixed = ethernet.ipv4.as_ref().filter(|fixed| gateway(fixed).is_some());
        let Some(metric) = fixed.and_then(|fixed| fixed.metric) else { continue };
        if let Some(other) = owners.insert(metric, ethernet.label()) {
            let reason = format!(
                "{metric} is also the IPv4 metric of {other}; give one of the two pools another \
                 annotation metric"
            );
            return Err(Problem::network(ethernet.label(), Family::V4.field("metric"), reason));
        }
    }
    Ok(())
}

/// The MAC address in lower case.
fn mac(device: &str, text: &str) -> Result<String, Problem> {
    let pair = |pair: &str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
    if text.split(':').count() == 6 && text.split(':').all(pair) {
        Ok(text.to_ascii_lowercase())
    } else {
        let reason = if text.is_empty() {
            "is missing from the VM's configuration".to_owned()
        } else {
            format!("{text:?} is not a MAC address such as bc:24:11:00:00:01")
        };
        Err(Problem::network(device, "macAddress", reason))
    }
}

fn dns_servers(device: &str, servers: &[String], reader: Reader) -> Result<Vec<String>, Problem> {
    let server = |(index, text): (usize, &String)| {
        let address = match reader {
            Reader::Netplan => text,
            Reader::Networkd => address_of_server(text),
        };
        ip(device, || format!("dnsServers[{index}]"), address).map(|_| text.clone())
    };
    servers.iter().enumerate().map(server).collect()
}

/// The address in a DNS server of networkd: `address:port%interface#name`, all but the address left
/// out as one likes, an IPv6 address with a port in brackets.
fn address_of_server(text: &str) -> &str {
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return text;
    }
    let server = text.split_once('#').map_or(text, |(server, _)| server);
    let server = server.split_once('%').map_or(server, |(server, _)| server);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    match server.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((address, port)) if is_port(port) => return address,
        _ => {}
    }
    match server.split_once(':') {
        Some((address, port)) if is_port(port) => address,
        _ => server,
    }
}

fn vrf_link<'a>(
    vrf: &'a Vrf,
    plan: &NetworkPlan,
    owners: &mut BTreeMap<String, &'a str>,
) -> Result<VrfLink, Problem> {
    let mut interfaces = Vec::new();
    for index in 0..vrf.interfaces.len() {
        interfaces.extend(member(vrf, index, &plan.ethernets, owners)?);
    }
    Ok(VrfLink {
        name: vrf.name.clone(),
        table: vrf.table,
        interfaces,
        routes: hops(&vrf.name, &vrf.routes, Some(vrf.table))?,
        rules: policies(&vrf.name, &vrf.routing_policy, Some(vrf.table))?,
    })
}

/// The guest's name of one member of a VRF.
pub(super) fn member<'a>(
    vrf: &'a Vrf,
    index: usize,
    ethernets: &[Ethernet],
    owners: &mut BTreeMap<String, &'a str>,
) -> Result<Option<String>, Problem> {
    let Some(wanted) = vrf.interfaces.get(index) else { return Ok(None) };
    let refuse =
        |reason: String| Err(Problem::network(&vrf.name, format!("interfaces[{index}]"), reason));
    let is_it = |ethernet: &&Ethernet| [&ethernet.device, &ethernet.name].contains(&wanted);
    let Some(ethernet) = ethernets.iter().find(is_it) else {
        let known: Vec<String> = ethernets.iter().map(Ethernet::label).collect();
        return refuse(format!("{wanted:?} is no device of this machine: {}", known.join(", ")));
    };
    match owners.insert(ethernet.name.clone(), &vrf.name) {
        Some(owner) => refuse(format!("{wanted:?} is already in VRF {owner}")),
        None => Ok(Some(ethernet.name.clone())),
    }
}

fn hops(device: &str, routes: &[Route], vrf: Option<u32>) -> Result<Vec<Hop>, Problem> {
    routes.iter().enumerate().map(|(index, route)| hop(device, index, route, vrf)).collect()
}

pub(super) fn hop(
    device: &str,
    index: usize,
    route: &Route,
    vrf: Option<u32>,
) -> Result<Hop, Problem> {
    let field = |name: &str| format!("routes[{index}].{name}");
    let refuse = |name: &str, reason: String| Err(Problem::network(device, field(name), reason));
    let Some(to) = given(route.to.as_ref()) else {
        return refuse("to", "is missing: expected \"default\", an address or a prefix".into());
    };
    let via = given(route.via.as_ref()).map(|via| ip(device, || field("via"), via)).transpose()?;
    let to = match (to, via) {
        ("default", Some(via)) => Family::of(via).everything().to_owned(),
        ("default", None) => {
            return refuse("via", "is missing, and a default route needs a next hop".into());
        }
        (to, via) => {
            let (family, to) = prefix(device, || field("to"), to)?;
            if let Some(via) = via.filter(|via| Family::of(*via) != family) {
                let reason = format!("{via} is not an {} address, as its \"to\" is", family.name());
                return refuse("via", reason);
            }
            to
        }
    };
    Ok(Hop {
        to,
        via: via.and(route.via.clone()),
        metric: route.metric.filter(|metric| *metric != 0),
        table: own_table(device, || field("table"), route.table, vrf)?,
    })
}

/// The text unless it is empty, which Kubernetes objects use for "not set".
fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

fn policies(device: &str, rules: &[Rule], vrf: Option<u32>) -> Result<Vec<Policy>, Problem> {
    rules.iter().enumerate().map(|(index, rule)| policy(device, index, rule, vrf)).collect()
}

pub(super) fn policy(
    device: &str,
    index: usize,
    rule: &Rule,
    vrf: Option<u32>,
) -> Result<Policy, Problem> {
    let field = |name: &str| format!("routingPolicy[{index}].{name}");
    let side = |text: Option<&String>, name: &str| {
        let Some(text) = given(text) else { return Ok(None) };
        prefix(device, || field(name), text).map(|(family, _)| Some((family, text.to_owned())))
    };
    let to = side(rule.to.as_ref(), "to")?;
    let from = side(rule.from.as_ref(), "from")?;
    match (&to, &from) {
        (None, None) => {
            let reason = "is missing, and so is \"from\": a rule needs one of the two";
            return Err(Problem::network(device, field("to"), reason));
        }
        (Some((a, _)), Some((b, _))) if a != b => {
            let reason = format!("is not an {} address, as its \"to\" is", a.name());
            return Err(Problem::network(device, field("from"), reason));
        }
        _ => {}
    }
    let table = own_table(device, || field("table"), rule.table, vrf)?;
    if vrf.is_none() && table.is_none() {
        let reason = "is missing: a rule outside a VRF needs the table to look up";
        return Err(Problem::network(device, field("table"), reason));
    }
    let text = |side: Option<(Family, String)>| side.map(|(_, text)| text);
    let priority = rule.priority.filter(|priority| *priority != 0);
    Ok(Policy { to: text(to), from: text(from), priority, table })
}

/// netplan refuses a route or rule of a VRF that names another table than the VRF's.
fn own_table(
    device: &str,
    field: impl FnOnce() -> String,
    table: Option<u32>,
    vrf: Option<u32>,
) -> Result<Option<u32>, Problem> {
    let table = table.filter(|table| *table != 0);
    match (table, vrf) {
        (Some(table), Some(own)) if table != own => {
            let reason = format!("{table} is not the VRF's own table {own}");
            Err(Problem::network(device, field(), reason))
        }
        _ => Ok(table),
    }
}

fn ip(device: &str, field: impl FnOnce() -> String, text: &str) -> Result<IpAddr, Problem> {
    text.parse()
        .map_err(|_| Problem::network(device, field(), format!("{text:?} is not an IP address")))
}

/// An address or prefix; an address is given the prefix length that means it alone.
fn prefix(
    device: &str,
    field: impl FnOnce() -> String,
    text: &str,
) -> Result<(Family, String), Problem> {
    if let Ok(net) = text.parse::<IpNet>() {
        return Ok((Family::of(net.addr()), text.to_owned()));
    }
    text.parse::<IpAddr>().map(|ip| (Family::of(ip), IpNet::from(ip).to_string())).map_err(|_| {
        let reason = format!("{text:?} is neither an IP address nor a prefix");
        Problem::network(device, field(), reason)
    })
}

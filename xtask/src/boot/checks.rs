//! Compares what the guest shows with what its plan asks for. Pure.

use std::fmt::{Display, Write as _};
use std::net::IpAddr;

use capmox::bootstrap::network::{Ethernet, NetworkPlan, Route, Rule, Static};
use capmox::pve::AgentInterface;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    /// What was found instead, if it was not as asked.
    pub(crate) instead: Option<String>,
}

/// A check that holds when `is_so`, and else shows `found`.
pub(crate) fn check(what: impl Into<String>, is_so: bool, found: impl Display) -> Check {
    let found = found.to_string();
    Check { what: what.into(), instead: (!is_so).then_some(found) }
}

/// What the guest's programs tell of its network, as `ip -json` prints it.
#[derive(Debug, Default)]
pub(crate) struct Network {
    /// `ip -json -details address`
    pub(crate) addresses: Value,
    /// `ip -json [-6] route show table all`, both families.
    pub(crate) routes: Vec<Value>,
    /// `ip -json [-6] rule`, both families.
    pub(crate) rules: Vec<Value>,
    /// `resolvectl dns`
    pub(crate) dns: String,
    /// `guest-network-get-interfaces`, read by the provider's types.
    pub(crate) interfaces: Vec<AgentInterface>,
}

/// Everything that the plan asks for.
pub(crate) fn network(plan: &NetworkPlan, seen: &Network) -> Vec<Check> {
    let mut checks = Vec::new();
    for ethernet in &plan.ethernets {
        checks.extend(links(ethernet, &seen.addresses));
        let mac = ethernet.mac.to_ascii_lowercase();
        let link = link(&seen.addresses, &mac);
        let name = link.and_then(|link| link["ifname"].as_str()).unwrap_or("?");
        let vrf = plan.vrfs.iter().find(|vrf| {
            vrf.interfaces.contains(&ethernet.name) || vrf.interfaces.contains(&ethernet.device)
        });
        if let Some(vrf) = vrf {
            let master = link.map_or(&Value::Null, |link| &link["master"]);
            checks.push(check(
                format!("{}: in VRF {}", ethernet.device, vrf.name),
                master == vrf.name.as_str(),
                master,
            ));
        }
        let own = vrf.map(|vrf| vrf.table);
        for (fixed, everything) in [(&ethernet.ipv4, "0.0.0.0/0"), (&ethernet.ipv6, "::/0")] {
            if let Some(Static { gateway: Some(via), metric, .. }) = fixed {
                let to = Some(everything.to_owned());
                let wanted = Route { to, via: Some(via.clone()), metric: *metric, table: own };
                checks.push(route(&ethernet.device, name, &wanted, &seen.routes));
            }
        }
        for wanted in &ethernet.routes {
            checks.push(route(&ethernet.device, name, wanted, &seen.routes));
        }
        for wanted in &ethernet.routing_policy {
            checks.push(rule(&ethernet.device, wanted, wanted.table, &seen.rules));
        }
        checks.push(dns(ethernet, name, &seen.dns));
        checks.push(told_by_agent(ethernet, &mac, &seen.interfaces));
    }
    for vrf in &plan.vrfs {
        let table = seen.addresses.as_array().into_iter().flatten();
        let found = table
            .filter(|link| link["ifname"] == vrf.name.as_str())
            .map(|link| (&link["linkinfo"]["info_kind"], &link["linkinfo"]["info_data"]["table"]));
        let found: Vec<_> = found.collect();
        let is_so = found.iter().any(|(kind, table)| *kind == "vrf" && **table == vrf.table);
        checks.push(check(
            format!("VRF {} with table {}", vrf.name, vrf.table),
            is_so,
            format!("{found:?}"),
        ));
        for wanted in &vrf.routes {
            let wanted = Route { table: Some(vrf.table), ..wanted.clone() };
            checks.push(route(&vrf.name, "", &wanted, &seen.routes));
        }
        for wanted in &vrf.routing_policy {
            checks.push(rule(&vrf.name, wanted, Some(vrf.table), &seen.rules));
        }
    }
    checks
}

/// Addresses and MTU of a device.
pub(crate) fn links(ethernet: &Ethernet, addresses: &Value) -> Vec<Check> {
    let device = &ethernet.device;
    let Some(link) = link(addresses, &ethernet.mac.to_ascii_lowercase()) else {
        return vec![check(format!("{device}: is there"), false, addresses)];
    };
    let has = |wanted: &dyn Fn(&str, u64) -> bool| {
        link["addr_info"].as_array().into_iter().flatten().any(|one| {
            let local = one["local"].as_str().unwrap_or_default();
            wanted(local, one["prefixlen"].as_u64().unwrap_or_default())
        })
    };
    let mut checks = Vec::new();
    for fixed in [&ethernet.ipv4, &ethernet.ipv6].into_iter().flatten() {
        let is_so = has(&|local, prefix| format!("{local}/{prefix}") == fixed.address);
        checks.push(check(format!("{device}: {}", fixed.address), is_so, &link["addr_info"]));
    }
    if ethernet.dhcp4 {
        let leased = link["addr_info"].as_array().into_iter().flatten();
        let is_so = leased.filter(|one| one["family"] == "inet").any(|one| one["dynamic"] == true);
        checks.push(check(format!("{device}: an address by DHCP"), is_so, &link["addr_info"]));
    }
    let mtu = u64::from(ethernet.mtu.unwrap_or(1500));
    checks.push(check(format!("{device}: MTU {mtu}"), link["mtu"] == mtu, &link["mtu"]));
    checks
}

fn link<'a>(addresses: &'a Value, mac: &str) -> Option<&'a Value> {
    addresses.as_array()?.iter().find(|link| link["address"] == mac)
}

/// The destination as `ip` prints it.
fn printed(to: &str) -> String {
    match to {
        "0.0.0.0/0" | "::/0" => "default".to_owned(),
        to => to.strip_suffix("/32").or(to.strip_suffix("/128")).unwrap_or(to).to_owned(),
    }
}

/// A table as `ip` prints it, which leaves the main one out.
fn table_of(value: &Value) -> String {
    match value {
        Value::Null => "main".to_owned(),
        Value::String(name) => name.clone(),
        other => other.to_string(),
    }
}

fn table_name(table: Option<u32>) -> String {
    table.map_or_else(|| "main".to_owned(), |table| table.to_string())
}

fn route(owner: &str, link: &str, wanted: &Route, seen: &[Value]) -> Check {
    let to = printed(wanted.to.as_deref().unwrap_or_default());
    let via = wanted.via.clone().unwrap_or_default();
    let table = table_name(wanted.table);
    let is_it = |route: &&Value| {
        route["dst"] == to.as_str()
            && route["gateway"] == via.as_str()
            && (link.is_empty() || route["dev"] == link)
            && table_of(&route["table"]) == table
            && wanted.metric.is_none_or(|metric| route["metric"] == metric)
    };
    let mut what = format!("{owner}: route to {to} by {via} in table {table}");
    if let Some(metric) = wanted.metric {
        // Writing to a String cannot fail.
        let _ = write!(what, ", metric {metric}");
    }
    let same = seen.iter().filter(|route| route["gateway"] == via.as_str());
    check(what, seen.iter().any(|route| is_it(&route)), same.cloned().collect::<Value>())
}

fn rule(owner: &str, wanted: &Rule, table: Option<u32>, seen: &[Value]) -> Check {
    let side = |rule: &Value, key: &str, text: Option<&String>| {
        let Some(text) = text else { return rule[key].is_null() || rule[key] == "all" };
        let (address, length) = text.split_once('/').unwrap_or((text, ""));
        let is_whole = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            _ => 128,
        };
        let length = length.parse().unwrap_or(is_whole);
        rule[key] == address && rule[format!("{key}len")].as_u64().unwrap_or(is_whole) == length
    };
    let is_it = |rule: &Value| {
        side(rule, "src", wanted.from.as_ref())
            && side(rule, "dst", wanted.to.as_ref())
            && table_of(&rule["table"]) == table_name(table)
            && wanted.priority.is_none_or(|priority| rule["priority"] == priority)
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "all".to_owned());
    let mut what = format!("{owner}: rule from {} to {}", text(&wanted.from), text(&wanted.to));
    let _ = write!(what, " in table {}", table_name(table));
    check(what, seen.iter().any(is_it), seen.iter().cloned().collect::<Value>())
}

fn dns(ethernet: &Ethernet, link: &str, seen: &str) -> Check {
    let told = seen.lines().find(|line| line.contains(&format!("({link}):"))).unwrap_or_default();
    let found: Vec<&str> = told
        .split_once("):")
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let servers = ethernet.dns_servers.join(" ");
    // A device that asks for its address is given servers too.
    let is_so = if ethernet.dhcp4 {
        ethernet.dns_servers.iter().all(|server| found.contains(&server.as_str()))
    } else {
        ethernet.dns_servers.iter().all(|server| found.contains(&server.as_str()))
            && found.iter().all(|one| ethernet.dns_servers.iter().any(|server| server == one))
    };
    check(format!("{}: DNS {servers}", ethernet.device), is_so, seen)
}

/// The provider's own reading of the agent's answer has the device with its addresses.
fn told_by_agent(ethernet: &Ethernet, mac: &str, seen: &[AgentInterface]) -> Check {
    let its = seen.iter().find(|one| one.hardware_address.as_deref() == Some(mac));
    let wanted = [&ethernet.ipv4, &ethernet.ipv6].into_iter().flatten();
    let is_so = its.is_some_and(|its| {
        let told = its
            .ip_addresses
            .iter()
            .filter_map(|one| Some(format!("{}/{}", one.ip_address.as_deref()?, one.prefix?)));
        let told: Vec<String> = told.collect();
        wanted.into_iter().all(|fixed| told.contains(&fixed.address))
    });
    check(format!("{}: the agent tells its addresses", ethernet.device), is_so, format!("{seen:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_route_is_found_by_all_that_is_asked_of_it() {
        let seen =
            [json!({"dst": "default", "gateway": "10.0.0.1", "dev": "ens18", "metric": 100})];
        let wanted = Route {
            to: Some("0.0.0.0/0".to_owned()),
            via: Some("10.0.0.1".to_owned()),
            metric: Some(100),
            table: None,
        };
        assert_eq!(route("net0", "ens18", &wanted, &seen).instead, None);
        let other = Route { table: Some(500), ..wanted.clone() };
        assert!(route("net0", "ens18", &other, &seen).instead.is_some());
        let other = Route { metric: Some(7), ..wanted };
        assert!(route("net0", "ens18", &other, &seen).instead.is_some());
    }

    #[test]
    fn a_rule_is_found_by_its_sides_and_table() {
        let seen = [json!({"priority": 99, "src": "10.1.0.0", "srclen": 24, "table": "200"})];
        let from = Some("10.1.0.0/24".to_owned());
        let wanted = Rule { from, priority: Some(99), ..Rule::default() };
        assert_eq!(rule("net1", &wanted, Some(200), &seen).instead, None);
        assert!(rule("net1", &wanted, Some(201), &seen).instead.is_some());
    }
}

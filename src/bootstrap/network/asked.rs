//! The part of a guest's network that a machine's spec asks for: routes, rules and VRFs. What no guest
//! could apply of it shows before there is a VM, whatever its addresses and MAC addresses will be.

use std::collections::BTreeMap;

use super::check::{hop, interface_name, member, policy};
use super::{Ethernet, Route, Rule, Vrf};
use crate::api::{self, NetworkSpec};
use crate::bootstrap::problem::Problem;

/// Proxmox's name of the default device.
const DEFAULT_DEVICE: &str = "net0";

/// Something that no guest could apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Where it stands.
    pub part: Part,
    /// Path of the field below that, such as `routes[0].via`.
    pub field: String,
    /// What is wrong with it and what is expected.
    pub reason: String,
}

/// A part of `spec.network`, by its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// One of `additionalDevices`.
    Device(usize),
    /// One of `vrfs`.
    Vrf(usize),
}

/// All that no guest could apply, in the order of the spec.
pub fn misfits(network: &NetworkSpec) -> Vec<Misfit> {
    let mut found = Vec::new();
    let mut ethernets = vec![Ethernet::new(0, DEFAULT_DEVICE, "")];
    for (index, device) in network.additional_devices.iter().flatten().enumerate() {
        ethernets.push(Ethernet::new(index + 1, &device.name, ""));
        let mut problems = hops(&device.name, device.routes.as_deref(), None);
        problems.extend(policies(&device.name, device.routing_policy.as_deref(), None));
        found.extend(
            problems.into_iter().filter_map(|problem| misfit(Part::Device(index), problem)),
        );
    }
    let vrfs: Vec<&api::VrfDevice> = network.vrfs.iter().flatten().collect();
    let members: Vec<Vrf> = vrfs.iter().map(|vrf| named(vrf)).collect();
    let mut owners = BTreeMap::new();
    for (index, (vrf, named)) in vrfs.iter().zip(&members).enumerate() {
        let table = number(&vrf.name, "table", Some(vrf.table));
        let mut problems: Vec<Problem> = own_name(vrf, &ethernets).into_iter().collect();
        problems.extend(table.as_ref().err().cloned());
        let mut unknown = |place| member(named, place, &ethernets, &mut owners).err();
        problems.extend((0..named.interfaces.len()).filter_map(&mut unknown));
        let table = table.ok().flatten();
        problems.extend(hops(&vrf.name, vrf.routes.as_deref(), table));
        problems.extend(policies(&vrf.name, vrf.routing_policy.as_deref(), table));
        found.extend(problems.into_iter().filter_map(|problem| misfit(Part::Vrf(index), problem)));
    }
    found
}

fn own_name(vrf: &api::VrfDevice, ethernets: &[Ethernet]) -> Option<Problem> {
    if ethernets.iter().any(|ethernet| ethernet.name == vrf.name) {
        return Some(Problem::network(&vrf.name, "name", "is that of a device of the guest"));
    }
    interface_name(&vrf.name, &vrf.name).err()
}

fn hops(owner: &str, routes: Option<&[api::Route]>, vrf: Option<u32>) -> Vec<Problem> {
    problems(routes, |index, wanted| hop(owner, index, &route(owner, index, wanted)?, vrf))
}

fn policies(owner: &str, rules: Option<&[api::Policy]>, vrf: Option<u32>) -> Vec<Problem> {
    problems(rules, |index, wanted| policy(owner, index, &rule(owner, index, wanted)?, vrf))
}

fn problems<T, R>(
    wanted: Option<&[T]>,
    judge: impl Fn(usize, &T) -> Result<R, Problem>,
) -> Vec<Problem> {
    let all = wanted.into_iter().flatten().enumerate();
    all.filter_map(|(index, one)| judge(index, one).err()).collect()
}

fn misfit(part: Part, problem: Problem) -> Option<Misfit> {
    match problem {
        Problem::Network { field, reason, .. } => Some(Misfit { part, field, reason }),
        _ => None,
    }
}

fn named(vrf: &api::VrfDevice) -> Vrf {
    let interfaces = vrf.interfaces.clone().unwrap_or_default();
    Vrf { name: vrf.name.clone(), interfaces, ..Vrf::default() }
}

/// A VRF as the spec asks for it.
///
/// # Errors
/// [`Problem::Network`] for a number that is none of 32 bits.
pub fn vrf(vrf: &api::VrfDevice) -> Result<Vrf, Problem> {
    Ok(Vrf {
        table: number(&vrf.name, "table", Some(vrf.table))?.unwrap_or_default(),
        routes: routes(&vrf.name, vrf.routes.as_deref())?,
        routing_policy: rules(&vrf.name, vrf.routing_policy.as_deref())?,
        ..named(vrf)
    })
}

/// Routes of a device or VRF as the spec asks for them.
///
/// # Errors
/// As [`vrf`].
pub fn routes(owner: &str, routes: Option<&[api::Route]>) -> Result<Vec<Route>, Problem> {
    let routes = routes.into_iter().flatten().enumerate();
    routes.map(|(index, wanted)| route(owner, index, wanted)).collect()
}

/// Rules of a device or VRF as the spec asks for them.
///
/// # Errors
/// As [`vrf`].
pub fn rules(owner: &str, rules: Option<&[api::Policy]>) -> Result<Vec<Rule>, Problem> {
    let rules = rules.into_iter().flatten().enumerate();
    rules.map(|(index, wanted)| rule(owner, index, wanted)).collect()
}

fn route(owner: &str, index: usize, route: &api::Route) -> Result<Route, Problem> {
    let number = |name, value| number(owner, &format!("routes[{index}].{name}"), value);
    Ok(Route {
        to: route.to.clone(),
        via: route.via.clone(),
        metric: number("metric", route.metric)?,
        table: number("table", route.table)?,
    })
}

fn rule(owner: &str, index: usize, rule: &api::Policy) -> Result<Rule, Problem> {
    let number = |name, value| number(owner, &format!("routingPolicy[{index}].{name}"), value);
    Ok(Rule {
        to: rule.to.clone(),
        from: rule.from.clone(),
        priority: number("priority", rule.priority)?,
        table: number("table", rule.table)?,
    })
}

fn number(owner: &str, field: &str, value: Option<i64>) -> Result<Option<u32>, Problem> {
    let Some(value) = value else { return Ok(None) };
    let number = u32::try_from(value).map_err(|_| {
        let reason = format!("{value} is not a number from 0 to {}", u32::MAX);
        Problem::network(owner, field, reason)
    })?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn found(network: &Value) -> Vec<String> {
        let network: NetworkSpec = serde_json::from_value(network.clone()).unwrap();
        let text = |misfit: Misfit| match misfit.part {
            Part::Device(index) => format!("device {index} {}", misfit.field),
            Part::Vrf(index) => format!("vrf {index} {}", misfit.field),
        };
        misfits(&network).into_iter().map(text).collect()
    }

    #[test]
    fn what_no_guest_could_apply_is_found_without_addresses() {
        let network = |device: Value, vrfs: Value| {
            let mut net1 = json!({"name": "net1", "bridge": "vmbr1"});
            net1.as_object_mut().unwrap().extend(device.as_object().unwrap().clone());
            json!({"default": {"bridge": "vmbr0"}, "additionalDevices": [net1], "vrfs": vrfs})
        };
        let good = json!([{"name": "vrf-blue", "table": 500, "interfaces": ["net1"],
            "routes": [{"to": "default", "via": "10.1.0.1"}, {"to": "10.0.0.0/8", "table": 500}],
            "routingPolicy": [{"to": "10.0.0.0/8"}]}]);
        assert_eq!(found(&network(json!({}), good)), [""; 0]);
        let vrf = |change: Value| {
            let mut vrf = json!({"name": "vrf-blue", "table": 500});
            vrf.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            json!([vrf])
        };
        for (device, vrfs, expected) in [
            (json!({"routes": [{"to": "10.0.0.0/33"}]}), json!([]), "device 0 routes[0].to"),
            (json!({"routes": [{"to": "default"}]}), json!([]), "device 0 routes[0].via"),
            (
                json!({"routes": [{"to": "::/0", "via": "10.0.0.1"}]}),
                json!([]),
                "device 0 routes[0].via",
            ),
            (
                json!({"routes": [{"to": "10.0.0.1", "metric": -1}]}),
                json!([]),
                "device 0 routes[0].metric",
            ),
            (json!({"routingPolicy": [{"table": 5}]}), json!([]), "device 0 routingPolicy[0].to"),
            (json!({}), vrf(json!({"name": "a-name-of-sixteen"})), "vrf 0 name"),
            (json!({}), vrf(json!({"name": "eth1"})), "vrf 0 name"),
            (json!({}), vrf(json!({"name": "no blank"})), "vrf 0 name"),
            (json!({}), vrf(json!({"interfaces": ["eth1", "net7"]})), "vrf 0 interfaces[1]"),
            (json!({}), vrf(json!({"interfaces": ["eth1", "net1"]})), "vrf 0 interfaces[1]"),
            (json!({}), vrf(json!({"table": -1})), "vrf 0 table"),
            (json!({}), vrf(json!({"routes": [{}]})), "vrf 0 routes[0].to"),
            (
                json!({}),
                vrf(json!({"routes": [{"to": "10.0.0.1", "table": 5}]})),
                "vrf 0 routes[0].table",
            ),
            (json!({}), vrf(json!({"routingPolicy": [{}]})), "vrf 0 routingPolicy[0].to"),
        ] {
            assert_eq!(found(&network(device, vrfs)), [expected]);
        }
    }
}

//! Bridges and VLANs.

use super::listed;
use crate::check::facts::{Facts, bridges};
use crate::check::report::Finding;
use crate::check::wanted::{Bridge, Wanted};
use crate::ids::NodeName;
use crate::pve;
use crate::seen::Seen;

const CHECK: &str = "bridge";

pub(super) fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    bridges(wanted, facts).iter().flat_map(|bridge| one(bridge, facts)).collect()
}

fn one(bridge: &Bridge, facts: &Facts) -> Vec<Finding> {
    let subject = bridge.to_string();
    let mut good: Vec<(&NodeName, &'static str)> = Vec::new();
    let mut findings = Vec::new();
    for (node, seen) in &facts.bridges {
        let listed = match seen {
            Seen::Present(listed) => listed.as_slice(),
            Seen::Absent => &[],
            Seen::Unknown(why) => {
                findings.push(Finding::unknown(CHECK, &subject, format!("on {node}: {why}")));
                continue;
            }
        };
        let finding = match listed.iter().find(|found| found.iface == bridge.name) {
            None => missing(bridge, node, facts),
            Some(found) => match vlan(bridge, found, facts) {
                Ok(note) => {
                    good.push((node, note));
                    continue;
                }
                Err((text, remedy)) => {
                    Finding::failed(CHECK, &subject, format!("on {node}: {text}")).remedy(remedy)
                }
            },
        };
        findings.push(finding);
    }
    if let Some((_, note)) = good.first() {
        let nodes = listed(good.iter().map(|(node, _)| node));
        findings.insert(0, Finding::good(CHECK, subject, format!("is on {nodes}{note}")));
    }
    findings
}

/// Since release 8 a bridge that may not be used is not shown.
fn missing(bridge: &Bridge, node: &NodeName, facts: &Facts) -> Finding {
    let path = facts.place(bridge).path();
    let hidden = facts.version.major().is_none_or(|major| major >= 8)
        && !facts.permissions.present().is_some_and(|held| held.holds(&path, "SDN.Use"));
    if hidden {
        let text = format!("is not shown on {node}: it is not there, or may not be used");
        return Finding::unknown(CHECK, bridge.to_string(), text)
            .remedy(format!("give SDN.Use on {path}"));
    }
    let name = &bridge.name;
    Finding::failed(CHECK, bridge.to_string(), format!("{node} has no bridge {name}")).remedy(
        format!("make {name} there (System, Network), correct the bridge, or leave {node} out"),
    )
}

/// A note on how the VLAN comes about, or what keeps it from that with the remedy.
fn vlan(
    bridge: &Bridge,
    found: &pve::Bridge,
    facts: &Facts,
) -> Result<&'static str, (String, String)> {
    if !found.active {
        let remedy = format!("ifup {} there, or apply the node's network", found.iface);
        return Err(("it is not up".to_owned(), remedy));
    }
    if bridge.vlan.is_none() {
        return Ok("");
    }
    if let Some(vnet) = facts.vnet(&bridge.name) {
        return if vnet.vlanaware {
            Ok(", VLAN aware")
        } else {
            let remedy = "switch VLAN Aware on for the VNet, or leave the VLAN out".to_owned();
            Err(("the VNet takes no VLAN of a VM".to_owned(), remedy))
        };
    }
    if found.kind.as_deref() == Some("OVSBridge") || found.bridge_vlan_aware {
        return Ok(", VLAN aware");
    }
    match found.bridge_ports.as_deref().map(str::trim) {
        Some("") => Err((
            "it is not VLAN aware and has no port to carry the VLAN".to_owned(),
            "switch VLAN aware on for the bridge, or give it a port".to_owned(),
        )),
        _ => Ok(", not VLAN aware: Proxmox makes a bridge for the VLAN on its port"),
    }
}

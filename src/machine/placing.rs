//! Where a new VM goes: its template, its node and its VMID. Pure.

use self::asked::Asked;
use self::storage::Reach;
use super::decision::{Decision, Look, Step, Waiting, Wake};
use super::facts::{Facts, NodeFact, PlacementFacts};
use crate::api::ProxmoxMachineSpec;
use crate::hypervisor::{self, GuestKind};
use crate::ids::{NodeName, VmId};
use crate::placement::{self, Candidate, NodeFacts, NodeState, Request, TemplateRef, VmIdRequest};
use crate::seen::Seen;

pub(super) mod asked;
mod storage;

const MIB: u64 = 1 << 20;

/// The choice for a machine that has none yet.
pub(super) fn decide(facts: &Facts) -> Decision {
    choice(facts, None)
}

/// The choice of node and template once more, under a VMID that is recorded and free: after a clone
/// that failed, or when the record of them was lost.
pub(super) fn again(facts: &Facts, vmid: VmId) -> Decision {
    choice(facts, Some(vmid))
}

fn choice(facts: &Facts, recorded: Option<VmId>) -> Decision {
    let world = match &facts.placement {
        None => return Decision::Look(Look::Placement),
        Some(Seen::Unknown(why)) => {
            return Decision::Wait(Waiting::Unknown(why.clone()), Wake::seconds(10));
        }
        Some(Seen::Absent) => {
            let why = "the Proxmox cluster lists neither nodes nor guests".to_owned();
            return Decision::Wait(Waiting::Unknown(why), Wake::seconds(10));
        }
        Some(Seen::Present(world)) => world,
    };
    choose(facts, world, recorded)
        .unwrap_or_else(|why| Decision::Wait(Waiting::Placement(why), Wake::seconds(15)))
}

fn choose(
    facts: &Facts,
    world: &PlacementFacts,
    recorded: Option<VmId>,
) -> Result<Decision, String> {
    let template = template(facts, world)?;
    let config = match &facts.template {
        Some((read, seen)) if *read == template => seen.present(),
        _ => return Ok(Decision::Look(Look::Template(template))),
    };
    storage::check(&facts.machine.spec)?;
    let reach = storage::reach(&facts.machine.spec, &template, config, world);
    let node = node(facts, world, &template, &reach)?;
    let unchanged = facts.recorded_node().as_ref() == Some(&node)
        && facts.recorded_template().as_ref() == Some(&template);
    if let Some(vmid) = recorded.filter(|_| unchanged) {
        return Ok(Decision::Do(Step::Clone { vmid, node, template }));
    }
    Ok(Decision::Do(Step::Reserve {
        vmid: recorded.map_or_else(|| vmid(facts, world), Ok)?,
        node,
        memory: memory(facts, world, &template),
        template,
        ledger_version: world.ledger_version,
    }))
}

fn template(facts: &Facts, world: &PlacementFacts) -> Result<TemplateRef, String> {
    let candidates: Vec<Candidate> = world
        .guests
        .iter()
        .filter(|(_, guest)| guest.kind == GuestKind::Vm)
        .map(|(vmid, guest)| Candidate {
            node: guest.node.clone(),
            vmid: *vmid,
            is_template: guest.template,
            tags: guest.tags.clone(),
        })
        .collect();
    let spec = &facts.machine.spec;
    if let Some(number) = spec.template_id {
        let id = VmId::try_from(number).map_err(|error| format!("spec.templateID: {error}"))?;
        let source = spec.source_node.as_deref().unwrap_or_default();
        let source = source.parse().map_err(|error| format!("spec.sourceNode: {error}"))?;
        let online = world.nodes.get(&source).map(|node| node.state);
        return match placement::verify_template(id, &source, &candidates) {
            Ok(found) => Ok(found),
            // While a node is down its guests may be missing from the list.
            Err(_) if matches!(online, Some(state) if state != hypervisor::NodeState::Online) => {
                Err(format!(
                    "node {source} (spec.sourceNode) of template {id} does not answer: bring it \
                     back, or name a template on another node"
                ))
            }
            Err(_) if !world.nodes.is_empty() && online.is_none() => Err(format!(
                "the Proxmox cluster has no node {source} (spec.sourceNode); it has {}",
                names(world)
            )),
            Err(why) => Err(why.to_string()),
        };
    }
    let Some(selector) = &spec.template_selector else {
        return Err("neither spec.templateID with spec.sourceNode nor spec.templateSelector says \
                    which template to clone: set one"
            .to_owned());
    };
    placement::choose_template(&selector.match_tags, &candidates).map_err(|why| why.to_string())
}

fn node(
    facts: &Facts,
    world: &PlacementFacts,
    template: &TemplateRef,
    reach: &Reach,
) -> Result<NodeName, String> {
    let (field, domain, allowed) = match asked::asked(facts)? {
        Asked::Target(target) => {
            let target: NodeName =
                target.parse().map_err(|error| format!("spec.target: {error}"))?;
            usable(&target, "spec.target", world)?;
            return reach.allows(&target).map(|()| target);
        }
        Asked::BesideTemplate => {
            return usable(&template.node, "the template's node", world)
                .map(|()| template.node.clone());
        }
        Asked::OneOf { field, domain, nodes } => (field, domain, nodes),
    };
    let mut nodes = Vec::new();
    let mut out_of_reach = Vec::new();
    for name in &allowed {
        let name: NodeName = name.parse().map_err(|error| format!("{field}: {error}"))?;
        match reach.allows(&name) {
            Ok(()) => nodes.push(as_seen_by_placement(name, world)),
            Err(why) => out_of_reach.push(why),
        }
    }
    if nodes.is_empty() {
        out_of_reach.dedup();
        return Err(format!("no node of {field} can take a clone: {}", out_of_reach.join("; ")));
    }
    let request = Request {
        memory: memory(facts, world, template),
        adjustment_percent: facts
            .infra
            .as_ref()
            .and_then(|infra| infra.spec.scheduler_hints.as_ref())
            .and_then(|hints| hints.memory_adjustment)
            .and_then(|percent| u64::try_from(percent).ok()),
    };
    // The template's own memory, which nobody asked for, ranks nodes and keeps none away, as in capmox:
    // where it fits nowhere, the node with the most memory left takes the machine.
    let unasked = asked_memory(&facts.machine.spec).is_none();
    let chosen = placement::choose_node(&request, &nodes).or_else(|why| {
        let small = Request { memory: 0, ..request };
        if unasked { placement::choose_node(&small, &nodes).map_err(|_| why) } else { Err(why) }
    });
    chosen.map_err(|why| match domain {
        Some(domain) => format!("in failure domain {domain}, {why}"),
        None => why.to_string(),
    })
}

/// Whether a node that was named can take a VM now. A node that is not listed at all is none.
fn usable(node: &NodeName, field: &str, world: &PlacementFacts) -> Result<(), String> {
    match world.nodes.get(node).map(|node| node.state) {
        Some(hypervisor::NodeState::Online) => Ok(()),
        Some(hypervisor::NodeState::Maintenance) => Err(format!(
            "node {node} ({field}) is in maintenance: end the maintenance or name another node"
        )),
        Some(hypervisor::NodeState::Offline) => {
            Err(format!("node {node} ({field}) is offline: bring it back or name another node"))
        }
        Some(hypervisor::NodeState::Unknown) => {
            Err(format!("the state of node {node} ({field}) is not known to the Proxmox cluster"))
        }
        None if world.nodes.is_empty() => Ok(()),
        None => Err(format!(
            "the Proxmox cluster has no node {node} ({field}); it has {}",
            names(world)
        )),
    }
}

fn names(world: &PlacementFacts) -> String {
    world.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

fn as_seen_by_placement(name: NodeName, world: &PlacementFacts) -> NodeFacts {
    let absent = NodeFact::default();
    let (state, fact) = match world.nodes.get(&name) {
        None => (NodeState::Absent, &absent),
        Some(fact) => (
            match fact.state {
                hypervisor::NodeState::Online => NodeState::Online,
                hypervisor::NodeState::Maintenance => NodeState::Maintenance,
                hypervisor::NodeState::Offline => NodeState::Offline,
                hypervisor::NodeState::Unknown => NodeState::Unknown,
            },
            fact,
        ),
    };
    NodeFacts {
        name,
        state,
        memory_total: fact.memory,
        memory_committed: fact.committed,
        role_count: fact.same_role,
    }
}

/// Memory of the VM in bytes: as asked for, else the template's own, which its configuration tells
/// when the list does not.
fn memory(facts: &Facts, world: &PlacementFacts, template: &TemplateRef) -> u64 {
    let configured = || match &facts.template {
        Some((read, Seen::Present(config))) if read == template => {
            config.memory_mib().map(|mib| mib.saturating_mul(MIB))
        }
        _ => None,
    };
    let listed = || world.guests.get(&template.vmid).and_then(|guest| guest.memory);
    asked_memory(&facts.machine.spec).or_else(configured).or_else(listed).unwrap_or(0)
}

/// Memory in bytes that a machine asks for; `None` where the template decides.
pub(super) fn asked_memory(spec: &ProxmoxMachineSpec) -> Option<u64> {
    let asked = spec.memory_mib.and_then(|mib| u64::try_from(mib).ok());
    asked.filter(|mib| *mib > 0).map(|mib| mib.saturating_mul(MIB))
}

/// The range that a machine's VMID is to be of, if there is one.
///
/// # Errors
/// A text for people when an end of it is no VMID.
pub(super) fn range(spec: &ProxmoxMachineSpec) -> Result<Option<(VmId, VmId)>, String> {
    let Some(range) = &spec.vm_id_range else { return Ok(None) };
    Ok(Some((
        VmId::try_from(range.start).map_err(|e| format!("spec.vmIDRange.start: {e}"))?,
        VmId::try_from(range.end).map_err(|e| format!("spec.vmIDRange.end: {e}"))?,
    )))
}

fn vmid(facts: &Facts, world: &PlacementFacts) -> Result<VmId, String> {
    let range = range(&facts.machine.spec)?;
    let request = VmIdRequest { range, hint: world.next_id, taken: world.taken.clone() };
    placement::choose_vmid(&request).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests;

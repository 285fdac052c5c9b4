//! What the choice of node and VMID is made from.

mod completion;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector::Store;
use tokio::time::Instant;

use super::super::facts::{Facts, NodeFact, PlacementFacts, is_control_plane};
use super::super::pass::Pass;
use super::super::placing;
use super::super::stores::Stored;
use super::super::traces::holds;
use crate::api::{ProxmoxCluster, ProxmoxMachine, capi};
use crate::connections::Source;
use crate::hypervisor::{Endpoint, Ledger, Promise, View};
use crate::ids::{NodeName, VmId};
use crate::placement::{self, TemplateRef, VmIdRequest};
use crate::pve::{self, ErrorKind, VmConfig};
use crate::seen::Seen;

/// Age of a reading that a choice may be made from; what this process promised since is in the
/// ledger.
const RECENT: Duration = Duration::from_secs(2);

/// Numbers that are asked about before one of them is tried all the same.
const ASKED_IN_A_ROW: usize = 256;

/// What a machine that records a VMID has been promised.
pub(super) fn promise(facts: &Facts, memory: u64) -> Option<Promise> {
    Some(Promise {
        owner: facts.machine.metadata.uid.clone()?,
        node: facts.recorded_node(),
        memory,
        group: group(facts),
    })
}

/// Memory in bytes that a placed machine takes: as it asks, else what its template is listed with.
pub(super) fn promised_memory(facts: &Facts, view: Option<&View>) -> u64 {
    let of_template = || {
        let template = facts.recorded_template()?;
        view?.guests.get(&template.vmid)?.memory
    };
    placing::asked_memory(&facts.machine.spec).or_else(of_template).unwrap_or(0)
}

/// Machines of one group are spread over the nodes: those of one role of one cluster.
pub(in super::super) fn group(facts: &Facts) -> String {
    group_of(
        facts.machine.metadata.namespace.as_deref().unwrap_or_default(),
        facts.cluster_name().unwrap_or_default(),
        facts.is_control_plane(),
    )
}

fn group_of(namespace: &str, cluster: &str, control_plane: bool) -> String {
    let role = if control_plane { "control-plane" } else { "worker" };
    format!("{namespace}/{cluster}/{role}")
}

impl Pass<'_> {
    /// Reads the cluster and adds the promises of machines that it does not list yet.
    pub(super) async fn survey(&mut self) -> Seen<PlacementFacts> {
        let Some(endpoint) = &self.endpoint.clone() else {
            return Seen::Unknown("no Proxmox endpoint was looked up".to_owned());
        };
        let held = endpoint.held_view();
        self.restore_promises(endpoint, held.as_deref());
        // Before the reading: what is promised while it is made refuses the choice.
        let ledger_version = endpoint.ledger().version();
        // A choice that lost a race is made again from the same reading: the ledger is what changed.
        let (view, next_id) = match self.surveyed.clone() {
            Some(surveyed) => surveyed,
            None => match self.read_cluster(endpoint).await {
                Ok(read) => self.surveyed.insert(read).clone(),
                Err(error) => return Seen::Unknown(self.unanswered(&error)),
            },
        };
        let mut taken: BTreeSet<VmId> = view.vmids().collect();
        let mut nodes = nodes(&view);
        self.count_promises(endpoint, &view, &mut taken, &mut nodes);
        self.add_recorded(&mut taken);
        self.leave_out_hidden(endpoint, &mut taken).await;
        let named = self.facts.machine.spec.template_id.and_then(|id| VmId::try_from(id).ok());
        let guests = view.guests.iter();
        let guests = guests.filter(|(vmid, guest)| guest.template || Some(**vmid) == named);
        Seen::Present(PlacementFacts {
            ledger_version,
            taken,
            next_id,
            guests: guests.map(|(vmid, guest)| (*vmid, guest.clone())).collect(),
            nodes,
            storages: view.storages.clone(),
        })
    }

    /// Counts what was promised to other machines: VMIDs, memory and their share of the nodes.
    fn count_promises(
        &self,
        endpoint: &Endpoint,
        view: &View,
        taken: &mut BTreeSet<VmId>,
        nodes: &mut BTreeMap<NodeName, NodeFact>,
    ) {
        let ledger = endpoint.ledger();
        taken.extend(ledger.taken(Instant::now()));
        let group = group(&self.facts);
        // A choice that is made again does not stand in its own way.
        let promises = ledger.promises().iter();
        let promises = promises.filter(|(_, promise)| promise.owner != self.facts.uid());
        let mut counted: HashSet<&str> = HashSet::from([self.facts.uid()]);
        for (vmid, promise) in promises {
            counted.insert(&promise.owner);
            let Some(node) = promise.node.as_ref().and_then(|node| nodes.get_mut(node)) else {
                continue;
            };
            // Until it is configured a clone is listed with the memory of its template.
            let listed = view.guests.get(vmid).and_then(|guest| guest.memory).unwrap_or(0);
            node.committed += promise.memory.saturating_sub(listed);
            if promise.group == group {
                node.same_role += 1;
            }
        }
        let stores = &self.shared.stores;
        let namespace = &self.facts.machine.metadata.namespace;
        let mut placed = BTreeSet::from([self.facts.name().to_owned()]);
        for machine in stores.machines.state() {
            let machine = machine.0.as_ref().ok();
            let Some(machine) = machine.filter(|it| it.metadata.namespace == *namespace) else {
                continue;
            };
            let is_counted =
                machine.metadata.uid.as_deref().is_none_or(|uid| counted.contains(uid));
            if is_counted || !self.is_alike(machine) {
                placed.insert(machine.name_any());
                continue;
            }
            let node = machine.status.as_ref().and_then(|status| status.proxmox_node.as_deref());
            let Some(node) = node.and_then(|node| node.parse::<NodeName>().ok()) else { continue };
            placed.insert(machine.name_any());
            if let Some(node) = nodes.get_mut(&node) {
                node.same_role += 1;
            }
        }
        let name = self.facts.infra.as_ref().map(ProxmoxCluster::name_any).unwrap_or_default();
        let infra = super::read(&stores.infra, namespace.as_deref().unwrap_or_default(), &name);
        if let Some(infra) = infra.as_ref().and_then(|infra| infra.0.as_ref().ok()) {
            for node in remembered(infra, self.facts.is_control_plane(), &placed) {
                if let Some(node) = nodes.get_mut(&node) {
                    node.same_role += 1;
                }
            }
        }
    }

    /// Whether another machine is of the same group.
    fn is_alike(&self, machine: &ProxmoxMachine) -> bool {
        let own = &self.facts;
        machine.metadata.namespace == own.machine.metadata.namespace
            && capi::cluster_name(&machine.metadata).unwrap_or_default()
                == own.cluster_name().unwrap_or_default()
            && {
                let owner = super::owner(&self.shared.stores, machine);
                is_control_plane(&machine.metadata, owner.as_deref()) == own.is_control_plane()
            }
    }

    async fn read_cluster(
        &self,
        endpoint: &Endpoint,
    ) -> Result<(Arc<View>, Option<VmId>), pve::Error> {
        let now = Instant::now();
        let view = endpoint.view(now.checked_sub(RECENT).unwrap_or(now)).await?;
        let view = completion::complete(&self.facts, endpoint, view).await;
        let ranged = self.facts.machine.spec.vm_id_range.is_some();
        if ranged {
            return Ok((view, None));
        }
        match endpoint.next_id().await {
            Ok(id) => Ok((view, Some(id))),
            // A hint, where the server has none: the lowest number that nobody has will do.
            Err(error) if matches!(error.kind(), ErrorKind::NotImplemented | ErrorKind::Decode) => {
                tracing::warn!(%error, "Proxmox names no free VMID");
                Ok((view, None))
            }
            Err(error) => Err(error),
        }
    }

    /// Adds VMIDs that machines with the same credentials record, whether their VM is there or not.
    fn add_recorded(&self, taken: &mut BTreeSet<VmId>) {
        let stores = &self.shared.stores;
        let own = self.facts.infra.as_ref().map(Source::of);
        for machine in stores.machines.state() {
            let Some(machine) = machine.0.as_ref().ok() else { continue };
            let recorded = machine.spec.virtual_machine_id.and_then(|id| VmId::try_from(id).ok());
            // Most are listed, and need no look at whose they are.
            if let Some(vmid) = recorded.filter(|vmid| !taken.contains(vmid))
                && super::source(stores, machine) == own
            {
                taken.insert(vmid);
            }
        }
    }

    /// Adds the lowest numbers of the range that guests have whom the credentials do not show, such as
    /// those of another tenant. Proxmox is asked number by number, as by capmox, until one is free: the
    /// clone itself would be refused by its task only, and what is in its way remain unseen.
    async fn leave_out_hidden(&self, endpoint: &Endpoint, taken: &mut BTreeSet<VmId>) {
        let Ok(Some((start, end))) = placing::range(&self.facts.machine.spec) else { return };
        if self.facts.vmid().is_some() {
            return;
        }
        let mut request = VmIdRequest { range: Some((start, end)), ..VmIdRequest::default() };
        request.taken = std::mem::take(taken);
        for _ in 0..ASKED_IN_A_ROW {
            let Ok(next) = placement::choose_vmid(&request) else { break };
            // Without an answer the clone tells after all.
            let Ok(false) = endpoint.client().vmid_is_free(next).await else { break };
            endpoint.ledger().mark_taken(next, Instant::now());
            request.taken.insert(next);
        }
        *taken = request.taken;
    }

    /// What the template is made of.
    pub(super) async fn read_template(&self, template: &TemplateRef) -> Seen<VmConfig> {
        let Some(endpoint) = &self.endpoint else {
            return Seen::Unknown("no Proxmox endpoint was looked up".to_owned());
        };
        match endpoint.template(&template.node, template.vmid).await {
            Ok(config) => Seen::Present(config),
            Err(error) if error.is_vm_missing() => Seen::Absent,
            Err(error) => Seen::Unknown(self.unanswered(&error)),
        }
    }

    /// After a restart the objects remember what was promised.
    fn restore_promises(&self, endpoint: &Endpoint, view: Option<&View>) {
        let stores = &self.shared.stores;
        let own = self.facts.infra.as_ref().map(Source::of);
        for machine in stores.machines.state() {
            let Some(machine) = machine.0.as_ref().ok() else { continue };
            let recorded = machine.spec.virtual_machine_id.and_then(|id| VmId::try_from(id).ok());
            let ready = machine.status.as_ref().is_some_and(|status| status.ready);
            let Some(vmid) = recorded.filter(|_| !ready) else { continue };
            if is_promised(endpoint, vmid, machine) || super::source(stores, machine) != own {
                continue;
            }
            let facts = super::gather(stores, machine.clone());
            if let Some(promise) = promise(&facts, promised_memory(&facts, view)) {
                // That two machines record one number shows at the VM.
                recall(&mut endpoint.ledger(), &stores.machines, machine, vmid, promise);
            }
        }
    }
}

/// Enters a promise to a machine that is still there. Who goes is forgotten when it is no more among the
/// copies, and then waits for the ledger: so nothing is entered after that.
fn recall(
    ledger: &mut Ledger,
    there: &Store<Stored>,
    machine: &ProxmoxMachine,
    vmid: VmId,
    promise: Promise,
) {
    if holds(there, &super::key_of(machine), &promise.owner) {
        ledger.recall(vmid, promise);
    }
}

/// Nodes of machines that only the cluster remembers the places of, other than those that are `placed`:
/// their own status was lost, or the manager does not see them.
fn remembered(
    infra: &ProxmoxCluster,
    control_plane: bool,
    placed: &BTreeSet<String>,
) -> Vec<NodeName> {
    let locations = infra.status.as_ref().and_then(|status| status.node_locations.as_ref());
    let of_role =
        locations.map(|all| if control_plane { &all.control_plane } else { &all.workers });
    let others = of_role.into_iter().flatten().filter(|it| !placed.contains(&it.machine.name));
    others.filter_map(|location| location.node.parse().ok()).collect()
}

/// Whether a promise says all that an object remembers of it.
fn is_promised(endpoint: &Endpoint, vmid: VmId, machine: &ProxmoxMachine) -> bool {
    let ledger = endpoint.ledger();
    let node = machine.status.as_ref().and_then(|status| status.proxmox_node.as_deref());
    ledger.promises().get(&vmid).is_some_and(|held| {
        Some(&held.owner) == machine.metadata.uid.as_ref()
            && held.memory > 0
            && node.is_some()
            && held.node.as_ref().map(NodeName::as_str) == node
    })
}

/// Nodes with what their listed guests take.
fn nodes(view: &View) -> BTreeMap<NodeName, NodeFact> {
    let mut nodes: BTreeMap<_, _> = view
        .nodes
        .iter()
        .map(|(name, node)| {
            let fact =
                NodeFact { state: node.state, memory: node.memory, committed: 0, same_role: 0 };
            (name.clone(), fact)
        })
        .collect();
    for guest in view.guests.values().filter(|guest| !guest.template) {
        if let Some(node) = nodes.get_mut(&guest.node) {
            node.committed += guest.memory.unwrap_or(0);
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use kube::core::DeserializeGuard;
    use kube::runtime::{reflector, watcher};

    use serde_json::json;

    use super::super::super::fixture::reserved;
    use super::*;

    #[test]
    fn machines_whose_place_only_the_cluster_remembers_are_counted_by_role() {
        let mut infra = reserved().infra.unwrap();
        let at = |name: &str, node: &str| json!({"machine": {"name": name}, "node": node});
        let locations = json!({
            "controlPlane": [at("cp-1", "pve1"), at("cp-2", "pve2")],
            "workers": [at("w-1", "pve3"), at("w-2", "pve3"), at("w-3", "../x")],
        });
        let status = json!({"ready": true, "nodeLocations": locations});
        infra.status = Some(serde_json::from_value(status).unwrap());
        let placed = ["cp-2", "w-1"].map(str::to_owned).into();
        let nodes = |control_plane| {
            let nodes = remembered(&infra, control_plane, &placed);
            nodes.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(nodes(true), ["pve1"]);
        assert_eq!(nodes(false), ["pve3"]);
    }

    #[test]
    fn nothing_is_promised_to_a_machine_that_went_since_the_copies_were_looked_at() {
        let facts = reserved();
        let (there, mut copies) = reflector::store::<Stored>();
        let copy = || DeserializeGuard(Ok(facts.machine.clone()));
        let mut ledger = Ledger::default();
        let mut recalls = |ledger: &mut Ledger, event| {
            copies.apply_watcher_event(&event);
            let promise = promise(&facts, 1).unwrap();
            recall(ledger, &there, &facts.machine, facts.vmid().unwrap(), promise);
            ledger.promises().len()
        };
        assert_eq!(recalls(&mut ledger, watcher::Event::Apply(copy())), 1);
        ledger.forget(facts.uid());
        assert_eq!(recalls(&mut ledger, watcher::Event::Delete(copy())), 0);
        let mut other = facts.machine.clone();
        other.metadata.uid = Some("another".to_owned());
        let other = watcher::Event::Apply(DeserializeGuard(Ok(other)));
        assert_eq!(recalls(&mut ledger, other), 0, "another has its name now");
    }
}

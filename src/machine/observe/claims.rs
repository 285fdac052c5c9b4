//! What was claimed of the addresses of a machine, and what was given.

use kube::ResourceExt;
use kube::core::ObjectMeta;

use super::super::facts::{Address, AddressFact, ClaimFact, Facts};
use super::super::stores::Stores;
use super::read;
use crate::api::ProxmoxMachine;
use crate::api::ipam::IPAddressClaim;
use crate::ipam::{self, PoolRef, Slot};

pub(super) fn is_ours(claim: &IPAddressClaim, machine: &ProxmoxMachine) -> bool {
    owned_by(&claim.metadata, machine.metadata.uid.as_deref())
}

/// Whether a claim was made beforehand, under the name of this slot's, for the address that a machine
/// is to have. It is used as capmox does, and stays with who made it: it is not released either.
fn is_laid_out(claim: &IPAddressClaim, slot: &Slot) -> bool {
    let is_nobodys = claim.metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
    is_nobodys && PoolRef::from(&claim.spec.pool_ref) == slot.pool
}

fn owned_by(meta: &ObjectMeta, uid: Option<&str>) -> bool {
    let owners = meta.owner_references.iter().flatten();
    uid.is_some() && owners.map(|owner| owner.uid.as_str()).any(|owner| Some(owner) == uid)
}

pub(super) fn addresses(stores: &Stores, facts: &Facts) -> Vec<AddressFact> {
    let Some(infra) = &facts.infra else { return Vec::new() };
    ipam::wanted_slots(&infra.name_any(), &infra.spec, &facts.machine.spec)
        .into_iter()
        .map(|slot| address(stores, &facts.machine, slot))
        .collect()
}

fn address(stores: &Stores, machine: &ProxmoxMachine, slot: Slot) -> AddressFact {
    let namespace = machine.namespace().unwrap_or_default();
    let name = slot.claim_name(&machine.name_any());
    let claim = read(&stores.claims, &namespace, &name).map(|claim| ClaimFact {
        ours: (is_ours(&claim, machine) || is_laid_out(&claim, &slot))
            && claim.metadata.deletion_timestamp.is_none(),
        message: said(&claim),
    });
    let given = read(&stores.addresses, &namespace, &name)
        .filter(|_| claim.as_ref().is_some_and(|claim| claim.ours))
        .map(|address| match address.metadata.deletion_timestamp {
            None => ipam::read_address(&address, &name, &slot).map_err(|why| why.to_string()),
            Some(_) => Err(format!(
                "IPAddress {name} is being deleted: delete IPAddressClaim {name} to get another one"
            )),
        });
    let (address, wrong) = match given {
        None => (None, None),
        Some(Ok(given)) => {
            let ipam::Assigned { address, prefix, gateway } = given;
            (Some(Address { ip: address, prefix, gateway, metric: None }), None)
        }
        Some(Err(wrong)) => (None, Some(wrong)),
    };
    AddressFact { slot, claim, address, wrong, pool_trouble: None }
}

/// What a provider says on a claim that it does not answer.
fn said(claim: &IPAddressClaim) -> Option<String> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted".to_owned());
    }
    let conditions = claim.status.as_ref()?.conditions.as_ref()?;
    let bad = conditions.iter().find(|condition| condition.status == "False")?;
    bad.message.clone().or_else(|| bad.reason.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_made_beforehand_is_used_if_it_is_nobodys_and_of_the_pool() {
        let claim = |pool: &str, owners: &[&str]| -> IPAddressClaim {
            let owner = |uid: &&str| {
                serde_json::json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid
                })
            };
            serde_json::from_value(serde_json::json!({
                "apiVersion": "ipam.cluster.x-k8s.io/v1beta1", "kind": "IPAddressClaim",
                "metadata": {
                    "name": "w-1-net0-inet",
                    "ownerReferences": owners.iter().map(owner).collect::<Vec<_>>(),
                },
                "spec": {"poolRef": {
                    "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": pool
                }},
            }))
            .expect("a claim")
        };
        let facts = crate::machine::fixture::fresh();
        let slot = &facts.addresses[0].slot;
        assert!(is_laid_out(&claim(&slot.pool.name, &[]), slot));
        assert!(!is_laid_out(&claim(&slot.pool.name, &["other"]), slot));
        assert!(!is_laid_out(&claim("other", &[]), slot));
    }
}

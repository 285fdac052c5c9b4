//! Rules for ProxmoxMachine: tags stay as they are, what could not take effect is not changed, and the
//! network can be set up as asked.

use kube::core::DynamicObject;

use super::{Denial, Review, effect, guest, in_place};
use crate::api::{AdditionalNetworkDevice, NetworkSpec, ProxmoxMachineSpec, VrfDevice};

/// IPv6 needs links of at least this many bytes.
const LEAST_MTU: i64 = 1280;
/// An MTU that stands for "as the bridge".
const MTU_OF_BRIDGE: i64 = 1;

/// What the user should know of a machine that is accepted.
pub(super) fn judge(review: &Review<'_>) -> Result<Vec<String>, Denial> {
    let Review { object, old, .. } = *review;
    let mut doubts = vec![];
    if let Some(old) = old {
        in_place::unless_updated(review, tags_kept(object, old), &mut doubts)?;
    }
    let spec: ProxmoxMachineSpec = super::spec(object)?;
    if let Some(old) = old {
        in_place::unless_updated(review, effect::judge(object, old), &mut doubts)?;
    }
    spec.network.as_ref().map_or(Ok(()), network)?;
    guest::judge(object, &spec, old)?;
    Ok(doubts)
}

/// Compared as written: no tags and an empty list are not the same, as in capmox v0.7.
fn tags_kept(new: &DynamicObject, old: &DynamicObject) -> Result<(), Denial> {
    let tags = |object: &DynamicObject| {
        object.data.pointer("/spec/tags").filter(|tags| !tags.is_null()).cloned()
    };
    if tags(new) == tags(old) {
        Ok(())
    } else {
        Err(Denial::BadRequest("tags are immutable".to_owned()))
    }
}

pub(super) fn network(network: &NetworkSpec) -> Result<(), Denial> {
    let Some(default) = &network.default else {
        return Err(Denial::invalid(
            "spec.network.default",
            (),
            "default network device must be set when setting network spec",
        ));
    };
    mtu("spec.network.default.mtu", default.mtu.map(i64::from))?;
    for (index, device) in network.additional_devices.iter().flatten().enumerate() {
        additional(&format!("spec.network.additionalDevices.{index}"), device)?;
    }
    for (index, vrf) in network.vrfs.iter().flatten().enumerate() {
        one_table(index, vrf)?;
    }
    Ok(())
}

fn additional(path: &str, device: &AdditionalNetworkDevice) -> Result<(), Denial> {
    if device.ipv4_pool_ref.is_none() && device.ipv6_pool_ref.is_none() {
        return Err(Denial::invalid(
            format!("{path}.IPPoolConfig"),
            (),
            "at least one of IPv4PoolRef or IPv6PoolRef must be set",
        ));
    }
    mtu(&format!("{path}.mtu"), device.mtu.map(i64::from))?;
    if let Some(link) = device.link_mtu.map(i64::from).filter(|link| *link < LEAST_MTU) {
        return Err(Denial::invalid(
            format!("{path}.linkMtu"),
            link,
            format!("mtu must be at least {LEAST_MTU}, but was {link}"),
        ));
    }
    match device.routing_policy.iter().flatten().position(|policy| policy.table.is_none()) {
        Some(index) => Err(Denial::invalid(
            format!("{path}.routingPolicy"),
            (),
            format!("routing policy [{index}] requires a table"),
        )),
        None => Ok(()),
    }
}

fn mtu(path: &str, mtu: Option<i64>) -> Result<(), Denial> {
    match mtu {
        Some(mtu) if mtu != MTU_OF_BRIDGE && mtu < LEAST_MTU => Err(Denial::invalid(
            path,
            mtu,
            format!("mtu must be at least {LEAST_MTU} or {MTU_OF_BRIDGE}, but was {mtu}"),
        )),
        _ => Ok(()),
    }
}

fn one_table(index: usize, vrf: &VrfDevice) -> Result<(), Denial> {
    let table = vrf.table;
    let mut tables = vrf.routing_policy.iter().flatten().filter_map(|policy| policy.table);
    match tables.find(|other| *other != table) {
        Some(other) => Err(Denial::invalid(
            format!("spec.network.VirtualNetworkDevices.VRFs.{index}.Table"),
            other,
            format!("VRF {}: device/rule routing table mismatch {table} != {other}", vrf.name),
        )),
        None => Ok(()),
    }
}

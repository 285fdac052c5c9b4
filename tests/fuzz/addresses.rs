//! Ranges of pools, and addresses that a provider gives.

use capmox::api::ProxmoxMachineSpec;
use capmox::api::ipam::{IPAddress, IPAddressSpec};
use capmox::ipam::{Family, PoolRef, Slot, read_address};
use proptest::prelude::*;

use crate::near::{json, object, spoiled};

const ADDRESSES: &[&str] = &["10.0.0.10", "fd00::10", "10.0.0.300", "::ffff:10.0.0.1"];
const SPEC: &[&str] = &[
    "providerID",
    "virtualMachineID",
    "sourceNode",
    "templateID",
    "numSockets",
    "memoryMiB",
    "disks",
    "network",
    "vmIDRange",
    "checks",
    "tags",
    "allowedNodes",
];

proptest! {
    #[test]
    fn a_given_address_is_refused_or_of_the_family_asked_for(
        text in spoiled(ADDRESSES), gateway in proptest::option::of(spoiled(ADDRESSES)),
        prefix in any::<i64>(), v6 in any::<bool>(),
    ) {
        let family = if v6 { Family::V6 } else { Family::V4 };
        let slot = Slot {
            device: "net0".to_owned(), family, pool: PoolRef::in_cluster("one".to_owned()),
        };
        let name = slot.claim_name("m-0");
        let mut spec = IPAddressSpec { address: text, prefix, gateway, ..IPAddressSpec::default() };
        spec.claim_ref.name.clone_from(&name);
        spec.pool_ref = slot.pool.clone().into();
        if let Ok(given) = read_address(&IPAddress::new(&name, spec), &name, &slot) {
            prop_assert_eq!(Family::from(given.address), family);
            prop_assert!(given.prefix <= family.bits());
            prop_assert!(given.gateway.is_none_or(|gateway| Family::from(gateway) == family));
        }
    }

    #[test]
    fn a_spec_is_refused_or_read(value in prop_oneof![object(SPEC), json()]) {
        let _ = serde_json::from_value::<ProxmoxMachineSpec>(value);
    }
}

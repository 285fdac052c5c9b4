//! What an address pool hands out, by the rules of the in-cluster IPAM provider v1.0.3.
//!
//! * the gateway is never handed out;
//! * neither are, unless the pool allows it, the first address of the network (both families) and
//!   the last one (IPv4: the broadcast address); the network is that of the pool's lowest address;
//! * neither are the excluded addresses;
//! * the lowest free address is next.
//!
//! The rules its admission webhook holds (one family, inside one network) are held here, where the
//! pool is used: a pool that breaks them hands out nothing, and says why.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::ranges::{Addresses, Family, Range};

/// The spec of a pool, as written by its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSpec<'a> {
    /// `spec.addresses`: addresses, ranges and networks.
    pub addresses: &'a [String],
    /// `spec.prefix`: the length of the network's prefix.
    pub prefix: i64,
    /// `spec.gateway`; empty is the same as none.
    pub gateway: Option<&'a str>,
    /// `spec.allocateReservedIPAddresses`.
    pub allocate_reserved: bool,
    /// `spec.excludedAddresses`.
    pub excluded: &'a [String],
}

/// Why a pool hands out nothing at all: its spec contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPool {
    /// A list holds something that is no address.
    #[error("{field}[{index}]: {source}")]
    Entry {
        /// Path of the list.
        field: &'static str,
        /// Position in it.
        index: usize,
        /// What is wrong.
        source: super::ranges::InvalidEntry,
    },
    /// There are no addresses.
    #[error("spec.addresses is empty: name at least one address, range or CIDR")]
    Empty,
    /// IPv4 and IPv6 in one pool.
    #[error("{field} mixes IPv4 and IPv6: use one pool for each")]
    MixedFamilies {
        /// Path of the field that does not fit the family of the first address.
        field: &'static str,
    },
    /// The prefix is longer than an address, or negative.
    #[error("spec.prefix {prefix} does not fit {family}: use 0 to {}", family.bits())]
    Prefix {
        /// The prefix.
        prefix: i64,
        /// The family of the addresses.
        family: Family,
    },
    /// The gateway is no address.
    #[error("spec.gateway {0:?} is not an IP address")]
    Gateway(String),
    /// Addresses of several networks.
    #[error(
        "spec.addresses leaves the network {network} of its first address and spec.prefix: use one \
         pool for each network, or a shorter prefix"
    )]
    OutsideNetwork {
        /// The network.
        network: IpNet,
    },
}

/// A pool that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPool {
    usable: Addresses,
    prefix: u8,
    gateway: Option<IpAddr>,
}

/// Figures of a pool, as its status shows them; capped to what an `int64` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Addresses that the pool hands out, used or not.
    pub total: i64,
    /// `IPAddress` objects of the pool.
    pub used: i64,
    /// Addresses that can still be handed out.
    pub free: i64,
    /// Used addresses that the pool would not hand out (any more).
    pub out_of_range: i64,
}

impl AddressPool {
    /// Understands a spec.
    ///
    /// # Errors
    ///
    /// [`InvalidPool`] when it contradicts itself; the text names the field.
    pub fn new(spec: &PoolSpec<'_>) -> Result<Self, InvalidPool> {
        let listed = entries("spec.addresses", spec.addresses)?;
        let lowest = listed.ranges().first().copied().ok_or(InvalidPool::Empty)?;
        let family = one_family("spec.addresses", &listed, lowest.family())?;
        let excluded = entries("spec.excludedAddresses", spec.excluded)?;
        one_family("spec.excludedAddresses", &excluded, family)?;
        let (prefix, network) = network(lowest.first(), spec.prefix)?;
        let whole = Range::from(network);
        if !listed.ranges().iter().all(|range| whole.covers(range)) {
            return Err(InvalidPool::OutsideNetwork { network });
        }
        let gateway = gateway(spec.gateway, family)?;

        let mut usable = listed;
        if !spec.allocate_reserved {
            usable.remove(&Range::from(whole.first()));
            if family == Family::V4 {
                usable.remove(&Range::from(whole.last()));
            }
        }
        if let Some(gateway) = gateway {
            usable.remove(&Range::from(gateway));
        }
        for range in excluded.ranges() {
            usable.remove(range);
        }
        Ok(Self { usable, prefix, gateway })
    }

    /// The length of the network's prefix.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The gateway.
    pub const fn gateway(&self) -> Option<IpAddr> {
        self.gateway
    }

    /// The next address to hand out, given those in use.
    pub fn lowest_free(&self, in_use: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        self.usable.lowest_not_in(in_use)
    }

    /// Figures, given the `spec.address` of every `IPAddress` of the pool.
    ///
    /// An address that cannot be read counts as used and nothing else.
    pub fn usage<'a>(&self, addresses: impl IntoIterator<Item = &'a str>) -> Usage {
        let mut used: usize = 0;
        let mut distinct = BTreeSet::new();
        for text in addresses {
            used += 1;
            distinct.extend(text.parse::<IpAddr>());
        }
        let inside = distinct.iter().filter(|address| self.usable.contains(**address)).count();
        let total = self.usable.count();
        Usage {
            total: capped(total),
            used: capped(used as u128),
            free: capped(total.saturating_sub(inside as u128)),
            out_of_range: capped((distinct.len() - inside) as u128),
        }
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn entries(field: &'static str, texts: &[String]) -> Result<Addresses, InvalidPool> {
    texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            Range::parse(text).map_err(|source| InvalidPool::Entry { field, index, source })
        })
        .collect()
}

fn one_family(
    field: &'static str,
    addresses: &Addresses,
    family: Family,
) -> Result<Family, InvalidPool> {
    if addresses.ranges().iter().all(|range| range.family() == family) {
        Ok(family)
    } else {
        Err(InvalidPool::MixedFamilies { field })
    }
}

fn network(first: IpAddr, prefix: i64) -> Result<(u8, IpNet), InvalidPool> {
    u8::try_from(prefix)
        .ok()
        .and_then(|length| Some((length, IpNet::new(first, length).ok()?.trunc())))
        .ok_or(InvalidPool::Prefix { prefix, family: first.into() })
}

fn gateway(text: Option<&str>, family: Family) -> Result<Option<IpAddr>, InvalidPool> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let gateway: IpAddr = text.parse().map_err(|_| InvalidPool::Gateway(text.to_owned()))?;
    if Family::from(gateway) == family {
        Ok(Some(gateway))
    } else {
        Err(InvalidPool::MixedFamilies { field: "spec.gateway" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    struct Spec {
        addresses: Vec<String>,
        prefix: i64,
        gateway: Option<&'static str>,
        allocate_reserved: bool,
        excluded: Vec<String>,
    }

    fn spec(addresses: &[&str], prefix: i64) -> Spec {
        Spec {
            addresses: addresses.iter().map(|&a| a.to_owned()).collect(),
            prefix,
            gateway: None,
            allocate_reserved: false,
            excluded: vec![],
        }
    }

    impl Spec {
        fn read(&self) -> Result<AddressPool, InvalidPool> {
            AddressPool::new(&PoolSpec {
                addresses: &self.addresses,
                prefix: self.prefix,
                gateway: self.gateway,
                allocate_reserved: self.allocate_reserved,
                excluded: &self.excluded,
            })
        }

        /// What it hands out, in order.
        fn hands_out(&self) -> Vec<String> {
            let pool = self.read().unwrap();
            let mut used = BTreeSet::new();
            while let Some(next) = pool.lowest_free(&used) {
                used.insert(next);
            }
            used.iter().map(IpAddr::to_string).collect()
        }
    }

    #[test]
    fn network_broadcast_gateway_and_excluded_are_kept_back() {
        let mut pool = spec(&["10.0.0.0/29"], 29);
        assert_eq!(pool.hands_out().first().unwrap(), "10.0.0.1");
        assert_eq!(pool.hands_out().len(), 6);

        pool.gateway = Some("10.0.0.1");
        pool.excluded = vec!["10.0.0.3-10.0.0.4".into(), "10.0.0.200".into()];
        assert_eq!(pool.hands_out(), ["10.0.0.2", "10.0.0.5", "10.0.0.6"]);

        pool.allocate_reserved = true;
        assert_eq!(pool.hands_out(), ["10.0.0.0", "10.0.0.2", "10.0.0.5", "10.0.0.6", "10.0.0.7"]);
    }

    #[test]
    fn reserved_are_the_ends_of_the_network_not_of_the_list() {
        let pool = spec(&["10.0.0.64/30", "10.0.0.255"], 24);
        assert_eq!(pool.hands_out(), ["10.0.0.64", "10.0.0.65", "10.0.0.66", "10.0.0.67"]);
    }

    #[test]
    fn of_ipv6_only_the_first_address_is_reserved() {
        let pool = spec(&["fd00::/126"], 126);
        assert_eq!(pool.hands_out(), ["fd00::1", "fd00::2", "fd00::3"]);
    }

    #[test]
    fn a_huge_pool_is_capped_not_walked() {
        let pool = spec(&["fd00::/16"], 16).read().unwrap();
        let usage = pool.usage(["fd00::1", "fd00::2", "fe00::", "nonsense"]);
        assert_eq!(usage, Usage { total: i64::MAX, used: 4, free: i64::MAX, out_of_range: 1 });
        assert_eq!(pool.lowest_free(&BTreeSet::new()), Some("fd00::1".parse().unwrap()));
    }

    #[test]
    fn the_figures_tell_used_free_and_out_of_range() {
        let pool = spec(&["10.0.0.10-10.0.0.12"], 24).read().unwrap();
        let usage = pool.usage(["10.0.0.10", "10.0.0.99"]);
        assert_eq!(usage, Usage { total: 3, used: 2, free: 2, out_of_range: 1 });
    }

    #[test]
    fn a_spec_that_contradicts_itself_is_named_by_field() {
        let base = || spec(&["10.0.0.10"], 24);
        for (pool, expected) in [
            (spec(&[], 24), "spec.addresses is empty"),
            (spec(&["10.0.0.1", "x"], 24), "spec.addresses[1]: \"x\""),
            (spec(&["10.0.0.1", "fd00::1"], 24), "spec.addresses mixes"),
            (spec(&["10.0.0.1"], 33), "spec.prefix 33 does not fit IPv4: use 0 to 32"),
            (spec(&["10.0.0.1"], -1), "spec.prefix -1"),
            (spec(&["10.0.0.1", "10.0.1.1"], 24), "leaves the network 10.0.0.0/24"),
            (Spec { gateway: Some("gw"), ..base() }, "spec.gateway \"gw\""),
            (Spec { gateway: Some("fd00::1"), ..base() }, "spec.gateway mixes"),
            (Spec { excluded: vec!["fd00::1".into()], ..base() }, "spec.excludedAddresses mixes"),
            (Spec { excluded: vec!["?".into()], ..base() }, "spec.excludedAddresses[0]"),
        ] {
            let text = pool.read().unwrap_err().to_string();
            assert!(text.contains(expected), "{expected:?} is missing in {text:?}");
        }
        assert!(Spec { gateway: Some(""), ..base() }.read().is_ok());
    }
}

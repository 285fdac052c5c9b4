//! Sets of IP addresses as intervals: a `/64` costs as little as a single address.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Version of the Internet Protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Bits of an address, which is the longest prefix.
    pub const fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

impl From<IpAddr> for Family {
    fn from(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A text that is neither an address, nor a range, nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an IP address, a range \"first-last\" with first not above last, or a CIDR"
)]
pub struct InvalidEntry {
    /// The text.
    pub text: String,
}

/// Addresses from the first to the last, both included, of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    family: Family,
    first: u128,
    last: u128,
}

impl Range {
    /// Reads one entry of a pool: `10.0.0.5`, `10.0.0.10-10.0.0.20` or `10.0.0.0/24`.
    ///
    /// A CIDR means the whole network, also when its host bits are set.
    ///
    /// # Errors
    ///
    /// [`InvalidEntry`] when the text is none of these.
    pub fn parse(text: &str) -> Result<Self, InvalidEntry> {
        let invalid = || InvalidEntry { text: text.to_owned() };
        if let Some((first, last)) = text.split_once('-') {
            let address = |part: &str| part.trim().parse::<IpAddr>().map_err(|_| invalid());
            return Self::between(address(first)?, address(last)?).ok_or_else(invalid);
        }
        if text.contains('/') {
            return text.parse::<IpNet>().map(Self::from).map_err(|_| invalid());
        }
        text.parse::<IpAddr>().map(Self::from).map_err(|_| invalid())
    }

    /// The range between two addresses of one family, if it holds any.
    pub fn between(first: IpAddr, last: IpAddr) -> Option<Self> {
        let (family, first_bits, last_bits) = (Family::from(first), bits(first), bits(last));
        (family == Family::from(last) && first_bits <= last_bits).then_some(Self {
            family,
            first: first_bits,
            last: last_bits,
        })
    }

    /// The family of all its addresses.
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The lowest address.
    pub fn first(&self) -> IpAddr {
        address(self.family, self.first)
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        address(self.family, self.last)
    }

    /// Whether every address of `other` is one of these.
    pub fn covers(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.first && other.last <= self.last
    }

    /// Addresses in it; the whole of IPv6 is one short of the truth.
    fn len(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// What is left of it without `other`.
    fn without(&self, other: &Self) -> impl Iterator<Item = Self> + use<> {
        let apart =
            self.family != other.family || other.last < self.first || self.last < other.first;
        let (below, above) = if apart {
            (Some(*self), None)
        } else {
            let below = other.first.checked_sub(1).filter(|last| *last >= self.first);
            let above = other.last.checked_add(1).filter(|first| *first <= self.last);
            (below.map(|last| Self { last, ..*self }), above.map(|first| Self { first, ..*self }))
        };
        below.into_iter().chain(above)
    }
}

impl From<IpAddr> for Range {
    fn from(address: IpAddr) -> Self {
        Self { family: address.into(), first: bits(address), last: bits(address) }
    }
}

impl From<IpNet> for Range {
    fn from(net: IpNet) -> Self {
        Self { family: net.addr().into(), first: bits(net.network()), last: bits(net.broadcast()) }
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or(u32::MAX)).into(),
        Family::V6 => Ipv6Addr::from_bits(bits).into(),
    }
}

/// A set of addresses; both families may be in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// Sorted and disjoint.
    ranges: Vec<Range>,
}

impl Addresses {
    /// Reads a list of entries, see [`Range::parse`].
    ///
    /// # Errors
    ///
    /// [`InvalidEntry`] for the first entry that cannot be read.
    pub fn parse<I>(entries: I) -> Result<Self, InvalidEntry>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        entries.into_iter().map(|entry| Range::parse(entry.as_ref())).collect()
    }

    /// The ranges, lowest first, without overlap.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Whether the address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        let one = Range::from(address);
        self.ranges.iter().any(|range| range.covers(&one))
    }

    /// Takes all addresses of `range` out.
    pub fn remove(&mut self, range: &Range) {
        self.ranges = self.ranges.iter().flat_map(|own| own.without(range)).collect();
    }

    /// How many addresses there are; at most `u128::MAX`.
    pub fn count(&self) -> u128 {
        self.ranges.iter().map(Range::len).fold(0, u128::saturating_add)
    }

    /// The lowest address that is not in `used`.
    ///
    /// Walks the used addresses, never the range.
    pub fn lowest_not_in(&self, used: &BTreeSet<IpAddr>) -> Option<IpAddr> {
        self.ranges.iter().find_map(|range| {
            let mut candidate = Some(range.first);
            for taken in used.range(range.first()..=range.last()) {
                if candidate != Some(bits(*taken)) {
                    break;
                }
                candidate = bits(*taken).checked_add(1);
            }
            candidate.filter(|found| *found <= range.last).map(|found| address(range.family, found))
        })
    }
}

impl FromIterator<Range> for Addresses {
    fn from_iter<T: IntoIterator<Item = Range>>(iter: T) -> Self {
        let mut sorted: Vec<Range> = iter.into_iter().collect();
        sorted.sort_unstable();
        let mut ranges: Vec<Range> = Vec::with_capacity(sorted.len());
        for range in sorted {
            match ranges.last_mut() {
                Some(before) if before.family == range.family && range.first <= before.last => {
                    before.last = before.last.max(range.last);
                }
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_entry_is_an_address_a_range_or_a_network() {
        for (text, first, last) in [
            ("10.0.0.5", "10.0.0.5", "10.0.0.5"),
            ("10.0.0.5-10.0.0.9", "10.0.0.5", "10.0.0.9"),
            ("10.0.0.77/24", "10.0.0.0", "10.0.0.255"),
            ("fd00::1-fd00::ff", "fd00::1", "fd00::ff"),
            ("fd00::/64", "fd00::", "fd00::ffff:ffff:ffff:ffff"),
            ("10.0.0.1/32", "10.0.0.1", "10.0.0.1"),
        ] {
            let range = Range::parse(text).unwrap();
            assert_eq!((range.first(), range.last()), (ip(first), ip(last)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_and_named() {
        for text in
            ["", "10.0.0", "10.0.0.9-10.0.0.5", "10.0.0.1-fd00::1", "10.0.0.0/33", "10.0.0.1-", "a"]
        {
            assert!(Range::parse(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn a_whole_address_family_is_counted_and_searched_at_once() {
        let all = Addresses::parse(["::/0"]).unwrap();
        assert_eq!(all.count(), u128::MAX);
        assert_eq!(all.lowest_not_in(&BTreeSet::from([ip("::"), ip("::1")])), Some(ip("::2")));
        let mut top = Addresses::parse(["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]).unwrap();
        let used = BTreeSet::from([top.ranges()[0].first()]);
        assert_eq!(top.lowest_not_in(&used), None);
        top.remove(&Range::parse("::/0").unwrap());
        assert_eq!(top, Addresses::default());
    }

    #[test]
    fn families_do_not_mix_up_though_their_numbers_are_alike() {
        let mut both = Addresses::parse(["0.0.0.5", "::5"]).unwrap();
        assert_eq!(both.count(), 2);
        both.remove(&Range::parse("::5").unwrap());
        assert!(both.contains(ip("0.0.0.5")) && !both.contains(ip("::5")));
    }

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    prop_compose! {
        fn any_range()(a in any::<u8>(), b in any::<u8>()) -> Range {
            Range::between(v4(a.min(b)), v4(a.max(b))).unwrap()
        }
    }

    proptest! {
        #[test]
        fn an_entry_is_refused_or_a_range_that_is_read_back(
            text in prop_oneof![
                "[0-9.]{1,16}(-|/)?[0-9.]{0,16}", "[0-9a-f:]{0,40}(-|/)?[0-9a-f:]{0,40}", ".{0,40}",
            ],
        ) {
            if let Ok(range) = Range::parse(&text) {
                prop_assert_eq!(Range::parse(&format!("{}-{}", range.first(), range.last())), Ok(range));
                let all: Addresses = [range].into_iter().collect();
                prop_assert!(all.contains(range.first()) && all.contains(range.last()));
                prop_assert!(all.count() >= 1);
            }
        }

        #[test]
        fn the_arithmetic_is_that_of_sets(
            added in prop::collection::vec(any_range(), 0..6),
            removed in prop::collection::vec(any_range(), 0..4),
            used in prop::collection::btree_set(any::<u8>().prop_map(v4), 0..40),
        ) {
            let mut set: Addresses = added.iter().copied().collect();
            for range in &removed { set.remove(range); }
            let expected: BTreeSet<IpAddr> = (0..=255)
                .map(v4)
                .filter(|a| added.iter().any(|r| r.covers(&Range::from(*a))))
                .filter(|a| !removed.iter().any(|r| r.covers(&Range::from(*a))))
                .collect();
            prop_assert_eq!(set.count(), expected.len() as u128);
            for address in (0..=255).map(v4) {
                prop_assert_eq!(set.contains(address), expected.contains(&address));
            }
            prop_assert_eq!(set.lowest_not_in(&used), expected.difference(&used).next().copied());
        }
    }
}

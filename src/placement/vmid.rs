//! Which number a new machine gets.
//!
//! Proxmox reserves nothing when it names the next free id, so two machines could be told the same
//! one. The caller therefore records its choice before it clones and passes the records of all
//! other machines back in as taken; the clone itself stays the only proof that an id was free.

use std::collections::BTreeSet;
use std::fmt;

use crate::fault::{Class, Fault};
use crate::ids::VmId;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VmIdRequest {
    /// `spec.vmIDRange` of the machine, both ends included; `None` takes any id.
    pub range: Option<(VmId, VmId)>,
    /// The id that `GET /cluster/nextid` named; used only without a range.
    pub hint: Option<VmId>,
    /// Ids in use in the Proxmox cluster, and ids that other machines have reserved.
    pub taken: BTreeSet<VmId>,
}

/// No id is free now. Something to wait for: an id is freed when a machine goes.
///
/// `Display` is one message for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoVmId {
    /// The range has both its ends swapped; it holds no id.
    EmptyRange {
        /// `spec.vmIDRange.start`.
        start: VmId,
        /// `spec.vmIDRange.end`.
        end: VmId,
    },
    /// Every id of the range is taken.
    RangeFull {
        /// `spec.vmIDRange.start`.
        start: VmId,
        /// `spec.vmIDRange.end`.
        end: VmId,
    },
    /// Without a range: every id from here to the highest is taken.
    AllTaken {
        /// Where the search began.
        from: VmId,
    },
}

impl std::error::Error for NoVmId {}

impl From<NoVmId> for Fault {
    fn from(value: NoVmId) -> Self {
        let class = match value {
            NoVmId::EmptyRange { .. } => Class::Invalid,
            NoVmId::RangeFull { .. } | NoVmId::AllTaken { .. } => Class::Blocked,
        };
        Self::new(class, value.to_string())
    }
}

impl fmt::Display for NoVmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyRange { start, end } => {
                write!(f, "spec.vmIDRange holds no VMID: start {start} is greater than end {end}")
            }
            Self::RangeFull { start, end } => write!(
                f,
                "no free VMID in spec.vmIDRange {start}-{end}: every one is used by a guest of the \
                 Proxmox cluster or reserved by another machine. Widen the range in the machine \
                 template or remove guests"
            ),
            Self::AllTaken { from } => write!(
                f,
                "no free VMID from {from} to {}: remove guests or set spec.vmIDRange to a range \
                 with free ids",
                VmId::MAX
            ),
        }
    }
}

/// The lowest free id of the range, or without a range the lowest free id from the hint on.
///
/// # Errors
///
/// [`NoVmId`] when there is none.
pub fn choose_vmid(request: &VmIdRequest) -> Result<VmId, NoVmId> {
    if let Some((start, end)) = request.range {
        if start > end {
            return Err(NoVmId::EmptyRange { start, end });
        }
        return lowest_free(start, end, &request.taken).ok_or(NoVmId::RangeFull { start, end });
    }
    let from = request.hint.unwrap_or(VmId::MIN);
    lowest_free(from, VmId::MAX, &request.taken).ok_or(NoVmId::AllTaken { from })
}

/// Walks the taken ids, not the range: a range may be huge.
fn lowest_free(start: VmId, end: VmId, taken: &BTreeSet<VmId>) -> Option<VmId> {
    let mut candidate = Some(start);
    for id in taken.range(start..=end) {
        if Some(*id) != candidate {
            break;
        }
        candidate = id.next();
    }
    candidate.filter(|id| *id <= end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn id(number: i64) -> VmId {
        VmId::try_from(number).unwrap()
    }

    fn request(range: Option<(i64, i64)>, hint: Option<i64>, taken: &[i64]) -> VmIdRequest {
        VmIdRequest {
            range: range.map(|(a, b)| (id(a), id(b))),
            hint: hint.map(id),
            taken: taken.iter().copied().map(id).collect(),
        }
    }

    #[test]
    fn the_lowest_free_id_is_taken() {
        let max = 999_999_999;
        for (range, hint, taken, expected) in [
            (Some((500, 510)), Some(100), vec![], Some(500)),
            (Some((500, 510)), None, vec![499, 500, 501, 503], Some(502)),
            (Some((500, 501)), None, vec![500, 501], None),
            (Some((500, 500)), None, vec![], Some(500)),
            (None, Some(120), vec![100, 119], Some(120)),
            (None, Some(120), vec![120, 121], Some(122)),
            (None, None, vec![100], Some(101)),
            (None, Some(max), vec![max], None),
            (Some((100, max)), None, vec![100], Some(101)),
        ] {
            let request = request(range, hint, &taken);
            assert_eq!(choose_vmid(&request).ok(), expected.map(id), "{request:?}");
        }
    }

    #[test]
    fn a_full_range_is_named_with_a_remedy_and_waits() {
        let error = choose_vmid(&request(Some((500, 501)), None, &[500, 501])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("spec.vmIDRange 500-501") && text.contains("Widen"), "{text}");
        assert_eq!(Fault::from(error).class, Class::Blocked);
    }

    #[test]
    fn a_swapped_range_is_invalid() {
        let error = choose_vmid(&request(Some((501, 500)), None, &[])).unwrap_err();
        assert_eq!(Fault::from(error).class, Class::Invalid);
    }

    proptest! {
        #[test]
        fn what_is_taken_is_never_chosen(
            (start, len) in (100_i64..140, 0_i64..20),
            taken in prop::collection::btree_set(100_i64..160, 0..60),
        ) {
            let taken: Vec<i64> = taken.into_iter().collect();
            let request = request(Some((start, start + len)), None, &taken);
            let expected = (start..=start + len).find(|n| !taken.contains(n)).map(id);
            prop_assert_eq!(choose_vmid(&request).ok(), expected);
        }
    }
}

//! Pools, and ranges of VMIDs.

use crate::check::facts::Facts;
use crate::check::report::Finding;
use crate::check::wanted::Wanted;
use crate::ids::VmId;
use crate::seen::Seen;

pub(super) fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let pools = wanted.pools.iter().map(|name| pool(name, facts));
    pools.chain(wanted.ranges.iter().map(|range| vmids(*range, facts))).collect()
}

fn pool(name: &str, facts: &Facts) -> Finding {
    let check = "pool";
    let path = format!("/pool/{name}");
    let sees =
        |privilege| facts.permissions.present().is_some_and(|held| held.holds(&path, privilege));
    match &facts.pools {
        Seen::Present(pools) if pools.iter().any(|pool| pool == name) => {
            Finding::good(check, name, "exists")
        }
        Seen::Present(_) | Seen::Absent if sees("Pool.Audit") || sees("Pool.Allocate") => {
            Finding::failed(check, name, "does not exist")
                .remedy(format!("pveum pool add {name}, or correct spec.pool"))
        }
        Seen::Present(_) | Seen::Absent => {
            Finding::unknown(check, name, "is not shown: it is not there, or may not be seen")
                .remedy(format!("give Pool.Audit on {path} to see it; no more needs that"))
        }
        Seen::Unknown(why) => Finding::unknown(check, name, why),
    }
}

fn vmids((start, end): (i64, i64), facts: &Facts) -> Finding {
    let (check, subject) = ("vmid", format!("{start}-{end}"));
    let (Ok(first), Ok(last)) = (VmId::try_from(start), VmId::try_from(end)) else {
        return Finding::failed(check, subject, "is not within 100-999999999")
            .remedy("correct spec.vmIDRange");
    };
    if first > last {
        return Finding::failed(check, subject, "ends before it starts")
            .remedy("correct spec.vmIDRange");
    }
    match facts.free.get(&(start, end)) {
        Some(Seen::Present(free)) => {
            let guests = facts.guests.present().map(Vec::as_slice).unwrap_or_default();
            let taken = guests.iter().filter(|guest| (first..=last).contains(&guest.vmid)).count();
            let size = i64::from(last) - i64::from(first) + 1;
            Finding::good(check, subject, format!("{free} is free; {taken} of {size} seen taken"))
        }
        Some(Seen::Absent) => Finding::failed(check, subject, "no VMID of it is free")
            .remedy("widen spec.vmIDRange, or remove VMs of it"),
        Some(Seen::Unknown(why)) => Finding::unknown(check, subject, why),
        None => Finding::unknown(check, subject, "was not looked at"),
    }
}

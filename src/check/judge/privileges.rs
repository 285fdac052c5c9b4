//! Privileges: what is needed for what is wanted, against what is held.

use std::collections::BTreeMap;

use super::listed;
use crate::check::facts::{self, Facts};
use crate::check::report::Finding;
use crate::check::wanted::Wanted;
use crate::preflight::{self, Need};
use crate::seen::Seen;

const CHECK: &str = "privilege";

pub(super) fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let held = match &facts.permissions {
        Seen::Present(held) => held,
        Seen::Absent => return vec![Finding::unknown(CHECK, "all", "Proxmox does not tell them")],
        Seen::Unknown(why) => return vec![Finding::unknown(CHECK, "all", why)],
    };
    let needs = facts::needs(wanted, facts);
    let mut met: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for need in needs.iter().filter(|need| need.is_met(held)) {
        met.entry(need.path()).or_default().push(need.privilege);
    }
    let good = |(path, privileges): (&str, Vec<&str>)| {
        Finding::good(CHECK, path, format!("holds {}", listed(privileges)))
    };
    let mut findings: Vec<Finding> = met.into_iter().map(good).collect();
    findings.extend(preflight::missing(held, &needs).into_iter().map(|lack| {
        let remedy = remedy(&needs, &lack);
        let found = format!("{} is missing, needed to {}", lack.privilege, lack.needed_for);
        Finding::failed(CHECK, lack.path, found).remedy(remedy)
    }));
    findings
}

fn remedy(needs: &[Need], lack: &preflight::Lack) -> String {
    let (privilege, path) = (&lack.privilege, &lack.path);
    let somewhere = needs.iter().any(|need| {
        matches!(need.places.first(), Some(preflight::Place::Somewhere(_)))
            && need.path() == path
            && need.privilege == privilege
    });
    let at = if somewhere { format!("{path} or one path below it") } else { path.clone() };
    format!(
        "give the user, and with privilege separation the token too, a role with {privilege} on \
         {at} (docs/permissions.md)"
    )
}

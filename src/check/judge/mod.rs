//! What the facts come to: one finding for each thing that was looked at. Pure.

mod endpoint;
mod network;
mod numbers;
mod privileges;
mod storage;
mod template;

pub use endpoint::{not_reached, reached};

use super::facts::Facts;
use super::report::Finding;
use super::wanted::Wanted;

/// Everything about a Proxmox that answers.
pub fn judge(wanted: &Wanted, facts: &Facts) -> Vec<Finding> {
    let mut findings = endpoint::judge(wanted, facts);
    findings.extend(privileges::judge(wanted, facts));
    findings.extend(template::judge(wanted, facts));
    findings.extend(storage::judge(wanted, facts));
    findings.extend(network::judge(wanted, facts));
    findings.extend(numbers::judge(wanted, facts));
    findings
}

/// Sizes as people read them.
fn gib(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    if bytes >= GIB {
        format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB)
    } else {
        format!("{} MiB", bytes / MIB)
    }
}

fn listed<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;

//! What a process takes of the machine, as the kernel tells it.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Ticks a second of `/proc/<pid>/stat`: fixed by the kernel's interface.
const TICKS: u64 = 100;

/// Resident memory in KiB: now, and the most so far.
pub(crate) fn resident(pid: u32) -> Result<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("no such process")?;
    let field = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        number.with_context(|| format!("no {name}"))?.parse().context("not a number")
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// Time that the processors spent on it.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("no such process")?;
    let rest = text.rsplit_once(')').context("strange stat")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| -> Result<u64> {
        fields.get(at).context("strange stat")?.parse().context("not a number")
    };
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / TICKS))
}

//! The figures of one measurement, and how they are printed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use pve_fake::Journal;

/// Calls or writes by kind.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Least, middle and most.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    least: Duration,
    middle: Duration,
    most: Duration,
}

impl Spread {
    pub(crate) fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |index: usize| all.get(index).copied().unwrap_or_default();
        Self { least: at(0), middle: at(all.len() / 2), most: at(all.len().saturating_sub(1)) }
    }
}

/// Calls by method and path since `before`.
pub(crate) fn calls_since(now: &Journal, before: &Journal) -> Counts {
    let old = before.counts();
    let new = now.counts().iter().map(|(name, count)| {
        let since = count.saturating_sub(old.get(name).copied().unwrap_or(0));
        (name.clone(), since)
    });
    new.filter(|(_, count)| *count > 0).collect()
}

/// What one measurement gave.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    machines: usize,
    critical_path: Duration,
    /// Until the last object was made.
    pub(crate) made: Duration,
    /// Until the last machine was ready.
    pub(crate) ready: Duration,
    /// From the making of each to its readiness.
    pub(crate) each: Spread,
    pub(crate) calls: Counts,
    pub(crate) most_at_once: usize,
    pub(crate) writes: Counts,
    pub(crate) cpu: Duration,
    /// KiB.
    pub(crate) resident: u64,
    pub(crate) most_resident: u64,
    pub(crate) end_resident: u64,
    pub(crate) unseeded: Duration,
    pub(crate) unseed_calls: Counts,
    pub(crate) unseed_writes: Counts,
    pub(crate) idle: Duration,
    pub(crate) idle_calls: Counts,
    pub(crate) idle_writes: Counts,
    pub(crate) idle_cpu: Duration,
    pub(crate) restart_calls: Counts,
    pub(crate) restart_writes: Counts,
    pub(crate) restart_at_once: usize,
    pub(crate) noticed: Option<Duration>,
    pub(crate) deleted: Duration,
    pub(crate) deletion_path: Duration,
    pub(crate) delete_calls: Counts,
    pub(crate) delete_writes: Counts,
}

fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn ratio(count: u64, by: usize) -> f64 {
    count as f64 / by.max(1) as f64
}

fn mib(kib: u64) -> f64 {
    ratio(kib, 1024)
}

impl Figures {
    pub(crate) fn new(machines: usize, critical_path: Duration) -> Self {
        Self {
            machines,
            critical_path,
            made: Duration::ZERO,
            ready: Duration::ZERO,
            each: Spread::default(),
            calls: Counts::new(),
            most_at_once: 0,
            writes: Counts::new(),
            cpu: Duration::ZERO,
            resident: 0,
            most_resident: 0,
            end_resident: 0,
            unseeded: Duration::ZERO,
            unseed_calls: Counts::new(),
            unseed_writes: Counts::new(),
            idle: Duration::ZERO,
            idle_calls: Counts::new(),
            idle_writes: Counts::new(),
            idle_cpu: Duration::ZERO,
            restart_calls: Counts::new(),
            restart_writes: Counts::new(),
            restart_at_once: 0,
            noticed: None,
            deleted: Duration::ZERO,
            deletion_path: Duration::ZERO,
            delete_calls: Counts::new(),
            delete_writes: Counts::new(),
        }
    }

    /// Prints everything on standard output.
    pub(crate) fn print(&self) -> Result<()> {
        let mut lines = Vec::new();
        lines.push(format!("=== {} machines", self.machines));
        self.provisioning(&mut lines);
        self.rest(&mut lines);
        self.removal(&mut lines);
        let mut out = std::io::stdout().lock();
        for line in lines {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn provisioning(&self, lines: &mut Vec<String>) {
        let path = self.critical_path.as_secs_f64();
        let over = |time: Duration| (time.as_secs_f64() / path - 1.0) * 100.0;
        lines.push(format!(
            "ready      all after {:.1} s ({:+.0} % on {path:.1} s of the hypervisor's own work); \
             objects made within {:.1} s",
            self.ready.as_secs_f64(),
            over(self.ready),
            self.made.as_secs_f64()
        ));
        let Spread { least, middle, most } = self.each;
        lines.push(format!(
            "           each, from its making: {:.1} / {:.1} / {:.1} s (least, middle, most; \
             {:+.0} / {:+.0} / {:+.0} %)",
            least.as_secs_f64(),
            middle.as_secs_f64(),
            most.as_secs_f64(),
            over(least),
            over(middle),
            over(most)
        ));
        self.table(lines, "calls", "Proxmox calls a machine until ready", &self.calls);
        lines.push(format!("           at most {} at once", self.most_at_once));
        self.table(lines, "writes", "apiserver writes a machine until ready", &self.writes);
        lines.push(format!(
            "memory     {:.1} MiB resident when all are ready, {:.1} at most, {:.1} at the end",
            mib(self.resident),
            mib(self.most_resident),
            mib(self.end_resident)
        ));
        lines.push(format!(
            "processor  {:.3} s a machine until ready",
            self.cpu.as_secs_f64() / ratio(self.machines as u64, 1)
        ));
        lines.push(format!("seed       gone {:.1} s after joining", self.unseeded.as_secs_f64()));
        self.table(lines, "calls", "Proxmox calls a machine for that", &self.unseed_calls);
        self.table(lines, "writes", "apiserver writes a machine for that", &self.unseed_writes);
    }

    fn rest(&self, lines: &mut Vec<String>) {
        if self.idle.is_zero() {
            return;
        }
        let minutes = self.idle.as_secs_f64() / 60.0;
        lines.push(format!(
            "idle       {:.1} calls, {:.1} writes and {:.2} s of processor a minute",
            ratio(sum(&self.idle_calls), 1) / minutes,
            ratio(sum(&self.idle_writes), 1) / minutes,
            self.idle_cpu.as_secs_f64() / minutes
        ));
        detail(lines, &self.idle_calls, 1);
        detail(lines, &self.idle_writes, 1);
        lines.push(format!(
            "restart    {} calls and {} writes within 20 s, at most {} calls in a second",
            sum(&self.restart_calls),
            sum(&self.restart_writes),
            self.restart_at_once
        ));
        detail(lines, &self.restart_calls, 1);
        detail(lines, &self.restart_writes, 1);
        if let Some(noticed) = self.noticed {
            let seconds = noticed.as_secs_f64();
            lines.push(format!("loss       of a VM is noticed after {seconds:.1} s"));
        }
    }

    fn removal(&self, lines: &mut Vec<String>) {
        let (time, path) = (self.deleted.as_secs_f64(), self.deletion_path.as_secs_f64());
        lines.push(format!(
            "deletion   all after {time:.1} s ({:.2} times the {path:.1} s of stop and destroy)",
            time / path.max(0.001)
        ));
        self.table(lines, "calls", "Proxmox calls a machine for that", &self.delete_calls);
        self.table(lines, "writes", "apiserver writes a machine for that", &self.delete_writes);
    }

    fn table(&self, lines: &mut Vec<String>, title: &str, what: &str, counts: &Counts) {
        let all = ratio(sum(counts), self.machines);
        lines.push(format!("{title:<10} {all:.2} {what}"));
        detail(lines, counts, self.machines);
    }
}

fn detail(lines: &mut Vec<String>, counts: &Counts, by: usize) {
    let mut sorted: Vec<(&String, &u64)> = counts.iter().collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
    for (name, count) in sorted {
        lines.push(format!("             {:>8.2}  {name}", ratio(*count, by)));
    }
}

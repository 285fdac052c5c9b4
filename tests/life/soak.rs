//! Random machines and random trouble for a while, then quiet: everything that is wanted is up,
//! everything else is gone, and no rule was broken.
//!
//! `cargo xtask soak MINUTES SEED` sets how long and from which seed; the seed is printed.
//! `CAPMOX_SOAK_MACHINES=200` says how many machines there are at one time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::api::DeleteParams;
use pve_fake::{Action, Change, FaultRule, VmView};

use crate::lane::{Lane, quick, spec};
use crate::site::play;

/// Without `CAPMOX_SOAK_SECONDS`: what a run of all tests has room for.
const SHORT: u64 = 90;

/// Machines at one time, unless `CAPMOX_SOAK_MACHINES` says how many. With more, as many more come
/// and go together.
const MOST: usize = 12;

/// Of each storage and each node: room for hundreds of machines.
const DISK: u64 = 1 << 44;
const MEMORY: u64 = 1 << 40;

/// How long all may take to settle when the trouble is over.
const SETTLES: Duration = Duration::from_mins(4);

/// A node that lost a clone half-way leaves it locked, and people remove it.
const CUT_SHORT: Duration = Duration::from_secs(10);

/// SplitMix64: a seed repeats the same choices, though not the same interleaving.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides.max(1)
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        let count = u64::try_from(list.len()).unwrap();
        list[usize::try_from(self.roll(count)).unwrap()].clone()
    }
}

#[test]
fn machines_come_and_go_through_all_trouble_and_nothing_is_left() {
    let seconds = number("CAPMOX_SOAK_SECONDS").unwrap_or(SHORT);
    let seed = number("CAPMOX_SOAK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let most = number("CAPMOX_SOAK_MACHINES").and_then(|most| usize::try_from(most).ok());
    let most = most.unwrap_or(MOST);
    println!("soak: {seconds} s with {most} machines from seed {seed}");
    play(async {
        let mut config = quick();
        for storage in &mut config.seed.storages {
            storage.size = DISK;
        }
        for node in &mut config.seed.nodes {
            node.memory = MEMORY;
        }
        let lane = Lane::open("soak", config).await?;
        let mut soak =
            Soak { lane, dice: Dice(seed), most, made: 0, wanted: BTreeSet::new(), kills: 0 };
        let result = soak.run(Duration::from_secs(seconds)).await;
        println!("soak: {} machines, the process was killed {} times", soak.made, soak.kills);
        if result.is_err() {
            soak.lane.abandon();
        }
        result.with_context(|| format!("soak with seed {seed}"))
    });
}

#[expect(clippy::disallowed_methods, reason = "a test that is told how long to go on")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// When a line was written that begins with its time; those without it come first.
fn millis(line: &str) -> u64 {
    let time = line.split_whitespace().next().and_then(|time| time.parse::<Timestamp>().ok());
    time.and_then(|time| u64::try_from(time.as_millisecond()).ok()).unwrap_or_default()
}

struct Soak {
    lane: Lane,
    dice: Dice,
    /// Machines at one time.
    most: usize,
    made: usize,
    /// Machines that should be there.
    wanted: BTreeSet<String>,
    kills: usize,
}

impl Soak {
    async fn run(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let mut ticks = tokio::time::interval(Duration::from_millis(300));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while Instant::now() < end {
            ticks.tick().await;
            self.step().await?;
        }
        self.heal();
        self.settle("everything is up").await?;
        for name in std::mem::take(&mut self.wanted) {
            self.delete(&name).await?;
        }
        self.settle("everything is gone").await?;
        let vms = self.lane.fake.model().vms();
        let left: Vec<_> = vms.iter().filter(|vm| !vm.template).collect();
        let told: String = left.iter().map(|vm| self.history(vm)).collect();
        ensure!(left.is_empty(), "VMs are left: {left:?}\n{told}");
        let broken = self.lane.fake.check_no_leaks();
        ensure!(broken.is_empty(), "rules were broken: {broken:?}");
        Ok(())
    }

    async fn step(&mut self) -> Result<()> {
        match self.dice.roll(20) {
            0..=4 if self.wanted.len() < self.most => self.make().await?,
            5 | 6 => self.delete_some().await?,
            // Rolled: new ones in the place of old ones.
            7 if !self.wanted.is_empty() => {
                self.make().await?;
                self.delete_some().await?;
            }
            8 | 9 => self.kill().await?,
            10..=14 => self.fault(),
            15 => self.trouble(),
            _ => self.join().await?,
        }
        self.sweep_cut_short();
        Ok(())
    }

    /// How many come or go together.
    const fn together(&self) -> usize {
        self.most.div_ceil(MOST)
    }

    async fn make(&mut self) -> Result<()> {
        for _ in 0..self.together() {
            let name = format!("s-{}", self.made);
            self.made += 1;
            self.lane.site.make_machine(&name, spec()).await?;
            self.wanted.insert(name);
        }
        Ok(())
    }

    async fn delete_some(&mut self) -> Result<()> {
        for _ in 0..self.together() {
            let all: Vec<String> = self.wanted.iter().cloned().collect();
            if all.is_empty() {
                break;
            }
            let name = self.dice.pick(&all);
            self.delete(&name).await?;
        }
        Ok(())
    }

    async fn delete(&mut self, name: &str) -> Result<()> {
        self.wanted.remove(name);
        self.lane.site.machines().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// SIGKILL, and another process soon after.
    async fn kill(&mut self) -> Result<()> {
        self.kills += 1;
        self.lane.site.gate.kill();
        let pause = Duration::from_millis(self.dice.roll(800));
        tokio::time::sleep_until(tokio::time::Instant::now() + pause).await;
        self.lane.site.start_manager()
    }

    /// Nodes of machines that are up join.
    async fn join(&mut self) -> Result<()> {
        let found = self.lane.site.machines().list(&kube::api::ListParams::default()).await?;
        for machine in found.items {
            let ready = machine.status.as_ref().is_some_and(|status| status.ready);
            let deleted = machine.metadata.deletion_timestamp.is_some();
            if let Some(name) = machine.metadata.name.filter(|_| ready && !deleted) {
                self.lane.site.join(&name).await?;
            }
        }
        Ok(())
    }

    /// One of the next calls goes wrong.
    fn fault(&mut self) {
        let text = || "something went wrong".to_owned();
        let action = match self.dice.roll(9) {
            0 => Action::DropBefore,
            1 | 2 => Action::DropAfter,
            3 => Action::Reply { status: self.dice.pick(&[500, 503, 595, 596]), text: text() },
            4 => Action::ReplyAfter { status: self.dice.pick(&[500, 596]), text: text() },
            5 => Action::Delay { millis: self.dice.roll(2000) },
            6 => Action::FailTask { text: text(), with_effect: true },
            7 => Action::FailTask { text: text(), with_effect: false },
            _ => Action::Reply { status: 401, text: "no such user".to_owned() },
        };
        let method = self.dice.pick(&["", "GET", "POST", "POST", "PUT", "DELETE"]);
        let nth = 1 + self.dice.roll(6);
        self.lane.fake.faults().add(FaultRule::nth(nth, method, "/**", action));
    }

    /// Something happens to the cluster for a while.
    fn trouble(&mut self) {
        let node = self.dice.pick(&["pve2", "pve3"]).to_owned();
        let token = self.lane.fake.token().id.clone();
        let storage = self.dice.pick(&["shared", "local"]).to_owned();
        let millis = Some(200 + self.dice.roll(3000));
        self.calm();
        self.lane.fake.change(match self.dice.roll(6) {
            0 => Change::NodeOffline { node },
            1 => Change::NodeSilent { node, millis },
            2 => Change::QuorumLost { millis },
            3 => Change::TokenRevoked { token },
            4 => Change::StorageFull { storage, full: true },
            _ => Change::StorageDisabled { storage, disabled: true },
        });
    }

    /// Takes back what troubles the cluster.
    fn calm(&self) {
        let fake = &self.lane.fake;
        for node in ["pve1", "pve2", "pve3"] {
            fake.change(Change::NodeOnline { node: node.to_owned() });
        }
        fake.change(Change::QuorumBack);
        fake.change(Change::TokenRestored { token: fake.token().id.clone() });
        for storage in ["shared", "local"] {
            let storage = storage.to_owned();
            fake.change(Change::StorageFull { storage: storage.clone(), full: false });
            fake.change(Change::StorageDisabled { storage, disabled: false });
        }
    }

    fn heal(&self) {
        self.lane.fake.faults().clear();
        self.calm();
    }

    /// What a condition asks of people: clones that their node cut short are removed.
    fn sweep_cut_short(&self) {
        let mut model = self.lane.fake.model();
        let cloning =
            model.tasks().iter().any(|task| task.kind == "qmclone" && task.exit.is_none());
        let vms = model.vms();
        let stuck = vms.iter().filter(|vm| !cloning && vm.lock.as_deref() == Some("clone"));
        for vm in stuck {
            model.change(Change::VmGone { vmid: vm.vmid });
        }
    }

    async fn settle(&mut self, what: &str) -> Result<()> {
        let deadline = Instant::now() + SETTLES;
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        let mut swept = Instant::now();
        loop {
            ticks.tick().await;
            self.join().await?;
            if swept.elapsed() > CUT_SHORT {
                swept = Instant::now();
                self.sweep_cut_short();
            }
            let open = self.unsettled().await?;
            if open.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let log = self.lane.site.gate.log_tail(25);
                bail!("not in time: {what}; {open:#?}\n{log}");
            }
        }
    }

    /// What was asked for a VM, and what all managers said of its machine.
    fn history(&self, vm: &VmView) -> String {
        let (number, path) = (vm.vmid.to_string(), format!("/qemu/{}/", vm.vmid));
        let journal = self.lane.fake.journal();
        let calls = journal.entries().filter(|entry| {
            let concerns = entry.params.get("newid").or(entry.params.get("vmid")) == Some(&number);
            concerns || format!("{}/", entry.path).contains(&path)
        });
        let mut told: Vec<(u64, String)> =
            calls.map(|entry| (entry.at, serde_json::to_string(entry).unwrap())).collect();
        let name = format!("\"{}\"", vm.name.as_deref().unwrap_or("a VM without a name"));
        let folder =
            self.lane.site.gate.manager().and_then(|(log, ..)| Some(log.parent()?.to_owned()));
        let files = folder.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
        for file in files.flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            let lines = text.lines().filter(|line| line.contains(&name));
            told.extend(lines.map(|line| (millis(line), line.to_owned())));
        }
        told.sort();
        told.into_iter().map(|(at, line)| format!("{at} {line}")).collect::<Vec<_>>().join("\n")
    }

    /// Machines that are not as they should be, each with what it says.
    async fn unsettled(&self) -> Result<BTreeMap<String, String>> {
        let found = self.lane.site.machines().list(&kube::api::ListParams::default()).await?;
        let mut open: BTreeMap<String, String> =
            self.wanted.iter().map(|name| (name.clone(), "is not there".to_owned())).collect();
        for machine in found.items {
            let name = machine.metadata.name.clone().unwrap_or_default();
            let status = machine.status.clone().unwrap_or_default();
            let wanted = self.wanted.contains(&name);
            let runs = self.lane.vm(&name).is_ok_and(|vm| vm.running);
            if wanted && status.ready && status.bootstrap_iso.is_none() && runs {
                open.remove(&name);
            } else {
                let says = serde_json::to_string(&status.conditions)?;
                open.insert(name, format!("wanted: {wanted}, VM runs: {runs}, {says}"));
            }
        }
        Ok(open)
    }
}

//! One measurement: a fresh manager, a fresh simulator, so many machines from nothing to their end.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use capmox::api::ProxmoxMachine;
use pve_fake::{Change, Config, Fake, Journal, NodeSeed, Seed, Timings};
use testbed::say::say;
use testbed::{ManagerProcess, World};

use super::Arguments;
use super::apiserver::Writes;
use super::figures::{Figures, Spread, calls_since};
use super::process::{cpu, resident};
use super::site::Site;

/// How long anything may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_mins(20);

/// How long things take; what is not named takes no time but its call.
fn timings(arguments: &Arguments) -> Timings {
    let ms = Duration::from_millis;
    Timings {
        call: ms(5),
        clone_full: ms(3000),
        start: ms(1500),
        agent: ms(4000),
        cloud_init: ms(6000),
        exec: ms(50),
        stop: ms(1000),
        destroy: ms(1000),
        agent_ping: ms(arguments.silent_agent),
        allocate: Duration::ZERO,
        config: Duration::ZERO,
        resize: Duration::ZERO,
        upload: Duration::ZERO,
        delete_volume: Duration::ZERO,
        ..Timings::default()
    }
}

/// The hypervisor's own work for one machine that nobody waits for in between.
fn critical_path(timings: &Timings) -> Duration {
    timings.clone_full + timings.start + timings.agent + timings.cloud_init
}

fn simulator(arguments: &Arguments) -> Config {
    let mut seed = Seed::three_nodes();
    for node in ["pve1", "pve2", "pve3"] {
        seed = seed.with_node(NodeSeed::new(node).with_memory(8 << 40));
    }
    for storage in &mut seed.storages {
        storage.size = 1 << 50;
    }
    Config { timings: timings(arguments), ..Config::default() }.with_seed(seed)
}

struct Stage<'a> {
    world: &'a World,
    program: &'a Path,
    fake: Fake,
    site: Site,
    flags: Vec<String>,
}

impl Stage<'_> {
    async fn start_manager(&self) -> Result<ManagerProcess> {
        let (url, token) = (self.fake.url(), self.fake.token());
        let env = [
            ("PROXMOX_URL", url.as_str()),
            ("PROXMOX_TOKEN", token.id.as_str()),
            ("PROXMOX_SECRET", token.secret.as_str()),
        ];
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let mut manager = self.world.start_manager(self.program, &env, &flags)?;
        manager.wait_ready(Duration::from_secs(30)).await?;
        Ok(manager)
    }
}

fn is_ready(machine: Option<&ProxmoxMachine>) -> bool {
    machine.and_then(|machine| machine.status.as_ref()).is_some_and(|status| status.ready)
}

fn is_unseeded(machine: Option<&ProxmoxMachine>) -> bool {
    let status = machine.and_then(|machine| machine.status.as_ref());
    status.is_some_and(|status| status.bootstrap_iso.is_none())
}

fn is_lost(machine: Option<&ProxmoxMachine>) -> bool {
    let status = machine.and_then(|machine| machine.status.as_ref());
    status.is_some_and(|status| status.vm_status.as_deref() == Some("notfound"))
}

/// Measures with so many machines.
pub(crate) async fn measure(
    world: &World,
    program: &Path,
    machines: usize,
    arguments: &Arguments,
) -> Result<Figures> {
    say(format!("{machines} machines"));
    let fake = Fake::start(simulator(arguments)).await?;
    let site = Site::make(world, machines).await?;
    let mut flags = vec![format!("--namespace={}", site.namespace)];
    flags.extend(arguments.flags.split_whitespace().map(str::to_owned));
    let stage = Stage { world, program, fake, site, flags };
    let mut manager = stage.start_manager().await?;
    let outcome = play(&stage, &mut manager, arguments).await;
    match outcome {
        Ok(figures) => {
            manager.stop().await?;
            Ok(figures)
        }
        Err(error) => {
            let tail = manager.log_tail(20);
            // Its own complaints would hide what went wrong before.
            std::mem::forget(stage.fake);
            Err(error.context(tail))
        }
    }
}

async fn play(
    stage: &Stage<'_>,
    manager: &mut ManagerProcess,
    arguments: &Arguments,
) -> Result<Figures> {
    let (site, fake) = (&stage.site, &stage.fake);
    site.prepare(Duration::from_mins(2)).await?;
    // A watch of a kind that has just come may be refused for a second; the manager is young too.
    settle().await;
    let timings = timings(arguments);
    let mut figures = Figures::new(site.len(), critical_path(&timings));
    let all = site.len();

    let (writes, journal) = (Writes::read(&site.client).await?, fake.journal());
    let busy = cpu(manager.id())?;
    let began = Instant::now();
    let (made, ready) =
        tokio::try_join!(site.start(began), site.until("Ready", (began, PATIENCE), all, is_ready))?;
    figures.made = made.values().max().copied().unwrap_or_default();
    figures.ready = ready.values().max().copied().unwrap_or_default();
    let each = ready.iter().map(|(name, at)| at.saturating_sub(made[name]));
    figures.each = Spread::of(each.collect());
    figures.calls = calls_since(&fake.journal(), &journal);
    figures.most_at_once = fake.journal().max_in_flight();
    settle().await;
    let count = u64::try_from(all)?;
    let driver = [("POST proxmoxmachines", count)];
    figures.writes = Writes::read(&site.client).await?.since(&writes, &driver);
    figures.cpu = cpu(manager.id())?.saturating_sub(busy);
    (figures.resident, figures.most_resident) = resident(manager.id())?;
    say(format!("ready after {:.1} s; joining", figures.ready.as_secs_f64()));

    let (writes, journal) = (Writes::read(&site.client).await?, fake.journal());
    let began = Instant::now();
    let (joined, ()) = tokio::try_join!(
        site.until("the seed's end", (began, PATIENCE), all, is_unseeded),
        site.join()
    )?;
    figures.unseeded = joined.values().max().copied().unwrap_or_default();
    figures.unseed_calls = calls_since(&fake.journal(), &journal);
    settle().await;
    let driver = [("PATCH machines/status", count)];
    figures.unseed_writes = Writes::read(&site.client).await?.since(&writes, &driver);

    let lost = match arguments.idle {
        0 => None,
        _ => Some(idle(stage, manager, &mut figures, arguments).await?),
    };
    delete(stage, manager, &mut figures, (&timings, lost.as_deref())).await?;
    site.clear(Duration::from_mins(1)).await?;
    Ok(figures)
}

/// Until what is not waited for, such as events, is done too.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(3)).await;
}

/// What goes on while nothing happens, and when a VM is lost; gives the name of its machine.
async fn idle(
    stage: &Stage<'_>,
    manager: &mut ManagerProcess,
    figures: &mut Figures,
    arguments: &Arguments,
) -> Result<String> {
    let (site, fake) = (&stage.site, &stage.fake);
    say("idle");
    // What the list told of before the machines joined is made good by then.
    tokio::time::sleep(Duration::from_secs(40)).await;
    let (writes, journal) = (Writes::read(&site.client).await?, fake.journal());
    let busy = cpu(manager.id())?;
    tokio::time::sleep(arguments.idle()).await;
    figures.idle = arguments.idle();
    figures.idle_calls = calls_since(&fake.journal(), &journal);
    figures.idle_writes = Writes::read(&site.client).await?.since(&writes, &[]);
    figures.idle_cpu = cpu(manager.id())?.saturating_sub(busy);

    say("starting the manager again");
    manager.stop().await?;
    let (writes, journal) = (Writes::read(&site.client).await?, fake.journal());
    *manager = stage.start_manager().await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    figures.restart_calls = calls_since(&fake.journal(), &journal);
    figures.restart_writes = Writes::read(&site.client).await?.since(&writes, &[]);
    figures.restart_at_once = peak(&fake.journal(), &journal);

    say("taking a VM away");
    let mut vms = fake.model().vms();
    vms.retain(|vm| vm.running);
    let vmid = vms.first().context("no VM runs")?.vmid;
    let began = Instant::now();
    fake.change(Change::VmGone { vmid });
    let lost = site.until("the loss to be noticed", (began, PATIENCE), 1, is_lost).await?;
    let (name, noticed) = lost.into_iter().next().context("no machine lost its VM")?;
    figures.noticed = Some(noticed);
    Ok(name)
}

/// The most calls in one second.
fn peak(now: &Journal, before: &Journal) -> usize {
    let mut times: Vec<u64> =
        now.entries().filter(|entry| entry.seq > before.total()).map(|entry| entry.at).collect();
    times.sort_unstable();
    let within = |at: &u64| times.iter().filter(|other| (*at..at + 1000).contains(other)).count();
    times.iter().map(within).max().unwrap_or(0)
}

async fn delete(
    stage: &Stage<'_>,
    manager: &ManagerProcess,
    figures: &mut Figures,
    (timings, lost): (&Timings, Option<&str>),
) -> Result<()> {
    let (site, fake) = (&stage.site, &stage.fake);
    say("deleting");
    let (writes, journal) = (Writes::read(&site.client).await?, fake.journal());
    let began = Instant::now();
    let (gone, ()) = tokio::try_join!(
        site.until("the machines' end", (began, PATIENCE), site.len(), |seen| seen.is_none()),
        site.delete()
    )?;
    // That a VM is gone is believed at the second look only, which is no part of stop and destroy.
    let others = gone.iter().filter(|(name, _)| Some(name.as_str()) != lost).map(|(_, at)| *at);
    figures.deleted = others.max().or(gone.values().max().copied()).unwrap_or_default();
    figures.deletion_path = timings.stop + timings.destroy;
    figures.delete_calls = calls_since(&fake.journal(), &journal);
    settle().await;
    let driver = [("DELETE proxmoxmachines", u64::try_from(site.len())?)];
    figures.delete_writes = Writes::read(&site.client).await?.since(&writes, &driver);
    figures.end_resident = resident(manager.id())?.0;
    Ok(())
}

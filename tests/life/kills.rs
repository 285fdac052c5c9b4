//! SIGKILL at every kind of call that a life makes, to Proxmox and to the API server: each kind is
//! recorded from a life that nobody disturbs, and then is where another life's manager dies.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use pve_fake::Config;

use crate::gate::{Moment, Point, Trap};
use crate::lane::{Lane, quick, slow};
use crate::site::play;

/// Lives that go on at the same time. Most of a life is waiting for Proxmox.
const LANES: usize = 8;

/// Lives that try to come to a call. How status is cut into writes depends on which of two things
/// comes first, so a write to the API server may be missing from a life.
const TRIES: usize = 2;

/// Writes to the API server that no life may come to, of all that were recorded.
const MISSED: usize = 6;

/// What is written when a machine has become ready.
const READY: &str = "status ready,vmStatus";

/// What every life does, so that the list of calls cannot shrink unseen: how a call's name begins,
/// and what is in it.
const MUST: &[(&str, &str)] = &[
    ("POST /nodes/*/qemu/*/clone", ""),
    ("PUT /nodes/*/qemu/*/resize", ""),
    ("POST /nodes/*/storage/*/upload", ""),
    ("POST /nodes/*/qemu/*/config ", "cores,delete,ide0,memory,net0,sockets,tags"),
    ("POST /nodes/*/qemu/*/status/start", ""),
    ("POST /nodes/*/qemu/*/config ide0,tags", ""),
    ("DELETE /nodes/*/storage/*/content/*", ""),
    ("POST /nodes/*/qemu/*/status/stop", ""),
    ("DELETE /nodes/*/qemu/*", ""),
    ("GET /cluster/tasks", ""),
    ("GET /cluster/resources", ""),
    ("PATCH proxmoxmachines finalizers", ""),
    ("PATCH proxmoxmachines ", "virtualMachineID"),
    ("PATCH proxmoxmachines providerID", ""),
    ("PATCH proxmoxmachines/status ", "templateRef"),
    ("PATCH proxmoxmachines/status ", "taskRef,vmStatus"),
    ("PATCH proxmoxmachines/status ", "bootstrapISO"),
    ("PATCH proxmoxmachines/status ", "bootstrapDataProvided"),
    ("PATCH proxmoxmachines/", READY),
    ("POST ipaddressclaims", ""),
    ("DELETE ipaddressclaims", ""),
];

#[test]
fn a_machine_survives_the_manager_s_death_at_every_kind_of_call() {
    play(async {
        let deaths = points(&record().await?, &quick(), After::GoesOn)?;
        die(deaths).await
    });
}

#[test]
fn nothing_is_left_of_a_machine_that_is_deleted_after_the_manager_s_death() {
    play(async {
        let mut calls = record().await?;
        let ready = calls.iter().position(|call| call.contains(READY)).context("never ready")?;
        calls.truncate(ready + 1);
        calls.retain(|call| !call.starts_with("GET "));
        // What comes to be when nobody knows of the machine any more, nobody can take back.
        let mut deaths = points(&calls, &slow(), After::IsDeleted)?;
        deaths.retain(|death| death.point.moment != Moment::Late);
        die(deaths).await
    });
}

#[test]
fn a_machine_gets_on_though_no_manager_lives_longer_than_to_its_next_kind_of_write() {
    play(async {
        try_join_all([Moment::Lost, Moment::Done].map(|moment| async move {
            let lane = Lane::open("each", quick()).await?;
            lane.site.gate.arm(Some(Trap::each(moment)));
            let start = Instant::now();
            lane.live("w-1").await?;
            let (_, deaths) = lane.site.gate.disarm();
            println!("{deaths} managers of one machine in {:?}", start.elapsed());
            ensure!(deaths > 20, "only {deaths} managers died");
            anyhow::Ok(())
        }))
        .await?;
        Ok(())
    });
}

async fn die(deaths: VecDeque<Death>) -> Result<()> {
    let (number, start) = (deaths.len(), Instant::now());
    let deaths = Mutex::new(deaths);
    let lanes = (0..LANES).map(|_| run_lane(&deaths));
    let ends: Vec<End> = join_all(lanes).await.into_iter().flatten().collect();
    println!("{number} deaths in {:?}", start.elapsed());
    let (mut missed, mut wrong) = (0, Vec::new());
    for end in ends {
        match end {
            End::Good => {}
            End::Missed => missed += 1,
            End::Wrong(text) => wrong.push(text),
        }
    }
    ensure!(wrong.is_empty(), "{} of {number} failed:\n{}", wrong.len(), wrong.join("\n\n"));
    ensure!(missed <= MISSED, "{missed} of {number} calls were not made");
    Ok(())
}

/// The calls of a life that nobody disturbs.
pub(crate) async fn record() -> Result<Vec<String>> {
    let lane = Lane::open("recorded", quick()).await?;
    lane.site.gate.arm(None);
    lane.live("recorded").await?;
    let (calls, _) = lane.site.gate.disarm();
    for (start, part) in MUST {
        let made = calls.iter().any(|call| call.starts_with(start) && call.contains(part));
        ensure!(made, "a life does not {start}{part} any more; it makes these calls: {calls:#?}");
    }
    Ok(calls)
}

/// What becomes of a machine whose manager died.
#[derive(Clone, Copy, Debug)]
enum After {
    GoesOn,
    IsDeleted,
}

/// The end of a manager within a life.
struct Death {
    point: Point,
    after: After,
    config: Config,
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, the machine {:?}", self.point, self.after)
    }
}

fn points(calls: &[String], config: &Config, after: After) -> Result<VecDeque<Death>> {
    let mut deaths = VecDeque::new();
    for call in calls {
        let (method, path) = call.split_once(' ').context("a call without a method")?;
        // A read has no effect that could come late, and the API server answers in time or not.
        let moments: &[Moment] = if path.starts_with('/') && method != "GET" {
            &[Moment::Lost, Moment::Late, Moment::Done]
        } else {
            &[Moment::Lost, Moment::Done]
        };
        deaths.extend(moments.iter().map(|&moment| {
            let point = Point { call: call.clone(), moment };
            Death { point, after, config: config.clone() }
        }));
    }
    Ok(deaths)
}

/// What a life with a death in it came to.
enum End {
    Good,
    /// The call was not made.
    Missed,
    Wrong(String),
}

/// Lives one life after the other; a site where one went wrong is left for a new one.
async fn run_lane(deaths: &Mutex<VecDeque<Death>>) -> Vec<End> {
    let next = || deaths.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut ends = Vec::new();
    let mut lane = None;
    while let Some(death) = next() {
        let open = match lane.take() {
            Some(open) => open,
            None => match Lane::open("kill", death.config.clone()).await {
                Ok(opened) => opened,
                Err(error) => {
                    ends.push(End::Wrong(format!("{death}: {error:#}")));
                    continue;
                }
            },
        };
        match die_at(&open, &format!("m{}", ends.len()), &death).await {
            Ok(end) => {
                ends.push(end);
                lane = Some(open);
            }
            Err(error) => {
                let broken = open.fake.take_violations();
                ends.push(End::Wrong(format!("{death}: {error:#}\n{broken:?}")));
                open.abandon();
            }
        }
    }
    ends
}

async fn die_at(lane: &Lane, name: &str, death: &Death) -> Result<End> {
    for number in 0..TRIES {
        if number > 0 {
            // What many ask for is kept for seconds, for the next life too. A new manager has nothing.
            lane.site.gate.kill();
        }
        lane.site.gate.arm(Some(Trap::At(death.point.clone())));
        let (name, start) = (format!("{name}-{number}"), Instant::now());
        let lived = match death.after {
            After::GoesOn => lane.live(&name).await,
            After::IsDeleted => lane.die_young(&name).await,
        };
        let (_, deaths) = lane.site.gate.disarm();
        lived?;
        if deaths > 0 {
            println!("{:>6.2?} {death}", start.elapsed());
            return Ok(End::Good);
        }
    }
    ensure!(!death.point.is_at_proxmox(), "none of {TRIES} lives came there");
    println!("not made: {death}");
    Ok(End::Missed)
}

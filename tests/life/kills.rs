//! SIGKILL at every kind of call that a life makes, to Proxmox and to the API server: each kind is
//! recorded from a life that nobody disturbs, and then is where another life's manager dies.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;

use crate::gate::{Moment, Point};
use crate::lane::{Lane, quick};
use crate::site::play;

/// Lives that go on at the same time. Most of a life is waiting for Proxmox.
const LANES: usize = 8;

/// Lives that try to come to a call. How status is cut into writes depends on which of two things
/// comes first, so a write to the API server may be missing from a life.
const TRIES: usize = 2;

/// Writes to the API server that no life may come to, of all that were recorded.
const MISSED: usize = 6;

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
    ("GET /nodes/*/tasks/qmclone/status", ""),
    ("GET /cluster/resources", ""),
    ("PATCH proxmoxmachines finalizers", ""),
    ("PATCH proxmoxmachines virtualMachineID", ""),
    ("PATCH proxmoxmachines providerID", ""),
    ("PATCH proxmoxmachines/status ", "templateRef"),
    ("PATCH proxmoxmachines/status ", "taskRef #3"),
    ("PATCH proxmoxmachines/status ", "bootstrapISO"),
    ("PATCH proxmoxmachines/status ", "bootstrapDataProvided"),
    ("PATCH proxmoxmachines/status ", "ready,-taskRef"),
    ("POST ipaddressclaims", ""),
    ("DELETE ipaddressclaims", ""),
];

#[test]
fn a_machine_survives_the_manager_s_death_at_every_kind_of_call() {
    play(async {
        let points = Mutex::new(points(&record().await?)?);
        let number = points.lock().unwrap_or_else(PoisonError::into_inner).len();
        let start = Instant::now();
        let lanes = (0..LANES).map(|_| run_lane(&points));
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
    });
}

/// The calls of a life that nobody disturbs.
async fn record() -> Result<Vec<String>> {
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

fn points(calls: &[String]) -> Result<VecDeque<Point>> {
    let mut points = VecDeque::new();
    for call in calls {
        let (method, path) = call.split_once(' ').context("a call without a method")?;
        // A read has no effect that could come late, and the API server answers in time or not.
        let moments: &[Moment] = if path.starts_with('/') && method != "GET" {
            &[Moment::Lost, Moment::Late, Moment::Done]
        } else {
            &[Moment::Lost, Moment::Done]
        };
        points.extend(moments.iter().map(|&moment| Point { call: call.clone(), moment }));
    }
    Ok(points)
}

/// What a life with a death in it came to.
enum End {
    Good,
    /// The call was not made.
    Missed,
    Wrong(String),
}

/// Lives one life after the other; a site where one went wrong is left for a new one.
async fn run_lane(points: &Mutex<VecDeque<Point>>) -> Vec<End> {
    let next = || points.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let mut ends = Vec::new();
    let mut lane = None;
    while let Some(point) = next() {
        let open = match lane.take() {
            Some(open) => open,
            None => match Lane::open("kill", quick()).await {
                Ok(opened) => opened,
                Err(error) => {
                    ends.push(End::Wrong(format!("{point}: {error:#}")));
                    continue;
                }
            },
        };
        match die_at(&open, &format!("m{}", ends.len()), &point).await {
            Ok(end) => {
                ends.push(end);
                lane = Some(open);
            }
            Err(error) => {
                let broken = open.fake.take_violations();
                ends.push(End::Wrong(format!("{point}: {error:#}\n{broken:?}")));
                open.abandon();
            }
        }
    }
    ends
}

async fn die_at(lane: &Lane, name: &str, point: &Point) -> Result<End> {
    for number in 0..TRIES {
        lane.site.gate.arm(Some(point.clone()));
        let start = Instant::now();
        let lived = lane.live(&format!("{name}-{number}")).await;
        let (_, set) = lane.site.gate.disarm();
        lived?;
        if !set {
            println!("{:>6.2?} {point}", start.elapsed());
            return Ok(End::Good);
        }
    }
    ensure!(!point.is_at_proxmox(), "none of {TRIES} lives came there");
    println!("not made: {point}");
    Ok(End::Missed)
}

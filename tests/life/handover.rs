//! A leader stands still in the midst of each call that changes something in Proxmox, as on a host that
//! stalls, and wakes when another one leads. It changes nothing more, and nothing comes to be twice.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use testbed::ManagerProcess;
use tokio::time::{Instant, interval};

use crate::gate::{Moment, Point, Trap};
use crate::kills;
use crate::lane::{Lane, quick};
use crate::site::{PATIENCE, play};

const LEASE: &str = "controller-leader-elect-capmox";

/// Lives at the same time. Most of each is waiting for a lease.
const LANES: usize = 8;

const LOOK: Duration = Duration::from_millis(50);

#[test]
fn a_leader_that_wakes_in_the_midst_of_a_call_changes_nothing_more() {
    play(async {
        let calls = kills::record().await?.into_iter();
        let writes = calls.filter(|call| call.contains(" /") && !call.starts_with("GET "));
        let points: VecDeque<Point> = writes
            .flat_map(|call| {
                [Moment::Late, Moment::Done].map(|moment| Point { call: call.clone(), moment })
            })
            .collect();
        ensure!(points.len() > 14, "only {} points", points.len());
        let points = Mutex::new(points);
        try_join_all((0..LANES).map(|_| lives(&points))).await?;
        Ok(())
    });
}

async fn lives(points: &Mutex<VecDeque<Point>>) -> Result<()> {
    let next = || points.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let Some(mut point) = next() else { return Ok(()) };
    let lane = Lane::with_lease("handover", quick()).await?;
    for number in 0.. {
        let (name, start) = (format!("m{number}"), Instant::now());
        lane.site.gate.arm(Some(Trap::At(point.clone())));
        let lived = tokio::select! {
            lived = lane.whole_life(&name) => lived,
            ended = succeed(&lane) => ended.map(|never| match never {}),
        };
        let (_, stalls) = lane.site.gate.disarm();
        if let Err(error) = lived {
            let broken = lane.fake.take_violations();
            lane.abandon();
            return Err(error).context(format!("{point}, {broken:?}"));
        }
        ensure!(stalls == 1, "{point}: not made");
        println!("{:>6.2?} stalled {point}", start.elapsed());
        let Some(another) = next() else { break };
        point = another;
    }
    Ok(())
}

/// Has the next manager take over from each that stands still, and wakes that one then.
async fn succeed(lane: &Lane) -> Result<Infallible> {
    loop {
        lane.site.gate.killed().await;
        let before = holder(lane).await?;
        lane.site.start_manager()?;
        let mut ticks = interval(LOOK);
        while holder(lane).await? == before {
            ticks.tick().await;
        }
        for mut manager in lane.site.gate.take_frozen() {
            manager.thaw();
            ends(&mut manager).await?;
        }
    }
}

async fn holder(lane: &Lane) -> Result<Option<String>> {
    let leases = Api::<Lease>::namespaced(lane.site.client.clone(), &lane.site.namespace);
    Ok(leases.get(LEASE).await?.spec.and_then(|spec| spec.holder_identity))
}

/// It ends by itself once it notices.
async fn ends(manager: &mut ManagerProcess) -> Result<()> {
    let (deadline, mut ticks) = (Instant::now() + PATIENCE, interval(LOOK));
    while Instant::now() < deadline {
        ticks.tick().await;
        if let Some(status) = manager.exit_status() {
            ensure!(status.code() == Some(1), "ended with {status}: {}", manager.log_tail(5));
            return Ok(());
        }
    }
    bail!("the one that woke does not end: {}", manager.log_tail(5))
}

//! The whole controller against a world in memory, in time that need not pass: the real passes, the
//! real clients and the real bookkeeping of endpoints, with Proxmox ([`pve_fake::Model`]), the API
//! server, the IPAM provider and Cluster API played by values. Each seed is a run of its own with
//! its own machines and its own mishaps, and repeats exactly.
//!
//! `CAPMOX_SEEDS=2000` sets how many seeds are tried, `CAPMOX_SEED=17` the first one; with
//! `CAPMOX_TRACE=1` a single seed prints what happened.
#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod dialect;
mod dice;
mod hands;
mod judge;
mod kubernetes;
mod line;
mod plan;
mod process;
mod tests;
mod wordings;
mod world;

use std::time::Duration;

use plan::Plan;
use tokio::time::Instant;
use world::World;

/// After the last mishap everything settles within this time.
const HORIZON: u64 = 30 * 60_000;

/// What was asked for before all was gone takes effect within this time.
const AFTERMATH: u64 = 60_000;

/// How a run ended.
#[derive(Debug)]
struct Run {
    failure: Option<String>,
    trace: Vec<String>,
    calls: u64,
    millis: u64,
}

/// Carries a plan out.
fn run(plan: &Plan) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let world = World::new(plan.clone());
        world.found();
        let failure = course(&world).await;
        let calls = world.lock().calls;
        let trace = std::mem::take(&mut world.lock().trace);
        let millis = world.millis();
        world.slot.set(None);
        Run { failure, trace, calls, millis }
    })
}

async fn course(world: &std::sync::Arc<World>) -> Option<String> {
    let mut all_over = None;
    // Wanted machines come up, or go if they are not wanted any more.
    loop {
        if let Some(why) = step(world).await {
            return Some(why);
        }
        let quiet = {
            let state = world.lock();
            let to_come = state.events.iter().any(|event| matches!(event.at, plan::At::Millis(_)));
            state.ends.is_empty() && !to_come
        };
        if !quiet {
            continue;
        }
        let since = *all_over.get_or_insert(world.millis());
        match world.unsettled() {
            None => break,
            Some(why) if world.millis() - since > HORIZON => return Some(why),
            Some(_) => {}
        }
    }
    world.farewell();
    let since = world.millis();
    let mut gone = None;
    loop {
        if let Some(why) = step(world).await {
            return Some(why);
        }
        match (world.leftovers(), gone) {
            (None, Some(at)) if world.millis() - at > AFTERMATH => return None,
            (None, _) => {
                gone.get_or_insert(world.millis());
            }
            (Some(why), Some(_)) => return Some(format!("after all was gone: {why}")),
            (Some(why), None) if world.millis() - since > HORIZON => return Some(why),
            (Some(_), None) => {}
        }
    }
}

/// A second passes, or less when little time went by.
async fn step(world: &std::sync::Arc<World>) -> Option<String> {
    world.wishes();
    world.tick();
    tokio::time::sleep_until(Instant::now() + Duration::from_millis(world::STEP)).await;
    world.lock().failure.clone()
}

/// A plan that fails with as few mishaps as can be.
fn minimise(plan: &Plan) -> Plan {
    // Another failure than the one at hand is not what is looked for.
    let kind = |plan: &Plan| run(plan).failure.map(|why| plain(&why));
    let wanted = kind(plan);
    let mut least = plan.clone();
    let mut index = 0;
    while index < least.events.len() {
        let mut fewer = least.clone();
        fewer.events.remove(index);
        if kind(&fewer) == wanted {
            least = fewer;
        } else {
            index += 1;
        }
    }
    for index in 0..least.machines.len() {
        let mut plainer = least.clone();
        plainer.machines[index].deleted = None;
        if kind(&plainer) == wanted {
            least = plainer;
        }
    }
    least
}

/// The beginning of a failure without names and numbers.
fn plain(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit()).take(30).collect()
}

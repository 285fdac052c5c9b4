//! `make demo`: from nothing to a finished cluster and back, on the real control plane, with the
//! simulated hypervisor and the simulated guest.

mod leftovers;
mod snapshot;
mod stage;
mod view;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::say;

use snapshot::Snapshot;
use stage::Stage;
use view::View;

/// Name of the demo's cluster.
const CLUSTER: &str = "demo";

/// How long a stretch of the demo may take on a slow machine before it counts as failed.
const DEADLINE: Duration = Duration::from_mins(6);

/// Between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(400);

/// Runs the demo.
///
/// # Errors
/// If the cluster does not come up, does not scale, or leaves something behind.
pub(crate) fn run(keep: bool) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(demo(keep))
}

async fn demo(keep: bool) -> Result<()> {
    let start = Instant::now();
    let mut stage = Stage::start().await?;
    let before = leftovers::inventory(&stage);
    let mut view = View::new();

    view.say("applying what clusterctl rendered from templates/cluster-template.yaml");
    stage.apply_cluster(1, 3).await?;
    follow(&mut stage, &mut view, "four machines Running", |now| now.is_settled(1, 3)).await?;
    view.say(&format!("the cluster is up after {}", say::duration(start.elapsed())));
    stage.tell_how_to_look_around(&mut view)?;
    if keep {
        view.say("staying up; Ctrl-C ends everything");
        tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")?;
        return Ok(());
    }
    for workers in [5, 2] {
        view.say(&format!("scaling to {workers} workers"));
        scale(&stage, workers).await?;
        let goal = format!("{workers} workers Running");
        follow(&mut stage, &mut view, &goal, |now| now.is_settled(1, workers)).await?;
    }
    view.say("deleting the cluster");
    let clusters = Api::<capmox::api::capi::Cluster>::namespaced(stage.client(), stage.namespace());
    clusters.delete(CLUSTER, &DeleteParams::foreground()).await.context("cannot delete")?;
    follow(&mut stage, &mut view, "the cluster's end", Snapshot::is_gone).await?;
    leftovers::check(&stage, &before, &mut view).await?;
    view.say(&format!("done after {}", say::duration(start.elapsed())));
    stage.stop().await
}

async fn scale(stage: &Stage, workers: usize) -> Result<()> {
    let api = testbed::apply::find(
        &stage.client(),
        "cluster.x-k8s.io/v1beta1",
        "MachineDeployment",
        stage.namespace(),
    )
    .await?;
    let patch = json!({ "spec": { "replicas": workers } });
    let name = format!("{CLUSTER}-workers");
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .context("cannot scale the workers")?;
    Ok(())
}

/// Shows the cluster until the goal is reached.
async fn follow(
    stage: &mut Stage,
    view: &mut View,
    what: &str,
    goal: impl Fn(&Snapshot) -> bool,
) -> Result<()> {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Snapshot::take(stage).await?;
        view.show(&now);
        if goal(&now) {
            view.settle();
            return Ok(());
        }
        stage.check_alive()?;
        if start.elapsed() > DEADLINE {
            view.settle();
            let minutes = DEADLINE.as_secs() / 60;
            bail!("{what}: not reached in {minutes} minutes\n{}", stage.describe().await);
        }
    }
}

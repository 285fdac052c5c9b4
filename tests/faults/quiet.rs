//! What machines cost that are up while nothing happens.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::case::{Case, PATIENCE};
use crate::stage::Stage;

const MACHINES: usize = 10;
const WATCHED: Duration = Duration::from_mins(1);
/// Two readings of the cluster's list, with room for one more at each edge.
const CALLS: u64 = 4;
/// How long other cases may take until there is quiet.
const OTHERS: Duration = Duration::from_mins(10);

pub(crate) async fn ten_machines_that_are_up_cost_next_to_nothing() {
    let case = Case::sound().await;
    let names: Vec<String> = (0..MACHINES).map(|number| format!("m{number}")).collect();
    for name in &names {
        case.machine(name, json!({"memoryMiB": 2048})).await;
    }
    join_all(names.iter().map(|name| case.ready(name))).await;
    join_all(names.iter().map(|name| case.join_without_seed(name))).await;
    others_are_done(case.stage).await;
    let (calls, writes) = (case.fake.journal().total(), writes(case.stage).await);
    case.stays(WATCHED, "the VMs run", |fake| {
        fake.model().vms().iter().filter(|vm| vm.running).count() == MACHINES
    })
    .await;
    let calls = case.fake.journal().total() - calls;
    let writes = self::writes(case.stage).await - writes;
    println!("{MACHINES} machines, {WATCHED:?}: {calls} Proxmox calls, {writes} writes");
    assert!(calls <= CALLS, "{calls} Proxmox calls in {WATCHED:?}");
    assert_eq!(writes, 0, "writes in {WATCHED:?}; what a case that failed has left writes, too");
    assert!(PATIENCE > WATCHED);
    case.end().await;
}

/// This is the last case to start.
async fn others_are_done(stage: &Stage) {
    let calm = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(250));
        while !stage.is_calm() {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(OTHERS, calm).await.expect("the other cases end");
}

/// Requests that write objects which the manager writes, since the API server's start.
async fn writes(stage: &Stage) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = stage.client.request_text(request).await.unwrap();
    let ours = |line: &&str| {
        let group = ["infrastructure.cluster.x-k8s.io", "ipam.cluster.x-k8s.io", "events.k8s.io"]
            .iter()
            .any(|group| line.contains(&format!("group=\"{group}\"")));
        let core = line.contains("group=\"\"")
            && ["events", "secrets"].iter().any(|r| line.contains(&format!("resource=\"{r}\"")));
        let verbs = ["APPLY", "DELETE", "PATCH", "POST", "PUT"];
        let writes = verbs.iter().any(|verb| line.contains(&format!("verb=\"{verb}\"")));
        line.starts_with("apiserver_request_total{") && writes && (group || core)
    };
    let counts = text.lines().filter(ours).filter_map(|line| line.rsplit(' ').next());
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

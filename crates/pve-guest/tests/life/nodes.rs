//! Guests as nodes of a cluster that the workload-cluster program plays.

use std::time::{Duration, Instant};

use pve_guest::{ClusterView, Progress, Stage};
use reqwest::Method;

use crate::seeds::{Cluster, Seed};
use crate::world::World;

async fn view(world: &World, cluster: &Cluster) -> ClusterView {
    world.workload().cluster(&cluster.endpoint).await.unwrap().expect("the cluster is known")
}

/// Waits until the cluster is as it should be.
async fn until(world: &World, cluster: &Cluster, holds: impl Fn(&ClusterView) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let view = view(world, cluster).await;
        if holds(&view) {
            return;
        }
        assert!(Instant::now() < deadline, "{view:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_control_plane_and_its_worker() {
    let (world, cluster) = (World::clustered().await, Cluster::new());
    let up = world.boot(101, &Seed::new(101, cluster.init())).await;
    assert_eq!(up, Progress::Up(Some("node-101".into())));
    world.create_token(&cluster).await;
    for (vmid, control_plane) in [(102, true), (103, false)] {
        let up = world.boot(vmid, &Seed::new(vmid, cluster.join(control_plane))).await;
        assert_eq!(up, Progress::Up(Some(format!("node-{vmid}"))));
    }
    let (_, node) = world.kubernetes(&cluster, Method::GET, "/api/v1/nodes/node-103", None).await;
    assert_eq!(node["spec"]["providerID"], "proxmox://id-103");
    assert_eq!(node["status"]["addresses"][0]["address"], "10.0.0.103");
    assert_eq!(node["status"]["nodeInfo"]["systemUUID"], "00000000-0000-4000-8000-000000000103");
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.34.4");
    let view = view(&world, &cluster).await;
    assert_eq!(view.etcd_members, ["node-101", "node-102"]);
    let roles: Vec<_> = view.nodes.iter().map(|node| (node.control_plane, node.ready)).collect();
    assert_eq!(roles, [(true, true), (true, true), (false, true)]);
}

#[tokio::test]
async fn a_join_waits_for_its_cluster() {
    let (world, cluster) = (World::clustered().await, Cluster::new());
    world.start_with(102, Seed::new(102, cluster.join(false)).image()).await;
    world.boot(101, &Seed::new(101, cluster.init())).await;
    assert_eq!(world.guests.record(102).unwrap().progress, Progress::CloudInit);
    assert_eq!(world.exec(102, &["cloud-init", "status"]).await.1, "status: running\n");
    world.create_token(&cluster).await;
    assert_eq!(world.settled(102).await, Progress::Up(Some("node-102".into())));
}

#[tokio::test]
async fn a_join_with_an_unknown_token_gives_up() {
    let world = World::joining_within(Duration::from_secs(2)).await;
    let cluster = Cluster::new();
    world.boot(101, &Seed::new(101, cluster.init())).await;
    let end = world.boot(102, &Seed::new(102, cluster.join(false))).await;
    let Progress::Failed(fault) = end else { panic!("{end:?}") };
    assert_eq!(fault.stage, Stage::Join);
    assert!(
        fault.text.contains("gave up after 2s") && fault.text.contains("token ID \"abcdef\""),
        "{fault}"
    );
}

#[tokio::test]
async fn a_second_init_at_an_endpoint_fails_at_once() {
    let (world, cluster) = (World::clustered().await, Cluster::new());
    world.boot(101, &Seed::new(101, cluster.init())).await;
    let end = world.boot(102, &Seed::new(102, cluster.init())).await;
    let Progress::Failed(fault) = end else { panic!("{end:?}") };
    assert!(fault.text.contains("a control plane already exists"), "{fault}");
}

#[tokio::test]
async fn nodes_follow_the_power_of_their_vms() {
    let (world, cluster) = (World::clustered().await, Cluster::new());
    world.boot(101, &Seed::new(101, cluster.init())).await;
    world.create_token(&cluster).await;
    world.boot(102, &Seed::new(102, cluster.join(false))).await;
    world.power(102, "stop").await;
    until(&world, &cluster, |view| !view.nodes[1].ready && view.nodes[1].machine == "stopped")
        .await;
    world.power(102, "start").await;
    until(&world, &cluster, |view| view.nodes[1].ready).await;
    world.power(102, "stop").await;
    world.destroy(102).await;
    until(&world, &cluster, |view| view.nodes[1].machine == "none" && !view.nodes[1].ready).await;
    let (status, _) =
        world.kubernetes(&cluster, Method::DELETE, "/api/v1/nodes/node-102", None).await;
    assert_eq!(status, 200);
    assert_eq!(view(&world, &cluster).await.nodes.len(), 1);
    world.power(101, "stop").await;
    until(&world, &cluster, |view| !view.serving).await;
    world.destroy(101).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while world.workload().cluster(&cluster.endpoint).await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "the cluster outlives its control plane");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

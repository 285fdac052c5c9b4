//! What a guest makes of its seed, without a cluster.

use pve_guest::{Progress, Stage};
use serde_json::json;

use crate::seeds::{Cluster, Seed};
use crate::world::World;

#[tokio::test]
async fn a_guest_comes_up_and_tells_of_itself() {
    let world = World::alone().await;
    let seed = Seed::new(101, Cluster::new().init());
    assert_eq!(world.boot(101, &seed).await, Progress::Up(Some("node-101".into())));
    assert_eq!(world.exec(101, &["cloud-init", "status"]).await, (0, "status: done\n".into()));
    assert_eq!(world.exec(101, &["hostname"]).await.1, "node-101\n");
    let sentinel = "/run/cluster-api/bootstrap-success.complete";
    assert_eq!(world.exec(101, &["cat", sentinel]).await.1, "success\n");
    let interfaces = world.interfaces(101).await;
    assert_eq!(interfaces[1]["name"], "eth0");
    assert_eq!(interfaces[1]["ip-addresses"][0]["ip-address"], "10.0.0.101");
    assert_eq!(world.guests.record(101).unwrap().instance_id.as_deref(), Some("id-101"));
}

#[tokio::test]
async fn a_guest_without_kubeadm_is_up_without_a_node() {
    let world = World::alone().await;
    let seed = Seed::new(101, "#cloud-config\nruncmd: [echo]\n".into());
    assert_eq!(world.boot(101, &seed).await, Progress::Up(None));
    world.power(102, "start").await;
    assert_eq!(world.settled(102).await, Progress::Up(None));
    assert_eq!(world.exec(102, &["cloud-init", "status"]).await.1, "status: not run\n");
}

/// Each fault is told by the agent and kept in the record.
#[tokio::test]
async fn broken_seeds_do_not_come_up_and_say_why() {
    let world = World::alone().await;
    let cluster = Cluster::new();
    let good = || Seed::new(101, cluster.init());
    let cases: [(&str, Stage, &str, Seed); 5] = [
        (
            "no meta-data",
            Stage::Seed,
            "the seed has no meta-data, only network-config, user-data",
            Seed { meta_data: String::new(), ..good() },
        ),
        (
            "a list",
            Stage::MetaData,
            "is no YAML mapping",
            Seed { meta_data: "- a\n".into(), ..good() },
        ),
        (
            "a foreign MAC",
            Stage::Network,
            "not all expected physical devices present: bc:24:11:00:00:66",
            Seed { network_config: Seed::new(102, String::new()).network_config, ..good() },
        ),
        (
            "no cloud-config",
            Stage::UserData,
            "not with #cloud-config",
            Seed { user_data: "#!/bin/sh\n".into(), ..good() },
        ),
        (
            "no configuration",
            Stage::Kubeadm,
            "unable to read /run/kubeadm/kubeadm.yaml",
            Seed {
                user_data:
                    "#cloud-config\nruncmd: [kubeadm init --config /run/kubeadm/kubeadm.yaml]\n"
                        .into(),
                ..good()
            },
        ),
    ];
    for (vmid, (what, stage, said, seed)) in (101..).zip(cases) {
        // The network of the first VM fits no other.
        let own = Seed::new(vmid, String::new()).network_config;
        let seed = if stage == Stage::Network {
            Seed { network_config: good().network_config.replace("00:65", "00:66"), ..seed }
        } else {
            Seed { network_config: own, ..seed }
        };
        let Progress::Failed(fault) = world.boot(vmid, &seed).await else {
            panic!("{what} came up")
        };
        assert_eq!(fault.stage, stage, "{what}: {fault}");
        assert!(fault.text.contains(said), "{what}: {fault}");
        let (code, status) = world.exec(vmid, &["cloud-init", "status", "--long"]).await;
        assert_eq!(code, 1, "{what}: {status}");
        assert!(status.contains("status: error") && status.contains(said), "{what}: {status}");
    }
}

#[tokio::test]
async fn two_guests_with_one_address_are_a_violation() {
    let world = World::alone().await;
    let plain = || "#cloud-config\nruncmd: [echo]\n".to_owned();
    world.boot(101, &Seed::new(101, plain())).await;
    let mut twin = Seed::new(102, plain());
    twin.network_config = twin.network_config.replace("10.0.0.102", "10.0.0.101");
    world.boot(102, &twin).await;
    let said =
        "VM 102 (node-102) came up with address 10.0.0.101 on vmbr0, which VM 101 (node-101) has";
    assert_eq!(world.guests.take_violations(), [said]);
    world.power(102, "stop").await;
    world.boot(103, &Seed::new(103, plain())).await;
    assert_eq!(world.guests.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_later_boot_runs_nothing_again() {
    let world = World::alone().await;
    let seed = Seed::new(101, Cluster::new().init());
    let up = world.boot(101, &seed).await;
    world.power(101, "stop").await;
    assert_eq!(world.guests.record(101).unwrap().progress, Progress::Off);
    world.power(101, "start").await;
    assert_eq!(world.settled(101).await, up);
    assert_eq!(
        world.interfaces(101).await[1]["ip-addresses"][0]["ip-address"],
        json!("10.0.0.101")
    );
    world.power(101, "stop").await;
    world.destroy(101).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while world.guests.record(101).is_some() {
        assert!(std::time::Instant::now() < deadline, "the guest outlives its VM");
        tokio::task::yield_now().await;
    }
}

//! Machines of clusters that name a connection.

use capmox::api::ProxmoxMachine;
use kube::api::{ListParams, Patch, PatchParams};
use pve_fake::Change;
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::stage::{PATIENCE, Stage};

const MACHINES: usize = 20;

#[tokio::test]
async fn a_token_is_rotated_in_the_middle_of_a_rollout_and_no_machine_fails() {
    let stage = Stage::set().await;
    stage.serve_pools();
    stage.secret(&stage.fake.token().secret).await;
    let connection = stage.connection("", json!({})).await;
    stage.cluster(&connection).await;
    let cluster = stage.cluster_says("True", "").await;
    let in_use = serde_json::to_value(cluster.status.unwrap().credentials).unwrap();
    assert_eq!(in_use, json!({"kind": "ProxmoxConnection", "name": connection}));
    let names: Vec<String> = (0..MACHINES).map(|number| format!("m{number}")).collect();
    futures::future::join_all(names.iter().map(|name| stage.machine(name))).await;
    let deadline = Instant::now() + PATIENCE;
    let mut ticks = interval(std::time::Duration::from_millis(20));
    while stage.fake.journal().entries().filter(|call| call.path.ends_with("/clone")).count() < 2 {
        ticks.tick().await;
        assert!(Instant::now() < deadline, "no machine is cloned");
    }
    // The worst order: the old secret is refused before the new one is there.
    let fresh = "11111111-2222-3333-4444-555555555555";
    let token = stage.fake.token().id.clone();
    stage.fake.change(Change::TokenSecret { token, secret: fresh.to_owned() });
    stage.says(&connection, "CredentialsRefused", &["401"]).await;
    stage.rotate(fresh).await;
    stage.says(&connection, "Ready", &[]).await;
    for name in &names {
        stage.ready(name).await;
    }
    let machines = stage.api::<ProxmoxMachine>().list(&ListParams::default()).await.unwrap();
    for machine in machines {
        let status = machine.status.unwrap();
        assert_eq!((status.failure_reason, status.failure_message), (None, None));
    }
    let broken = stage.fake.check_no_leaks();
    assert!(broken.is_empty(), "{broken:?}");
    let vms = stage.fake.model().vms();
    let made = vms.iter().filter(|vm| vm.name.as_ref().is_some_and(|name| names.contains(name)));
    assert_eq!(made.count(), MACHINES, "each machine has one VM");
}

#[tokio::test]
async fn a_connection_is_used_from_the_namespaces_that_it_allows_alone() {
    let stage = Stage::set().await;
    stage.secret(&stage.fake.token().secret).await;
    let connection = stage.connection("", json!({"allowedNamespaces": ["elsewhere"]})).await;
    stage.says(&connection, "Ready", &[]).await;
    stage.cluster(&connection).await;
    stage.cluster_says("False", "ConnectionNotAllowed").await;
    let allow = json!({"spec": {"allowedNamespaces": ["elsewhere", stage.namespace]}});
    let patch = Patch::Merge(allow);
    stage.all().patch(&connection, &PatchParams::default(), &patch).await.unwrap();
    stage.cluster_says("True", "").await;
}

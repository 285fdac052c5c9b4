//! Several managers, each with its share of the objects.

use capmox::api::{ProxmoxCluster, ProxmoxMachine};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use testbed::{Options, World};

use crate::stage::{PATIENCE, ready_in};

const KINDS: &str = "{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: ProxmoxCluster, \
                     metadata: {name: NAME, labels: LABELS}, spec: {dnsServers: [10.0.0.1], \
                     ipv4Config: {addresses: [10.0.0.0/24], prefix: 24}}}\n---\n{apiVersion: \
                     infrastructure.cluster.x-k8s.io/v1alpha1, kind: ProxmoxMachine, metadata: {name: \
                     NAME, labels: LABELS}, spec: {sourceNode: pve1, templateID: 9000}}";

/// A cluster and a machine of this name and label.
async fn make(client: &Client, namespace: &str, name: &str, label: Option<&str>) {
    let labels =
        label.map_or("{}".to_owned(), |v| format!("{{cluster.x-k8s.io/watch-filter: {v}}}"));
    let text = KINDS.replace("NAME", name).replace("LABELS", &labels);
    for object in testbed::apply::documents(&text).unwrap() {
        testbed::apply::apply(client, &object, namespace).await.unwrap();
    }
}

struct Shard {
    machines: Api<ProxmoxMachine>,
    clusters: Api<ProxmoxCluster>,
}

impl Shard {
    fn of(client: &Client, namespace: &str) -> Self {
        Self {
            machines: Api::namespaced(client.clone(), namespace),
            clusters: Api::namespaced(client.clone(), namespace),
        }
    }

    /// Waits until a manager looks after both.
    async fn is_served(&self, name: &str) {
        let machine = await_condition(self.machines.clone(), name, |found: Option<&_>| {
            found.is_some_and(|found: &ProxmoxMachine| found.status.is_some())
        });
        let cluster = await_condition(self.clusters.clone(), name, |found: Option<&_>| {
            found.is_some_and(|found: &ProxmoxCluster| found.status.is_some())
        });
        let both = Box::pin(async { tokio::try_join!(machine, cluster) });
        let served = tokio::time::timeout(PATIENCE, both).await;
        assert!(matches!(served, Ok(Ok(_))), "nobody looks after {name}");
    }

    async fn is_left_alone(&self, name: &str) {
        let machine = self.machines.get(name).await.unwrap();
        let cluster = self.clusters.get(name).await.unwrap();
        assert!(machine.status.is_none(), "{name}: {:?}", machine.status);
        assert!(cluster.status.is_none(), "{name}: {:?}", cluster.status);
        assert!(machine.metadata.finalizers.is_none() && cluster.metadata.finalizers.is_none());
    }
}

#[tokio::test]
async fn each_manager_serves_the_objects_of_its_label_and_namespace_alone() {
    // An API server of its own: managers of other tests serve every namespace of the shared one.
    let world = World::start(Options::default()).await.unwrap();
    let client = world.client().await.unwrap();
    let here = world.namespace("shard").await.unwrap();
    let there = world.namespace("shard").await.unwrap();
    for (name, label) in [("blue", Some("blue")), ("green", Some("green")), ("plain", None)] {
        make(&client, &here, name, label).await;
    }
    make(&client, &there, "blue", Some("blue")).await;
    let (shard, other) = (Shard::of(&client, &here), Shard::of(&client, &there));
    let namespace = format!("--namespace={here}");
    let mut blue = ready_in(&world, &[], &[&namespace, "--watch-filter=blue"]).await;
    shard.is_served("blue").await;
    let mut green = ready_in(&world, &[], &[&namespace, "--watch-filter=green"]).await;
    shard.is_served("green").await;
    // One that gets its label later is served then.
    make(&client, &here, "late", None).await;
    shard.is_left_alone("late").await;
    make(&client, &here, "late", Some("green")).await;
    shard.is_served("late").await;
    shard.is_left_alone("plain").await;
    other.is_left_alone("blue").await;
    for manager in [&mut blue, &mut green] {
        assert_eq!(manager.stop().await.unwrap().code(), Some(0));
    }
    let mut all = ready_in(&world, &[], &[&format!("--namespace={there}")]).await;
    other.is_served("blue").await;
    shard.is_left_alone("plain").await;
    all.stop().await.unwrap();
}

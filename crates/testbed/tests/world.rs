//! The testbed itself: what it starts works, and nothing of it outlives a process.

#![allow(clippy::expect_used)]

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use testbed::{Options, World};

#[tokio::test]
async fn an_api_server_with_definitions_comes_up() -> Result<()> {
    let start = std::time::Instant::now();
    let world = World::start(Options::default()).await?;
    testbed::say::say(format!("ready after {:?}", start.elapsed()));
    let name = world.namespace("alive").await?;
    let found = Api::<Namespace>::all(world.client().await?).get(&name).await?;
    assert_eq!(found.metadata.name.as_deref(), Some(name.as_str()));
    let pool = testbed::apply::documents(
        "{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {name: p}, \
         spec: {addresses: [10.0.0.0/24], prefix: 24}}",
    )?;
    for object in pool {
        testbed::apply::apply(&world.client().await?, &object, &name).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_service_account_has_the_rights_of_rbac_and_no_more() -> Result<()> {
    let world = World::start(Options { crds: false, ..Options::default() }).await?;
    let kubeconfig = world.service_account("default", "nobody").await?;
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let refused = Api::<Namespace>::all(kube::Client::try_from(config)?).get("default").await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    Ok(())
}

#[tokio::test]
async fn a_vain_wait_tells_what_was_waited_for() -> Result<()> {
    let world = World::start(Options { crds: false, ..Options::default() }).await?;
    let never =
        world.wait_for(Duration::from_millis(200), "the moon", async || Ok(None::<()>)).await;
    let text = format!("{:#}", never.expect_err("nothing was there"));
    assert!(text.contains("in vain for the moon"), "{text}");
    assert!(text.contains("kube-apiserver.log"), "{text}");
    Ok(())
}

#[tokio::test]
async fn cluster_api_acts_on_a_cluster() -> Result<()> {
    let world = World::start(Options::with_capi()).await?;
    let client = world.client().await?;
    let namespace = world.namespace("core").await?;
    let cluster = testbed::apply::documents(
        "{apiVersion: cluster.x-k8s.io/v1beta1, kind: Cluster, metadata: {name: c}, spec: {}}",
    )?;
    let applied = testbed::apply::apply(&client, cluster.first().expect("one"), &namespace).await?;
    let api = testbed::apply::find(&client, "cluster.x-k8s.io/v1beta1", "Cluster", &namespace);
    let api = api.await?;
    world
        .wait_for(Duration::from_secs(30), "the cluster's phase", async || {
            let found = api.get("c").await?;
            Ok(found.data.pointer("/status/phase").map(ToString::to_string))
        })
        .await?;
    assert_eq!(applied.metadata.namespace.as_deref(), Some(namespace.as_str()));
    // The end of a namespace takes its objects along, finalizers included.
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.delete(&namespace, &kube::api::DeleteParams::default()).await?;
    world
        .wait_for(Duration::from_mins(1), "the end of the namespace", async || {
            Ok(namespaces.get_opt(&namespace).await?.is_none().then_some(()))
        })
        .await
}

//! The testbed itself: what it starts works, and nothing of it outlives a process.

#![allow(clippy::expect_used)]

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use testbed::{Binaries, ClusterRequest, Clusterctl, Options, World};

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

#[tokio::test]
async fn clusterctl_renders_the_default_template_and_the_api_server_takes_it() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let client = world.client().await?;
    let namespace = world.namespace("render").await?;
    let folder = tempfile::tempdir()?;
    let clusterctl = Clusterctl::new(&Binaries::new(), folder.path())?;
    let mut request = ClusterRequest {
        name: "demo",
        namespace: &namespace,
        kubernetes_version: "v1.33.0",
        control_plane: 1,
        workers: 3,
        flavor: "",
        variables: &[],
    };
    let error = clusterctl.generate(world.kubeconfig(), &request).expect_err("no variables");
    assert!(format!("{error:#}").contains("CONTROL_PLANE_ENDPOINT_IP"), "{error:#}");
    let variables = [
        ("CONTROL_PLANE_ENDPOINT_IP", "127.7.7.7"),
        ("NODE_IP_RANGES", "[10.10.10.10-10.10.10.50]"),
        ("IP_PREFIX", "24"),
        ("GATEWAY", "10.10.10.1"),
        ("DNS_SERVERS", "[10.10.10.1, 10.10.10.2]"),
        ("PROXMOX_SOURCENODE", "pve1"),
        ("TEMPLATE_VMID", "9000"),
        ("VM_SSH_KEYS", "ssh-ed25519 AAAA a@b, ssh-ed25519 BBBB c@d"),
        ("BRIDGE", "vmbr0"),
        ("BOOT_VOLUME_DEVICE", "scsi0"),
    ];
    request.variables = &variables;
    let text = clusterctl.generate(world.kubeconfig(), &request)?;
    let objects = testbed::apply::documents(&text)?;
    assert_eq!(objects.len(), 7);
    for object in &objects {
        testbed::apply::apply(&client, object, &namespace).await?;
    }
    let kind = "KubeadmControlPlane";
    let api =
        testbed::apply::find(&client, "controlplane.cluster.x-k8s.io/v1beta1", kind, &namespace);
    let found = api.await?.get("demo-control-plane").await?;
    let at = |pointer: &str| found.data.pointer(pointer).and_then(|value| value.as_str());
    assert_eq!(
        at("/spec/kubeadmConfigSpec/users/0/sshAuthorizedKeys/1"),
        Some("ssh-ed25519 BBBB c@d")
    );
    let pod = at("/spec/kubeadmConfigSpec/files/0/content").expect("kube-vip's manifest");
    let pod = testbed::apply::documents(pod)?;
    let env = |index: usize| {
        pod.first()?.pointer("/spec/containers/0/env")?.get(index)?.get("value")?.as_str()
    };
    assert_eq!(env(1), Some("127.7.7.7"));
    assert_eq!(env(3), Some(""));
    Ok(())
}

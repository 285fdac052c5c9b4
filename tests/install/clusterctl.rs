//! `clusterctl init` from local repositories into an empty cluster, a first cluster from nothing to
//! running and back with the rights of the rendered service account, an upgrade, and the end.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use capmox::api::ProxmoxConnection;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use testbed::{ManagerProcess, Options, World, apply, crds, root};

use crate::kubectl::refusal;
use crate::pod::{self, DEPLOYMENT, NAMESPACE};
use crate::site::{PATIENCE, Site};
use crate::{docs, stand_ins};

/// The version that the pages name, which is the workspace's.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// A later one, as the pages name it.
const NEXT: &str = "v0.7.101";

/// A version of capmox in the series that ours continue.
const BEFORE: &str = "v0.7.7";

/// Cluster API's version in tools/cluster-api.
const CLUSTER_API: &str = "v1.10.1";

/// Provider label, type, name, file, and where in Cluster API's module it is composed.
const CORE: &[(&str, &str, &str, &str, &str)] = &[
    ("cluster-api", "CoreProvider", "cluster-api", "core-components.yaml", "config/default"),
    (
        "bootstrap-kubeadm",
        "BootstrapProvider",
        "kubeadm",
        "bootstrap-components.yaml",
        "bootstrap/kubeadm/config/default",
    ),
    (
        "control-plane-kubeadm",
        "ControlPlaneProvider",
        "kubeadm",
        "control-plane-components.yaml",
        "controlplane/kubeadm/config/default",
    ),
];

/// Repositories for everything that `init` installs besides us, made as Cluster API's releases are,
/// and a configuration in which the documentation's entry stands beside them.
fn prepare(site: &Site) -> Result<()> {
    let module = crds::cluster_api_module(&root())?;
    let repository = site.folder().join("repository");
    let kustomize = site.binaries.path("kustomize")?;
    let page = docs::blocks("docs/install.md");
    let ours = page.iter().find(|block| block.mark == "clusterctl").context("the block")?;
    let ours: Value = apply::documents(&ours.text)?.remove(0);
    let mut providers = ours["providers"].as_array().context("a list")?.clone();
    for (label, kind, name, file, folder) in CORE {
        let release = repository.join(label).join(CLUSTER_API);
        fs::create_dir_all(&release)?;
        let composed = std::process::Command::new(&kustomize)
            .arg("build")
            .arg(module.join(folder))
            .output()?;
        anyhow::ensure!(composed.status.success(), "kustomize build {folder}");
        fs::write(release.join(file), without_services(&String::from_utf8(composed.stdout)?)?)?;
        fs::copy(module.join("metadata.yaml"), release.join("metadata.yaml"))?;
        providers.push(json!({ "name": name, "type": kind, "url": release.join(file) }));
    }
    let cert_manager = repository.join("cert-manager/v1.17.1/cert-manager.yaml");
    fs::create_dir_all(cert_manager.parent().context("a folder")?)?;
    fs::write(&cert_manager, stand_ins::cert_manager())?;
    let config = json!({
        "providers": providers,
        "cert-manager": { "url": cert_manager, "version": "v1.17.1" },
    });
    let folder = site.folder().join(".config/cluster-api");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("clusterctl.yaml"), config.to_string())?;
    publish(site, VERSION)
}

/// Nobody serves the webhooks and conversions of managers that are Deployments without pods; those
/// that the testbed starts register their own. So the API server is not sent to look for them.
fn without_services(components: &str) -> Result<String> {
    let mut text = String::new();
    for mut object in apply::documents(components)? {
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind.ends_with("WebhookConfiguration") {
            continue;
        }
        if kind == "CustomResourceDefinition"
            && let Some(spec) = object["spec"].as_object_mut()
        {
            spec.remove("conversion");
        }
        writeln!(text, "---\n{object}")?;
    }
    Ok(text)
}

/// Puts a version of ours where `make release` puts it.
pub(crate) fn publish(site: &Site, version: &str) -> Result<()> {
    let folder = site.folder().join("dist/infrastructure-proxmox").join(version);
    site.recipe()?.as_version(version).build()?.write(&folder)
}

/// The image of a version.
fn named(version: &str) -> String {
    format!("localhost/capmox:{version}")
}

async fn image(site: &Site) -> Result<Option<String>> {
    let api = Api::<Deployment>::namespaced(site.client.clone(), NAMESPACE);
    let found = api.get(DEPLOYMENT).await?;
    let pod = found.spec.and_then(|spec| spec.template.spec);
    Ok(pod.and_then(|pod| pod.containers.into_iter().next()?.image))
}

// Commands block a thread while the simulator answers on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn clusterctl_installs_makes_a_cluster_upgrades_and_removes() -> Result<()> {
    let nothing = Options { crds: false, garbage_collection: true, ..Options::default() };
    let mut site = Site::open(nothing).await?;
    prepare(&site)?;
    let said = site.run("clusterctl")?;
    assert!(said.contains(DEPLOYMENT), "{said}");
    assert_eq!(image(&site).await?, Some(named(VERSION)));
    let secrets = Api::<Secret>::namespaced(site.client.clone(), NAMESPACE);
    let data = secrets.get("capmox-manager-credentials").await?.data.context("no data")?;
    assert_eq!(data["token"].0, site.fake.token().id.as_bytes());

    site.run("embedded-ipam")?;
    site.world.start_cluster_api(&site.binaries).await?;
    let pod = pod::run(&site.world).await?;
    let said = refusal(&site)?;
    assert!(said.contains("cannot create proxmox machine"), "{said}");

    live(&site).await.with_context(|| pod.log_tail(40))?;
    let log = fs::read_to_string(pod.log())?;
    let amiss = |line: &&str| line.contains("forbidden") || line.contains("please report");
    let amiss: Vec<_> = log.lines().filter(amiss).collect();
    assert!(amiss.is_empty(), "the service account lacks rights, or worse: {amiss:#?}");

    upgrade(&site, pod).await?;
    site.run("remove")?;
    let namespaces = Api::<Namespace>::all(site.client.clone());
    let gone = site.world.wait_for(PATIENCE, "the end of the namespace", async || {
        Ok(namespaces.get_opt(NAMESPACE).await?.is_none().then_some(()))
    });
    gone.await?;
    let left = site.shell(
        "kubectl get crd -o name -l cluster.x-k8s.io/provider=infrastructure-proxmox; \
         kubectl get validatingwebhookconfigurations -o name \
         -l cluster.x-k8s.io/provider=infrastructure-proxmox",
    )?;
    assert_eq!(left, "");
    by_the_readme(&site).await
}

/// From the start, by what the README says and nothing else.
async fn by_the_readme(site: &Site) -> Result<()> {
    // The file has others already, and the list of them at its end.
    let file = site.folder().join(".config/cluster-api/clusterctl.yaml");
    let mut config: Value = serde_yaml::from_str(&fs::read_to_string(&file)?)?;
    let providers = config["providers"].take();
    let others = providers.as_array().context("a list")?.iter();
    let others: Vec<_> = others.filter(|one| one["name"] != "proxmox").collect();
    let mut text = format!("cert-manager: {}\nproviders:\n", config["cert-manager"]);
    for other in others {
        writeln!(text, "- {other}")?;
    }
    fs::write(&file, text)?;
    probed(site).await?;
    let commands = docs::commands("readme-credentials readme-clusterctl");
    site.shell(&commands.replace("\nproviders:\n", "\n"))?;
    assert_eq!(image(site).await?, Some(named(VERSION)));
    let secrets = Api::<Secret>::namespaced(site.client.clone(), NAMESPACE);
    let data = secrets.get("capmox-manager-credentials").await?.data.context("no data")?;
    assert_eq!(data["secret"].0, site.fake.token().secret.as_bytes());
    Ok(())
}

/// A connection that no cluster uses, with a Secret for each way to have it moved, and one without.
async fn make_connection(site: &Site) -> Result<()> {
    let connection = json!({
        "apiVersion": "proxmox.alperen.cloud/v1alpha1",
        "kind": "ProxmoxConnection",
        "metadata": {"name": "lab"},
        "spec": {
            "endpoint": site.fake.url(),
            "tokenID": site.fake.token().id,
            "secretFrom": {"name": "labelled", "namespace": "default", "key": "secret"},
        },
    });
    let made = apply::apply(&site.client, &connection, "default").await?;
    let owner = json!({"apiVersion": "proxmox.alperen.cloud/v1alpha1", "kind": "ProxmoxConnection",
        "name": "lab", "uid": made.metadata.uid});
    for (name, metadata) in [
        ("labelled", json!({"labels": {"clusterctl.cluster.x-k8s.io/move": ""}})),
        ("owned", json!({"ownerReferences": [owner]})),
        ("plain", json!({})),
    ] {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": {"secret": site.fake.token().secret}});
        secret["metadata"]["name"] = json!(name);
        apply::apply(&site.client, &secret, "default").await?;
    }
    Ok(())
}

async fn connection_moved(site: &Site, other: &World) -> Result<()> {
    let there = other.client().await?;
    let found = async |client: &kube::Client| -> Result<Vec<String>> {
        let mut found = Vec::new();
        let connections: Api<ProxmoxConnection> = Api::all(client.clone());
        found.extend(
            connections.list(&ListParams::default()).await?.iter().map(kube::ResourceExt::name_any),
        );
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
        for name in ["labelled", "owned", "plain"] {
            found.extend(secrets.get_opt(name).await?.map(|one| one.name_any()));
        }
        Ok(found)
    };
    assert_eq!(found(&there).await?, ["lab", "labelled", "owned"]);
    assert_eq!(found(&site.client).await?, ["lab", "owned", "plain"]);
    // As long as one is left, clusterctl does not remove the definitions.
    let here = Api::<ProxmoxConnection>::all(site.client.clone());
    here.delete("lab", &DeleteParams::default()).await?;
    // The copy is owned by the connection that is there.
    let secret = Api::<Secret>::namespaced(there.clone(), "default").get("owned").await?;
    let connection = Api::<ProxmoxConnection>::all(there).get("lab").await?;
    let owner = secret.owner_references().first().map(|owner| owner.uid.clone());
    assert_eq!(owner, connection.uid());
    Ok(())
}

/// From nothing to running, to another management cluster, and to nothing.
async fn live(site: &Site) -> Result<()> {
    site.run("variables cluster")?;
    until_running(site, &site.world).await?;
    let said = site.run("describe")?;
    assert!(said.contains("Cluster/demo") && said.contains("proxmox://"), "{said}");
    site.run("readme-look")?;
    site.run("variables flavour")?;
    site.run("credentials")?;
    let said = site.run("conditions")?;
    assert!(said.contains("VMProvisioned:"), "{said}");

    let clones = || site.fake.model().tasks().iter().filter(|t| t.kind == "qmclone").count();
    let before = (clones(), addresses(&site.world).await?);
    let (other, mut pod) = another(site).await?;
    fs::copy(other.kubeconfig(), site.folder().join("other.kubeconfig"))?;
    make_connection(site).await?;
    site.run("move").with_context(|| pod.log_tail(20))?;
    connection_moved(site, &other).await?;
    assert_eq!(addresses(&site.world).await?, [""; 0]);
    until_running(site, &other).await.with_context(|| pod.log_tail(40))?;
    assert_eq!((clones(), addresses(&other).await?), before, "moving made something anew");
    site.run_at(&other, "delete").with_context(|| pod.log_tail(40))?;
    pod.stop().await?;

    let left = site.fake.check_no_leaks();
    assert!(left.is_empty(), "{left:?}");
    let broken = site.fake.take_violations();
    assert!(broken.is_empty(), "{broken:?}");
    Ok(())
}

/// A second management cluster, installed like the first.
async fn another(site: &Site) -> Result<(World, ManagerProcess)> {
    let nothing = Options { crds: false, garbage_collection: true, ..Options::default() };
    let mut world = World::start_with(nothing, &site.binaries).await?;
    site.run_at(&world, "clusterctl")?;
    site.run_at(&world, "embedded-ipam")?;
    world.start_cluster_api(&site.binaries).await?;
    let pod = pod::run(&world).await?;
    Ok((world, pod))
}

async fn until_running(site: &Site, world: &World) -> Result<()> {
    let client = world.client().await?;
    let machines = apply::find(&client, "cluster.x-k8s.io/v1beta1", "Machine", "default").await?;
    let running = site.world.wait_for(PATIENCE, "two running machines", async || {
        let found = machines.list(&ListParams::default()).await?;
        let phases = found.iter().filter(|machine| machine.data["status"]["phase"] == "Running");
        Ok((phases.count() == 2).then_some(()))
    });
    running.await
}

/// The addresses that were handed out, with their names.
async fn addresses(world: &World) -> Result<Vec<String>> {
    let client = world.client().await?;
    let api = apply::find(&client, "ipam.cluster.x-k8s.io/v1beta1", "IPAddress", "default").await?;
    let found = api.list(&ListParams::default()).await?;
    Ok(found
        .iter()
        .map(|one| format!("{} {}", one.name_any(), one.data["spec"]["address"]))
        .collect())
}

async fn upgrade(site: &Site, mut old: ManagerProcess) -> Result<()> {
    publish(site, NEXT)?;
    let said = site.run("upgrade")?;
    assert!(said.contains(NEXT), "{said}");
    assert_eq!(image(site).await?, Some(named(NEXT)));
    old.stop().await?;
    let mut new = pod::run(&site.world).await?;
    let said = refusal(site)?;
    assert!(said.contains("cannot create proxmox machine"), "{said}");
    // Back to the old one, by removing and installing; objects would stay.
    new.stop().await?;
    probed(site).await?;
    site.run("back")?;
    assert_eq!(image(site).await?, Some(named(VERSION)));

    // What is installed as capmox's v0.7 is older than ours, and upgraded like any other.
    publish(site, BEFORE)?;
    probed(site).await?;
    site.shell(&format!(
        "cp -r dist/. ~/capmox
         clusterctl delete --infrastructure proxmox
         clusterctl init --infrastructure proxmox:{BEFORE}"
    ))?;
    assert_eq!(image(site).await?, Some(named(BEFORE)));
    probed(site).await?;
    site.run("migrate")?;
    assert_eq!(image(site).await?, Some(named(VERSION)));
    Ok(())
}

/// Waits until the namespace in which `init` tried cert-manager is gone: the next one would find it
/// on its way out, and try for ten minutes to fill it.
async fn probed(site: &Site) -> Result<()> {
    let namespaces = Api::<Namespace>::all(site.client.clone());
    let gone = site.world.wait_for(PATIENCE, "the end of cert-manager-test", async || {
        Ok(namespaces.get_opt("cert-manager-test").await?.is_none().then_some(()))
    });
    gone.await
}

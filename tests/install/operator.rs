//! The Cluster API operator installs our package.

use std::fs;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use release::components::Recipe;
use serde_json::{Value, json};
use testbed::{Options, apply, ports};

use crate::kubectl::refusal;
use crate::pod::{self, DEPLOYMENT, NAMESPACE};
use crate::site::{PATIENCE, Site};
use crate::stand_ins;

const GROUP: &str = "operator.cluster.x-k8s.io/v1alpha2";

/// The operator's definitions, the operator, and a CoreProvider of `contract` that is ready; what
/// the operator would install for it is one service account.
async fn start(site: &mut Site, contract: &str) -> Result<()> {
    fs::write(site.folder().join("cert-manager.yaml"), stand_ins::cert_manager())?;
    let module = std::process::Command::new("go")
        .args(["mod", "download", "-json", "sigs.k8s.io/cluster-api-operator"])
        .current_dir(testbed::root().join("tools/operator"))
        .output()?;
    let module: Value = serde_json::from_slice(&module.stdout)?;
    let module = module["Dir"].as_str().context("the operator's module")?;
    site.shell(&format!(
        "kubectl apply -f cert-manager.yaml
         kubectl apply --server-side -f {module}/config/crd/bases
         kubectl wait --for=condition=Established crd --all"
    ))?;
    let program = site.binaries.path("capi-operator")?;
    let certificates = site.world.serving_certificate().1.display().to_string();
    let args = [
        format!("--kubeconfig={}", site.world.kubeconfig().display()),
        "--leader-elect=false".to_owned(),
        format!("--webhook-port={}", ports::free()?),
        format!("--webhook-cert-dir={certificates}"),
        format!("--health-addr=127.0.0.1:{}", ports::free()?),
        format!("--diagnostics-address=127.0.0.1:{}", ports::free()?),
        "--insecure-diagnostics=true".to_owned(),
        "--profiler-address=".to_owned(),
        "--watch-configsecret=true".to_owned(),
        "--watch-configmap=true".to_owned(),
    ];
    site.world.start_process("capi-operator", &program, &args)?;
    site.shell(&core_provider(contract))?;
    let api = apply::find(&site.client, GROUP, "CoreProvider", "capi-system").await?;
    until(site, &api, "cluster-api", "ProviderInstalled", |condition| {
        condition["status"] == "True"
    })
    .await?;
    // No kubelet runs its Deployment; it has none.
    let mut found = api.get("cluster-api").await?;
    let conditions = found.data["status"]["conditions"].as_array_mut().context("conditions")?;
    conditions.retain(|condition| condition["type"] != "Ready");
    conditions.push(json!({ "type": "Ready", "status": "True", "reason": "Ready",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }));
    let status = json!({ "status": { "conditions": conditions } });
    api.patch_status("cluster-api", &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// Commands that make the CoreProvider and its package.
fn core_provider(contract: &str) -> String {
    format!(
        "
kubectl create namespace capi-system
kubectl apply -f - <<'END'
apiVersion: v1
kind: ConfigMap
metadata:
  name: v1.10.1
  namespace: capi-system
  labels: {{provider-components: core, provider.cluster.x-k8s.io/version: v1.10.1}}
data:
  metadata: |
    apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
    kind: Metadata
    releaseSeries: [{{major: 1, minor: 10, contract: {contract}}}]
  components: |
    apiVersion: v1
    kind: ServiceAccount
    metadata: {{name: capi-manager, namespace: capi-system}}
---
apiVersion: {GROUP}
kind: CoreProvider
metadata: {{name: cluster-api, namespace: capi-system}}
spec:
  version: v1.10.1
  fetchConfig: {{selector: {{matchLabels: {{provider-components: core}}}}}}
END"
    )
}

/// Waits for a condition of a provider.
async fn until(
    site: &Site,
    api: &Api<DynamicObject>,
    name: &str,
    kind: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let what = format!("condition {kind} of provider {name}");
    site.world
        .wait_for(PATIENCE, &what, async || {
            let found = api.get(name).await?;
            let conditions = found.data["status"]["conditions"].as_array().cloned();
            let found = conditions.unwrap_or_default().into_iter().find(|one| one["type"] == kind);
            let found = found.context("no such condition")?;
            anyhow::ensure!(is_wanted(&found), "{found}");
            Ok(Some(found))
        })
        .await
}

async fn provider(site: &Site) -> Result<Api<DynamicObject>> {
    apply::find(&site.client, GROUP, "InfrastructureProvider", NAMESPACE).await
}

/// The Deployment's image, once there is one.
async fn image(site: &Site) -> Result<Option<String>> {
    let api = Api::<Deployment>::namespaced(site.client.clone(), NAMESPACE);
    let pod = api.get_opt(DEPLOYMENT).await?.and_then(|found| found.spec?.template.spec);
    Ok(pod.and_then(|pod| pod.containers.into_iter().next()?.image))
}

async fn until_image(site: &Site, wanted: &str) -> Result<()> {
    let wait = site.world.wait_for(PATIENCE, wanted, async || {
        let found = image(site).await?;
        anyhow::ensure!(found.as_deref() == Some(wanted), "the image is {found:?}");
        Ok(Some(()))
    });
    wait.await
}

async fn url_of_the_manager(site: &Site) -> Result<String> {
    let secrets = Api::<Secret>::namespaced(site.client.clone(), NAMESPACE);
    let secret = secrets.get("capmox-manager-credentials").await?;
    let url = secret.data.and_then(|data| data.get("url").cloned()).context("no url")?;
    Ok(String::from_utf8(url.0)?)
}

fn publish(site: &Site, recipe: &Recipe, folder: &str) -> Result<()> {
    recipe.build()?.write(&site.folder().join(folder))
}

// Commands block a thread while the simulator answers on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_operator_waits_for_the_secret_installs_rotates_and_upgrades() -> Result<()> {
    let mut site = Site::open(Options { garbage_collection: true, ..Options::default() }).await?;
    start(&mut site, "v1beta2").await?;

    // Without the Secret nothing is installed.
    site.shell(
        "kubectl create namespace capmox-system
         kubectl apply -f components/operator/configmap.yaml -f components/operator/provider.yaml",
    )?;
    let api = provider(&site).await?;
    let log = site.world.logs().join("capi-operator.log");
    let told = site.world.wait_for(PATIENCE, "the operator's word on the Secret", async || {
        Ok(fs::read_to_string(&log)?.contains("proxmox-credentials").then_some(()))
    });
    told.await?;
    assert_eq!(image(&site).await?, None);

    // With it, at once.
    let secret = crate::docs::commands("operator-secret");
    let secret = secret.lines().skip(1).collect::<Vec<_>>().join("\n");
    site.shell(&(crate::docs::commands("all") + &secret))?;
    site.run("operator-manifests")?;
    assert_eq!(image(&site).await?.as_deref(), Some("localhost/capmox:v0.7.100"));
    assert_eq!(url_of_the_manager(&site).await?, site.fake.url());
    let mut pod = pod::run(&site.world).await?;
    let said = refusal(&site)?;
    assert!(said.contains("cannot create proxmox machine"), "{said}");
    until(&site, &api, "proxmox", "Ready", |condition| condition["status"] == "True").await?;

    // A changed Secret reaches the manager's.
    site.shell(
        "kubectl -n capmox-system patch secret proxmox-credentials --type=merge \
         --patch='{\"stringData\": {\"PROXMOX_URL\": \"https://other.example:8006\"}}'",
    )?;
    let rotated = site.world.wait_for(PATIENCE, "the changed URL", async || {
        let found = url_of_the_manager(&site).await?;
        Ok((found == "https://other.example:8006").then_some(()))
    });
    rotated.await?;

    // Another provider's malformed package, under the label that packages often share.
    site.shell(
        "kubectl -n capmox-system create configmap broken --from-literal=components=nonsense
         kubectl -n capmox-system label configmap broken infraprovider-components=cozy",
    )?;

    // The next version.
    publish(&site, &site.recipe()?.as_version("v0.7.101"), "next")?;
    site.shell("kubectl apply -f next/operator/configmap.yaml -f next/operator/provider.yaml")?;
    until_image(&site, "localhost/capmox:v0.7.101").await?;
    let installed = site.world.wait_for(PATIENCE, "the installed version", async || {
        let found = api.get("proxmox").await?;
        Ok((found.data["status"]["installedVersion"] == "v0.7.101").then_some(()))
    });
    installed.await?;
    pod.stop().await?;
    let mut next = pod::run(&site.world).await?;
    let said = refusal(&site)?;
    assert!(said.contains("cannot create proxmox machine"), "{said}");
    next.stop().await?;

    // The provider's end takes the Deployment, and leaves definitions and objects.
    site.shell("kubectl -n capmox-system delete infrastructureprovider proxmox")?;
    assert_eq!(image(&site).await?, None);
    site.shell("kubectl get crd proxmoxmachines.infrastructure.cluster.x-k8s.io")?;

    // From the start, by what the README says and nothing else.
    site.shell("kubectl delete namespace capmox-system")?;
    crate::clusterctl::publish(&site, crate::clusterctl::VERSION)?;
    site.shell(&crate::docs::commands("readme-credentials readme-operator"))?;
    until_image(&site, "localhost/capmox:v0.7.100").await?;
    assert_eq!(url_of_the_manager(&site).await?, site.fake.url());
    Ok(())
}

// Commands block a thread while the simulator answers on another.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_chart_installs_the_same_beside_a_core_of_contract_v1beta1() -> Result<()> {
    let mut site = Site::open(Options { garbage_collection: true, ..Options::default() }).await?;
    start(&mut site, "v1beta1").await?;
    site.run("operator-secret")?;
    site.run("operator-chart")?;
    until_image(&site, "registry.example/capmox:v0.7.100").await?;
    let api = provider(&site).await?;
    until(&site, &api, "proxmox", "ProviderInstalled", |one| one["status"] == "True").await?;
    let mut pod = pod::run(&site.world).await?;
    pod.stop().await?;

    // A ConfigMap that carries our label by mistake does no harm, since the selector asks for the
    // version, too.
    site.shell(
        "kubectl -n capmox-system create configmap broken --from-literal=components=nonsense
         kubectl -n capmox-system label configmap broken infraprovider-provider=proxmox",
    )?;
    site.shell(
        "helm upgrade capmox components/chart --namespace capmox-system \
           --set image=registry.example/capmox:v0.7.100-again",
    )?;
    until_image(&site, "registry.example/capmox:v0.7.100-again").await?;

    beside_v1beta1_the_next_version_is_installed_anew(&site).await?;

    // Without the version it would stop the operator; so the selector has it.
    site.shell(
        r#"kubectl -n capmox-system patch infrastructureprovider proxmox --type=json --patch='[{"op":
           "remove", "path": "/spec/fetchConfig/selector/matchLabels/provider.cluster.x-k8s.io~1version"}]'"#,
    )?;
    let log = site.world.logs().join("capi-operator.log");
    let told = site.world.wait_for(PATIENCE, "the operator's complaint", async || {
        let text = fs::read_to_string(&log)?;
        Ok((text.contains("multiple ConfigMaps match") || text.contains("broken")).then_some(()))
    });
    told.await?;
    Ok(())
}

/// The operator's own limit, and the way round it that docs/install.md tells.
async fn beside_v1beta1_the_next_version_is_installed_anew(site: &Site) -> Result<()> {
    publish(site, &site.recipe()?.as_version("v0.7.101"), "next")?;
    let upgrade = "helm upgrade capmox next/chart --namespace capmox-system --reset-values";
    site.shell(upgrade)?;
    let api = provider(site).await?;
    let refused = until(site, &api, "proxmox", "ProviderUpgraded", |one| one["status"] == "False");
    let why = refused.await?["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("v1beta1"), "{why}");
    site.shell(&format!(
        "kubectl -n capmox-system delete infrastructureprovider proxmox
         {upgrade} --force"
    ))?;
    until_image(site, "localhost/capmox:v0.7.101").await
}

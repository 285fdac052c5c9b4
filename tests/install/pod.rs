//! The Deployment's pod: the manager's program with the arguments, the environment, the volumes and
//! the service account that the Deployment in the API server says. Only addresses differ, since all
//! pods of a test share one machine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, Secret, ServiceAccount};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use testbed::{ManagerProcess, World, ports};

use crate::site::PATIENCE;
use crate::stand_ins;

pub(crate) const NAMESPACE: &str = "capmox-system";
pub(crate) const DEPLOYMENT: &str = "capmox-controller-manager";
const WEBHOOK_SERVICE: &str = "capmox-webhook-service";

/// Flags whose value is an address; each has its stand-in below.
const ADDRESSES: &[&str] = &["--diagnostics-address"];

/// Runs the pod until it is ready, with its certificate issued and its Service leading to it.
pub(crate) async fn run(world: &World) -> Result<ManagerProcess> {
    let client = world.client().await?;
    stand_ins::issue_certificates(&client, NAMESPACE).await?;
    // The operator takes it away and makes it anew in the middle of an installation.
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    let there = world
        .wait_for(PATIENCE, "the Deployment", async || Ok(deployments.get_opt(DEPLOYMENT).await?));
    let deployment = there.await?;
    let spec = deployment.spec.context("a Deployment without spec")?;
    let pod = spec.template.spec.context("a Deployment without pod")?;
    let [container] = pod.containers.as_slice() else { bail!("not one container") };
    let webhook = ports::free()?;
    stand_ins::lead(&client, NAMESPACE, WEBHOOK_SERVICE, webhook).await?;

    let account = pod.service_account_name.clone().context("no service account")?;
    // The testbed would make one that is missing.
    Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE).get(&account).await?;
    let kubeconfig = world.service_account(NAMESPACE, &account).await?;

    let mut args = container.args.clone().unwrap_or_default();
    args.retain(|arg| !ADDRESSES.iter().any(|flag| arg.starts_with(&format!("{flag}="))));
    let volume = mount(&client, world, &pod, container).await?;
    args.extend([
        format!("--kubeconfig={}", kubeconfig.display()),
        // In a pod, the namespace is read from the account's volume.
        format!("--leader-election-namespace={NAMESPACE}"),
        "--enable-webhooks=true".to_owned(),
        format!("--webhook-port={webhook}"),
        format!("--webhook-cert-dir={}", volume.display()),
    ]);
    let mut env = Vec::new();
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(&client, variable).await? {
            env.push((variable.name.clone(), value));
        }
    }
    let env: Vec<(&str, &str)> = env.iter().map(|(key, text)| (&**key, &**text)).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_capmox"));
    let mut manager = world.start_manager(program, &env, &args)?;
    manager.wait_ready(PATIENCE).await?;
    report_available(&client).await?;
    Ok(manager)
}

/// A variable's value as the kubelet finds it; none for an optional key that is not there.
async fn value(client: &Client, variable: &EnvVar) -> Result<Option<String>> {
    if let Some(value) = &variable.value {
        return Ok(Some(value.clone()));
    }
    let source = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
    let source = source.with_context(|| format!("{}: not from a Secret", variable.name))?;
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let secret = secrets.get_opt(&source.name).await?;
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    match data.get(&source.key) {
        Some(value) => Ok(Some(String::from_utf8(value.0.clone())?)),
        None if source.optional == Some(true) => Ok(None),
        None => bail!("Secret {} has no key {}: the pod does not start", source.name, source.key),
    }
}

/// The folder in place of the one mounted volume, with its Secret's files.
async fn mount(
    client: &Client,
    world: &World,
    pod: &PodSpec,
    container: &Container,
) -> Result<PathBuf> {
    let mounts = container.volume_mounts.clone().unwrap_or_default();
    let [mount] = mounts.as_slice() else { bail!("not one mount: {mounts:?}") };
    // The manager's default, so that no argument is needed.
    ensure!(mount.mount_path == "/tmp/k8s-webhook-server/serving-certs", "{mount:?}");
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name);
    let secret = volume.and_then(|volume| volume.secret.as_ref()?.secret_name.clone());
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let secret = secrets.get(&secret.context("no Secret to mount")?).await?;
    let folder = world.folder().join(format!("volume-{}", ports::free()?));
    std::fs::create_dir_all(&folder)?;
    for (name, content) in secret.data.unwrap_or_default() {
        std::fs::write(folder.join(name), content.0)?;
    }
    Ok(folder)
}

/// What the Deployment's controller would write.
async fn report_available(client: &Client) -> Result<()> {
    let status = json!({ "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [{ "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "lastUpdateTime": "2026-01-01T00:00:00Z" }] } });
    Api::<Deployment>::namespaced(client.clone(), NAMESPACE)
        .patch_status(DEPLOYMENT, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

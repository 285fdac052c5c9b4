//! Custom resource definitions: Cluster API's from its Go module, the in-cluster IPAM provider's
//! pools, and the project's own from `config`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::apply::{FIELD_MANAGER, documents};
use crate::process::LOOK;

/// Cluster API's definitions, by folder of its module.
const FOLDERS: &[&str] = &[
    "config/crd/bases",
    "bootstrap/kubeadm/config/crd/bases",
    "controlplane/kubeadm/config/crd/bases",
];

/// How many definitions are applied at a time.
const AT_ONCE: usize = 8;

/// How long the API server may take to serve a definition.
const ESTABLISHED: Duration = Duration::from_mins(1);

/// The folder of Cluster API's Go module, downloaded if need be.
///
/// # Errors
/// If Go cannot say.
pub fn cluster_api_module(root: &Path) -> Result<PathBuf> {
    let module = root.join("tools/cluster-api");
    let output = Command::new("go")
        .args(["mod", "download", "-json", "sigs.k8s.io/cluster-api"])
        .current_dir(&module)
        .env("GOWORK", "off")
        .output()
        .context("cannot run go; install Go 1.26 or put it on the PATH")?;
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    match answer.get("Dir").and_then(Value::as_str) {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => bail!(
            "go mod download sigs.k8s.io/cluster-api in {} failed: {}",
            module.display(),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// Cluster API's definitions as its release has them, but without conversion webhooks.
///
/// # Errors
/// If the module cannot be had or read.
pub fn cluster_api(root: &Path) -> Result<Vec<Value>> {
    let module = cluster_api_module(root)?;
    let cache = root.join(".cache/crds").join(module.file_name().unwrap_or_default());
    let cache = cache.with_extension("json");
    if let Ok(text) = fs::read(&cache)
        && let Ok(found) = serde_json::from_slice(&text)
    {
        return Ok(found);
    }
    let mut definitions = Vec::new();
    for folder in FOLDERS {
        definitions.extend(read_folder(&module.join(folder))?.into_iter().map(release));
    }
    fs::create_dir_all(root.join(".cache/crds")).context("cannot make .cache/crds")?;
    // Written beside and moved, since another process may read it now.
    let partial = cache.with_extension(format!("{}.partial", std::process::id()));
    fs::write(&partial, serde_json::to_vec(&definitions)?).context("cannot cache definitions")?;
    fs::rename(&partial, &cache).context("cannot cache definitions")?;
    Ok(definitions)
}

/// The project's own definitions, and those of the in-cluster IPAM provider's pools, as generated
/// into `config`.
///
/// # Errors
/// If they cannot be read.
pub fn ours(root: &Path) -> Result<Vec<Value>> {
    let mut found = read_folder(&root.join("config/crd/bases"))?;
    found.extend(read_folder(&root.join("config/ipam/bases"))?);
    Ok(found)
}

/// Applies definitions and waits until each is served.
///
/// # Errors
/// If one is refused, or not served in time.
pub async fn install(client: &Client, definitions: Vec<Value>) -> Result<()> {
    let applied =
        stream::iter(definitions.into_iter().map(|definition| install_one(client, definition)));
    applied.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

async fn install_one(client: &Client, definition: Value) -> Result<()> {
    let definition: CustomResourceDefinition =
        serde_json::from_value(definition).context("not a CustomResourceDefinition")?;
    let name = definition.name_any();
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&definition))
        .await
        .with_context(|| format!("CustomResourceDefinition {name} was refused"))?;
    let start = Instant::now();
    loop {
        let found = api.get(&name).await.with_context(|| format!("cannot read {name}"))?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|c| c.type_ == "Established" && c.status == "True") {
            return Ok(());
        }
        if start.elapsed() > ESTABLISHED {
            bail!("CustomResourceDefinition {name} is not served; its conditions: {conditions:?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn read_folder(folder: &Path) -> Result<Vec<Value>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "yaml")) {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let objects = documents(&text).with_context(|| format!("in {}", file.display()))?;
        let is_definition =
            |object: &Value| object.get("kind").is_some_and(|k| k == "CustomResourceDefinition");
        found.extend(objects.into_iter().filter(is_definition));
    }
    Ok(found)
}

/// What the release adds to the raw definitions: the label that tells which version serves which
/// contract, and clusterctl's. Versions that are not served only cost the API server time.
fn release(mut definition: Value) -> Value {
    let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    // These are the groups whose kinds core finds by contract.
    let by_contract = group.starts_with("bootstrap.") || group.starts_with("controlplane.");
    if let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("clusterctl.cluster.x-k8s.io".to_owned(), json!(""));
            if by_contract {
                labels.insert("cluster.x-k8s.io/v1beta1".to_owned(), json!("v1beta1"));
            }
        }
    }
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("conversion");
        if let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) {
            versions.retain(|version| version.get("served") == Some(&Value::Bool(true)));
        }
    }
    definition
}

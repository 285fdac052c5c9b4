//! Objects made from JSON: created, or applied as `kubectl apply --server-side` does.

use anyhow::{Context as _, Result};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::{ApiCapabilities, ApiResource, Scope, pinned_kind};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

/// Creates an object of a kind that the program knows.
///
/// # Errors
/// If the JSON is no such object, or the API server refuses it.
pub async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let kind = object["kind"].to_string();
    let object: K = serde_json::from_value(object).context("not an object of its kind")?;
    api.create(&PostParams::default(), &object).await.with_context(|| format!("cannot make {kind}"))
}

/// Field manager of what the testbed applies.
pub const FIELD_MANAGER: &str = "testbed";

/// The objects of a YAML stream; empty documents are skipped.
///
/// # Errors
/// If the text is not YAML.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Value::deserialize(document).context("not YAML")?;
        if !value.is_null() {
            objects.push(value);
        }
    }
    Ok(objects)
}

/// Applies an object; a namespaced one without a namespace goes to `namespace`.
///
/// # Errors
/// If the kind is unknown to the API server or the object is refused.
pub async fn apply(client: &Client, object: &Value, namespace: &str) -> Result<DynamicObject> {
    let object: DynamicObject =
        serde_json::from_value(object.clone()).context("not a Kubernetes object")?;
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
    let name = object.name_any();
    find(client, &types.api_version, &types.kind, &namespace)
        .await?
        .patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(&object))
        .await
        .with_context(|| format!("{} {namespace}/{name} was refused", types.kind))
}

/// The API of a kind; `namespace` is ignored for kinds without one.
///
/// # Errors
/// If the API server does not know the kind.
pub async fn find(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: &str,
) -> Result<Api<DynamicObject>> {
    let types = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    let gvk = GroupVersionKind::try_from(&types).context("apiVersion is not understood")?;
    let (resource, capabilities) = pinned_kind(client, &gvk)
        .await
        .with_context(|| format!("the API server does not know {api_version} {kind}"))?;
    Ok(api(client, &resource, &capabilities, namespace))
}

/// The objects' API, namespaced or not.
fn api(
    client: &Client,
    resource: &ApiResource,
    capabilities: &ApiCapabilities,
    namespace: &str,
) -> Api<DynamicObject> {
    match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

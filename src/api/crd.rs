//! The CustomResourceDefinitions, generated from the types.
//!
//! Derived schemas say more and less than the released ones, so they are put right here by a pure
//! function: what Rust adds is taken away (nullable, formats unknown to Kubernetes), what the types
//! cannot tell apart is added (rules that hold for a kind but not for its template). Nothing is
//! written to disk here; the task runner does that and checks for drift.

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use super::ipam::{GlobalInClusterIPPool, InClusterIPPool};
use super::{
    ProxmoxCluster, ProxmoxClusterTemplate, ProxmoxConnection, ProxmoxMachine,
    ProxmoxMachineTemplate, VERSION,
};

/// Label of everything that is installed; `clusterctl` finds a provider's objects by it.
pub const PROVIDER_LABEL: (&str, &str) = ("cluster.x-k8s.io/provider", "infrastructure-proxmox");
/// Label by which Cluster API finds the version of our kinds that speaks its v1beta1 contract.
pub const CONTRACT_LABEL: (&str, &str) = ("cluster.x-k8s.io/v1beta1", VERSION);

/// Label of definitions whose objects `clusterctl move` takes along though no Cluster owns them, with
/// what they own. What has no namespace stays at the source as well.
pub const MOVE_LABEL: &str = "clusterctl.cluster.x-k8s.io/move-hierarchy";

const HEADER: &str =
    "# Generated from the types in src/api. Edit those, then run `cargo xtask generate`.\n";

/// The CRDs of the infrastructure kinds and of ProxmoxConnection, each with the name of its file, in
/// the order of the names.
///
/// # Errors
///
/// A schema that cannot be written as YAML, which no type of ours has.
pub fn all() -> Result<Vec<(String, String)>, serde_yaml::Error> {
    infrastructure().iter().chain([&connection()]).map(file).collect()
}

/// The CRDs of the in-cluster provider's pools, for where the embedded allocator stands in for it.
///
/// # Errors
///
/// As for [`all`].
pub fn pools() -> Result<Vec<(String, String)>, serde_yaml::Error> {
    in_cluster_ipam().iter().map(file).collect()
}

/// The CRDs of the infrastructure kinds as values.
pub fn infrastructure() -> Vec<Value> {
    let mut cluster = manifest::<ProxmoxCluster>();
    prepend_rules(
        &mut cluster,
        &[(
            "at least one ip config must be set, either ipv4Config or ipv6Config",
            "self.ipv4Config != null || self.ipv6Config != null",
        )],
    );
    let mut cluster_template = manifest::<ProxmoxClusterTemplate>();
    if let Some(version) = cluster_template.pointer_mut("/spec/versions/0") {
        // Served by capmox although the kind has no status; a client may well use it.
        version["subresources"] = json!({ "status": {} });
    }
    let mut machine = manifest::<ProxmoxMachine>();
    prepend_rules(
        &mut machine,
        &[
            (
                "must define either SourceNode with TemplateID, OR TemplateSelector",
                "[has(self.sourceNode), has(self.templateSelector)].exists_one(c, c)",
            ),
            (
                "must define either SourceNode with TemplateID, OR TemplateSelector.",
                "[has(self.templateID), has(self.templateSelector)].exists_one(c, c)",
            ),
        ],
    );
    // Read as false when absent, but not defaulted in the store.
    if let Some(ready) = machine
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/ready")
        .and_then(Value::as_object_mut)
    {
        ready.remove("default");
    }
    let mut all = vec![cluster, cluster_template, machine, manifest::<ProxmoxMachineTemplate>()];
    for crd in &mut all {
        crd["metadata"]["labels"] = json!({
            PROVIDER_LABEL.0: PROVIDER_LABEL.1,
            CONTRACT_LABEL.0: CONTRACT_LABEL.1,
        });
    }
    all
}

/// The CRD of ProxmoxConnection as a value.
///
/// It is kubemox's kind, so Cluster API's contract label is not on it.
pub fn connection() -> Value {
    let mut crd = manifest::<ProxmoxConnection>();
    crd["metadata"]["labels"] = json!({ PROVIDER_LABEL.0: PROVIDER_LABEL.1, MOVE_LABEL: "" });
    crd
}

/// The CRDs of the in-cluster provider's pools as values.
pub fn in_cluster_ipam() -> Vec<Value> {
    vec![manifest::<GlobalInClusterIPPool>(), manifest::<InClusterIPPool>()]
}

fn file(crd: &Value) -> Result<(String, String), serde_yaml::Error> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = format!("{}_{}.yaml", text("/spec/group"), text("/spec/names/plural"));
    Ok((name, format!("{HEADER}{}", serde_yaml::to_string(&sorted(crd))?)))
}

/// The CRD of a kind, put right as far as that is the same for all.
fn manifest<K: CustomResourceExt>() -> Value {
    let mut crd = serde_json::to_value(K::crd()).unwrap_or_default();
    let root = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
    if let Some(root) = root {
        clean(root);
        complete_root(root);
    }
    if let Some(names) = crd.pointer_mut("/spec/names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default();
        let list = format!("{kind}List");
        names.insert("listKind".to_owned(), list.into());
    }
    crd
}

/// Takes away what derived schemas have too much, all the way down.
fn clean(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("nullable");
            object.remove("title");
            if let Some(values) = object.get_mut("enum").and_then(Value::as_array_mut) {
                values.retain(|value| !value.is_null());
            }
            for key in ["minimum", "maximum", "multipleOf"] {
                // Bounds pass through a type that holds floats; they are written as meant.
                if let Some(bound) = object.get_mut(key) {
                    *bound = whole(bound);
                }
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = unwrapped(text);
            }
            let unknown_format = object
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|format| format.starts_with("uint"));
            if unknown_format {
                object.remove("format");
            }
            for (key, value) in object {
                match key.as_str() {
                    "properties" => {
                        value.as_object_mut().into_iter().flatten().for_each(|(_, v)| clean(v));
                    }
                    "items" | "additionalProperties" => clean(value),
                    _ => {}
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
    }
}

/// The same number, as an integer where it is one.
fn whole(number: &Value) -> Value {
    match number.as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "exact below 2^53, and checked")]
        Some(float) if float.fract() == 0.0 && float.abs() < 9e15 => (float as i64).into(),
        _ => number.clone(),
    }
}

/// Text whose lines end where paragraphs do; doc comments are wrapped for the editor.
fn unwrapped(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// The root of a kind's schema as Kubernetes' own generator writes it.
fn complete_root(root: &mut Value) {
    let Some(object) = root.as_object_mut() else { return };
    // Whether `spec` is there is left to the rules within it, as in the released CRDs.
    object.remove("required");
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        let text = |description: &str| json!({ "type": "string", "description": description });
        properties.insert(
            "apiVersion".to_owned(),
            text("API group and version in which the object is written."),
        );
        properties.insert("kind".to_owned(), text("Kind of the object, in CamelCase."));
        properties.insert("metadata".to_owned(), json!({ "type": "object" }));
    }
}

/// Puts rules on `spec` before those that it has.
fn prepend_rules(crd: &mut Value, rules: &[(&str, &str)]) {
    let spec = crd
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
        .and_then(Value::as_object_mut);
    let Some(spec) = spec else { return };
    let mut all: Vec<Value> =
        rules.iter().map(|(message, rule)| json!({ "message": message, "rule": rule })).collect();
    let had = spec.get("x-kubernetes-validations").and_then(Value::as_array);
    all.extend(had.into_iter().flatten().cloned());
    spec.insert("x-kubernetes-validations".to_owned(), all.into());
}

/// The same value with all keys in order, whatever features `serde_json` is built with.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().map(|(k, v)| (k.clone(), sorted(v))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(entries.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_are_named_by_group_and_plural_and_come_out_the_same() {
        let first = all().unwrap();
        let names: Vec<_> = first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "infrastructure.cluster.x-k8s.io_proxmoxclusters.yaml",
                "infrastructure.cluster.x-k8s.io_proxmoxclustertemplates.yaml",
                "infrastructure.cluster.x-k8s.io_proxmoxmachines.yaml",
                "infrastructure.cluster.x-k8s.io_proxmoxmachinetemplates.yaml",
                "proxmox.alperen.cloud_proxmoxconnections.yaml",
            ]
        );
        assert_eq!(first, all().unwrap());
    }

    #[test]
    fn schemas_are_structural_and_say_nothing_that_kubernetes_does_not_know() {
        fn walk(schema: &Value, path: &str) {
            let object = schema.as_object().unwrap();
            for key in ["nullable", "anyOf", "oneOf", "allOf", "$ref", "title", "const"] {
                assert!(!object.contains_key(key), "{path} has {key}");
            }
            assert!(object.contains_key("type"), "{path} has no type");
            let format = object.get("format").map_or("int32", |format| format.as_str().unwrap());
            assert!(["int32", "int64", "date-time"].contains(&format), "{path}: {format}");
            let described = object.contains_key("description")
                || ["metadata", "[]", "{}"].iter().any(|end| path.ends_with(end));
            assert!(described, "{path} is not described");
            for (name, property) in
                object.get("properties").and_then(Value::as_object).into_iter().flatten()
            {
                walk(property, &format!("{path}.{name}"));
            }
            if let Some(items) = object.get("items") {
                walk(items, &format!("{path}[]"));
            }
            if let Some(values) = object.get("additionalProperties") {
                walk(values, &format!("{path}{{}}"));
            }
        }
        for crd in infrastructure().iter().chain([&connection()]).chain(&in_cluster_ipam()) {
            walk(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "");
        }
    }
}

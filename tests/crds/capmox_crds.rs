//! Definitions as capmox v0.7.7 installs them, made of the table of facts in `tests/parity`.

use serde_json::{Map, Value, json};

use crate::facts::{self, Field, Kind};

/// All four.
pub(crate) fn definitions() -> Vec<Value> {
    facts::read().iter().map(definition).collect()
}

fn definition(kind: &Kind) -> Value {
    let name = |key: &str| kind.names[key].as_str();
    let list =
        |key: &str| -> Vec<&str> { name(key).split(',').filter(|one| !one.is_empty()).collect() };
    let columns: Vec<Value> = kind
        .columns
        .iter()
        .map(|[name, type_, path]| json!({"name": name, "type": type_, "jsonPath": path}))
        .collect();
    let mut version = json!({
        "name": name("version"),
        "served": true,
        "storage": true,
        "additionalPrinterColumns": columns,
        "schema": { "openAPIV3Schema": schema(kind) },
    });
    if name("status") == "true" {
        version["subresources"] = json!({ "status": {} });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{}", name("plural"), capmox::api::GROUP),
            "labels": { "cluster.x-k8s.io/v1beta1": name("version") },
        },
        "spec": {
            "group": capmox::api::GROUP,
            "scope": name("scope"),
            "names": {
                "kind": kind.name,
                "plural": name("plural"),
                "singular": name("singular"),
                "listKind": name("list"),
                "shortNames": list("short"),
                "categories": list("categories"),
            },
            "versions": [version],
        },
    })
}

/// A parent's path is the beginning of its children's, so it comes before them.
fn schema(kind: &Kind) -> Value {
    let mut root = Value::Null;
    for (path, field) in &kind.fields {
        let mut node = &mut root;
        for key in keys(path) {
            node = &mut node[key];
        }
        *node = Value::Object(keywords(field));
    }
    root
}

/// Where a field's schema is: `.a[].b` is `properties/a/items/properties/b`.
fn keys(path: &str) -> Vec<&str> {
    let mut keys = Vec::new();
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let name = part.trim_end_matches("[]").trim_end_matches("{}");
        keys.extend(["properties", name]);
        if part.ends_with("[]") {
            keys.push("items");
        } else if part.ends_with("{}") {
            keys.push("additionalProperties");
        }
    }
    keys
}

fn keywords(field: &Field) -> Map<String, Value> {
    let mut all: Map<String, Value> = field.keywords.clone().into_iter().collect();
    if !field.rules.is_empty() {
        let rules = field.rules.iter();
        let rules: Vec<_> =
            rules.map(|(message, rule)| json!({"message": message, "rule": rule})).collect();
        all.insert("x-kubernetes-validations".to_owned(), json!(rules));
    }
    all
}

//! The schema of a machine as a variable of a ClusterClass: that of ProxmoxMachine, as far as a
//! variable may say it.

use anyhow::{Context as _, Result};
use capmox::api::crd;
use serde_json::{Map, Value};

/// What Cluster API's schema of variables has words for, of what ours uses.
const KNOWN: &[&str] = &[
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-validations",
];

/// Fields that belong to one machine; a template of machines has no use for them.
const OF_ONE_MACHINE: &[&str] = &["providerID", "virtualMachineID"];

/// Length of lists of objects. Cluster API estimates what the rules within could cost, and refuses
/// a class whose lists have no end.
const MOST_ITEMS: u16 = 256;

/// What a reference to a pool means when it does not say.
const POOL: &[(&str, &str)] =
    &[("apiGroup", "ipam.cluster.x-k8s.io"), ("kind", "GlobalInClusterIPPool")];

/// The schema as YAML.
///
/// # Errors
/// If ProxmoxMachine's definition is not where it is expected.
pub(super) fn machine_spec() -> Result<String> {
    let definitions = crd::infrastructure();
    let is_machine = |definition: &&Value| {
        definition.pointer("/spec/names/kind").is_some_and(|kind| kind == "ProxmoxMachine")
    };
    let machine = definitions.iter().find(is_machine).context("no definition of ProxmoxMachine")?;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut spec = variable(machine.pointer(spec).context("ProxmoxMachine has no spec")?);
    if let Some(fields) = spec.get_mut("properties").and_then(Value::as_object_mut) {
        for field in OF_ONE_MACHINE {
            fields.remove(*field).with_context(|| format!("ProxmoxMachine has no {field}"))?;
        }
    }
    serde_yaml::to_string(&spec).context("a schema that is no YAML")
}

/// A schema without what a variable cannot say.
fn variable(schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return schema.clone() };
    let mut kept = Map::new();
    for (key, value) in schema.iter().filter(|(key, _)| KNOWN.contains(&key.as_str())) {
        let value = match key.as_str() {
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                fields.map(|(name, field)| (name.clone(), named(name, field))).collect()
            }
            "items" => variable(value),
            "x-kubernetes-validations" => lasting(value),
            _ => value.clone(),
        };
        if value != Value::Array(vec![]) {
            kept.insert(key.clone(), value);
        }
    }
    if kept.get("items").is_some_and(|item| item["type"] == "object") {
        kept.insert("maxItems".to_owned(), MOST_ITEMS.into());
    }
    Value::Object(kept)
}

/// A field. A pool may go by its name alone, as in capmox's classes.
fn named(name: &str, schema: &Value) -> Value {
    let mut schema = variable(schema);
    if name.ends_with("PoolRef") {
        for (field, default) in POOL {
            if let Some(field) = schema.pointer_mut(&format!("/properties/{field}")) {
                field["default"] = (*default).into();
            }
        }
    }
    schema
}

/// The rules without those that forbid a change: a changed variable makes new machines.
fn lasting(rules: &Value) -> Value {
    let is_kept = |rule: &&Value| {
        rule.get("rule").and_then(Value::as_str).is_some_and(|text| !text.contains("oldSelf"))
    };
    rules.as_array().into_iter().flatten().filter(is_kept).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_variable_cannot_say_is_left_out_at_every_depth() {
        let schema = json!({
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {
                "memory": {"type": "integer", "multipleOf": 8},
                "devices": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "items": {"type": "object", "x-kubernetes-list-type": "set"},
                    "x-kubernetes-validations": [{"rule": "self == oldSelf"}, {"rule": "self > 0"}],
                },
                "volume": {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
                "ipv4PoolRef": {"properties": {"kind": {}, "name": {}}},
            },
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "memory": {"type": "integer"},
                "devices": {
                    "type": "array",
                    "items": {"type": "object"},
                    "maxItems": MOST_ITEMS,
                    "x-kubernetes-validations": [{"rule": "self > 0"}],
                },
                "volume": {},
                "ipv4PoolRef": {
                    "properties": {"kind": {"default": "GlobalInClusterIPPool"}, "name": {}},
                },
            },
        });
        assert_eq!(variable(&schema), expected);
    }

    #[test]
    fn the_schema_keeps_the_rules_of_a_machine_and_drops_its_identity() -> Result<()> {
        let spec: Value = serde_yaml::from_str(&machine_spec()?)?;
        let field = |name: &str| spec.pointer(&format!("/properties/{name}"));
        assert!(field("sourceNode").is_some() && field("network").is_some());
        assert!(field("providerID").is_none() && field("virtualMachineID").is_none());
        let rules = spec.get("x-kubernetes-validations").and_then(Value::as_array);
        assert_eq!(rules.map(Vec::len), Some(4));
        Ok(())
    }
}

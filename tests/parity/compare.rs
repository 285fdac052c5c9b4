//! Compares CRDs with the facts, and finds what was lost or tightened.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::facts::{Field, Kind};

/// A difference that a user of capmox would notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: String,
    pub(crate) what: String,
}

/// Keywords that must be the same.
const SAME: &[&str] = &[
    "type",
    "format",
    "default",
    "pattern",
    "multipleOf",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];
/// Keywords that tighten when they are raised, or added.
const LOWER_BOUNDS: &[&str] = &["minimum", "minLength", "minItems", "minProperties"];
/// Keywords that tighten when they are lowered, or added.
const UPPER_BOUNDS: &[&str] = &["maximum", "maxLength", "maxItems", "maxProperties"];
/// Keywords that say nothing of which objects are accepted, or lead to other fields.
const NEUTRAL: &[&str] = &["description", "properties", "items", "additionalProperties"];

pub(crate) fn listing(findings: &[Finding]) -> String {
    let lines: Vec<String> =
        findings.iter().map(|finding| format!("{}{}", finding.kind, finding.what)).collect();
    lines.join("\n")
}

/// Compares all kinds.
pub(crate) fn all(table: &[Kind], crds: &[Value]) -> Vec<Finding> {
    table
        .iter()
        .flat_map(|kind| {
            let named = |crd: &&Value| crd["spec"]["names"]["kind"] == kind.name.as_str();
            let whats = match crds.iter().find(named) {
                Some(crd) => [names(kind, crd), fields(kind, crd)].concat(),
                None => vec![": lost".to_owned()],
            };
            whats.into_iter().map(|what| Finding { kind: kind.name.clone(), what })
        })
        .collect()
}

fn names(kind: &Kind, crd: &Value) -> Vec<String> {
    let spec = &crd["spec"];
    let version = &spec["versions"][0];
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let ours = BTreeMap::from([
        ("plural", text(&spec["names"]["plural"])),
        ("singular", text(&spec["names"]["singular"])),
        ("list", text(&spec["names"]["listKind"])),
        ("short", list(&spec["names"]["shortNames"]).join(",")),
        ("categories", list(&spec["names"]["categories"]).join(",")),
        ("scope", text(&spec["scope"])),
        ("version", text(&version["name"])),
        ("status", version["subresources"]["status"].is_object().to_string()),
    ]);
    let mut found: Vec<String> = kind
        .names
        .iter()
        .filter(|(key, value)| ours[key.as_str()] != **value)
        .map(|(key, value)| format!(": {key} was {value:?}, is {:?}", ours[key.as_str()]))
        .collect();
    if version["served"] != true || version["storage"] != true {
        found.push(": not served and stored".to_owned());
    }
    if crd["metadata"]["labels"]["cluster.x-k8s.io/v1beta1"] != "v1alpha1" {
        found.push(": contract label lost".to_owned());
    }
    let columns = version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default();
    for (place, wanted) in kind.columns.iter().enumerate() {
        let is = columns.get(place).map(|column| {
            [&column["name"], &column["type"], &column["jsonPath"]].map(|v| v.as_str().unwrap())
        });
        if is.is_none_or(|is| is != *wanted) {
            found.push(format!(": column {place} was {wanted:?}, is {is:?}"));
        }
    }
    found
}

fn fields(kind: &Kind, crd: &Value) -> Vec<String> {
    let mut ours = BTreeMap::new();
    flatten(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], String::new(), &mut ours);
    kind.fields
        .iter()
        .flat_map(|(path, was)| match ours.get(path) {
            Some(is) => field(was, is).into_iter().map(|what| format!("{path}: {what}")).collect(),
            None => vec![format!("{path}: lost")],
        })
        .collect()
}

fn flatten<'a>(schema: &'a Value, path: String, all: &mut BTreeMap<String, &'a Value>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        flatten(property, format!("{path}.{name}"), all);
    }
    for (key, end) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            flatten(&schema[key], format!("{path}{end}"), all);
        }
    }
    all.insert(path, schema);
}

fn field(was: &Field, is: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for key in SAME {
        let (was, is) = (was.keywords.get(*key), is.get(key));
        if was != is {
            found.push(format!("{key} was {was:?}, is {is:?}"));
        }
    }
    for (keys, tighter) in [
        (LOWER_BOUNDS, (|was, is| is > was) as fn(f64, f64) -> bool),
        (UPPER_BOUNDS, |was, is| is < was),
    ] {
        for key in keys {
            let number = |value: Option<&Value>| value.map(|value| value.as_f64().unwrap());
            match (number(was.keywords.get(*key)), number(is.get(key))) {
                (None, Some(is)) => found.push(format!("{key} {is} is new")),
                (Some(was), Some(is)) if tighter(was, is) => {
                    found.push(format!("{key} was {was}, is {is}"));
                }
                _ => {}
            }
        }
    }
    found.extend(sets(was, is));
    found.extend(rules(was, is));
    let known: BTreeSet<&str> = [SAME, LOWER_BOUNDS, UPPER_BOUNDS, NEUTRAL]
        .concat()
        .into_iter()
        .chain(["required", "enum", "x-kubernetes-validations"])
        .collect();
    let keys = is.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    found.extend(keys.filter(|key| !known.contains(key)).map(|key| format!("{key} is new")));
    found
}

/// What must be given, and what may be.
fn sets(was: &Field, is: &Value) -> Vec<String> {
    let strings = |value: Option<&Value>| -> BTreeSet<String> {
        let items = value.and_then(Value::as_array).into_iter().flatten();
        items.map(|item| item.as_str().unwrap_or("null").to_owned()).collect()
    };
    let required = strings(is.get("required"));
    let had = strings(was.keywords.get("required"));
    let mut found: Vec<String> =
        required.difference(&had).map(|name| format!("{name} is required now")).collect();
    let allowed = strings(is.get("enum"));
    match was.keywords.get("enum") {
        None if is.get("enum").is_some() => found.push("enum is new".to_owned()),
        None => {}
        Some(values) => {
            let values = strings(Some(values));
            let lost = values.difference(&allowed).filter(|_| is.get("enum").is_some());
            found.extend(lost.map(|value| format!("value {value} is refused now")));
        }
    }
    found
}

/// Rules are to be the same, in whatever order: one that is lost lets objects through that capmox
/// refuses with a message, and a new one refuses more.
fn rules(was: &Field, is: &Value) -> Vec<String> {
    let empty = Vec::new();
    let is: Vec<(String, String)> = is
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .unwrap_or(&empty)
        .iter()
        .map(|rule| {
            assert_eq!(rule.as_object().unwrap().len(), 2, "{rule}: only message and rule");
            (rule["message"].as_str().unwrap().into(), rule["rule"].as_str().unwrap().into())
        })
        .collect();
    let lost = was.rules.iter().filter(|rule| !is.contains(rule));
    let new = is.iter().filter(|rule| !was.rules.contains(rule));
    lost.map(|(message, _)| format!("rule lost: {message}"))
        .chain(new.map(|(message, _)| format!("rule is new: {message}")))
        .collect()
}

//! Answers reduced to what two independent simulators can agree on.

use std::collections::BTreeMap;

use serde_json::Value;

/// Types by path: `data[].name` is a string. A list shows the union of its items.
pub(crate) fn shape(value: &Value) -> BTreeMap<String, String> {
    let mut shape = BTreeMap::new();
    walk("data", value, &mut shape);
    shape
}

fn walk(path: &str, value: &Value, shape: &mut BTreeMap<String, String>) {
    let kind = match value {
        Value::Null => "null",
        // Perl has no booleans: 0 and 1 are numbers, and numbers may come as texts.
        Value::Bool(_) | Value::Number(_) => "number",
        Value::String(text) if text.starts_with("UPID:") => "upid",
        Value::String(_) => "string",
        Value::Array(items) => {
            for item in items {
                walk(&format!("{path}[]"), item, shape);
            }
            "array"
        }
        Value::Object(map) => {
            for (key, item) in map {
                walk(&format!("{path}.{key}"), item, shape);
            }
            "object"
        }
    };
    shape.insert(path.to_owned(), kind.to_owned());
}

/// What differs: one line for each path, `path: ours | theirs`.
pub(crate) fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let (ours, theirs) = (shape(ours), shape(theirs));
    let paths: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let kind = |shape: &BTreeMap<String, String>, path: &str| {
        shape.get(path).cloned().unwrap_or_else(|| "-".to_owned())
    };
    paths
        .into_iter()
        .map(|path| (path, kind(&ours, path), kind(&theirs, path)))
        .filter(|(_, ours, theirs)| ours != theirs)
        .map(|(path, ours, theirs)| format!("{path}: {ours} | {theirs}"))
        .collect()
}

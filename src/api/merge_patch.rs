//! JSON merge patches with exactly what differs.

use serde_json::{Map, Value};

/// The merge patch that leads from `old` to `new`, if they differ.
pub fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in after {
        let change = match before.get(key) {
            Some(before) => merge_patch(before, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    patch.extend(removed.map(|key| (key.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_names_only_what_differs() {
        let old = json!({"ready": false, "taskRef": "x", "ipAddresses": {"net0": {"ipv4": "1"}}});
        let new = json!({"ready": false, "ipAddresses": {"net0": {"ipv4": "2"}}, "vmStatus": "p"});
        assert_eq!(
            merge_patch(&old, &new),
            Some(json!({
                "taskRef": null, "vmStatus": "p", "ipAddresses": {"net0": {"ipv4": "2"}}
            }))
        );
        assert_eq!(merge_patch(&new, &new), None);
    }
}

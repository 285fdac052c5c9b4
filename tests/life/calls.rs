//! Names for calls, so that the same call of two machines' lives has one name: method, path without
//! names and numbers, and what is written.

use pve_fake::HookCall;
use serde_json::Value;

/// The name of a call to Proxmox.
pub(crate) fn to_proxmox(call: &HookCall) -> String {
    let mut path = String::new();
    let mut before = "";
    for part in call.path.split('/').filter(|part| !part.is_empty()) {
        let shown = match before {
            "nodes" | "storage" | "content" => "*",
            "qemu" if part.bytes().all(|byte| byte.is_ascii_digit()) => "*",
            // UPID:node:pid:pstart:starttime:kind:id:user:
            "tasks" => part.split(':').nth(5).unwrap_or("*"),
            _ => part,
        };
        path.push('/');
        path.push_str(shown);
        if before == "content" {
            // A volume's id has a slash of its own.
            break;
        }
        before = part;
    }
    // Only a configuration's write says different things at different times.
    let written = call.method != "GET" && path.ends_with("/config");
    let keys: Vec<&str> = call
        .params
        .iter()
        .filter(|(key, _)| written && *key != "digest")
        .map(|(key, _)| key.as_str())
        .chain((path == "/cluster/nextid" && call.params.contains_key("vmid")).then_some("vmid"))
        .collect();
    named(&format!("{} {path}", call.method), &keys)
}

/// The name of a write to the API server; none for a read.
pub(crate) fn to_kubernetes(method: &str, path: &str, body: &[u8]) -> Option<String> {
    if method == "GET" {
        return None;
    }
    let below = path.split_once("/namespaces/").map_or(path, |(_, below)| below);
    let mut parts = below.split('/').skip(1);
    let mut what = parts.next().unwrap_or_default().to_owned();
    if let Some(subresource) = parts.nth(1) {
        what = format!("{what}/{subresource}");
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut keys = Vec::new();
    if method == "PATCH" {
        for part in ["metadata", "spec", "status"] {
            let written = body.get(part).and_then(Value::as_object).into_iter().flatten();
            keys.extend(written.map(|(key, value)| match value {
                Value::Null => format!("-{key}"),
                _ => key.clone(),
            }));
        }
        // Conditions and the version are part of nearly every write.
        let plain =
            |key: &String| !["resourceVersion", "conditions", "v1beta2"].contains(&key.as_str());
        keys.retain(plain);
    }
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    Some(named(&format!("{method} {what}"), &keys))
}

fn named(call: &str, keys: &[&str]) -> String {
    if keys.is_empty() { call.to_owned() } else { format!("{call} {}", keys.join(",")) }
}

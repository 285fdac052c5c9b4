//! The world in short, for the message of a wait that was in vain.

use std::fmt::Write as _;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Resource as _, ResourceExt as _};
use serde_json::Value;

use crate::process::Process;

/// Groups whose objects are told of.
const GROUPS: &[&str] = &[
    "cluster.x-k8s.io",
    "bootstrap.cluster.x-k8s.io",
    "controlplane.cluster.x-k8s.io",
    "infrastructure.cluster.x-k8s.io",
    "ipam.cluster.x-k8s.io",
];

/// Objects with what is not true of them, and the ends of the logs.
pub(crate) async fn world(client: &Client, processes: &[Process], lines: usize) -> String {
    let mut text = String::new();
    match objects(client).await {
        Ok(objects) => text.push_str(&objects),
        Err(error) => {
            let _ = writeln!(text, "objects cannot be listed: {error}");
        }
    }
    for process in processes {
        let tail = process.log_tail(lines);
        let _ = writeln!(text, "--- end of {}\n{tail}", process.log().display());
    }
    text
}

async fn objects(client: &Client) -> Result<String, kube::Error> {
    let discovery = Discovery::new(client.clone()).filter(GROUPS).run().await?;
    let mut text = String::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for object in api.list(&ListParams::default()).await? {
                let namespaced = capabilities.scope == Scope::Namespaced;
                line(&mut text, &resource.kind, &object, namespaced);
            }
        }
    }
    Ok(text)
}

fn line(text: &mut String, kind: &str, object: &DynamicObject, namespaced: bool) {
    let namespace = object.namespace().filter(|_| namespaced).unwrap_or_default();
    let phase = object.data.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let deleting = if object.meta().deletion_timestamp.is_some() { " (being deleted)" } else { "" };
    let _ = writeln!(text, "{kind} {namespace}/{} {phase}{deleting}", object.name_any());
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        let part = |name: &str| condition.get(name).and_then(Value::as_str).unwrap_or_default();
        if part("status") != "True" {
            let (kind, reason, message) = (part("type"), part("reason"), part("message"));
            let _ = writeln!(text, "    {kind}={} {reason}: {message}", part("status"));
        }
    }
}

//! Registers the managers' admission webhooks by URL instead of by Service.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use serde_json::{Value, json};

use crate::apply::{apply, documents};

/// Applies the webhook configurations of `manifest`, called at `port` of 127.0.0.1.
pub(crate) async fn register(
    client: &Client,
    manifest: &Path,
    prefix: &str,
    port: u16,
    ca_pem: &str,
) -> Result<()> {
    let text = std::fs::read_to_string(manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let objects = documents(&text).with_context(|| format!("in {}", manifest.display()))?;
    for mut object in objects {
        by_url(&mut object, prefix, port, ca_pem);
        apply(client, &object, "default").await?;
    }
    Ok(())
}

fn by_url(configuration: &mut Value, prefix: &str, port: u16, ca_pem: &str) {
    if let Some(name) = configuration.pointer_mut("/metadata/name") {
        *name = json!(format!("{prefix}-{}", name.as_str().unwrap_or_default()));
    }
    let hooks = configuration.get_mut("webhooks").and_then(Value::as_array_mut);
    for hook in hooks.into_iter().flatten() {
        let path = hook.pointer("/clientConfig/service/path").and_then(Value::as_str);
        let url = format!("https://127.0.0.1:{port}{}", path.unwrap_or_default());
        if let Some(hook) = hook.as_object_mut() {
            let config = json!({ "url": url, "caBundle": STANDARD.encode(ca_pem) });
            hook.insert("clientConfig".to_owned(), config);
        }
    }
}

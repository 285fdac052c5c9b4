//! Kubeconfig files and clients made from them.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::pki::Pki;

/// The administrator's kubeconfig.
pub(crate) fn admin(pki: &Pki, server: &str) -> Value {
    let user = json!({
        "client-certificate-data": STANDARD.encode(&pki.admin_cert),
        "client-key-data": STANDARD.encode(&pki.admin_key),
    });
    with_user(pki, server, &user)
}

/// A kubeconfig of whoever holds the bearer token, at home in the namespace.
pub(crate) fn bearer(pki: &Pki, server: &str, token: &str, namespace: &str) -> Value {
    let mut config = with_user(pki, server, &json!({ "token": token }));
    config["contexts"][0]["context"]["namespace"] = namespace.into();
    config
}

fn with_user(pki: &Pki, server: &str, user: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "testbed", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(&pki.ca_pem),
        }}],
        "users": [{ "name": "testbed", "user": user }],
        "contexts": [{ "name": "testbed", "context": { "cluster": "testbed", "user": "testbed" }}],
        "current-context": "testbed",
    })
}

/// Writes a kubeconfig; JSON is YAML.
pub(crate) fn write(path: &Path, config: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(config).context("cannot write a kubeconfig")?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A client for the kubeconfig, living in the runtime that calls.
pub(crate) async fn client(path: &Path) -> Result<kube::Client> {
    // Some test may have chosen already; any choice will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config =
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .context("the kubeconfig is not understood")?;
    kube::Client::try_from(config).context("cannot make a client")
}

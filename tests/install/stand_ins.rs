//! What a cluster with nodes would have: cert-manager, a way from the API server to a Service, and a
//! word on Deployments that are scaled down.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use testbed::apply;

/// cert-manager's kinds as far as a provider uses them; what it may not say is refused by the API
/// server's strict validation. For `kubectl apply`, and for clusterctl to find "installed".
pub(crate) fn cert_manager() -> String {
    let definition = |kind: &str, plural: &str, spec: &Value| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.cert-manager.io") },
            "spec": {
                "group": "cert-manager.io",
                "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "listKind": format!("{kind}List") },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "subresources": { "status": {} },
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                        "spec": spec,
                        "status": { "type": "object",
                            "x-kubernetes-preserve-unknown-fields": true },
                    }}},
                }],
            },
        })
    };
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": text });
    let reference = json!({ "type": "object", "required": ["name"],
        "properties": { "name": text, "kind": text, "group": text } });
    let certificate = json!({ "type": "object", "required": ["issuerRef", "secretName"],
        "properties": { "issuerRef": reference, "secretName": text, "dnsNames": texts,
            "subject": { "type": "object", "properties": { "organizations": texts } } } });
    let issuer = json!({ "type": "object",
        "properties": { "selfSigned": { "type": "object" } } });
    let definitions = [
        definition("Certificate", "certificates", &certificate),
        definition("Issuer", "issuers", &issuer),
    ];
    definitions.map(|one| format!("---\n{one}\n")).concat()
}

/// Fills the Secrets of the Certificates in a namespace, and puts the authority into the webhook
/// configurations that ask for it, as cert-manager and its injector do.
pub(crate) async fn issue_certificates(client: &Client, namespace: &str) -> Result<()> {
    let certificates = apply::find(client, "cert-manager.io/v1", "Certificate", namespace).await?;
    for certificate in certificates.list(&ListParams::default()).await? {
        let spec = &certificate.data["spec"];
        let issuers = apply::find(client, "cert-manager.io/v1", "Issuer", namespace).await?;
        let issuer = spec["issuerRef"]["name"].as_str().context("no issuer")?;
        issuers.get(issuer).await.context("the Certificate's issuer")?;
        let names: Vec<String> = serde_json::from_value(spec["dnsNames"].clone())?;
        let (authority, leaf, key) = sign(names)?;
        let secret = Secret {
            metadata: kube::core::ObjectMeta {
                name: spec["secretName"].as_str().map(str::to_owned),
                ..Default::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(BTreeMap::from([
                ("ca.crt".to_owned(), ByteString(authority.clone().into_bytes())),
                ("tls.crt".to_owned(), ByteString(leaf.into_bytes())),
                ("tls.key".to_owned(), ByteString(key.into_bytes())),
            ])),
            ..Default::default()
        };
        Api::<Secret>::namespaced(client.clone(), namespace)
            .patch(
                &secret.name_any(),
                &PatchParams::apply("cert-manager").force(),
                &Patch::Apply(&secret),
            )
            .await
            .context("the certificate's Secret")?;
        inject(client, &format!("{namespace}/{}", certificate.name_any()), &authority).await?;
    }
    Ok(())
}

/// A new authority, and a certificate of it for these names: three PEM texts.
fn sign(names: Vec<String>) -> Result<(String, String, String)> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let authority = params.self_signed(&authority_key)?;
    let key = KeyPair::generate()?;
    let issuer = Issuer::new(params, authority_key);
    let leaf = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    Ok((authority.pem(), leaf.pem(), key.serialize_pem()))
}

async fn inject(client: &Client, certificate: &str, authority: &str) -> Result<()> {
    let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    for mut configuration in api.list(&ListParams::default()).await? {
        let asks = configuration.annotations().get("cert-manager.io/inject-ca-from");
        if asks.is_none_or(|asked| asked != certificate) {
            continue;
        }
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = Some(ByteString(authority.as_bytes().to_vec()));
        }
        api.replace(&configuration.name_any(), &PostParams::default(), &configuration)
            .await
            .context("the authority's injection")?;
    }
    Ok(())
}

/// Says of every Deployment that is scaled to nothing that nothing of it runs, as its controller
/// would: upgrades wait for that. Never ends.
pub(crate) async fn scale_down(client: Client) {
    let api = Api::<Deployment>::all(client.clone());
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(300));
    loop {
        ticks.tick().await;
        let found = api.list(&ListParams::default()).await.map(|list| list.items);
        let idle = |one: &Deployment| {
            let wanted = one.spec.as_ref().and_then(|spec| spec.replicas);
            let runs = one.status.as_ref().and_then(|status| status.replicas);
            wanted == Some(0) && runs.unwrap_or_default() > 0
        };
        for one in found.unwrap_or_default().into_iter().filter(idle) {
            let namespace = one.namespace().unwrap_or_default();
            let none = json!({ "status":
                { "replicas": 0, "readyReplicas": 0, "availableReplicas": 0 } });
            let api = Api::<Deployment>::namespaced(client.clone(), &namespace);
            let params = PatchParams::default();
            // Gone or changed meanwhile: the next round sees.
            let _ = api.patch_status(&one.name_any(), &params, &Patch::Merge(&none)).await;
        }
    }
}

/// Makes a Service lead to this machine. Whoever installs may make it anew at the same time.
async fn lead_out(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    loop {
        let found = services.get(name).await.context("the webhook's Service")?;
        let kind = found.spec.as_ref().and_then(|spec| spec.type_.as_deref());
        if kind == Some("ExternalName") {
            return Ok(());
        }
        let outside: Service = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": found.labels() },
            "spec": { "type": "ExternalName", "externalName": "127.0.0.1" },
        }))?;
        match services.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted?),
        }
        match services.create(&PostParams::default(), &outside).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => return created.map(drop).map_err(Into::into),
        }
    }
}

/// Leads a Service to a port of this machine, as kube-proxy would lead it to a pod. The API server
/// still asks for the certificate of the Service's name.
pub(crate) async fn lead(client: &Client, namespace: &str, name: &str, port: u16) -> Result<()> {
    lead_out(client, namespace, name).await?;
    // An outside name has no port of its own, so the caller names it.
    let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    for mut configuration in api.list(&ListParams::default()).await? {
        let mut is_ours = false;
        for webhook in configuration.webhooks.iter_mut().flatten() {
            let service = webhook.client_config.service.as_mut();
            let service = service.filter(|one| one.name == name && one.namespace == namespace);
            if let Some(service) = service {
                service.port = Some(i32::from(port));
                is_ours = true;
            }
        }
        if is_ours {
            let name = configuration.name_any();
            api.replace(&name, &PostParams::default(), &configuration).await?;
        }
    }
    Ok(())
}

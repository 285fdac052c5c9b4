//! What the API server accepts and refuses as a ProxmoxConnection.

use capmox::api::ProxmoxConnection;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{Case, Stage, accepted, refused};

/// The manifests of kubemox's documentation, to the letter.
const SEEDS: [&str; 2] = [
    r#"
apiVersion: proxmox.alperen.cloud/v1alpha1
kind: ProxmoxConnection
metadata:
  name: proxmox-connection-sample
spec:
  endpoint: "PROXMOX_ENDPOINT"
  username: "PROXMOX_USERNAME"
  password: "PROXMOX_PASSWORD"
  insecureSkipVerify: true
"#,
    r#"
apiVersion: proxmox.alperen.cloud/v1alpha1
kind: ProxmoxConnection
metadata:
  name: proxmox-connection-sample
spec:
  endpoint: "PROXMOX_ENDPOINT"
  tokenID: "root@pam!kubemox"
  secretFrom:
    name: proxmox-credentials
    namespace: kubemox
    key: token
  insecureSkipVerify: true
"#,
];

fn token() -> Value {
    json!({"endpoint": "pve", "tokenID": "root@pam!kubemox", "secret": "s"})
}

fn user() -> Value {
    json!({"endpoint": "pve", "username": "root@pam", "password": "p"})
}

fn key() -> Value {
    json!({"name": "s", "namespace": "n", "key": "k"})
}

fn good() -> Vec<Case> {
    let print = "AA:".repeat(31) + "AA";
    vec![
        accepted("a token", &token(), &json!({})),
        accepted("a user", &user(), &json!({})),
        accepted("secretFrom", &token(), &json!({"secret": null, "secretFrom": key()})),
        accepted("passwordFrom", &user(), &json!({"password": null, "passwordFrom": key()})),
        accepted("insecure", &token(), &json!({"insecureSkipVerify": true})),
        accepted("a bundle", &token(), &json!({"insecureSkipVerify": false, "caBundle": "pem"})),
        accepted("a bundle elsewhere", &token(), &json!({"caBundleFrom": key()})),
        accepted("a fingerprint", &token(), &json!({"fingerprint": print})),
        accepted("no colons", &token(), &json!({"fingerprint": "ab".repeat(32)})),
        accepted("nobody", &token(), &json!({"allowedNamespaces": []})),
        accepted("somebody", &token(), &json!({"allowedNamespaces": ["a", "b"]})),
        accepted("another", &token(), &json!({"additionalEndpoints": [{"endpoint": "pve2"}]})),
    ]
}

fn bad() -> Vec<Case> {
    vec![
        refused("no endpoint", &token(), &json!({"endpoint": null}), &["endpoint"]),
        refused("nobody", &json!({"endpoint": "pve"}), &json!({}), &["username and tokenID"]),
        refused(
            "two ways",
            &token(),
            &json!({"username": "root@pam", "password": "p"}),
            &["exactly one of username and tokenID"],
        ),
        refused(
            "two passwords",
            &user(),
            &json!({"passwordFrom": key()}),
            &["exactly one of password and passwordFrom"],
        ),
        refused(
            "two secrets",
            &token(),
            &json!({"secretFrom": key()}),
            &["exactly one of secret and secretFrom"],
        ),
        refused(
            "no password",
            &user(),
            &json!({"password": null}),
            &["username has no password", "password and passwordFrom"],
        ),
        refused(
            "no secret",
            &token(),
            &json!({"secret": null}),
            &["tokenID has no secret", "secret and secretFrom"],
        ),
        refused(
            "a user's token secret",
            &user(),
            &json!({"password": null, "secret": "s"}),
            &["exactly one of username and tokenID"],
        ),
        refused(
            "a token's password",
            &token(),
            &json!({"passwordFrom": key()}),
            &["exactly one of username and tokenID"],
        ),
    ]
}

/// What contradicts itself beside the credentials.
fn bad_trust() -> Vec<Case> {
    let print = "ab".repeat(32);
    vec![
        refused(
            "two bundles",
            &token(),
            &json!({"caBundle": "pem", "caBundleFrom": key()}),
            &["caBundle and caBundleFrom"],
        ),
        refused(
            "a fingerprint and a bundle",
            &token(),
            &json!({"caBundle": "pem", "fingerprint": print}),
            &["fingerprint and caBundle"],
        ),
        refused(
            "everybody and a fingerprint",
            &token(),
            &json!({"insecureSkipVerify": true, "fingerprint": print}),
            &["insecureSkipVerify and fingerprint"],
        ),
        refused("a short fingerprint", &token(), &json!({"fingerprint": "ab"}), &["SHA-256"]),
        refused(
            "no namespace",
            &token(),
            &json!({"secret": null, "secretFrom": {"name": "s", "key": "k"}}),
            &["secretFrom.namespace"],
        ),
        refused(
            "twice allowed",
            &token(),
            &json!({"allowedNamespaces": ["a", "a"]}),
            &["Duplicate"],
        ),
    ]
}

#[tokio::test]
async fn one_way_to_authenticate_with_one_source_is_accepted_and_all_else_refused() {
    let stage = Stage::set().await;
    let api: Api<ProxmoxConnection> = Api::all(stage.client.clone());
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let mut wrong = Vec::new();
    for case in good().into_iter().chain(bad()).chain(bad_trust()) {
        let object = json!({"metadata": {"name": "tried"}, "spec": case.spec,
            "apiVersion": "proxmox.alperen.cloud/v1alpha1", "kind": "ProxmoxConnection"});
        let body = serde_json::to_vec(&object).unwrap();
        let request =
            kube::core::Request::new("/apis/proxmox.alperen.cloud/v1alpha1/proxmoxconnections");
        let request = request.create(&parameters, body).unwrap();
        let said = match stage.client.request::<Value>(request).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => panic!("{error}"),
        };
        let as_expected = match (&case.refusal, &said) {
            (None, Ok(())) => true,
            (Some(texts), Err(said)) => texts.iter().all(|text| said.contains(text)),
            _ => false,
        };
        if !as_expected {
            wrong.push(format!("{}: wanted {:?}, was {said:?}", case.what, case.refusal));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(api.list(&kube::api::ListParams::default()).await.is_ok());
}

#[tokio::test]
async fn the_manifests_of_kubemox_apply_as_they_stand() {
    let stage = Stage::set().await;
    let api: Api<ProxmoxConnection> = Api::all(stage.client.clone());
    for seed in SEEDS {
        let object: Value = serde_yaml::from_str(seed).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let parameters = PatchParams::apply("kubectl");
        let made = api.patch(name, &parameters, &Patch::Apply(&object)).await.unwrap();
        assert!(made.spec.insecure_skip_verify);
        assert_eq!(made.spec.allowed_namespaces, None);
        assert!(!format!("{made:?}").contains("PROXMOX_PASSWORD"));
        // What kubemox writes is kept.
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "ProxmoxConnectionReady",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({"status": {"version": "9.1.4", "conditions": [condition]}});
        let merge = Patch::Merge(status);
        let told = api.patch_status(name, &PatchParams::default(), &merge).await.unwrap();
        let told = told.status.unwrap();
        assert_eq!(told.version.as_deref(), Some("9.1.4"));
        assert_eq!(told.conditions[0].reason, "ProxmoxConnectionReady");
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

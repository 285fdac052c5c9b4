//! What a connection says of itself.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::config::KubeConfigOptions;
use pve_fake::Change;
use serde_json::json;
use testbed::World;
use tokio_util::sync::CancellationToken;

use crate::stage::{PATIENCE, Stage, connections};

#[tokio::test]
async fn a_secret_that_comes_changes_and_goes_shows_in_the_status() {
    let stage = Stage::set().await;
    let name = stage.connection("", json!({})).await;
    let secret = format!("Secret {}/creds", stage.namespace);
    stage.says(&name, "SecretNotFound", &[&secret, "create it"]).await;

    let first = stage.secret(&stage.fake.token().secret).await;
    let ready = stage.says(&name, "Ready", &[]).await;
    let status = ready.status.unwrap();
    assert_eq!(status.connection_status.as_deref(), Some("Connected"));
    assert_eq!(status.version.as_deref(), Some("9.1.4"));
    assert_eq!(status.active_endpoint, Some(stage.fake.url()));
    assert_eq!(status.observed_secrets.len(), 1);
    assert_eq!(status.observed_secrets[0].resource_version, first.resource_version().unwrap());
    assert!(status.conditions.iter().all(|one| one.observed_generation == Some(1)));

    // A rotation to something wrong is noticed, and so is the one that corrects it.
    stage.rotate("00000000-0000-0000-0000-000000000000").await;
    stage.says(&name, "CredentialsRefused", &["401", "spec.tokenID"]).await;
    stage.rotate(&format!("{}\n", stage.fake.token().secret)).await;
    stage.says(&name, "Ready", &[]).await;

    stage.delete_secret().await;
    let gone = stage.says(&name, "SecretNotFound", &[&secret]).await;
    assert!(gone.status.unwrap().observed_secrets.is_empty());
    stage.secret(&stage.fake.token().secret).await;
    stage.says(&name, "Ready", &[]).await;
}

#[tokio::test]
async fn missing_privileges_are_listed_by_path() {
    let stage = Stage::set().await;
    let rights = |privileges: &[&str]| Change::Rights {
        path: "/".into(),
        who: "capmox@pve".into(),
        privileges: privileges.iter().map(|&name| name.to_owned()).collect(),
    };
    stage.fake.change(rights(&["VM.Audit"]));
    stage.secret(&stage.fake.token().secret).await;
    let name = stage.connection("", json!({})).await;
    let lacking = stage.says(&name, "PrivilegesMissing", &["VM.Allocate on /vms"]).await;
    let missing = lacking.status.unwrap().missing_privileges;
    assert!(missing.iter().any(|one| one.privilege == "Datastore.AllocateSpace"), "{missing:?}");
    assert!(missing.iter().all(|one| one.path.starts_with('/') && !one.needed_for.is_empty()));
}

#[tokio::test]
async fn an_endpoint_that_is_down_and_a_wrong_address_are_told_apart() {
    let stage = Stage::set().await;
    stage.secret(&stage.fake.token().secret).await;
    let port = testbed::ports::free().unwrap();
    let down = format!("http://127.0.0.1:{port}");
    let name = stage.connection("", json!({"endpoint": down})).await;
    stage.says(&name, "EndpointDown", &[&down, "spec.endpoint"]).await;
    let change = |spec| Patch::Merge(json!({"spec": spec}));
    let parameters = PatchParams::default();
    let wrong = change(json!({"endpoint": "ftp://pve"}));
    stage.all().patch(&name, &parameters, &wrong).await.unwrap();
    stage.says(&name, "InvalidConnection", &["spec.endpoint", "scheme"]).await;
    // The second address of the same cluster answers when the first does not.
    let both =
        change(json!({"endpoint": down, "additionalEndpoints": [{"endpoint": stage.fake.url()}]}));
    stage.all().patch(&name, &parameters, &both).await.unwrap();
    let ready = stage.says(&name, "Ready", &[]).await;
    assert_eq!(ready.status.unwrap().active_endpoint, Some(stage.fake.url()));
}

#[tokio::test]
async fn connections_with_equal_credentials_share_one_client() {
    let stage = Stage::set().await;
    stage.secret(&stage.fake.token().secret).await;
    let one = stage.connection("-one", json!({})).await;
    let plain = json!({"secretFrom": null, "secret": stage.fake.token().secret});
    let other = stage.connection("-other", plain).await;
    let first = stage.connections.connection(&one).await.endpoint.unwrap();
    let second = stage.connections.connection(&other).await.endpoint.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!format!("{:?}", stage.connections).contains(&stage.fake.token().secret));
}

#[tokio::test]
async fn of_two_connections_to_one_endpoint_a_token_that_is_revoked_stops_its_own_only() {
    let stage = Stage::set().await;
    stage.secret(&stage.fake.token().secret).await;
    let by_token = stage.connection("-token", json!({})).await;
    let user = json!({"tokenID": null, "secretFrom": null, "username": "capmox@pve",
        "password": "secret"});
    let by_password = stage.connection("-password", user).await;
    stage.says(&by_token, "Ready", &[]).await;
    stage.says(&by_password, "Ready", &[]).await;
    let first = stage.connections.connection(&by_token).await.endpoint.unwrap();
    let second = stage.connections.connection(&by_password).await.endpoint.unwrap();
    assert!(!Arc::ptr_eq(&first, &second), "each has a client of its own");

    let token = stage.fake.token().id.clone();
    stage.fake.change(Change::TokenRevoked { token: token.clone() });
    first.ask_version().await.unwrap_err();
    stage.says(&by_token, "CredentialsRefused", &["401", "spec.tokenID"]).await;
    second.ask_version().await.unwrap();
    stage.says(&by_password, "Ready", &[]).await;
    stage.fake.change(Change::TokenRestored { token });
    stage.says(&by_token, "Ready", &[]).await;
}

#[tokio::test]
async fn a_password_outlives_its_ticket() {
    let stage = Stage::set().await;
    stage.secret("secret\n").await;
    let user = json!({"tokenID": null, "secretFrom": null, "username": "capmox@pve",
        "passwordFrom": stage.reference()});
    let name = stage.connection("", user).await;
    stage.says(&name, "Ready", &[]).await;
    let endpoint = stage.connections.connection(&name).await.endpoint.unwrap();
    let tickets = || {
        let journal = stage.fake.journal();
        journal.entries().filter(|call| call.path.ends_with("/ticket")).count()
    };
    let before = tickets();
    stage.fake.advance(Duration::from_hours(3));
    endpoint.ask_version().await.unwrap();
    assert!(tickets() > before, "the ticket was renewed");
    stage.says(&name, "Ready", &[]).await;
}

#[tokio::test]
async fn a_secret_that_may_not_be_read_is_told_with_its_namespace() {
    let world = World::shared().await.unwrap();
    let stage = Stage::set().await;
    stage.secret(&stage.fake.token().secret).await;
    let name = stage.connection("", json!({})).await;
    // Connections may be read, Secrets may not.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{name}-reader")},
        "rules": [{"apiGroups": ["proxmox.alperen.cloud"],
            "resources": ["proxmoxconnections"], "verbs": ["get", "list", "watch"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{name}-reader")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": format!("{name}-reader")},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": stage.namespace}],
    });
    for object in [role, binding] {
        testbed::apply::apply(&stage.client, &object, "default").await.unwrap();
    }
    let file = world.service_account(&stage.namespace, "reader").await.unwrap();
    let config = kube::config::Kubeconfig::read_from(file).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let shutdown = CancellationToken::new();
    let look = connections(&client, &shutdown);
    let fault = look.connection(&name).await.endpoint.unwrap_err();
    assert_eq!(fault.reason, Some("SecretForbidden"));
    let words = ["may not read Secret", "get on secrets in namespace", stage.namespace.as_str()];
    assert!(words.iter().all(|word| fault.message.contains(word)), "{fault}");

    // Once it may, nothing has to be started again.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "creds"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["creds"],
            "verbs": ["get"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "creds"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "creds"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": stage.namespace}],
    });
    for object in [role, binding] {
        testbed::apply::apply(&stage.client, &object, &stage.namespace).await.unwrap();
    }
    let mut pace = tokio::time::interval(Duration::from_millis(200));
    let granted = async {
        while look.connection(&name).await.endpoint.is_err() {
            pace.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, granted).await.expect("what is granted is used");
    shutdown.cancel();
}

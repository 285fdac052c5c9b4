//! Metrics over HTTPS, for those whom the API server allows.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use secrecy::ExposeSecret;
use serde_json::json;

use crate::stage::{PATIENCE, get, ready, world};

async fn token(namespace: &str, account: &str) -> String {
    let path = world().await.service_account(namespace, account).await.unwrap();
    let config = Kubeconfig::read_from(path).unwrap();
    let user = config.auth_infos.first().unwrap().auth_info.clone().unwrap();
    user.token.unwrap().expose_secret().to_owned()
}

#[tokio::test]
async fn metrics_are_for_those_who_may_get_them() {
    let world = world().await;
    let namespace = world.namespace("metrics").await.unwrap();
    let client = world.client().await.unwrap();
    let reader = format!("{namespace}-reader");
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": reader},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }))
    .unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": reader},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": reader},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    Api::all(client).create(&PostParams::default(), &binding).await.unwrap();
    let (allowed, other) = (token(&namespace, "reader").await, token(&namespace, "other").await);

    let mut manager = ready(&[], &["--insecure-diagnostics=false", "--v=99"]).await;
    let url = format!("https://127.0.0.1:{}/metrics", manager.diagnostics_port);
    for (bearer, wanted, telling) in [
        (None, 401, "Unauthorized"),
        (Some("junk"), 401, "Unauthorized"),
        (Some(other.as_str()), 403, "may not get /metrics"),
    ] {
        let (status, text) = get(&url, bearer).await;
        assert_eq!(status, wanted, "{text}");
        assert!(text.contains(telling), "{text}");
    }
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        // The API server learns of a new binding by a watch of its own.
        let (status, text) = get(&url, Some(&allowed)).await;
        if status == 200 {
            assert!(text.contains("capmox_build_info"), "{text}");
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{status} {text}");
    }
    manager.stop().await.unwrap();
    let log = std::fs::read_to_string(manager.log()).unwrap();
    assert!(!log.contains(&allowed) && !log.contains(&other), "a token in the log");
}

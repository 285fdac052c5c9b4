//! Credentials that are missing, wrong or taken away, and a Proxmox that does not answer.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::DeleteParams;
use pve_fake::{Action, FaultRule};
use serde_json::json;

use crate::stage::{Stage, owned_by};

const UNREACHABLE: &str = "ProxmoxUnreachable";
const SECRET_FINALIZER: &str = "proxmoxcluster.infrastructure.cluster.x-k8s.io/secret";

#[tokio::test]
async fn a_secret_may_come_after_the_cluster() {
    let stage = Stage::set().await;
    let owner = stage.owner(json!({})).await;
    stage.infra(owned_by(&owner), json!({})).await;
    let text = format!("Secret {}/creds of spec.credentialsRef does not exist", stage.namespace);
    stage.until_says("False", UNREACHABLE, &text).await;
    stage.secret("creds", json!({})).await;
    let cluster = stage.until_ready().await;
    let secret = stage.api::<Secret>().get("creds").await.unwrap();
    assert_eq!(secret.finalizers(), [SECRET_FINALIZER]);
    assert_eq!(secret.owner_references()[0].uid, cluster.uid().unwrap());
    assert_eq!(secret.owner_references()[0].controller, None);
}

#[tokio::test]
async fn a_key_that_is_missing_is_named_and_may_be_added() {
    let stage = Stage::set().await;
    stage.secret("creds", json!({"url": null})).await;
    let owner = stage.owner(json!({})).await;
    stage.infra(owned_by(&owner), json!({})).await;
    stage.until_says("False", UNREACHABLE, "lacks the key url").await;
    let url = json!({"stringData": {"url": stage.fake.url()}});
    stage.merge(&stage.api::<Secret>(), "creds", url).await;
    stage.until_ready().await;
}

#[tokio::test]
async fn a_token_that_is_refused_is_told_with_its_place_and_may_be_corrected() {
    let stage = Stage::set().await;
    stage.secret("creds", json!({"secret": "00000000-0000-0000-0000-000000000000"})).await;
    let owner = stage.owner(json!({})).await;
    stage.infra(owned_by(&owner), json!({})).await;
    let text = format!("check token and secret in Secret {}/creds", stage.namespace);
    let refused = stage.until_says("False", UNREACHABLE, &text).await;
    assert!(!refused.status.unwrap().ready);
    let secret = json!({"stringData": {"secret": stage.fake.token().secret}});
    stage.merge(&stage.api::<Secret>(), "creds", secret).await;
    stage.until_ready().await;
}

#[tokio::test]
async fn a_proxmox_that_fails_is_told_and_asked_again() {
    let stage = Stage::set().await;
    let broken = Action::Reply { status: 500, text: "starting up".to_owned() };
    stage.fake.faults().add(FaultRule::always("GET", "version", broken));
    stage.secret("creds", json!({})).await;
    let owner = stage.owner(json!({})).await;
    stage.infra(owned_by(&owner), json!({})).await;
    let told = stage.until_says("False", UNREACHABLE, "starting up").await;
    // The pools do not wait for Proxmox.
    assert!(stage.pools().get_opt("infra-v4-icip").await.unwrap().is_some());
    assert!(!told.status.unwrap().ready);
    stage.fake.faults().clear();
    stage.until_ready().await;
}

#[tokio::test]
async fn a_cluster_in_service_stays_ready_when_its_credentials_are_taken_away() {
    let stage = Stage::set().await;
    stage.in_service().await;
    stage.secret("others", json!({"token": "nobody@pve!none"})).await;
    let spec = json!({"spec": {"credentialsRef": {"name": "others"}}});
    stage.merge(&stage.clusters(), "infra", spec).await;
    let cluster = stage.until_says("False", UNREACHABLE, "Secret").await;
    assert!(cluster.status.unwrap().ready);
    // The Secret that is named no more is let go, and stays.
    let secrets = stage.api::<Secret>();
    let is_free = |secret: Option<&Secret>| {
        secret.is_some_and(|one| one.finalizers().is_empty() && one.owner_references().is_empty())
    };
    stage.until(&secrets, "creds", is_free).await;
    secrets.delete("creds", &DeleteParams::default()).await.unwrap();
    assert!(secrets.get_opt("creds").await.unwrap().is_none());
}

//! Bootstrap data that is not there, or not what it should be.

use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

use crate::case::Case;
use crate::objects;

const WAITING: &str = "False Warning WaitingForBootstrapData";

pub(crate) async fn a_missing_secret_is_waited_for() {
    let case = Case::sound().await;
    case.machine_without_secret("m", json!({})).await;
    case.says("m", WAITING, &["Secret m-bootstrap", "does not exist"]).await;
    assert!(!case.vm_of("m").running);
    case.create(objects::bootstrap_secret("m")).await;
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_secret_without_value_is_told() {
    let case = Case::sound().await;
    let mut secret = objects::bootstrap_secret("m");
    let value = secret["stringData"]["value"].take();
    secret["stringData"] = json!({"format": "cloud-config", "valeu": "x"});
    case.create(secret).await;
    case.machine_without_secret("m", json!({})).await;
    case.says("m", WAITING, &["Secret m-bootstrap", "no key \"value\""]).await;
    assert!(!case.vm_of("m").running);
    let name = objects::bootstrap_name("m");
    case.change::<Secret>(&name, json!({"stringData": {"value": value}})).await;
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn an_unknown_format_is_told_with_the_known_ones() {
    let case = Case::sound().await;
    let mut secret = objects::bootstrap_secret("m");
    secret["stringData"]["format"] = json!("powershell");
    case.create(secret).await;
    case.machine_without_secret("m", json!({})).await;
    let words = ["m-bootstrap", "powershell", "cloud-config", "ignition"];
    case.says("m", WAITING, &words).await;
    assert!(!case.vm_of("m").running);
    let name = objects::bootstrap_name("m");
    case.change::<Secret>(&name, json!({"stringData": {"format": "cloud-config"}})).await;
    case.ready("m").await;
    case.end().await;
}

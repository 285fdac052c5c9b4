//! Beside a kubemox, which writes the status of connections itself.

use std::time::Duration;

use capmox::connection::StatusWriter;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testbed::{Options, World};

use crate::stage::Stage;

const VIRTUAL_MACHINES: &str = "virtualmachines.proxmox.alperen.cloud";

async fn install_kubemox(world: &World) {
    let client = world.client().await.unwrap();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": VIRTUAL_MACHINES},
        "spec": {
            "group": "proxmox.alperen.cloud",
            "scope": "Namespaced",
            "names": {"kind": "VirtualMachine", "plural": "virtualmachines"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}],
        },
    });
    testbed::apply::apply(&client, &definition, "default").await.unwrap();
    serves(world, true).await;
}

async fn serves(world: &World, wanted: bool) {
    let client = world.client().await.unwrap();
    let group = "proxmox.alperen.cloud/v1alpha1";
    let look = async || {
        let list = client.list_api_group_resources(group).await?;
        let is_served = list.resources.iter().any(|one| one.name == "virtualmachines");
        Ok((is_served == wanted).then_some(()))
    };
    world.wait_for(Duration::from_mins(1), "the kinds of kubemox", look).await.unwrap();
}

#[tokio::test]
async fn a_kubemox_is_noticed_and_keeps_the_status_to_itself() {
    // Of its own: managers of other tests write the status of all connections.
    let world = World::start(Options::default()).await.unwrap();
    let stage = Stage::set_in(&world, StatusWriter::Auto).await;
    stage.secret(&stage.fake.token().secret).await;
    let first = stage.connection("-before", json!({})).await;
    stage.says(&first, "Ready", &[]).await;

    install_kubemox(&world).await;
    let before = stage.all().get(&first).await.unwrap().resource_version();
    let second = stage.connection("-after", json!({})).await;
    stage.cluster(&second).await;
    stage.cluster_says("True", "").await;
    // What is wrong shows where the connection is used, and nowhere else.
    stage.rotate("00000000-0000-0000-0000-000000000000").await;
    stage.cluster_says("False", "ProxmoxUnreachable").await;
    assert_eq!(stage.all().get(&first).await.unwrap().resource_version(), before);
    assert!(stage.all().get(&second).await.unwrap().status.is_none());

    // And without it the status is ours again.
    let api: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
    api.delete(VIRTUAL_MACHINES, &DeleteParams::default()).await.unwrap();
    serves(&world, false).await;
    let touch = Patch::Merge(json!({"spec": {"allowedNamespaces": [stage.namespace]}}));
    stage.all().patch(&second, &PatchParams::default(), &touch).await.unwrap();
    stage.says(&second, "CredentialsRefused", &[]).await;
}

#[tokio::test]
async fn the_flag_goes_before_what_is_noticed() {
    let world = World::start(Options::default()).await.unwrap();
    install_kubemox(&world).await;
    let reader = Stage::set_in(&world, StatusWriter::Others).await;
    reader.secret(&reader.fake.token().secret).await;
    let name = reader.connection("", json!({})).await;
    reader.cluster(&name).await;
    reader.cluster_says("True", "").await;
    assert!(reader.all().get(&name).await.unwrap().status.is_none());
    let _writer = Stage::set_in(&world, StatusWriter::Us).await;
    reader.says(&name, "Ready", &[]).await;
}

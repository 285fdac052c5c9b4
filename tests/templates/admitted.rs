//! Everything that is rendered is admitted: by the definitions, by Cluster API's webhooks and by
//! ours.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};
use testbed::{Clusterctl, apply};

use super::stage::{CHOSEN, FLAVOURS, Judges, UNUSUAL, clusterctl, render, with};

fn object(value: &Value) -> (DynamicObject, String, String) {
    let object: DynamicObject = serde_json::from_value(value.clone()).unwrap();
    let types = object.types.clone().unwrap();
    (object, types.api_version, types.kind)
}

/// Whether it would be created, or why not.
async fn tried(client: &Client, namespace: &str, value: &Value) -> Result<(), String> {
    let (object, api_version, kind) = object(value);
    let own = object.metadata.namespace.clone().unwrap_or_else(|| namespace.to_owned());
    let api: Api<DynamicObject> = apply::find(client, &api_version, &kind, &own).await.unwrap();
    let params = PostParams { dry_run: true, field_manager: None };
    match api.create(&params, &object).await {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{kind} {:?}: {error}", object.metadata.name)),
    }
}

async fn flavours(client: &Client, clusterctl: &Clusterctl, namespace: &str) {
    for flavour in FLAVOURS {
        for (number, others) in [&[][..], CHOSEN, UNUSUAL].into_iter().enumerate() {
            let objects = render(clusterctl, flavour, namespace, &with(others));
            assert!(objects.len() >= 7, "{flavour}: {} objects", objects.len());
            for value in objects {
                let judged = tried(client, namespace, &value).await;
                judged.unwrap_or_else(|why| panic!("flavour {flavour:?}, set {number}: {why}"));
            }
        }
    }
    // The judges are awake: with an endpoint among the machines' addresses nothing comes of it.
    let inside = with(&[("CONTROL_PLANE_ENDPOINT_IP", "10.10.10.20")]);
    let objects = render(clusterctl, "", namespace, &inside);
    let cluster = objects.iter().find(|value| value["kind"] == "ProxmoxCluster").unwrap();
    let why = tried(client, namespace, cluster).await.unwrap_err();
    assert!(why.contains("may not contain the endpoint IP"), "{why}");
}

async fn classes(judges: &Judges, client: &Client, clusterctl: &Clusterctl, namespace: &str) {
    for cni in ["", "-calico", "-cilium"] {
        let class = testbed::root().join(format!("templates/cluster-class{cni}.yaml"));
        let text = clusterctl.fill_in(&class, &[("BRIDGE", "vmbr7")]).unwrap();
        for value in apply::documents(&text).unwrap() {
            apply::apply(client, &value, namespace).await.unwrap();
        }
    }
    // Until a class is reconciled, the variables of its Clusters are not looked at.
    judges
        .world
        .wait_for(Duration::from_mins(1), "the ClusterClasses", async || {
            let api =
                apply::find(client, "cluster.x-k8s.io/v1beta1", "ClusterClass", namespace).await?;
            let known = |class: &DynamicObject| {
                let conditions = class.data.pointer("/status/conditions").and_then(Value::as_array);
                conditions.into_iter().flatten().any(|condition| {
                    condition["type"] == "VariablesReconciled" && condition["status"] == "True"
                })
            };
            let found = api.list(&kube::api::ListParams::default()).await?;
            Ok((found.items.iter().filter(|class| known(class)).count() == 3).then_some(()))
        })
        .await
        .unwrap();
    for cni in ["", "-calico", "-cilium"] {
        let example = testbed::root().join(format!("examples/cluster{cni}.yaml"));
        let text = std::fs::read_to_string(example).unwrap();
        let [cluster] = &apply::documents(&text).unwrap()[..] else { panic!("one Cluster") };
        tried(client, namespace, cluster).await.unwrap();
        refusals(client, namespace, cluster).await;
    }
}

/// What a Cluster of a class is refused for when it is written, instead of when its machines are.
async fn refusals(client: &Client, namespace: &str, cluster: &Value) {
    let variables = cluster["spec"]["topology"]["variables"].as_array().unwrap();
    let clone_spec = variables.iter().position(|variable| variable["name"] == "cloneSpec").unwrap();
    let machine = format!("/spec/topology/variables/{clone_spec}/value/machineSpec/controlPlane");
    for (field, value, expected) in [
        ("/sourceNode", Value::Null, "must define either SourceNode with TemplateID"),
        ("/templateSelector", json!({"matchTags": ["a"]}), "OR TemplateSelector"),
        ("/format", json!("vdi"), "supported values: \"raw\""),
        ("/disks/bootVolume/sizeGb", json!(4), "greater than or equal to 5"),
        ("/memory", json!(2048), "memory"),
        (
            "/network/additionalDevices",
            json!([{"name": "net1", "bridge": "vmbr1"}]),
            "at least one pool reference must be set",
        ),
    ] {
        let mut bad = cluster.clone();
        let (parent, name) = field.rsplit_once('/').unwrap();
        let parent = bad.pointer_mut(&format!("{machine}{parent}")).unwrap();
        match value {
            Value::Null => drop(parent.as_object_mut().unwrap().remove(name)),
            value => parent[name] = value,
        }
        let why = tried(client, namespace, &bad).await.unwrap_err();
        assert!(why.contains(expected), "{field}: {why}");
    }
    let mut pool = cluster.clone();
    *pool.pointer_mut(&format!("{machine}/network")).unwrap() = json!({
        "default": {"bridge": "vmbr0"},
        "additionalDevices": [{"name": "net1", "bridge": "b", "ipv4PoolRef": {"name": "p"}}],
    });
    tried(client, namespace, &pool).await.expect("a pool goes by its name alone");
}

#[tokio::test]
async fn everything_rendered_is_admitted() {
    let (clusterctl, _folder) = clusterctl();
    let judges = Judges::start().await;
    let client = judges.world.client().await.unwrap();
    let namespace = judges.world.namespace("templates").await.unwrap();
    flavours(&client, &clusterctl, &namespace).await;
    classes(&judges, &client, &clusterctl, &namespace).await;
    super::flatcar::real_ignition(&judges.world, &client, &clusterctl).await;
    judges.stop().await;
}

//! One server, registered as capmox v0.7 registers its own.

use std::net::SocketAddr;
use std::time::Duration;

use capmox::webhook::{Config, Server};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use testbed::World;
use tokio_util::sync::CancellationToken;

const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Objects of one of our kinds, as JSON.
fn objects(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1alpha1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }))
    .unwrap()
}

/// The configuration of the peer, with URLs in place of its Service and a selector that keeps it
/// to one namespace.
fn registration(address: SocketAddr, ca: &str, namespace: &str) -> ValidatingWebhookConfiguration {
    let webhook = |kind: &str| {
        let path = format!("/validate-infrastructure-cluster-x-k8s-io-v1alpha1-{kind}");
        json!({
            "name": format!("validation.{kind}.{GROUP}"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "url": format!("https://{address}{path}"),
                "caBundle": ByteString(ca.as_bytes().to_vec()),
            },
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{
                "apiGroups": [GROUP],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": [format!("{kind}s")],
            }],
        })
    };
    serde_json::from_value(json!({
        "metadata": {"name": namespace},
        "webhooks": [
            webhook("proxmoxcluster"),
            webhook("proxmoxmachine"),
            webhook("proxmoxmachinetemplate"),
        ],
    }))
    .unwrap()
}

fn message(error: &kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => panic!("{other}"),
    }
}

fn machine_spec() -> Value {
    json!({
        "sourceNode": "pve1",
        "templateID": 900,
        "tags": ["one"],
        "network": {"default": {"bridge": "vmbr0", "model": "virtio"}},
    })
}

/// As the topology controller tries a template, and as a user edits one.
async fn templates_stay(client: &Client, namespace: &str) {
    let templates = objects(client, namespace, "ProxmoxMachineTemplate");
    let template = json!({"template": {"spec": machine_spec()}});
    let template = object("ProxmoxMachineTemplate", "t", &template);
    templates.create(&PostParams::default(), &template).await.unwrap();
    let edit = |dry_run: bool| {
        json!({
            "metadata": {
                "annotations": dry_run.then(|| json!({"topology.cluster.x-k8s.io/dry-run": ""})),
            },
            "spec": {"template": {"spec": {"templateID": 901}}},
        })
    };
    let (real, tried) = (PatchParams::default(), PatchParams::default().dry_run());
    let refusal = templates.patch("t", &real, &Patch::Merge(edit(false))).await.unwrap_err();
    let (code, text) = message(&refusal);
    let expected =
        "spec.template.spec.templateID: Invalid value: 901: a template cannot be changed";
    assert!(code == 422 && text.contains(expected), "{code} {text}");
    templates.patch("t", &tried, &Patch::Merge(edit(false))).await.unwrap_err();
    templates.patch("t", &tried, &Patch::Merge(edit(true))).await.unwrap();
    templates.patch("t", &real, &Patch::Merge(edit(true))).await.unwrap_err();
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    templates.patch("t", &real, &labelled).await.unwrap();
}

/// A machine whose VM has its bootstrap data: what it was made with stays, the rest goes on.
async fn what_could_not_take_effect_is_refused(machines: &Api<DynamicObject>) {
    let params = PatchParams::default();
    let change = async |change: Value| machines.patch("good", &params, &Patch::Merge(change)).await;
    change(json!({"spec": {"numCores": 2}})).await.unwrap();
    change(json!({"spec": {"virtualMachineID": 105, "providerID": "proxmox://u"}})).await.unwrap();
    let status = Patch::Merge(json!({"status": {"bootstrapDataProvided": true}}));
    machines.patch_status("good", &params, &status).await.unwrap();
    for (field, value) in [("numCores", json!(4)), ("target", json!("pve2"))] {
        let (code, text) = message(&change(json!({"spec": {field: value}})).await.unwrap_err());
        let expected = format!("spec.{field}: Invalid value: {value}: cannot take effect any more");
        assert!(code == 422 && text.contains(&expected), "{code} {text}");
    }
    change(json!({"spec": {"providerID": "proxmox://w"}, "metadata": {"labels": {"a": "b"}}}))
        .await
        .unwrap();
    // The same once more, with what the API server fills in by default left out, and empty lists.
    let mut same = object("ProxmoxMachine", "good", &machine_spec());
    same.data["spec"]["numCores"] = json!(2);
    same.data["spec"]["description"] = json!("fine");
    same.data["spec"]["allowedNodes"] = json!([]);
    same.data["spec"]["network"]["default"] = json!({"bridge": "vmbr0"});
    let applied = PatchParams::apply("gitops").force();
    machines.patch("good", &applied, &Patch::Apply(&same)).await.unwrap();
    machines.patch("good", &applied, &Patch::Apply(&same)).await.unwrap();
}

/// The calls of Cluster API's in-place update, after its own first write of the machine.
async fn updates_in_place_come_through(machines: &Api<DynamicObject>) {
    let machine = |template: &str, cores: u8, annotations: Value| {
        let mut machine = object("ProxmoxMachine", "good", &machine_spec());
        machine.data["spec"]["numCores"] = json!(cores);
        let mut all = json!({"cluster.x-k8s.io/cloned-from-name": template});
        all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
        machine.metadata.annotations = serde_json::from_value(all).unwrap();
        machine
    };
    let owner = PatchParams::apply("capi-kubeadmcontrolplane").force();
    let apply = async |params: &PatchParams, machine: DynamicObject| {
        machines.patch("good", params, &Patch::Apply(&machine)).await
    };
    apply(&owner, machine("old", 2, json!({}))).await.unwrap();
    let tried = apply(&owner.clone().dry_run(), machine("new", 8, json!({}))).await.unwrap();
    assert_eq!(tried.data["spec"]["numCores"], 8);
    let user = PatchParams::apply("kubectl").force().dry_run();
    let refusal = apply(&user, machine("old", 8, json!({}))).await.unwrap_err();
    assert!(message(&refusal).1.contains("cannot take effect any more"), "{refusal}");
    let refusal = apply(&owner, machine("new", 8, json!({}))).await.unwrap_err();
    assert_eq!(message(&refusal).0, 422, "{refusal}");
    let progress = json!({"in-place-updates.internal.cluster.x-k8s.io/update-in-progress": ""});
    let updated = apply(&owner, machine("new", 8, progress)).await.unwrap();
    assert_eq!(updated.data["spec"]["numCores"], 8);
}

#[tokio::test]
async fn the_apiserver_asks_and_users_read_the_refusals() {
    let world = World::shared().await.unwrap();
    let client = world.client().await.unwrap();
    let namespace = world.namespace("admission").await.unwrap();

    let directory = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(directory.path().join("tls.crt"), pair.cert.pem()).unwrap();
    std::fs::write(directory.path().join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    let bind = SocketAddr::from(([127, 0, 0, 1], 0));
    let cert_dir = directory.path().to_owned();
    let server = Server::bind(Config { bind, cert_dir }).await.unwrap();
    let address = server.address();
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn(server.run(shutdown.clone()));

    let registrations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let registration = registration(address, &pair.cert.pem(), &namespace);
    registrations.create(&PostParams::default(), &registration).await.unwrap();
    // The apiserver takes a moment to notice the registration: until then a bad object gets in.
    let machines = objects(&client, &namespace, "ProxmoxMachine");
    let mut bad = machine_spec();
    bad["network"]["default"]["mtu"] = json!(1000);
    let noticed = async {
        loop {
            match machines
                .create(&PostParams::default(), &object("ProxmoxMachine", "bad", &bad))
                .await
            {
                Ok(_) => drop(machines.delete("bad", &DeleteParams::default()).await.unwrap()),
                Err(error) => break error,
            }
        }
    };
    let refusal = tokio::time::timeout(Duration::from_secs(30), noticed).await.unwrap();
    let (code, text) = message(&refusal);
    assert_eq!(code, 422, "{text}");
    assert!(text.contains("validation.proxmoxmachine.infrastructure.cluster.x-k8s.io"), "{text}");
    assert!(
        text.contains("spec.network.default.mtu: Invalid value: 1000: mtu must be at least 1280"),
        "{text}"
    );

    let good = object("ProxmoxMachine", "good", &machine_spec());
    machines.create(&PostParams::default(), &good).await.unwrap();
    let retagged = Patch::Merge(json!({"spec": {"tags": ["two"]}}));
    let refusal = machines.patch("good", &PatchParams::default(), &retagged).await.unwrap_err();
    let (code, text) = message(&refusal);
    assert!(code == 400 && text.contains("tags are immutable"), "{code} {text}");
    let described = Patch::Merge(json!({"spec": {"description": "fine"}}));
    machines.patch("good", &PatchParams::default(), &described).await.unwrap();

    what_could_not_take_effect_is_refused(&machines).await;
    updates_in_place_come_through(&machines).await;

    let clusters = objects(&client, &namespace, "ProxmoxCluster");
    let mut spec = json!({
        "dnsServers": ["10.0.0.1"],
        "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1"},
        "controlPlaneEndpoint": {"host": "10.0.0.15", "port": 6443},
    });
    let inside = object("ProxmoxCluster", "c", &spec);
    let refusal = clusters.create(&PostParams::default(), &inside).await.unwrap_err();
    let (code, text) = message(&refusal);
    assert!(
        code == 422 && text.contains("addresses may not contain the endpoint IP"),
        "{code} {text}"
    );
    spec["controlPlaneEndpoint"]["host"] = json!("10.0.0.9");
    let outside = object("ProxmoxCluster", "c", &spec);
    clusters.create(&PostParams::default(), &outside).await.unwrap();

    templates_stay(&client, &namespace).await;

    registrations.delete(&namespace, &DeleteParams::default()).await.unwrap();
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}

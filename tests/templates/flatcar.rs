//! What Cluster API's bootstrap provider makes of the Flatcar flavour, and what a machine gets of it.

use std::time::Duration;

use capmox::bootstrap::network::{Ethernet, Static};
use capmox::bootstrap::{Format, Metadata, NetworkPlan, SeedFiles};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testbed::{Clusterctl, World, apply};

use super::stage::{render, with};

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";

/// The Ignition config of the first machine, as the real bootstrap provider writes it once somebody
/// says that the infrastructure is there.
async fn bootstrap_data(world: &World, client: &Client, namespace: &str) -> Vec<u8> {
    let clusters = apply::find(client, INFRASTRUCTURE, "ProxmoxCluster", namespace).await.unwrap();
    let ready = Patch::Merge(json!({"status": {"ready": true}}));
    clusters.patch_status("lab", &PatchParams::default(), &ready).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    world
        .wait_for(Duration::from_mins(1), "the first machine's bootstrap data", async || {
            let found = secrets.list(&ListParams::default()).await?;
            let data = found.items.into_iter().filter_map(|secret| secret.data);
            let is_ignition =
                |data: &std::collections::BTreeMap<String, k8s_openapi::ByteString>| {
                    data.get("format").is_some_and(|format| format.0 == b"ignition")
                };
            Ok(data.into_iter().find(is_ignition).and_then(|mut data| data.remove("value")))
        })
        .await
        .unwrap()
        .0
}

/// The content of a file: a data URL, percent-encoded.
fn content(config: &Value, path: &str) -> String {
    let files = config["storage"]["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == path);
    let source =
        file.unwrap_or_else(|| panic!("no {path}"))["contents"]["source"].as_str().unwrap();
    let text = source.split_once(',').unwrap().1.as_bytes();
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        if let (b'%', Some(code)) = (first, others.get(..2)) {
            let code = std::str::from_utf8(code).unwrap();
            out.push(u8::from_str_radix(code, 16).unwrap());
            rest = &others[2..];
        } else {
            out.push(*first);
            rest = others;
        }
    }
    String::from_utf8(out).unwrap()
}

fn unit<'a>(config: &'a Value, name: &str) -> Vec<&'a Value> {
    let units = config["systemd"]["units"].as_array().unwrap();
    units.iter().filter(|unit| unit["name"] == name).collect()
}

pub(crate) async fn real_ignition(world: &World, client: &Client, clusterctl: &Clusterctl) {
    let namespace = world.namespace("flatcar").await.unwrap();
    for value in render(clusterctl, "flatcar", &namespace, &with(&[])) {
        apply::apply(client, &value, &namespace).await.unwrap();
    }
    let payload = bootstrap_data(world, client, &namespace).await;
    let identity = Metadata {
        instance_id: "9a8b7c6d-0000-4000-8000-000000000001".into(),
        hostname: "lab-cp-0".into(),
        ..Metadata::default()
    };
    let address = Static {
        address: "10.10.10.10/24".into(),
        gateway: Some("10.10.10.1".into()),
        metric: None,
    };
    let ethernet =
        Ethernet { ipv4: Some(address), ..Ethernet::new(0, "net0", "bc:24:11:00:00:01") };
    let plan = NetworkPlan { ethernets: vec![ethernet], vrfs: vec![] };
    let seed = SeedFiles::render(Format::Ignition, &payload, &identity, &plan).unwrap();
    let config: Value = serde_json::from_slice(&seed.user_data).unwrap();

    let kubeadm = content(&config, "/etc/kubeadm.yml");
    assert!(kubeadm.contains("value: proxmox://$COREOS_CUSTOM_INSTANCE_ID"), "{kubeadm}");
    assert!(kubeadm.contains("kind: InitConfiguration"));
    let script = content(&config, "/etc/kubeadm.sh");
    let [filled, prepared, ran] =
        ["envsubst </etc/kubeadm.yml", "/etc/kube-vip-prepare.sh", "kubeadm init"]
            .map(|part| script.find(part).unwrap_or_else(|| panic!("{part} in {script}")));
    assert!(filled < prepared && prepared < ran, "{script}");
    assert!(content(&config, "/etc/kubernetes/manifests/kube-vip.yaml").contains("10.10.10.9"));
    let names = content(&config, "/opt/set-hostname");
    assert!(names.contains("hostname \"$COREOS_CUSTOM_HOSTNAME\""), "{names}");
    let identity = content(&config, "/etc/proxmox-env");
    assert!(identity.contains("COREOS_CUSTOM_INSTANCE_ID=9a8b7c6d"), "{identity}");

    let metadata = unit(&config, "coreos-metadata.service");
    let text = metadata[0]["contents"].as_str().unwrap();
    assert!(text.contains("cp /etc/proxmox-env /run/metadata/flatcar"), "{text}");
    let dropins = unit(&config, "kubeadm.service");
    let dropins = dropins.iter().filter_map(|unit| unit["dropins"][0]["contents"].as_str());
    let dropins: String = dropins.collect();
    assert!(dropins.contains("EnvironmentFile=/run/metadata/flatcar"), "{config}");
    let users = config["passwd"]["users"].as_array().unwrap();
    assert_eq!(users[0]["name"], "core");
    assert_eq!(users[0]["sshAuthorizedKeys"].as_array().unwrap().len(), 2);
}

//! The objects of a case, as Cluster API core and people would write them.

use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Name of the Cluster and of its ProxmoxCluster.
pub(crate) const CLUSTER: &str = "lab";
/// Name of the Secret with the credentials.
pub(crate) const CREDENTIALS: &str = "proxmox";
/// What must not be seen outside of the bootstrap Secret.
pub(crate) const JOIN_TOKEN: &str = "abcdef.0123456789abcdef";

const CORE: &str = "cluster.x-k8s.io/v1beta1";
const INFRA: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";

/// `base` with `change` merged in; `null` takes a field away.
pub(crate) fn merged(base: &Value, change: &Value) -> Value {
    let (Some(old), Some(new)) = (base.as_object(), change.as_object()) else {
        return change.clone();
    };
    let mut all = old.clone();
    for (key, value) in new {
        if value.is_null() {
            all.remove(key);
        } else {
            let before = all.get(key).cloned().unwrap_or_default();
            all.insert(key.clone(), merged(&before, value));
        }
    }
    Value::Object(all)
}

pub(crate) fn cluster(namespace: &str) -> Value {
    json!({
        "apiVersion": CORE,
        "kind": "Cluster",
        "metadata": {"name": CLUSTER, "namespace": namespace},
        "spec": {"infrastructureRef": {
            "apiVersion": INFRA, "kind": "ProxmoxCluster", "name": CLUSTER, "namespace": namespace,
        }},
    })
}

pub(crate) fn infra_cluster(owner: &DynamicObject, change: &Value) -> Value {
    let spec = json!({
        "controlPlaneEndpoint": {"host": "10.10.10.5", "port": 6443},
        "ipv4Config": {
            "addresses": ["10.10.10.10-10.10.10.30"], "prefix": 24, "gateway": "10.10.10.1",
        },
        "dnsServers": ["10.10.10.1"],
        "credentialsRef": {"name": CREDENTIALS},
    });
    json!({
        "apiVersion": INFRA,
        "kind": "ProxmoxCluster",
        "metadata": {
            "name": CLUSTER,
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
            "ownerReferences": [owner_reference(owner, CORE, "Cluster")],
        },
        "spec": merged(&spec, change),
    })
}

pub(crate) fn bootstrap_secret(name: &str) -> Value {
    let script =
        format!("#cloud-config\nruncmd:\n  - kubeadm join --token {JOIN_TOKEN} 10.10.10.5:6443\n");
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {"name": bootstrap_name(name)},
        "stringData": {"value": script, "format": "cloud-config"},
    })
}

pub(crate) fn bootstrap_name(machine: &str) -> String {
    format!("{machine}-bootstrap")
}

pub(crate) fn machine(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": CORE,
        "kind": "Machine",
        "metadata": {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER}},
        "spec": {
            "clusterName": CLUSTER,
            "version": "v1.33.4",
            "bootstrap": {"dataSecretName": bootstrap_name(name)},
            "infrastructureRef": {
                "apiVersion": INFRA, "kind": "ProxmoxMachine", "name": name,
                "namespace": namespace,
            },
        },
    })
}

pub(crate) fn infra_machine(owner: &DynamicObject, change: &Value) -> Value {
    let spec = json!({
        "sourceNode": "pve1",
        "templateID": 9000,
        "numCores": 4,
        "memoryMiB": 4096,
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 12}},
        "network": {"default": {"bridge": "vmbr0", "model": "virtio"}},
    });
    json!({
        "apiVersion": INFRA,
        "kind": "ProxmoxMachine",
        "metadata": {
            "name": owner.metadata.name,
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
            "ownerReferences": [owner_reference(owner, CORE, "Machine")],
        },
        "spec": merged(&spec, change),
    })
}

fn owner_reference(owner: &DynamicObject, version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": version, "kind": kind, "name": owner.metadata.name,
        "uid": owner.metadata.uid, "controller": true,
    })
}

//! The objects that Cluster API would have made.

use serde_json::{Value, json};

/// Name of the Cluster in each namespace.
pub(crate) const CLUSTER: &str = "bench";

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
const CORE: &str = "cluster.x-k8s.io/v1beta1";

fn reference(kind: &str, name: &str) -> Value {
    json!({"apiVersion": INFRASTRUCTURE, "kind": kind, "name": name})
}

pub(crate) fn cluster() -> Value {
    json!({
        "apiVersion": CORE,
        "kind": "Cluster",
        "metadata": {"name": CLUSTER},
        "spec": {"infrastructureRef": reference("ProxmoxCluster", CLUSTER)},
    })
}

pub(crate) fn proxmox_cluster(owner: Option<&str>, addresses: &str) -> Value {
    json!({
        "apiVersion": INFRASTRUCTURE,
        "kind": "ProxmoxCluster",
        "metadata": {
            "name": CLUSTER,
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
            "ownerReferences": [
                {"apiVersion": CORE, "kind": "Cluster", "name": CLUSTER, "uid": owner},
            ],
        },
        "spec": {
            "controlPlaneEndpoint": {"host": "10.9.0.1", "port": 6443},
            "allowedNodes": ["pve1", "pve2", "pve3"],
            "dnsServers": ["10.9.0.1"],
            "ipv4Config": {
                "addresses": [addresses],
                "prefix": 16,
                "gateway": "10.10.0.1",
                "metric": 100,
            },
        },
    })
}

pub(crate) fn bootstrap_secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "cluster.x-k8s.io/secret",
        "stringData": {
            "format": "cloud-config",
            // As large as kubeadm's with certificates.
            "value": format!("#cloud-config\nwrite_files:\n- path: /etc/motd\n  content: {}\n",
                "x".repeat(12_000)),
        },
    })
}

pub(crate) fn machine(name: &str) -> Value {
    json!({
        "apiVersion": CORE,
        "kind": "Machine",
        "metadata": {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER}},
        "spec": {
            "clusterName": CLUSTER,
            "version": "v1.33.4",
            "bootstrap": {"dataSecretName": name},
            "infrastructureRef": reference("ProxmoxMachine", name),
        },
    })
}

pub(crate) fn proxmox_machine(name: &str, owner: Option<&str>) -> Value {
    json!({
        "apiVersion": INFRASTRUCTURE,
        "kind": "ProxmoxMachine",
        "metadata": {
            "name": name,
            "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
            "ownerReferences": [{
                "apiVersion": CORE, "kind": "Machine", "name": name, "uid": owner,
                "controller": true,
            }],
        },
        "spec": {
            "sourceNode": "pve1",
            "templateID": 9000,
            "format": "qcow2",
            "full": true,
            "numSockets": 2,
            "numCores": 4,
            "memoryMiB": 4096,
            "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
            "network": {"default": {"bridge": "vmbr1", "model": "virtio"}},
        },
    })
}

//! What a booted machine tells the workload cluster of itself.
//!
//! Puts together what the seed says; pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::kubeadm::{Discovery, Kubeadm, Role, Taint};
use crate::network::Network;

/// Taint and label of control-plane nodes.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The machine as the workload-cluster program takes it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine<'a> {
    pub(crate) node_name: String,
    #[serde(rename = "providerID")]
    provider_id: String,
    kubernetes_version: String,
    #[serde(rename = "systemUUID")]
    system_uuid: &'a str,
    addresses: Vec<String>,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    #[serde(flatten)]
    part: Part<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Worker {
        discovery: &'a Discovery,
    },
    #[serde(rename_all = "camelCase")]
    ControlPlane {
        init: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        discovery: Option<&'a Discovery>,
        pki: &'a BTreeMap<String, String>,
        cluster_name: &'a str,
        cluster_configuration: &'a str,
        #[serde(rename = "certSANs")]
        cert_sans: &'a [String],
    },
}

/// What the guest itself knows.
#[derive(Clone, Copy)]
pub(crate) struct Host<'a> {
    pub(crate) hostname: &'a str,
    pub(crate) uuid: &'a str,
    pub(crate) network: &'a Network,
    pub(crate) kubernetes_version: &'a str,
}

impl<'a> Machine<'a> {
    /// Puts the machine together.
    ///
    /// # Errors
    /// A sentence when the kubelet or kubeadm could not start like this.
    pub(crate) fn new(kubeadm: &'a Kubeadm, host: Host<'a>) -> Result<Self, String> {
        let worker = matches!(kubeadm.role, Role::JoinWorker(_));
        let default = |kind: &str| Taint {
            key: kind.to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        };
        let taints = match &kubeadm.taints {
            Some(taints) => taints.clone(),
            None if worker => vec![],
            None => vec![default(CONTROL_PLANE)],
        };
        Ok(Self {
            node_name: kubeadm.node_name.as_deref().unwrap_or(host.hostname).to_ascii_lowercase(),
            provider_id: kubeadm.kubelet_arg("provider-id").unwrap_or_default(),
            kubernetes_version: host.kubernetes_version.to_owned(),
            system_uuid: host.uuid,
            addresses: addresses(kubeadm, host.network)?,
            labels: labels(&kubeadm.kubelet_arg("node-labels").unwrap_or_default())?,
            taints,
            part: part(kubeadm),
        })
    }

    /// The last part of the path that the machine is posted to.
    pub(crate) fn role(&self) -> &'static str {
        match self.part {
            Part::Worker { .. } => "worker",
            Part::ControlPlane { .. } => "control-plane",
        }
    }
}

fn part(kubeadm: &Kubeadm) -> Part<'_> {
    let pki = &kubeadm.pki.0;
    match &kubeadm.role {
        Role::JoinWorker(discovery) => Part::Worker { discovery },
        Role::JoinControlPlane(discovery) => Part::ControlPlane {
            init: false,
            discovery: Some(discovery),
            pki,
            cluster_name: "",
            cluster_configuration: "",
            cert_sans: &[],
        },
        Role::Init { cluster_name, cluster_configuration, cert_sans } => Part::ControlPlane {
            init: true,
            discovery: None,
            pki,
            cluster_name,
            cluster_configuration,
            cert_sans,
        },
    }
}

/// What `--node-ip` says, else what the default routes lead to.
fn addresses(kubeadm: &Kubeadm, network: &Network) -> Result<Vec<String>, String> {
    if let Some(given) = kubeadm.kubelet_arg("node-ip") {
        let own = network.addresses();
        return given
            .split(',')
            .map(|text| match text.trim().parse() {
                Ok(address) if own.contains(&address) => Ok(address.to_string()),
                _ => Err(format!("the kubelet's node-ip {text} is no address of the host")),
            })
            .collect();
    }
    if network.node_addresses.is_empty() {
        return Err("unable to select an IP from default routes".to_owned());
    }
    Ok(network.node_addresses.iter().map(ToString::to_string).collect())
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
            None => Err(format!("the kubelet's node label {pair:?} has no value")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeadm::Pki;

    fn worker(args: &[(&str, &str)]) -> Kubeadm {
        let discovery =
            Discovery { token: "abcdef.0123456789abcdef".into(), ca_cert_hashes: vec![] };
        let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Kubeadm {
            role: Role::JoinWorker(discovery),
            endpoint: "127.0.0.1:6443".into(),
            node_name: None,
            kubelet_args: args.collect(),
            taints: None,
            kubernetes_version: None,
            pki: Pki::default(),
            sentinel: None,
        }
    }

    fn told(kubeadm: &Kubeadm) -> Result<serde_json::Value, String> {
        let interface = pve_fake::Interface {
            name: "eth0".into(),
            mac: String::new(),
            addresses: vec![("10.0.0.5".parse().unwrap(), 24)],
        };
        let node_addresses = vec!["10.0.0.5".parse().unwrap()];
        let network = Network { interfaces: vec![interface], node_addresses };
        let host = Host {
            hostname: "Lab-W",
            uuid: "9a8b",
            network: &network,
            kubernetes_version: "v1.34.4",
        };
        Machine::new(kubeadm, host).map(|machine| serde_json::to_value(machine).unwrap())
    }

    #[test]
    fn a_worker_tells_what_its_kubelet_knows() {
        let kubeadm = worker(&[("provider-id", "proxmox://'9a8b'"), ("node-labels", "a=b,c=")]);
        let expected = serde_json::json!({
            "nodeName": "lab-w", "providerID": "proxmox://9a8b", "kubernetesVersion": "v1.34.4",
            "systemUUID": "9a8b", "addresses": ["10.0.0.5"], "labels": {"a": "b", "c": ""},
            "taints": [], "discovery": {"token": "abcdef.0123456789abcdef"},
        });
        assert_eq!(told(&kubeadm).unwrap(), expected);
    }

    #[test]
    fn a_control_plane_is_tainted_unless_told_otherwise() {
        let Role::JoinWorker(discovery) = worker(&[]).role else { panic!("no worker") };
        let mut member = Kubeadm { role: Role::JoinControlPlane(discovery), ..worker(&[]) };
        let told_of = told(&member).unwrap();
        assert_eq!(told_of["taints"][0]["key"], CONTROL_PLANE);
        assert_eq!(told_of["init"], false);
        member.taints = Some(vec![]);
        assert_eq!(told(&member).unwrap()["taints"], serde_json::json!([]));
    }

    #[test]
    fn a_node_ip_must_be_an_address_of_the_host() {
        assert_eq!(told(&worker(&[("node-ip", "10.0.0.5")])).unwrap()["addresses"][0], "10.0.0.5");
        assert!(
            told(&worker(&[("node-ip", "10.0.0.6")]))
                .unwrap_err()
                .contains("no address of the host")
        );
        assert!(told(&worker(&[("node-labels", "a")])).is_err());
    }
}

//! Seeds as the provider and Cluster API write them.

use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

pub(crate) const TOKEN: &str = "abcdef.0123456789abcdef";

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) cert: String,
    pub(crate) key: String,
    pair: KeyPair,
    params: CertificateParams,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let cert = params.self_signed(&pair).unwrap().pem();
        Self { cert, key: pair.serialize_pem(), pair, params }
    }

    /// Certificate and key of an administrator.
    pub(crate) fn client(&self) -> String {
        let pair = KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&self.params, &self.pair);
        let params = CertificateParams::new(vec!["admin".into()]).unwrap();
        let cert = params.signed_by(&pair, &issuer).unwrap();
        format!("{}{}", cert.pem(), pair.serialize_pem())
    }
}

/// One cluster's secrets and endpoint.
pub(crate) struct Cluster {
    pub(crate) endpoint: String,
    pub(crate) ca: Authority,
    pub(crate) etcd: Authority,
}

impl Cluster {
    /// At a free port of a loopback address.
    pub(crate) fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.41.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        Self { endpoint, ca: Authority::new("kubernetes"), etcd: Authority::new("etcd-ca") }
    }

    fn files(&self) -> String {
        let file = |name: &str, text: &str| {
            let text = text.replace('\n', "\n      ");
            format!("-   path: /etc/kubernetes/pki/{name}\n    content: |\n      {text}\n")
        };
        [("ca", &self.ca), ("etcd/ca", &self.etcd)]
            .iter()
            .map(|(name, ca)| {
                file(&format!("{name}.crt"), &ca.cert) + &file(&format!("{name}.key"), &ca.key)
            })
            .collect()
    }

    pub(crate) fn init(&self) -> String {
        let configuration = format!(
            "apiVersion: kubeadm.k8s.io/v1beta3\n      kind: ClusterConfiguration\n      clusterName: lab\n      controlPlaneEndpoint: {}\n      kubernetesVersion: v1.34.4\n      ---\n      apiVersion: kubeadm.k8s.io/v1beta3\n      kind: InitConfiguration\n      nodeRegistration:\n        name: '{{{{ ds.meta_data.local_hostname }}}}'\n        kubeletExtraArgs:\n          provider-id: proxmox://'{{{{ ds.meta_data.instance_id }}}}'",
            self.endpoint
        );
        Self::user_data(&self.files(), "kubeadm.yaml", &configuration, "init")
    }

    pub(crate) fn join(&self, control_plane: bool) -> String {
        let section = if control_plane { "\n      controlPlane: {}" } else { "" };
        let files = if control_plane { self.files() } else { String::new() };
        let configuration = format!(
            "apiVersion: kubeadm.k8s.io/v1beta3\n      kind: JoinConfiguration{section}\n      discovery:\n        bootstrapToken:\n          apiServerEndpoint: {}\n          token: {TOKEN}\n          unsafeSkipCAVerification: true\n      nodeRegistration:\n        kubeletExtraArgs:\n          provider-id: proxmox://'{{{{ ds.meta_data.instance_id }}}}'",
            self.endpoint
        );
        Self::user_data(&files, "kubeadm-join-config.yaml", &configuration, "join")
    }

    fn user_data(files: &str, name: &str, configuration: &str, verb: &str) -> String {
        format!(
            "## template: jinja\n#cloud-config\n\nwrite_files:\n{files}-   path: /run/kubeadm/{name}\n    owner: root:root\n    permissions: '0640'\n    content: |\n      ---\n      {configuration}\nruncmd:\n  - 'kubeadm {verb} --config /run/kubeadm/{name}  && echo success > /run/cluster-api/bootstrap-success.complete'\n"
        )
    }
}

/// A NIC's MAC address by VMID.
pub(crate) fn mac(vmid: u32) -> String {
    format!("BC:24:11:00:00:{vmid:02X}")
}

/// Files of a seed.
pub(crate) struct Seed {
    pub(crate) user_data: String,
    pub(crate) meta_data: String,
    pub(crate) network_config: String,
}

impl Seed {
    pub(crate) fn new(vmid: u32, user_data: String) -> Self {
        Self {
            user_data,
            meta_data: format!("instance-id: id-{vmid}\nlocal-hostname: node-{vmid}\n"),
            network_config: format!(
                "network:\n  version: 2\n  ethernets:\n    eth0:\n      match:\n        macaddress: {}\n      addresses: [10.0.0.{vmid}/24]\n      routes: [{{to: default, via: 10.0.0.1}}]\n",
                mac(vmid).to_lowercase()
            ),
        }
    }

    /// The image; a file that is empty is left out.
    pub(crate) fn image(&self) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("files");
        std::fs::create_dir(&source).unwrap();
        let files = [
            ("user-data", &self.user_data),
            ("meta-data", &self.meta_data),
            ("network-config", &self.network_config),
        ];
        for (name, text) in files.iter().filter(|(_, text)| !text.is_empty()) {
            std::fs::write(source.join(name), text).unwrap();
        }
        let image = folder.path().join("seed.iso");
        let mut command = Command::new("genisoimage");
        command.args(["-quiet", "-J", "-R", "-V", "cidata", "-o"]).arg(&image).arg(&source);
        assert!(command.status().expect("genisoimage must be installed").success());
        std::fs::read(image).unwrap()
    }
}

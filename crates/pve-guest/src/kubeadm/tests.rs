use super::*;

const INIT: &str = "---
apiServer: {certSANs: [api.example]}
apiVersion: kubeadm.k8s.io/v1beta3
clusterName: lab
controlPlaneEndpoint: 127.11.22.33:6443
kind: ClusterConfiguration
kubernetesVersion: v1.34.4
---
apiVersion: kubeadm.k8s.io/v1beta3
kind: InitConfiguration
nodeRegistration:
  name: lab-cp-0
  kubeletExtraArgs: {provider-id: \"proxmox://'9a8b'\"}
";

const JOIN: &str = "---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: 127.11.22.33:6443
    token: abcdef.0123456789abcdef
    caCertHashes: ['sha256:00']
nodeRegistration:
  kubeletExtraArgs: [{name: provider-id, value: proxmox://9a8b}]
  taints: [{key: node.cluster.x-k8s.io/uninitialized, effect: NoSchedule}]
";

fn config(kubeadm: &str, command: &str) -> CloudConfig {
    CloudConfig {
        files: BTreeMap::from([
            ("/run/kubeadm/kubeadm.yaml".into(), kubeadm.into()),
            ("/etc/kubernetes/pki/ca.crt".into(), "CA".into()),
            ("/etc/kubernetes/pki/etcd/ca.key".into(), "KEY".into()),
        ]),
        commands: vec!["systemctl start something".into(), command.into()],
    }
}

fn found(kubeadm: &str, command: &str) -> Result<Kubeadm, Fault> {
    Kubeadm::find(&config(kubeadm, command)).map(|found| found.expect("kubeadm is called"))
}

const RUN_INIT: &str = "kubeadm init --config /run/kubeadm/kubeadm.yaml  && echo success > /run/cluster-api/bootstrap-success.complete";
const RUN_JOIN: &str = "kubeadm join --config /run/kubeadm/kubeadm.yaml -v=5";

#[test]
fn an_init_is_read_whole() {
    let kubeadm = found(INIT, RUN_INIT).unwrap();
    let Role::Init { cluster_name, cluster_configuration, cert_sans } = &kubeadm.role else {
        panic!("{kubeadm:?}")
    };
    assert_eq!(
        (cluster_name.as_str(), cert_sans.as_slice()),
        ("lab", ["api.example".to_owned()].as_slice())
    );
    assert!(cluster_configuration.contains("kind: ClusterConfiguration"));
    assert_eq!(kubeadm.endpoint, "127.11.22.33:6443");
    assert_eq!(kubeadm.node_name.as_deref(), Some("lab-cp-0"));
    assert_eq!(kubeadm.kubelet_arg("provider-id").as_deref(), Some("proxmox://9a8b"));
    assert_eq!(kubeadm.kubernetes_version.as_deref(), Some("v1.34.4"));
    assert_eq!(kubeadm.sentinel.as_deref(), Some("/run/cluster-api/bootstrap-success.complete"));
    assert_eq!(kubeadm.pki.0.keys().collect::<Vec<_>>(), ["ca.crt", "etcd/ca.key"]);
}

#[test]
fn joins_differ_by_the_control_plane_section() {
    let worker = found(JOIN, RUN_JOIN).unwrap();
    assert!(matches!(worker.role, Role::JoinWorker(_)));
    assert_eq!(worker.kubelet_arg("provider-id").as_deref(), Some("proxmox://9a8b"));
    assert_eq!(worker.taints.map(|taints| taints.len()), Some(1));
    assert_eq!((worker.node_name, worker.sentinel), (None, None));
    let member = found(&format!("{JOIN}controlPlane: {{}}\n"), RUN_JOIN).unwrap();
    assert!(matches!(member.role, Role::JoinControlPlane(_)));
    assert!(!format!("{member:?}").contains("0123456789abcdef"));
}

#[test]
fn the_join_script_is_followed() {
    let mut config =
        config(JOIN, "/usr/local/bin/kubeadm-bootstrap-script && echo success > /run/x");
    let script = "#!/bin/bash\nkubeadm join phase preflight --config /run/kubeadm/kubeadm.yaml\n";
    config.files.insert(JOIN_SCRIPT.into(), script.into());
    let kubeadm = Kubeadm::find(&config).unwrap().unwrap();
    assert!(matches!(kubeadm.role, Role::JoinWorker(_)));
    assert_eq!(kubeadm.sentinel.as_deref(), Some("/run/x"));
}

#[test]
fn no_kubeadm_is_no_fault() {
    assert_eq!(Kubeadm::find(&CloudConfig::default()), Ok(None));
}

#[test]
fn what_kubeadm_would_refuse_is_a_fault() {
    for (text, command, said) in [
        (INIT, "kubeadm init", "names no --config"),
        (INIT, "kubeadm init --config /tmp/x", "unable to read /tmp/x"),
        (JOIN, RUN_INIT, "has no ClusterConfiguration"),
        (INIT, RUN_JOIN, "has no JoinConfiguration"),
        ("a: [", RUN_INIT, "is no YAML"),
        (&INIT.replace("127.11.22.33:6443", ":6443"), RUN_INIT, "is no control plane endpoint"),
        (&JOIN.replace("    caCertHashes: ['sha256:00']\n", ""), RUN_JOIN, "pins no CA"),
        (&JOIN.replace("bootstrapToken", "file"), RUN_JOIN, "has no discovery.bootstrapToken"),
    ] {
        let fault = found(text, command).unwrap_err();
        assert!(fault.text.contains(said), "{command} gave {fault}");
    }
}

#[test]
fn endpoints_get_their_port() {
    for (given, read) in [
        ("127.0.0.1", Some("127.0.0.1:6443")),
        ("api.example:443", Some("api.example:443")),
        ("::1", Some("[::1]:6443")),
        ("[::1]:443", Some("[::1]:443")),
        ("", None),
        ("host:port", None),
    ] {
        assert_eq!(with_port(given).as_deref(), read, "{given}");
    }
}

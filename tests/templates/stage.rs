//! clusterctl, sets of variables, and a control plane that asks every webhook.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use capmox::webhook::{Config, Server};
use serde_json::Value;
use testbed::{Binaries, ClusterRequest, Clusterctl, Options, World, apply};
use tokio_util::sync::CancellationToken;

pub(crate) const VERSION: &str = "v1.33.4";

/// clusterctl's names of the flavours; the default one has none.
pub(crate) const FLAVOURS: &[&str] = &[
    "",
    "auto-image",
    "calico",
    "cilium",
    "cilium-load-balancer",
    "dual-stack",
    "external-creds",
    "flatcar",
    "multiple-vlans",
    "proxmox-labels",
];

/// Every variable that has no default in some flavour.
pub(crate) const NEEDED: &[(&str, &str)] = &[
    ("CONTROL_PLANE_ENDPOINT_IP", "10.10.10.9"),
    ("NODE_IP_RANGES", "[10.10.10.10-10.10.10.50]"),
    ("IP_PREFIX", "24"),
    ("GATEWAY", "10.10.10.1"),
    ("DNS_SERVERS", "[10.10.10.1]"),
    ("PROXMOX_SOURCENODE", "pve1"),
    ("TEMPLATE_VMID", "9000"),
    ("TEMPLATE_TAGS", "ubuntu, v1.33.4"),
    ("VM_SSH_KEYS", "ssh-ed25519 AAAAone one@example.com, ssh-rsa AAAAtwo two@example.com"),
    ("BRIDGE", "vmbr0"),
    ("BOOT_VOLUME_DEVICE", "scsi0"),
    ("NODE_IPV6_RANGES", "[\"2001:db8::10-2001:db8::ff\"]"),
    ("IPV6_PREFIX", "64"),
    ("IPV6_GATEWAY", "2001:db8::1"),
    ("PROXMOX_URL", "https://pve.example.com:8006"),
    ("PROXMOX_TOKEN", "capmox@pve!capi"),
    ("PROXMOX_SECRET", "9a8b7c6d-0000-4000-8000-000000000001"),
    ("SECONDARY_BRIDGE", "vmbr1"),
    ("NODE_SECONDARY_IP_RANGES", "[10.20.0.10-10.20.0.50]"),
    ("SECONDARY_IP_RANGES", "[10.20.0.10-10.20.0.50]"),
    ("SECONDARY_IP_PREFIX", "24"),
    ("SECONDARY_GATEWAY", "10.20.0.1"),
    ("LOAD_BALANCER_MACHINE_COUNT", "2"),
    ("EXT_SERVICE_BRIDGE", "vmbr2"),
    ("LB_BGP_IPV4_RANGES", "[10.30.0.10-10.30.0.20]"),
    ("LB_BGP_IPV4_PREFIX", "24"),
    ("LB_BGP_IPV6_RANGE", "[\"2001:db8:3::10-2001:db8:3::20\"]"),
    ("LB_BGP_IPV6_PREFIX", "64"),
    ("METALLB_IPV4_RANGE", "192.0.2.0/24"),
    ("METALLB_IPV4_ASN", "65001"),
    ("METALLB_IPV4_BGP_PEER", "10.30.0.1"),
    ("METALLB_IPV4_BGP_PEER_ASN", "65010"),
    ("METALLB_IPV4_BGP_PEER2", "10.30.0.2"),
    ("METALLB_IPV4_BGP_PEER2_ASN", "65020"),
    ("METALLB_IPV4_BGP_SECRET", "four"),
    ("METALLB_IPV6_RANGE", "2001:db8:4::/64"),
    ("METALLB_IPV6_ASN", "65001"),
    ("METALLB_IPV6_BGP_PEER", "2001:db8:3::1"),
    ("METALLB_IPV6_BGP_PEER_ASN", "65010"),
    ("METALLB_IPV6_BGP_PEER2", "2001:db8:3::2"),
    ("METALLB_IPV6_BGP_PEER2_ASN", "65020"),
    ("METALLB_IPV6_BGP_SECRET", "six"),
];

/// Every variable that may be left out, with another value than its default.
pub(crate) const CHOSEN: &[(&str, &str)] = &[
    ("ALLOWED_NODES", "[pve1, pve2]"),
    ("VIP_NETWORK_INTERFACE", "eth0"),
    ("NUM_SOCKETS", "1"),
    ("NUM_CORES", "8"),
    ("MEMORY_MIB", "4096"),
    ("BOOT_VOLUME_DEVICE", "virtio0"),
    ("BOOT_VOLUME_SIZE", "40"),
    ("NUM_SOCKETS_LB", "2"),
    ("NUM_CORES_LB", "2"),
    ("MEMORY_MIB_LB", "4096"),
    ("IPV6_PREFIX", "80"),
];

/// Several networks at once, single addresses and CIDRs, and an endpoint that is a name.
pub(crate) const UNUSUAL: &[(&str, &str)] = &[
    ("CONTROL_PLANE_ENDPOINT_IP", "api.example.com"),
    ("NODE_IP_RANGES", "[10.10.10.10, 10.10.10.64/26, 10.10.10.20-10.10.10.30]"),
    ("DNS_SERVERS", "[\"2001:4860:4860::8888\", 10.10.10.1, 10.10.10.2]"),
    ("VM_SSH_KEYS", ""),
    ("TEMPLATE_TAGS", "one"),
    ("LOAD_BALANCER_MACHINE_COUNT", "0"),
];

/// The needed ones, with others over them.
pub(crate) fn with<'a>(others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all = NEEDED.to_vec();
    all.extend(others);
    all
}

pub(crate) fn clusterctl() -> (Clusterctl, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Clusterctl::new(&Binaries::new(), folder.path()).unwrap(), folder)
}

pub(crate) fn request<'a>(
    flavor: &'a str,
    namespace: &'a str,
    variables: &'a [(&'a str, &'a str)],
) -> ClusterRequest<'a> {
    ClusterRequest {
        name: "lab",
        namespace,
        kubernetes_version: VERSION,
        control_plane: 3,
        workers: 2,
        flavor,
        variables,
    }
}

/// The objects of a flavour.
pub(crate) fn render(
    clusterctl: &Clusterctl,
    flavor: &str,
    namespace: &str,
    variables: &[(&str, &str)],
) -> Vec<Value> {
    let request = request(flavor, namespace, variables);
    let text = clusterctl.generate(Path::new("none"), &request);
    apply::documents(&text.unwrap_or_else(|why| panic!("{flavor}: {why:#}"))).unwrap()
}

/// A control plane with Cluster API's managers and webhooks, and with our webhooks as `config` has
/// them.
pub(crate) struct Judges {
    pub(crate) world: World,
    shutdown: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Judges {
    pub(crate) async fn start() -> Self {
        let world = World::start(Options::with_capi()).await.unwrap();
        let (_, cert_dir) = world.serving_certificate();
        let bind = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(Config { bind, cert_dir: cert_dir.to_owned() }).await.unwrap();
        let port = server.address().port();
        let mut ready = server.ready();
        let shutdown = CancellationToken::new();
        let running = server.run(shutdown.clone());
        let serving = tokio::spawn(async move { running.await.unwrap() });
        tokio::time::timeout(Duration::from_secs(20), ready.wait_for(|ready| *ready))
            .await
            .expect("the certificate is loaded")
            .unwrap();
        let manifest = testbed::root().join("config/webhook/manifests.yaml");
        world.register_webhooks(&manifest, "capmox", port).await.unwrap();
        Self { world, shutdown, serving }
    }

    pub(crate) async fn stop(self) {
        self.world.stop().await.unwrap();
        self.shutdown.cancel();
        self.serving.await.unwrap();
    }
}

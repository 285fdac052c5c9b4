//! etcd, kube-apiserver and, where asked for, kube-controller-manager.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::binaries::Binaries;
use crate::pki::Pki;
use crate::process::Process;
use crate::{kubeconfig, ports};

/// How long the API server may take. It needs three seconds on an idle machine.
const READY: Duration = Duration::from_secs(90);

pub(crate) struct ControlPlane {
    pub(crate) processes: Vec<Process>,
    pub(crate) server: String,
    pub(crate) kubeconfig: PathBuf,
}

/// Starts etcd and kube-apiserver and waits until it is ready.
pub(crate) async fn start(
    binaries: &Binaries,
    pki: &Pki,
    dir: &Path,
    logs: &Path,
) -> Result<ControlPlane> {
    let etcd_url = format!("http://127.0.0.1:{}", ports::free()?);
    let peer_url = format!("http://127.0.0.1:{}", ports::free()?);
    let etcd = Process::start(
        "etcd",
        &binaries.path("etcd")?,
        etcd_args(dir, &etcd_url, &peer_url),
        &[],
        logs,
    )?;
    let port = ports::free()?;
    let server = format!("https://127.0.0.1:{port}");
    let args = apiserver_args(pki, dir, &etcd_url, port);
    let binary = binaries.path("kube-apiserver")?;
    let mut apiserver = Process::start("kube-apiserver", &binary, args, &[], logs)?;

    let kubeconfig = dir.join("admin.kubeconfig");
    kubeconfig::write(&kubeconfig, &kubeconfig::admin(pki, &server))?;
    let client = kubeconfig::client(&kubeconfig).await?;
    let ready = apiserver.wait_ready(READY, async || is_ready(&client, "/readyz").await).await;
    ready.with_context(|| format!("etcd's last words:\n{}", etcd.log_tail(5)))?;
    // In the order in which they are to be stopped.
    Ok(ControlPlane { processes: vec![apiserver, etcd], server, kubeconfig })
}

async fn is_ready(client: &kube::Client, path: &str) -> bool {
    let Ok(request) = http::Request::get(path).body(Vec::new()) else { return false };
    client.request_text(request).await.is_ok_and(|text| text.trim() == "ok")
}

fn etcd_args(dir: &Path, client_url: &str, peer_url: &str) -> Vec<String> {
    vec![
        "--name=testbed".to_owned(),
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client_url}"),
        format!("--advertise-client-urls={client_url}"),
        format!("--listen-peer-urls={peer_url}"),
        format!("--initial-advertise-peer-urls={peer_url}"),
        format!("--initial-cluster=testbed={peer_url}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn apiserver_args(pki: &Pki, dir: &Path, etcd_url: &str, port: u16) -> Vec<String> {
    vec![
        format!("--etcd-servers={etcd_url}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", dir.join("apiserver").display()),
        format!("--tls-cert-file={}", pki.serving.join("tls.crt").display()),
        format!("--tls-private-key-file={}", pki.serving.join("tls.key").display()),
        format!("--client-ca-file={}", pki.ca.display()),
        "--service-account-issuer=https://testbed.invalid".to_owned(),
        format!("--service-account-key-file={}", pki.account_public.display()),
        format!("--service-account-signing-key-file={}", pki.account_key.display()),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        // Without a kubelet nobody mounts tokens, and nobody makes the accounts it would ask for.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--v=1".to_owned(),
    ]
}

/// Starts kube-controller-manager with what Cluster API relies on: garbage collection by owner
/// references and the end of namespaces.
pub(crate) async fn controller_manager(
    binaries: &Binaries,
    pki: &Pki,
    kubeconfig: &Path,
    logs: &Path,
) -> Result<Process> {
    let port = ports::free()?;
    let args = [
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--authentication-kubeconfig={}", kubeconfig.display()),
        format!("--authorization-kubeconfig={}", kubeconfig.display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", pki.serving.join("tls.crt").display()),
        format!("--tls-private-key-file={}", pki.serving.join("tls.key").display()),
        "--leader-elect=false".to_owned(),
        "--controllers=garbage-collector-controller,namespace-controller".to_owned(),
        // Everything that is deleted in a demo is deleted at once.
        "--concurrent-gc-syncs=20".to_owned(),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
        "--v=1".to_owned(),
    ];
    let binary = binaries.path("kube-controller-manager")?;
    let mut process = Process::start("kube-controller-manager", &binary, args, &[], logs)?;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    process
        .wait_ready(READY, async || tokio::net::TcpStream::connect(address).await.is_ok())
        .await?;
    Ok(process)
}

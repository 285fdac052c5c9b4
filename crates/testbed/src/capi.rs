//! Cluster API's unmodified managers: core, kubeadm bootstrap, kubeadm control plane.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use kube::Client;

use crate::binaries::{Binaries, root};
use crate::pki::Pki;
use crate::process::Process;
use crate::provider::is_ok;
use crate::{crds, ports, webhooks};

/// How long a manager may take until its probe says that it is ready.
const READY: Duration = Duration::from_mins(2);

struct Provider {
    /// Name of the program.
    name: &'static str,
    /// Folder in Cluster API's module with its webhooks.
    webhooks: &'static str,
    features: &'static str,
}

const PROVIDERS: &[Provider] = &[
    Provider { name: "capi-core", webhooks: "config/webhook", features: "ClusterTopology=true" },
    Provider {
        name: "capi-kubeadm-bootstrap",
        webhooks: "bootstrap/kubeadm/config/webhook",
        features: "ClusterTopology=true,KubeadmBootstrapFormatIgnition=true",
    },
    Provider {
        name: "capi-kubeadm-control-plane",
        webhooks: "controlplane/kubeadm/config/webhook",
        features: "ClusterTopology=true,KubeadmBootstrapFormatIgnition=true",
    },
];

/// Starts the three managers, registers their webhooks, waits until all are ready.
pub(crate) async fn start(
    binaries: &Binaries,
    client: &Client,
    pki: &Pki,
    kubeconfig: &Path,
    logs: &Path,
) -> Result<Vec<Process>> {
    let module = crds::cluster_api_module(&root())?;
    let mut started = Vec::new();
    for provider in PROVIDERS {
        let webhook_port = ports::free()?;
        let health_port = ports::free()?;
        let args = [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--leader-elect=false".to_owned(),
            format!("--webhook-port={webhook_port}"),
            format!("--webhook-cert-dir={}", pki.serving.display()),
            format!("--health-addr=127.0.0.1:{health_port}"),
            format!("--diagnostics-address=127.0.0.1:{}", ports::free()?),
            "--insecure-diagnostics".to_owned(),
            format!("--feature-gates={}", provider.features),
            // These phases would patch the definitions' status, to no use on a fresh API server.
            "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields".to_owned(),
            "--kube-api-qps=200".to_owned(),
            "--kube-api-burst=400".to_owned(),
        ];
        let binary = binaries.path(provider.name)?;
        let process = Process::start(provider.name, &binary, args, &[], logs)?;
        started.push((process, health_port, webhook_port, provider));
    }
    let mut processes = Vec::new();
    for (mut process, health_port, webhook_port, provider) in started {
        process.wait_ready(READY, async || is_ok(health_port, "/readyz").await).await?;
        let manifest = module.join(provider.webhooks).join("manifests.yaml");
        webhooks::register(client, &manifest, provider.name, webhook_port, &pki.ca_pem).await?;
        processes.push(process);
    }
    Ok(processes)
}

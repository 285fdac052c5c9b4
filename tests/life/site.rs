//! A namespace with a Cluster of its own, a manager that looks after nothing else, and the relay
//! between the manager and the API server.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kube::Client;
use testbed::World;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::relay::Relay;

/// How long anything may take; generous, as two cores are shared with everything.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Runs a test in the runtime that all tests share, so that they can share a world.
pub(crate) fn play<T>(test: impl Future<Output = Result<T>>) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    match RUNTIME.block_on(test) {
        Ok(value) => value,
        Err(error) => panic!("{error:#}"),
    }
}

/// The world, with an allocator for all pools in it.
async fn world() -> Result<&'static World> {
    static ALLOCATOR: OnceCell<()> = OnceCell::const_new();
    let world = World::shared().await?;
    ALLOCATOR
        .get_or_try_init(|| async {
            let client = world.client().await?;
            tokio::spawn(capmox::embedded_ipam::run(client, CancellationToken::new()));
            anyhow::Ok(())
        })
        .await?;
    Ok(world)
}

/// A Proxmox cluster as a manager is told of it.
pub(crate) struct Proxmox {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) secret: String,
    /// PEM of the authority to trust; none for plain HTTP.
    pub(crate) authority: Option<String>,
}

pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) gate: Arc<Gate>,
    world: &'static World,
    env: [(&'static str, String); 3],
    args: Vec<String>,
    _relay: Relay,
}

impl Site {
    /// Makes the namespace; nothing runs yet.
    pub(crate) async fn make(prefix: &str, proxmox: Proxmox, gate: Arc<Gate>) -> Result<Self> {
        let world = world().await?;
        let client = world.client().await?;
        let namespace = world.namespace(prefix).await?;
        let relay = Relay::start(client.clone(), Arc::clone(&gate)).await?;
        let kubeconfig = world.folder().join(format!("{namespace}.kubeconfig"));
        std::fs::write(&kubeconfig, relay.kubeconfig()).context("cannot write a kubeconfig")?;
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--namespace={namespace}"),
            "--health-probe-bind-address=0".to_owned(),
            "--diagnostics-address=0".to_owned(),
            "--v=2".to_owned(),
        ];
        if let Some(pem) = proxmox.authority {
            let file = world.folder().join(format!("{namespace}.crt"));
            std::fs::write(&file, pem).context("cannot write a certificate")?;
            args.push("--proxmox-insecure=false".to_owned());
            args.push(format!("--proxmox-root-cert-file={}", file.display()));
        }
        let env = [
            ("PROXMOX_URL", proxmox.url),
            ("PROXMOX_TOKEN", proxmox.token),
            ("PROXMOX_SECRET", proxmox.secret),
        ];
        Ok(Self { client, namespace, gate, world, env, args, _relay: relay })
    }

    /// Makes the namespace with a Cluster that is ready, and starts the manager.
    pub(crate) async fn open(prefix: &str, proxmox: Proxmox, gate: Arc<Gate>) -> Result<Self> {
        let site = Self::make(prefix, proxmox, gate).await?;
        site.start_manager()?;
        site.make_cluster().await?;
        Ok(site)
    }

    pub(crate) fn start_manager(&self) -> Result<()> {
        let env: Vec<(&str, &str)> = self.env.iter().map(|(key, text)| (*key, &**text)).collect();
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let program = Path::new(env!("CARGO_BIN_EXE_capmox"));
        self.gate.guard(self.world.start_manager(program, &env, &args)?);
        Ok(())
    }

    /// Starts the manager again whenever it was killed.
    pub(crate) async fn revive(&self) -> Result<Infallible> {
        loop {
            self.gate.killed().await;
            self.start_manager()?;
        }
    }

    /// Waits for `what`, or tells what is the matter with the machine.
    pub(crate) async fn within<T, E>(
        &self,
        what: &str,
        machine: &str,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        match tokio::time::timeout(PATIENCE, future).await {
            Ok(found) => found.with_context(|| format!("{machine}: {what}")),
            Err(_) => Err(anyhow!(
                "{machine} in {}, waited in vain for {what}\n{}\n{}",
                self.namespace,
                self.tell(machine).await,
                self.gate.log_tail(25)
            )),
        }
    }

    async fn tell(&self, machine: &str) -> String {
        match self.machines().get_opt(machine).await {
            Ok(Some(found)) => {
                let text = serde_json::json!({
                    "finalizers": found.metadata.finalizers,
                    "virtualMachineID": found.spec.virtual_machine_id,
                    "status": found.status,
                });
                text.to_string()
            }
            Ok(None) => "it does not exist".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

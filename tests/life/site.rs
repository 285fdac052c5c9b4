//! A namespace with a Cluster of its own, a manager that looks after nothing else, and the relay
//! between the manager and the API server.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use capmox::api::ProxmoxMachine;
use capmox::runtime::rbac;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use pve_fake::Fake;
use serde_json::{Value, json};
use testbed::{World, apply};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::relay::{Relay, Tally, Trouble};

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

impl Proxmox {
    /// A simulated one, by its own token.
    pub(crate) fn of(fake: &Fake) -> Self {
        let token = fake.token();
        let (token, secret) = (token.id.clone(), token.secret.clone());
        Self { url: fake.url(), token, secret, authority: None }
    }
}

pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) gate: Arc<Gate>,
    world: &'static World,
    env: [(&'static str, String); 3],
    args: Vec<String>,
    /// Merged into the spec of the ProxmoxCluster.
    cluster: Value,
    relay: Relay,
}

/// The rights of an installed manager: those that the manifests are generated from, in one role.
fn manager_role() -> Result<Value> {
    let named = |name| rbac::roles().into_iter().find(move |role| role["metadata"]["name"] == name);
    let mut role = named("manager-role").context("no role of the manager")?;
    let leases = named("leader-election-role").context("no role for the lease")?;
    let more = leases["rules"].as_array().context("no rules")?.clone();
    role["rules"].as_array_mut().context("no rules")?.extend(more);
    Ok(role)
}

/// A service account of this namespace with the rights of a role.
async fn account(world: &World, namespace: &str, mut role: Value) -> Result<Client> {
    let admin = world.client().await?;
    role["metadata"]["name"] = json!("capmox-manager-role");
    apply::apply(&admin, &role, namespace).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{namespace}-manager")},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "capmox-manager-role",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": namespace}],
    });
    apply::apply(&admin, &binding, namespace).await?;
    let file = world.service_account(namespace, "manager").await?;
    let config = Kubeconfig::read_from(file)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let machines = Api::<ProxmoxMachine>::namespaced(client.clone(), namespace);
    // The API server learns of bindings by a watch of its own.
    let may = async || Ok(machines.list(&ListParams::default()).await.ok());
    world.wait_for(PATIENCE, "the rights of the service account", may).await?;
    Ok(client)
}

impl Site {
    /// Makes the namespace; nothing runs yet.
    pub(crate) async fn make(prefix: &str, proxmox: Proxmox, gate: Arc<Gate>) -> Result<Self> {
        Self::make_in(world().await?, prefix, manager_role()?, proxmox, gate).await
    }

    /// The same in a world that may have other definitions, with the rights of another role.
    pub(crate) async fn make_in(
        world: &'static World,
        prefix: &str,
        role: Value,
        proxmox: Proxmox,
        gate: Arc<Gate>,
    ) -> Result<Self> {
        let client = world.client().await?;
        let namespace = world.namespace(prefix).await?;
        let account = account(world, &namespace, role).await?;
        let relay = Relay::start(account, Arc::clone(&gate)).await?;
        let kubeconfig = world.folder().join(format!("{namespace}.kubeconfig"));
        std::fs::write(&kubeconfig, relay.kubeconfig()).context("cannot write a kubeconfig")?;
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--namespace={namespace}"),
            "--health-probe-bind-address=0".to_owned(),
            "--diagnostics-address=0".to_owned(),
            "--v=2".to_owned(),
            // Connections have no namespace, so those of other tests are left to these.
            "--connection-status=read".to_owned(),
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
        let cluster = Value::Null;
        Ok(Self { client, namespace, gate, world, env, args, cluster, relay })
    }

    /// Another argument for the manager, in the place of one of the same name.
    pub(crate) fn argue(&mut self, arg: String) {
        let name = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
        self.args.retain(|other| name(other) != name(&arg));
        self.args.push(arg);
    }

    /// Has metrics served where the testbed looks for them.
    pub(crate) fn serve_metrics(&mut self) {
        self.args.retain(|arg| !arg.starts_with("--diagnostics-address="));
    }

    /// What the ProxmoxCluster's spec has beside the usual.
    pub(crate) fn change_cluster(&mut self, change: Value) {
        self.cluster = change;
    }

    pub(crate) fn cluster_change(&self) -> &Value {
        &self.cluster
    }

    /// What the API server does to the manager from now on.
    pub(crate) fn trouble(&self, trouble: Option<Trouble>) {
        self.relay.trouble(trouble);
    }

    /// What was asked about Secrets since the last time that this was asked for.
    pub(crate) fn take_tally(&self) -> Tally {
        self.relay.take_tally()
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

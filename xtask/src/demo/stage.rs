//! Everything that takes part: the control plane, the simulated hypervisor with its guests, the
//! provider, and clusterctl.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use pve_fake::{Config, Fake, Timings};
use pve_guest::{Guests, WorkloadProcess};
use testbed::say::say;
use testbed::{Binaries, ClusterRequest, Clusterctl, ManagerProcess, Options, World, ports};

use super::CLUSTER;
use super::view::View;

/// How long a second takes in the simulator: clones take seconds, so that they can be watched.
const TIME_SCALE: f64 = 0.25;

/// What Cluster API v1.10 supports at most.
const KUBERNETES_VERSION: &str = "v1.33.4";

/// How long the provider may take until it is ready.
const READY: Duration = Duration::from_secs(30);

pub(crate) struct Stage {
    // Dropped in this order: the provider first, then what it works with.
    manager: ManagerProcess,
    world: World,
    fake: Fake,
    guests: Guests,
    /// Held, not used: it ends with this.
    _workload: WorkloadProcess,
    client: Client,
    namespace: String,
    clusterctl: Clusterctl,
    kubectl: PathBuf,
    endpoint: String,
    /// When a clone task was seen first.
    clones: Mutex<BTreeMap<String, Instant>>,
}

impl Stage {
    /// Builds what is not built and starts everything.
    pub(crate) async fn start() -> Result<Self> {
        let program = provider()?;
        let binaries = Binaries::new();
        for name in binaries.names_for_demo()? {
            binaries.path(&name)?;
        }
        say("starting the control plane");
        let world = World::start_with(Options::with_capi(), &binaries).await?;
        let client = world.client().await?;
        let namespace = world.namespace("demo").await?;
        say("starting the simulated hypervisor and its guests");
        let workload = WorkloadProcess::start(&binaries.path("workload-cluster")?).await?;
        let guests = Guests::new(pve_guest::Config {
            workload: Some(workload.client()),
            kubernetes_version: KUBERNETES_VERSION.to_owned(),
            ..pve_guest::Config::default()
        });
        let config = Config::default().with_time_scale(TIME_SCALE).with_tls();
        let fake = Fake::start(config.with_guest(guests.as_guest())).await?;
        let manager = start_manager(&world, &fake, &program).await?;
        let clusterctl = Clusterctl::new(&binaries, &world.folder().join("clusterctl"))?;
        Ok(Self {
            manager,
            client,
            namespace,
            clusterctl,
            kubectl: binaries.path("kubectl")?,
            endpoint: ports::free_address(6443)?.to_string(),
            clones: Mutex::default(),
            fake,
            guests,
            _workload: workload,
            world,
        })
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn fake(&self) -> &Fake {
        &self.fake
    }

    pub(crate) fn guests(&self) -> &Guests {
        &self.guests
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Renders the template with clusterctl and applies it.
    pub(crate) async fn apply_cluster(&self, control_plane: u32, workers: u32) -> Result<()> {
        let variables = [
            ("CONTROL_PLANE_ENDPOINT_IP", self.endpoint.as_str()),
            ("NODE_IP_RANGES", "[10.10.10.10-10.10.10.50]"),
            ("IP_PREFIX", "24"),
            ("GATEWAY", "10.10.10.1"),
            ("DNS_SERVERS", "[10.10.10.1]"),
            ("ALLOWED_NODES", "[pve1, pve2, pve3]"),
            ("PROXMOX_SOURCENODE", "pve1"),
            ("TEMPLATE_VMID", "9000"),
            ("VM_SSH_KEYS", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDemoDemoDemo demo@example.com"),
            ("BRIDGE", "vmbr0"),
            ("BOOT_VOLUME_DEVICE", "scsi0"),
            ("BOOT_VOLUME_SIZE", "40"),
            ("MEMORY_MIB", "4096"),
        ];
        let request = ClusterRequest {
            name: CLUSTER,
            namespace: &self.namespace,
            kubernetes_version: KUBERNETES_VERSION,
            control_plane,
            workers,
            flavor: "",
            variables: &variables,
        };
        let text = self.clusterctl.generate(self.world.kubeconfig(), &request)?;
        for object in testbed::apply::documents(&text)? {
            testbed::apply::apply(&self.client, &object, &self.namespace).await?;
        }
        Ok(())
    }

    /// How far a clone is, from when its task was seen first and how long the simulator makes a
    /// clone last. None once it has ended, and for other tasks.
    pub(crate) fn clone_progress(&self, upid: &str) -> Option<u8> {
        let task = self.fake.model().tasks().into_iter().find(|task| task.upid == upid)?;
        if task.kind != "qmclone" || task.exit.is_some() {
            return None;
        }
        let mut clones = self.clones.lock().unwrap_or_else(PoisonError::into_inner);
        let since = clones.entry(upid.to_owned()).or_insert_with(Instant::now).elapsed();
        let whole = Timings::default().scaled(TIME_SCALE).clone_full.as_millis().max(1);
        u8::try_from(since.as_millis() * 100 / whole).ok().map(|percent| percent.min(99))
    }

    /// Prints the commands, and what one of them shows.
    pub(crate) fn tell_how_to_look_around(&self, view: &mut View) -> Result<()> {
        let (kubeconfig, namespace) = (self.world.kubeconfig(), &self.namespace);
        let picture = self.clusterctl.describe(kubeconfig, namespace, CLUSTER)?;
        let table = Command::new(&self.kubectl)
            .args(["get", "proxmoxmachines", "--namespace", namespace])
            .env("KUBECONFIG", kubeconfig)
            .output()
            .context("cannot run kubectl")?;
        view.text(&format!(
            "\n{}\n{picture}\nto look around:\n  export KUBECONFIG={}\n  {} get proxmoxmachines,machines -n {namespace}\n  \
             {} describe cluster {CLUSTER} -n {namespace}\n  logs: {}\n  Proxmox, simulated: {} (token {}, secret {})\n",
            String::from_utf8_lossy(&table.stdout),
            kubeconfig.display(),
            self.kubectl.display(),
            self.clusterctl.program().display(),
            self.world.logs().display(),
            self.fake.url(),
            self.fake.token().id,
            self.fake.token().secret,
        ));
        Ok(())
    }

    /// # Errors
    /// If the provider has ended, with the end of its log.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.manager.exit_status() {
            None => Ok(()),
            Some(status) => {
                bail!("the provider ended with {status}:\n{}", self.manager.log_tail(30))
            }
        }
    }

    /// Everything that helps to see why something does not come.
    pub(crate) async fn describe(&self) -> String {
        let world = self.world.describe(15).await;
        let guests = self.guests.records().into_iter().fold(String::new(), |mut text, guest| {
            let _ = writeln!(text, "guest {} {}: {:?}", guest.vmid, guest.name, guest.progress);
            text
        });
        let (log, tail) = (self.manager.log().display(), self.manager.log_tail(40));
        format!("{world}{guests}--- end of {log}\n{tail}")
    }

    /// Ends everything at once. The simulator's own complaints would hide what went wrong before.
    pub(crate) fn abandon(self) {
        std::mem::forget(self.fake);
    }

    /// Ends everything softly.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.manager.stop().await?;
        self.world.stop().await
    }
}

/// The provider as it is here; or the one that `CAPMOX_PROVIDER` names, as the original would be.
fn provider() -> Result<PathBuf> {
    match std::env::var_os("CAPMOX_PROVIDER").filter(|given| !given.is_empty()) {
        Some(given) => Ok(PathBuf::from(given)),
        None => crate::provider::build(),
    }
}

async fn start_manager(
    world: &World,
    fake: &Fake,
    program: &std::path::Path,
) -> Result<ManagerProcess> {
    let certificate = world.folder().join("proxmox.crt");
    let pem = fake.certificate_pem().context("the simulator has no certificate")?;
    std::fs::write(&certificate, pem).context("cannot write the simulator's certificate")?;
    let (url, token) = (fake.url(), fake.token());
    let env = [
        ("PROXMOX_URL", url.as_str()),
        ("PROXMOX_TOKEN", token.id.as_str()),
        ("PROXMOX_SECRET", token.secret.as_str()),
    ];
    let root = format!("--proxmox-root-cert-file={}", certificate.display());
    let args = ["--embedded-ipam", "--proxmox-insecure=false", &root];
    say("starting the provider");
    let mut manager = world.start_manager(program, &env, &args)?;
    manager.wait_ready(READY).await?;
    Ok(manager)
}

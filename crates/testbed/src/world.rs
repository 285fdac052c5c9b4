//! A whole control plane, from nothing, for one test binary or one demo.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::binaries::{Binaries, root};
use crate::pki::Pki;
use crate::process::{LOOK, Process};
use crate::provider::ManagerProcess;
use crate::{capi, control_plane, crds, dump, kubeconfig, watchdog, webhooks};

/// How many worlds' logs are kept.
const KEPT: usize = 20;

/// What a world has besides etcd and kube-apiserver.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Cluster API's three managers with their webhooks, and kube-controller-manager.
    pub capi: bool,
    /// kube-controller-manager: garbage collection, the end of namespaces. `capi` implies it.
    pub garbage_collection: bool,
    /// Definitions of Cluster API, the IPAM pools and the project itself.
    pub crds: bool,
}

impl Default for Options {
    /// An API server with all definitions and nobody who acts on them.
    fn default() -> Self {
        Self { capi: false, garbage_collection: false, crds: true }
    }
}

impl Options {
    /// With Cluster API's managers.
    pub fn with_capi() -> Self {
        Self { capi: true, ..Self::default() }
    }
}

/// A running control plane. Everything ends when it is dropped, or with this process.
#[derive(Debug)]
pub struct World {
    /// In the order in which they are to end.
    processes: Vec<Process>,
    pki: Pki,
    server: String,
    kubeconfig: PathBuf,
    dir: PathBuf,
    logs: PathBuf,
    managers: AtomicU32,
    accounts: Mutex<u32>,
}

impl World {
    /// Starts everything and waits until it is ready: about three seconds without `capi`.
    ///
    /// # Errors
    /// If a program cannot be built or started or is not ready in time.
    pub async fn start(options: Options) -> Result<Self> {
        Self::start_with(options, &Binaries::new()).await
    }

    /// As [`World::start`], with programs that are known already.
    ///
    /// # Errors
    /// If a program cannot be built or started or is not ready in time.
    pub async fn start_with(options: Options, binaries: &Binaries) -> Result<Self> {
        let dir = new_folder()?;
        let logs = dir.join("logs");
        fs::create_dir_all(&logs).context("cannot make the folder for logs")?;
        let data = dir.join("data");
        fs::create_dir_all(&data).context("cannot make the folder for data")?;
        watchdog::remove_at_end(&data)?;
        let pki = Pki::create(&data)?;
        let started = control_plane::start(binaries, &pki, &data, &logs).await?;
        let mut world = Self {
            processes: started.processes,
            pki,
            server: started.server,
            kubeconfig: started.kubeconfig,
            dir,
            logs,
            managers: AtomicU32::new(0),
            accounts: Mutex::new(0),
        };
        if options.crds || options.capi {
            world.install_crds().await?;
        }
        if options.garbage_collection || options.capi {
            let (pki, kubeconfig) = (&world.pki, &world.kubeconfig);
            let process =
                control_plane::controller_manager(binaries, pki, kubeconfig, &world.logs).await?;
            world.processes.insert(0, process);
        }
        if options.capi {
            world.start_cluster_api(binaries).await?;
        }
        Ok(world)
    }

    /// Starts Cluster API's three managers beside definitions that are there already, however they
    /// came, and registers their webhooks.
    ///
    /// # Errors
    /// If a program cannot be built or started or is not ready in time.
    pub async fn start_cluster_api(&mut self, binaries: &Binaries) -> Result<()> {
        let client = self.client().await?;
        let (pki, kubeconfig) = (&self.pki, &self.kubeconfig);
        let managers = capi::start(binaries, &client, pki, kubeconfig, &self.logs).await?;
        self.processes.splice(0..0, managers);
        Ok(())
    }

    /// Starts any other program, which ends with this world; its log is among the others.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_process(&mut self, name: &str, program: &Path, args: &[String]) -> Result<()> {
        let process = Process::start(name, program, args, &[], &self.logs)?;
        self.processes.insert(0, process);
        Ok(())
    }

    /// The world that all tests of one process share, by [`Options::default`]; started when first
    /// asked for. Each test takes a namespace of its own.
    ///
    /// # Errors
    /// If it cannot be started; the next caller tries again.
    pub async fn shared() -> Result<&'static Self> {
        // Never dropped: its children end with the process, as every world's do.
        static SHARED: OnceCell<World> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(Options::default())).await
    }

    async fn install_crds(&self) -> Result<()> {
        let root = root();
        let mut definitions = crds::cluster_api(&root)?;
        definitions.extend(crds::ours(&root)?);
        crds::install(&self.client().await?, definitions).await
    }

    /// A client with all rights. It lives in the runtime that calls, so every test makes its own.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        kubeconfig::client(&self.kubeconfig).await
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `https://127.0.0.1:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Names and process ids of the children.
    pub fn children(&self) -> Vec<(&str, u32)> {
        self.processes.iter().map(|process| (process.name(), process.id())).collect()
    }

    /// Where the children's logs are. They stay after the end; the last twenty worlds are kept.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// A folder for files that belong to this world; it stays with the logs.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    /// The CA of the world's certificates, as PEM, and the folder with `tls.crt` and `tls.key` for
    /// 127.0.0.1: what a webhook server of this world shows.
    pub fn serving_certificate(&self) -> (&str, &Path) {
        (&self.pki.ca_pem, &self.pki.serving)
    }

    /// Registers the webhooks of a manifest as `<prefix>-…`, called at `port` of 127.0.0.1, where a
    /// server shows [`Self::serving_certificate`].
    ///
    /// # Errors
    /// If the manifest cannot be read or is refused.
    pub async fn register_webhooks(&self, manifest: &Path, prefix: &str, port: u16) -> Result<()> {
        let client = self.client().await?;
        webhooks::register(&client, manifest, prefix, port, &self.pki.ca_pem).await
    }

    /// A new namespace `<prefix>-<random>`.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let object: Namespace = serde_json::from_value(
            json!({ "metadata": { "generateName": format!("{prefix}-") } }),
        )?;
        let api = Api::<Namespace>::all(self.client().await?);
        let made = api.create(&PostParams::default(), &object).await;
        let made = made.with_context(|| format!("cannot make namespace {prefix}-…"))?;
        made.metadata.name.context("a namespace without a name")
    }

    /// Starts a manager with this world's kubeconfig; the caller waits until it is ready.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start_manager(
        &self,
        program: &Path,
        env: &[(&str, &str)],
        args: &[&str],
    ) -> Result<ManagerProcess> {
        let number = self.managers.fetch_add(1, Ordering::Relaxed);
        let name = format!("capmox-{number}");
        ManagerProcess::start(&name, program, &self.kubeconfig, env, args, &self.logs)
    }

    /// A kubeconfig that acts as a service account, with the rights that RBAC gives it, and whose
    /// own namespace is the account's, as it is in a pod.
    ///
    /// # Errors
    /// If the account cannot be made or no token is given.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let client = self.client().await?;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = json!({ "metadata": { "name": name } });
        let request = http::Request::post(&path).body(serde_json::to_vec(&account)?)?;
        match client.request_text(request).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error).context("cannot make a service account"),
        }
        let token = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": { "expirationSeconds": 86400 },
        });
        let request = http::Request::post(format!("{path}/{name}/token"));
        let request = request.body(serde_json::to_vec(&token)?)?;
        let answer: serde_json::Value = client.request(request).await.context("no token given")?;
        let token = answer.pointer("/status/token").and_then(serde_json::Value::as_str);
        let token = token.context("no token given")?;
        let config = kubeconfig::bearer(&self.pki, &self.server, token, namespace);
        let mut number = self.accounts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *number += 1;
        let file = self.dir.join("data").join(format!("account-{number}.kubeconfig"));
        kubeconfig::write(&file, &config)?;
        Ok(file)
    }

    /// Looks with `probe` until it gives something. An error of the probe counts as "not yet".
    ///
    /// # Errors
    /// When the time is up; the message tells what was waited for, the probe's last error, what is
    /// not true of the objects, and the ends of the logs.
    pub async fn wait_for<T, F>(&self, within: Duration, what: &str, mut probe: F) -> Result<T>
    where
        F: AsyncFnMut() -> Result<Option<T>>,
    {
        let start = Instant::now();
        loop {
            let last = match probe().await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => "not yet".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            if start.elapsed() > within {
                let within = within.as_secs();
                let world = self.describe(15).await;
                bail!("waited {within} s in vain for {what}: {last}\n{world}");
            }
            tokio::time::sleep(LOOK * 2).await;
        }
    }

    /// Objects with what is not true of them, and the last lines of every log.
    pub async fn describe(&self, lines: usize) -> String {
        match self.client().await {
            Ok(client) => dump::world(&client, &self.processes, lines).await,
            Err(error) => format!("no client: {error:#}"),
        }
    }

    /// Ends everything softly.
    ///
    /// # Errors
    /// If a child cannot be waited for.
    pub async fn stop(mut self) -> Result<()> {
        for process in &mut self.processes {
            process.stop().await?;
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // In order: a manager that loses its API server would fill its log with complaints.
        for process in &mut self.processes {
            let _ = process.kill_hard();
        }
        let _ = fs::remove_dir_all(self.dir.join("data"));
    }
}

/// `.cache/worlds/<time>-<pid>-<n>`; the oldest of many go.
fn new_folder() -> Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let worlds = root().join(".cache/worlds");
    fs::create_dir_all(&worlds).with_context(|| format!("cannot make {}", worlds.display()))?;
    let mut old: Vec<PathBuf> = fs::read_dir(&worlds)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        // Those with data live, or their end is a moment ago.
        .filter(|path| !path.join("data").exists())
        .collect();
    old.sort();
    for path in old.iter().rev().skip(KEPT) {
        // Another process may do the same.
        let _ = fs::remove_dir_all(path);
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = worlds.join(format!("{now}-{}-{number}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

//! A folder as a clone has it, an API server, a simulated Proxmox, and a shell in which the
//! documentation's commands run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use pve_fake::Fake;
use pve_fake::seed::Seed;
use pve_guest::{Guests, WorkloadProcess};
use release::components::Recipe;
use testbed::{Binaries, Options, World, ports, root};

use crate::{docs, stand_ins};

/// What the shown values of the documentation are here.
const KUBERNETES_VERSION: &str = "v1.33.4";

/// How long anything may take; generous, as the machine is shared with everything else.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);

pub(crate) struct Site {
    pub(crate) world: World,
    pub(crate) client: Client,
    pub(crate) binaries: Binaries,
    pub(crate) fake: Fake,
    /// Held, not used, as the workload.
    _guests: Guests,
    /// Held, not used: it ends with this.
    _workload: WorkloadProcess,
    folder: tempfile::TempDir,
    endpoint: String,
}

impl Site {
    pub(crate) async fn open(options: Options) -> Result<Self> {
        let binaries = Binaries::new();
        let world = World::start_with(options, &binaries).await?;
        let workload = WorkloadProcess::start(&binaries.path("workload-cluster")?).await?;
        let guests = Guests::new(pve_guest::Config {
            workload: Some(workload.client()),
            kubernetes_version: KUBERNETES_VERSION.to_owned(),
            ..pve_guest::Config::default()
        });
        let seed = Seed { acl: docs::permissions(), ..Seed::three_nodes() };
        let config = pve_fake::Config::default().with_time_scale(0.05).with_tls().with_seed(seed);
        let fake = Fake::start(config.with_guest(guests.as_guest())).await?;
        let folder = tempfile::tempdir()?;
        release::Files::read(&root().join("components"))?
            .write(&folder.path().join("components"))?;
        tokio::spawn(stand_ins::scale_down(world.client().await?));
        Ok(Self {
            client: world.client().await?,
            endpoint: ports::free_address(6443)?.to_string(),
            world,
            binaries,
            fake,
            _guests: guests,
            _workload: workload,
            folder,
        })
    }

    /// The folder in which commands run.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes components of other versions.
    pub(crate) fn recipe(&self) -> Result<Recipe> {
        Ok(Recipe::new(&root(), &self.binaries.path("kustomize")?))
    }

    /// Runs commands of the documentation, after those that set its variables.
    pub(crate) fn run(&self, mark: &str) -> Result<String> {
        self.run_at(&self.world, mark)
    }

    /// As [`Self::run`], for another management cluster.
    pub(crate) fn run_at(&self, world: &World, mark: &str) -> Result<String> {
        self.shell_at(world, &(docs::commands("all") + &docs::commands(mark)))
    }

    /// Runs a script with the tools on the PATH and the administrator's kubeconfig.
    pub(crate) fn shell(&self, script: &str) -> Result<String> {
        self.shell_at(&self.world, script)
    }

    /// As [`Self::shell`], for another management cluster.
    fn shell_at(&self, world: &World, script: &str) -> Result<String> {
        let script = self.fill_in(script);
        let output = std::process::Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(self.folder())
            .env("PATH", self.path()?)
            .env("KUBECONFIG", world.kubeconfig())
            .env("HOME", self.folder())
            .env("XDG_CONFIG_HOME", self.folder().join(".config"))
            .env("XDG_CACHE_HOME", self.folder().join("cache"))
            .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true")
            .env("GOPROXY", "off")
            .stdin(Stdio::null())
            .output()
            .context("cannot run bash")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{script}\nended with {}:\n{text}{error}", output.status);
        }
        Ok(text)
    }

    /// The examples' values become those of the simulator.
    fn fill_in(&self, script: &str) -> String {
        let token = self.fake.token();
        script
            .replace("https://pve.example:8006", &self.fake.url())
            .replace("capmox@pve!capi", &token.id)
            .replace("01234567-89ab-cdef-0123-456789abcdef", &token.secret)
            .replace("10.10.10.9", &self.endpoint)
            .replace("ssh-ed25519 AAAA… you@example", "ssh-ed25519 AAAA you@example")
    }

    /// A folder with the tools under their names, before what the PATH has.
    fn path(&self) -> Result<OsString> {
        let tools = self.folder().join("tools");
        std::fs::create_dir_all(&tools)?;
        for name in ["kubectl", "clusterctl", "helm"] {
            let link = tools.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(self.binaries.path(name)?, link)?;
            }
        }
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let paths: Vec<PathBuf> =
            std::iter::once(tools).chain(std::env::split_paths(&rest)).collect();
        Ok(std::env::join_paths(paths)?)
    }
}

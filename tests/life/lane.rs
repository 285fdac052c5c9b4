//! A site with a simulated Proxmox cluster of its own, in which one machine lives after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use pve_fake::{Config, Fake, Hook, HookCall, Seed, Timings, VmView, When};
use serde_json::{Value, json};

use crate::calls;
use crate::gate::{Gate, Verdict};
use crate::site::{PATIENCE, Proxmox, Site};

pub(crate) struct Lane {
    pub(crate) site: Site,
    pub(crate) fake: Fake,
}

/// A cluster where everything is over in a moment, and nothing in no time.
pub(crate) fn quick() -> Config {
    let scaled = Timings::default().scaled(0.005);
    let timings = Timings {
        agent: Duration::from_millis(50),
        cloud_init: Duration::from_millis(50),
        exec: Duration::ZERO,
        ..scaled
    };
    Config { timings, ..Config::default() }.with_seed(Seed::three_nodes())
}

/// A machine that has something of everything that is written to a VM.
pub(crate) fn spec() -> Value {
    json!({
        "sourceNode": "pve1",
        "templateID": 9000,
        "numSockets": 2,
        "numCores": 4,
        "memoryMiB": 4096,
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
        "network": {"default": {"bridge": "vmbr1", "model": "virtio", "vlan": 7}},
        "tags": ["rack7"],
    })
}

impl Lane {
    pub(crate) async fn open(prefix: &str, config: Config) -> Result<Self> {
        let fake = Fake::start(config).await?;
        let gate = Arc::new(Gate::default());
        fake.set_hook(Some(hook(&gate)));
        let token = fake.token();
        let proxmox = Proxmox {
            url: fake.url(),
            token: token.id.clone(),
            secret: token.secret.clone(),
            authority: None,
        };
        let site = Site::open(prefix, proxmox, gate).await?;
        Ok(Self { site, fake })
    }

    /// A whole life, with as many managers as it takes.
    pub(crate) async fn live(&self, name: &str) -> Result<()> {
        tokio::select! {
            lived = self.whole_life(name) => lived,
            ended = self.site.revive() => ended.map(|never| match never {}),
        }
    }

    async fn whole_life(&self, name: &str) -> Result<()> {
        self.site.make_machine(name, spec()).await?;
        self.site.ready(name).await?;
        let vm = self.vm(name)?;
        ensure!(vm.running, "{name} is ready and VM {} does not run", vm.vmid);
        self.site.join(name).await?;
        self.site.unseeded(name).await?;
        self.check_unseeded(name)?;
        self.site.delete_machine(name).await?;
        self.check_gone(name).await
    }

    /// Ends it, whatever is left there.
    pub(crate) fn abandon(self) {
        self.site.gate.kill();
        // Its own complaints would hide what went wrong before.
        std::mem::forget(self.fake);
    }

    /// The one VM of a machine.
    pub(crate) fn vm(&self, name: &str) -> Result<VmView> {
        let mut vms = self.fake.model().vms();
        vms.retain(|vm| vm.name.as_deref() == Some(name));
        ensure!(vms.len() <= 1, "{} VMs are named {name}", vms.len());
        vms.pop().with_context(|| format!("no VM is named {name}"))
    }

    /// Volume ids of seeds, with their content.
    pub(crate) fn seeds(&self) -> Vec<(String, bytes::Bytes)> {
        let volumes = self.fake.model().volumes();
        let seeds = volumes.into_iter().filter(|(_, id, _)| id.contains(":iso/user-data-"));
        seeds.map(|(_, id, data)| (id, data)).collect()
    }

    /// Looks until `check` has nothing to object to.
    pub(crate) async fn eventually(
        &self,
        what: &str,
        check: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let deadline = Instant::now() + PATIENCE;
        loop {
            ticks.tick().await;
            match check() {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    let log = self.site.gate.log_tail(25);
                    return Err(error).with_context(|| format!("not in time: {what}\n{log}"));
                }
                Err(_) => {}
            }
        }
    }

    pub(crate) fn check_unseeded(&self, name: &str) -> Result<()> {
        let vm = self.vm(name)?;
        let drive = vm.config.get("ide0").map(String::as_str);
        ensure!(drive == Some("none,media=cdrom"), "{name} has ide0: {drive:?}");
        let tags = vm.config.get("tags").cloned().unwrap_or_default();
        ensure!(!tags.contains("go-proxmox"), "{name} has tags {tags}");
        ensure!(self.seeds().is_empty(), "{name} leaves {:?}", self.seeds());
        Ok(())
    }

    /// VMIDs under which a VM of this name was ever made.
    pub(crate) fn clones(&self, name: &str) -> BTreeSet<String> {
        let journal = self.fake.journal();
        journal
            .calls("POST", "/nodes/*/qemu/*/clone")
            .filter(|call| call.has_effect())
            .filter(|call| call.params.get("name").map(String::as_str) == Some(name))
            .filter_map(|call| call.params.get("newid").cloned())
            .collect()
    }

    pub(crate) async fn check_gone(&self, name: &str) -> Result<()> {
        self.site.addresses_given_back(name).await?;
        ensure!(self.vm(name).is_err(), "{name} is gone and its VM is not");
        ensure!(self.seeds().is_empty(), "{name} leaves {:?}", self.seeds());
        let clones = self.clones(name);
        ensure!(clones.len() == 1, "{name} was cloned to {clones:?}");
        let broken = self.fake.check_no_leaks();
        ensure!(broken.is_empty(), "{name}: rules were broken: {broken:?}");
        Ok(())
    }
}

fn hook(gate: &Arc<Gate>) -> Hook {
    let gate = Arc::clone(gate);
    Arc::new(move |call: HookCall| {
        let gate = Arc::clone(&gate);
        async move {
            let name = calls::to_proxmox(&call);
            match call.when {
                When::After => gate.after(&name, call.seq),
                When::Before => {
                    if gate.before(name, call.seq).await == Verdict::IsLost {
                        std::future::pending::<()>().await;
                    }
                }
            }
        }
        .boxed()
    })
}

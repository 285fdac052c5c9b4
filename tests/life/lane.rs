//! A site with a simulated Proxmox cluster of its own, in which one machine lives after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use kube::api::DeleteParams;
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

/// A cluster where tasks outlive the manager that asked for them, and its restart.
pub(crate) fn slow() -> Config {
    let second = Duration::from_secs(1);
    let timings = Timings { clone_full: second, config: second, start: second, ..quick().timings };
    Config { timings, ..quick() }
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
        let (fake, proxmox, gate) = proxmox(config, Gate::default()).await?;
        let site = Site::open(prefix, proxmox, gate).await?;
        Ok(Self { site, fake })
    }

    /// Managers there compete for a lease, and stand still at traps.
    pub(crate) async fn with_lease(prefix: &str, config: Config) -> Result<Self> {
        let (fake, proxmox, gate) = proxmox(config, Gate::freezing()).await?;
        let mut site = Site::make(prefix, proxmox, gate).await?;
        for arg in ["", "-lease-duration=3s", "-renew-deadline=2s", "-retry-period=200ms"] {
            site.argue(format!("--leader-elect{arg}"));
        }
        site.argue(format!("--leader-election-namespace={}", site.namespace));
        site.start_manager()?;
        site.make_cluster().await?;
        Ok(Self { site, fake })
    }

    /// A whole life, with as many managers as it takes.
    pub(crate) async fn live(&self, name: &str) -> Result<()> {
        tokio::select! {
            lived = self.whole_life(name) => lived,
            ended = self.site.revive() => ended.map(|never| match never {}),
        }
    }

    pub(crate) async fn whole_life(&self, name: &str) -> Result<()> {
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

    /// A life up to the death of its manager at the trap. The machine is deleted before another
    /// manager looks at it.
    pub(crate) async fn die_young(&self, name: &str) -> Result<()> {
        self.site.make_machine(name, spec()).await?;
        let died = tokio::select! {
            () = self.site.gate.killed() => true,
            ready = self.site.ready(name) => ready.map(|_| false)?,
        };
        self.site.machines().delete(name, &DeleteParams::default()).await?;
        if died {
            self.site.start_manager()?;
        }
        tokio::select! {
            deleted = self.site.deleted(name) => deleted?,
            // At the very last write readiness is seen before death.
            ended = self.site.revive() => match ended? {},
        }
        self.site.addresses_given_back(name).await?;
        self.check_nothing_left(name)
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
        let seeds: Vec<String> = self.seeds().into_iter().map(|(volume, _)| volume).collect();
        ensure!(seeds.is_empty(), "{name} leaves {seeds:?}");
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
        let clones = self.clones(name);
        ensure!(clones.len() == 1, "{name} was cloned to {clones:?}");
        self.check_nothing_left(name)
    }

    fn check_nothing_left(&self, name: &str) -> Result<()> {
        ensure!(self.vm(name).is_err(), "{name} is gone and its VM is not");
        let seeds: Vec<String> = self.seeds().into_iter().map(|(volume, _)| volume).collect();
        ensure!(seeds.is_empty(), "{name} leaves {seeds:?}");
        ensure!(self.clones(name).len() <= 1, "{name} was cloned to {:?}", self.clones(name));
        let broken = self.fake.check_no_leaks();
        ensure!(broken.is_empty(), "{name}: rules were broken: {broken:?}");
        let asked = self.site.take_tally();
        ensure!(asked.refused.is_empty(), "{name}: beyond the manager's rights: {asked:?}");
        ensure!(asked.whole.is_empty(), "{name}: more than metadata: {asked:?}");
        Ok(())
    }
}

/// A simulated cluster whose calls pass the gate.
async fn proxmox(config: Config, gate: Gate) -> Result<(Fake, Proxmox, Arc<Gate>)> {
    let fake = Fake::start(config).await?;
    let gate = Arc::new(gate);
    fake.set_hook(Some(hook(&gate)));
    let proxmox = Proxmox::of(&fake);
    Ok((fake, proxmox, gate))
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

//! Machines that capmox v0.7 leaves half way go on under this manager: with the VM that they have,
//! and without a write to one that was configured.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use capmox::api::{MACHINE_FINALIZER, ProxmoxMachine};
use capmox::ids::{NodeName, VmId};
use capmox::ipam::{self, Slot};
use capmox::pve::{
    Client, ClientConfig, CloneOptions, ConfigUpdate, DestroyOptions, Limits, TaskStatus, Tls,
    Upid, token,
};
use futures::future::try_join_all;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use pve_fake::{Action, Config, Timings};
use serde_json::{Value, json};

use crate::core::{CLUSTER, until};
use crate::lane::{Lane, spec};
use crate::site::play;

const NAME: &str = "w-1";
const VMID: u32 = 117;

/// Where capmox was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// The clone runs, and is recorded.
    Cloning,
    /// The clone is done, and its end was taken note of.
    Cloned,
    /// The configuration is being written.
    Configuring,
    /// The address is claimed and told.
    Claimed,
    /// The seed is on its storage, the VM has its tag, and the drive is empty.
    Stored,
    /// The seed is in the drive, and that is recorded.
    Injected,
    /// The start is recorded.
    Starting,
    /// The machine is ready; the node has not joined.
    Ready,
    /// The node has joined, the seed is gone.
    Settled,
}

const ALL: [Left; 9] = [
    Left::Cloning,
    Left::Cloned,
    Left::Configuring,
    Left::Claimed,
    Left::Stored,
    Left::Injected,
    Left::Starting,
    Left::Ready,
    Left::Settled,
];

#[test]
fn what_capmox_left_half_way_goes_on() {
    play(async {
        try_join_all(ALL.map(|left| {
            Box::pin(async move { goes_on(left).await.with_context(|| format!("left {left:?}")) })
        }))
        .await?;
        Ok(())
    });
}

async fn goes_on(left: Left) -> Result<()> {
    let capmox = Capmox::open().await?;
    capmox.work_until(left).await?;
    let lane = capmox.lane;
    tokio::select! {
        done = take_over(&lane, left) => done,
        ended = lane.site.revive() => ended.map(|never| match never {}),
    }
}

/// How far capmox got with a machine that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deleted {
    /// The VM was told to stop.
    Stopping,
    /// It is off, and the seed that it names is deleted.
    Unseeded,
    /// The task that destroys it runs; nothing records it.
    Destroying,
    /// It is gone, and the finalizer is not.
    Gone,
}

#[test]
fn a_deletion_that_capmox_left_half_way_goes_on() {
    use Deleted::{Destroying, Gone, Stopping, Unseeded};
    play(async {
        try_join_all([Stopping, Unseeded, Destroying, Gone].map(|left| {
            Box::pin(async move { is_ended(left).await.with_context(|| format!("left {left:?}")) })
        }))
        .await?;
        Ok(())
    });
}

async fn is_ended(left: Deleted) -> Result<()> {
    let capmox = Capmox::open().await?;
    capmox.work_until(Left::Ready).await?;
    capmox.delete_until(left).await?;
    let lane = capmox.lane;
    let before = lane.fake.journal().total();
    tokio::select! {
        deleted = async {
            lane.site.deleted(NAME).await?;
            lane.check_gone(NAME).await
        } => deleted?,
        ended = lane.site.revive() => ended.map(|never| match never {})?,
    }
    let writes = writes_since(&lane, before);
    // Nothing but the VM and its seed is touched, and where both are gone nothing.
    let of_vm = format!("/nodes/pve2/qemu/{VMID}");
    let of_seed = format!("user-data-{VMID}.iso");
    let meant = |write: &String| write.contains(&of_vm) || write.ends_with(&of_seed);
    ensure!(writes.iter().all(meant), "{writes:?}");
    ensure!(left != Deleted::Gone || writes.is_empty(), "{writes:?}");
    Ok(())
}

#[test]
fn a_clone_that_failed_under_capmox_is_made_again_when_it_said() {
    play(async {
        let capmox = Capmox::open().await?;
        let again = capmox.fail_to_clone().await?;
        let lane = capmox.lane;
        let before = lane.fake.journal().total();
        tokio::select! {
            ready = lane.site.ready(NAME) => drop(ready?),
            ended = lane.site.revive() => ended.map(|never| match never {})?,
        }
        ensure!(now() >= again, "it was made again at once");
        ensure!(lane.vm(NAME)?.vmid == VMID, "{:?}", lane.vm(NAME)?);
        let writes = writes_since(&lane, before);
        let clones = writes.iter().filter(|write| write.ends_with("/clone")).count();
        ensure!(clones == 1, "{writes:?}");
        lane.site.delete_machine(NAME).await?;
        lane.check_gone(NAME).await
    });
}

/// What was asked of Proxmox since a call, but for questions.
fn writes_since(lane: &Lane, before: u64) -> Vec<String> {
    lane.fake
        .journal()
        .entries()
        .filter(|call| call.seq > before && call.method != "GET" && !call.path.contains("/agent/"))
        .map(|call| format!("{} {}", call.method, call.path))
        .collect()
}

async fn take_over(lane: &Lane, left: Left) -> Result<()> {
    let site = &lane.site;
    let before = lane.fake.journal().total();
    let machine = site.ready(NAME).await?;
    let noticed = |found: Option<&ProxmoxMachine>| {
        found.is_some_and(|one| one.status.as_ref().is_some_and(|s| s.v1beta2.is_some()))
    };
    site.within("a report", NAME, until(&site.machines(), NAME, noticed)).await?;
    ensure!(machine.spec.virtual_machine_id == Some(i64::from(VMID)));
    let vm = lane.vm(NAME)?;
    ensure!(vm.vmid == VMID && vm.running, "{vm:?}");
    let has = |key: &str| vm.config.get(key).map(String::as_str).unwrap_or_default();
    ensure!(has("cores") == "4" && has("memory") == "4096", "{:?}", vm.config);
    ensure!(has("net0").ends_with(",bridge=vmbr1,tag=7"), "net0 is {}", has("net0"));
    ensure!(has("scsi0").contains("size=20G"), "scsi0 is {}", has("scsi0"));

    let writes = writes_since(lane, before);
    let starts = |write: &String| write.ends_with("/status/start");
    match left {
        Left::Cloning | Left::Cloned | Left::Configuring | Left::Claimed | Left::Stored => {}
        Left::Injected => ensure!(writes.len() == 1 && writes.iter().all(starts), "{writes:?}"),
        Left::Starting | Left::Ready | Left::Settled => ensure!(writes.is_empty(), "{writes:?}"),
    }
    ensure!(!writes.iter().any(|write| write.ends_with("/clone")), "{writes:?}");

    site.join(NAME).await?;
    lane.eventually("the seed is gone", || lane.check_unseeded(NAME)).await?;
    site.unseeded(NAME).await?;
    site.delete_machine(NAME).await?;
    lane.check_gone(NAME).await
}

/// What capmox v0.7 does and writes down, in its order.
struct Capmox {
    lane: Lane,
    client: Client,
    node: NodeName,
    vmid: VmId,
}

impl Capmox {
    /// A site where it is at work, and the manager is not.
    async fn open() -> Result<Self> {
        let timings = Timings::default().scaled(0.02);
        let timings = Timings { clone_full: Duration::from_secs(2), ..timings };
        let lane = Lane::open("taken", Config { timings, ..Config::default() }).await?;
        lane.site.gate.kill();
        Self::new(lane)
    }

    fn new(lane: Lane) -> Result<Self> {
        let auth = token(&lane.fake.token().id, &lane.fake.token().secret)?;
        let base_url = lane.fake.url().parse()?;
        let config = ClientConfig { base_url, auth, tls: Tls::System, limits: Limits::default() };
        let client = Client::new(config)?;
        Ok(Self { lane, client, node: "pve2".parse()?, vmid: VmId::try_from(i64::from(VMID))? })
    }

    async fn work_until(&self, left: Left) -> Result<()> {
        self.lane.site.make_machine(NAME, spec()).await?;
        self.patch(json!({"metadata": {"finalizers": [MACHINE_FINALIZER]}})).await?;
        let upid = self.clone_vm().await?;
        let status = json!({"taskRef": upid.to_string(), "proxmoxNode": "pve2"});
        self.lane.site.set_status(NAME, status).await?;
        self.patch(json!({"spec": {"virtualMachineID": VMID}})).await?;
        if left >= Left::Cloned {
            self.end_of(&upid).await?;
            let config = self.client.vm_config(&self.node, self.vmid).await?;
            let provider_id = format!("proxmox://{}", config.uuid().context("no uuid")?);
            self.patch(json!({"spec": {"providerID": provider_id}})).await?;
            self.pending(json!({"taskRef": null})).await?;
        }
        if left >= Left::Configuring {
            let upid = self.configure_hardware().await?;
            self.pending(json!({"taskRef": upid.to_string()})).await?;
            if left > Left::Configuring {
                self.end_of(&upid).await?;
            }
        }
        if left >= Left::Claimed {
            self.take_address().await?;
        }
        if left >= Left::Stored {
            self.store().await?;
        }
        if left >= Left::Injected {
            self.attach().await?;
            self.pending(json!({"taskRef": null, "bootstrapDataProvided": true})).await?;
        }
        if left >= Left::Starting {
            let upid = self.client.start_vm(&self.node, self.vmid).await?.context("no task")?;
            self.pending(json!({"taskRef": upid.to_string()})).await?;
            if left > Left::Starting {
                self.end_of(&upid).await?;
            }
        }
        if left >= Left::Ready {
            let status = json!({"ready": true, "vmStatus": "ready", "taskRef": null});
            self.lane.site.set_status(NAME, status).await?;
        }
        if left >= Left::Settled {
            self.lane.site.join(NAME).await?;
            self.eject().await?;
        }
        Ok(())
    }

    async fn patch(&self, patch: Value) -> Result<()> {
        let machines = self.lane.site.machines();
        machines.patch(NAME, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    async fn pending(&self, mut status: Value) -> Result<()> {
        status["vmStatus"] = json!("pending");
        self.lane.site.set_status(NAME, status).await
    }

    async fn end_of(&self, upid: &Upid) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            ticks.tick().await;
            if let TaskStatus::Stopped { exit } = self.client.task_status(upid).await? {
                ensure!(exit.is_success(), "{upid}: {exit:?}");
                return Ok(());
            }
        }
    }

    async fn clone_vm(&self) -> Result<Upid> {
        let options = CloneOptions {
            name: Some(NAME.to_owned()),
            full: true,
            target: Some(self.node.clone()),
            ..CloneOptions::new(self.vmid)
        };
        let template = VmId::try_from(9000)?;
        self.client.clone_vm(&"pve1".parse()?, template, &options).await?.context("no task")
    }

    async fn configure(&self, set: &[(&str, &str)]) -> Result<Upid> {
        let set: BTreeMap<String, String> =
            set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let update = ConfigUpdate { set, ..ConfigUpdate::default() };
        let upid = self.client.update_vm_config(&self.node, self.vmid, &update).await?;
        upid.context("no task")
    }

    async fn configure_hardware(&self) -> Result<Upid> {
        let config = self.client.vm_config(&self.node, self.vmid).await?;
        let mut device = config.net("net0").context("no net0")?;
        device.set("bridge", "vmbr1");
        device.set("tag", 7);
        let device = device.to_string();
        let set = [
            ("sockets", "2"),
            ("cores", "4"),
            ("memory", "4096"),
            ("net0", &*device),
            ("tags", "rack7"),
        ];
        self.configure(&set).await
    }

    /// Claims an address and takes what the provider gives.
    async fn take_address(&self) -> Result<()> {
        let site = &self.lane.site;
        let machine = site.machines().get(NAME).await?;
        let infra: kube::Api<capmox::api::ProxmoxCluster> =
            kube::Api::namespaced(site.client.clone(), &site.namespace);
        let infra = infra.get(CLUSTER).await?;
        let slots: Vec<Slot> = ipam::wanted_slots(CLUSTER, &infra.spec, &machine.spec);
        let [slot] = &slots[..] else { anyhow::bail!("{slots:?}") };
        let claim = ipam::desired_claim(&machine, CLUSTER, slot);
        site.claims().create(&PostParams::default(), &claim).await?;
        let name = slot.claim_name(NAME);
        let given = |found: Option<&capmox::api::ipam::IPAddress>| found.is_some();
        let addresses = site.addresses();
        let waiting = until(&addresses, &name, given);
        let address = site.within("an address", NAME, waiting).await?.context("no address")?;
        let address = address.spec.address;
        let upid = self.configure(&[("tags", &*format!("rack7;ip_net0_{address}"))]).await?;
        self.end_of(&upid).await?;
        site.set_status(NAME, json!({"ipAddresses": {"net0": {"ipv4": address}}})).await
    }

    async fn store(&self) -> Result<()> {
        let resized = self.client.resize_disk(&self.node, self.vmid, "scsi0", "20G").await?;
        self.end_of(&resized.context("no task")?).await?;
        let name = seed();
        let image = bytes::Bytes::from_static(b"what cloud-init read long ago");
        let upid = self.client.upload_iso(&self.node, &"local".parse()?, &name, image).await?;
        self.end_of(&upid.context("no task")?).await?;
        let config = self.client.vm_config(&self.node, self.vmid).await?;
        let tags = format!("{};go-proxmox+cloud-init", config.get("tags").unwrap_or_default());
        self.end_of(&self.configure(&[("tags", &*tags)]).await?).await
    }

    async fn attach(&self) -> Result<()> {
        let config = self.client.vm_config(&self.node, self.vmid).await?;
        let boot = format!("{};ide0", config.get("boot").unwrap_or_default());
        let drive = format!("local:iso/{},media=cdrom", seed());
        let set = [("ide0", &*drive), ("boot", &*boot)];
        self.end_of(&self.configure(&set).await?).await
    }

    async fn delete_seed(&self) -> Result<()> {
        let volume = format!("local:iso/{}", seed());
        let deleted = self.client.delete_volume(&self.node, &"local".parse()?, &volume).await?;
        self.end_of(&deleted.context("no task")?).await
    }

    async fn eject(&self) -> Result<()> {
        self.end_of(&self.configure(&[("ide0", "none,media=cdrom")]).await?).await?;
        self.delete_seed().await?;
        let config = self.client.vm_config(&self.node, self.vmid).await?;
        let tags = config.get("tags").unwrap_or_default().replace("go-proxmox+cloud-init", "");
        self.end_of(&self.configure(&[("tags", &*tags)]).await?).await
    }

    /// A clone that fails, which is told with the time of the next try; that it tells.
    async fn fail_to_clone(&self) -> Result<Timestamp> {
        let text = "clone failed: out of luck".to_owned();
        let failure = Action::FailTask { text, with_effect: false };
        self.lane.fake.fail_next("POST", "/nodes/*/qemu/*/clone", failure);
        self.lane.site.make_machine(NAME, spec()).await?;
        self.patch(json!({"metadata": {"finalizers": [MACHINE_FINALIZER]}})).await?;
        let upid = self.clone_vm().await?;
        self.patch(json!({"spec": {"virtualMachineID": VMID}})).await?;
        ensure!(self.end_of(&upid).await.is_err(), "the clone did not fail");
        let again = Timestamp::from_second(now().as_second() + 5)?;
        self.pending(json!({
            "taskRef": upid.to_string(),
            "proxmoxNode": "pve2",
            "retryAfter": again.to_string(),
            "conditions": [{
                "type": "VMProvisioned", "status": "False", "severity": "Info",
                "reason": "TaskFailure", "message": "clone failed: out of luck",
                "lastTransitionTime": Timestamp::from_second(again.as_second() - 60)?.to_string(),
            }],
        }))
        .await?;
        Ok(again)
    }

    /// Machine and VM go, as far as told. No task is recorded.
    async fn delete_until(&self, left: Deleted) -> Result<()> {
        self.lane.site.machines().delete(NAME, &DeleteParams::default()).await?;
        let stopping = self.client.stop_vm(&self.node, self.vmid).await?.context("no task")?;
        if left >= Deleted::Unseeded {
            self.end_of(&stopping).await?;
            self.delete_seed().await?;
        }
        if left >= Deleted::Destroying {
            let options = DestroyOptions::default();
            let destroying = self.client.destroy_vm(&self.node, self.vmid, options).await?;
            if left >= Deleted::Gone {
                self.end_of(&destroying.context("no task")?).await?;
            }
        }
        Ok(())
    }
}

#[expect(clippy::disallowed_methods, reason = "the test plays a process that reads the clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

fn seed() -> String {
    format!("user-data-{VMID}.iso")
}

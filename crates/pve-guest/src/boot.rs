//! One boot: from the seed to a node, as cloud-init and kubeadm go about it.
//!
//! The order of steps and what a fault in each of them leads to; the steps themselves are in the
//! modules that know them.

use std::net::IpAddr;

use pve_fake::{Boot, CloudInit, GuestHandle};
use tokio::time::{Instant, sleep_until};

use crate::fault::{Fault, Stage};
use crate::guests::{Inner, Progress};
use crate::kubeadm::{Kubeadm, Role};
use crate::meta_data::MetaData;
use crate::network::{self, Network};
use crate::node::{Host, Machine};
use crate::seed::{self, Seed};
use crate::user_data::CloudConfig;
use crate::workload::{CallError, Power};

/// A node in its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeId {
    pub(crate) endpoint: String,
    pub(crate) name: String,
}

/// What boots leave on the VM's disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    instance: Option<Instance>,
}

#[derive(Debug, Clone)]
struct Instance {
    id: String,
    hostname: String,
    network: Network,
    /// Set before kubeadm speaks to a cluster, which may hear it even if the VM then stops.
    node: Option<NodeId>,
    /// How the first boot ended; none if it was cut off.
    outcome: Option<Result<(), Fault>>,
}

impl Disk {
    pub(crate) fn instance_id(&self) -> Option<&str> {
        self.instance.as_ref().map(|instance| instance.id.as_str())
    }

    pub(crate) fn node(&self) -> Option<&NodeId> {
        self.instance.as_ref()?.node.as_ref()
    }
}

/// Boots; gives the name of the Node, if the machine has become one.
pub(crate) async fn boot(
    guests: &Inner,
    boot: &Boot,
    disk: Disk,
    handle: &GuestHandle,
) -> Result<Option<String>, Fault> {
    let seed = seed::find(&boot.cdroms)?;
    let identity = seed.as_ref().map(|seed| MetaData::parse(&seed.meta_data)).transpose()?;
    match (seed, identity, disk.instance) {
        // Without a seed cloud-init keeps to the instance it knows.
        (None, _, Some(known)) => resume(guests, boot, known, handle).await,
        (Some(_), Some(meta_data), Some(known)) if meta_data.instance_id() == known.id => {
            resume(guests, boot, known, handle).await
        }
        (Some(seed), Some(meta_data), _) => first(guests, boot, &seed, &meta_data, handle).await,
        _ => {
            handle.cloud_init(CloudInit::NotRun);
            Ok(None)
        }
    }
}

/// The first boot of an instance.
async fn first(
    guests: &Inner,
    boot: &Boot,
    seed: &Seed,
    meta_data: &MetaData,
    handle: &GuestHandle,
) -> Result<Option<String>, Fault> {
    let config = &guests.config;
    let network =
        network::apply(seed.network_config.as_deref(), &boot.nics, boot.vmid, config.leases)?;
    let mut instance = Instance {
        id: meta_data.instance_id().to_owned(),
        hostname: meta_data.hostname().unwrap_or("localhost").to_owned(),
        network,
        node: None,
        outcome: None,
    };
    let keep = |instance: &Instance| {
        guests.write(boot.vmid, Disk { instance: Some(instance.clone()) });
    };
    keep(&instance);
    appear(guests, boot, &instance, handle);
    handle.cloud_init(CloudInit::Running);
    guests.progress(boot.vmid, Progress::CloudInit);
    let result = configure(guests, boot, seed, meta_data, &mut instance, handle, &keep).await;
    instance.outcome = Some(result.clone());
    keep(&instance);
    result?;
    handle.cloud_init(CloudInit::Done);
    Ok(instance.node.map(|node| node.name))
}

/// The guest is on the network and its agent answers.
fn appear(guests: &Inner, boot: &Boot, instance: &Instance, handle: &GuestHandle) {
    let addresses: Vec<(String, IpAddr)> = instance
        .network
        .interfaces
        .iter()
        .flat_map(|interface| {
            let nic = boot.nics.iter().find(|nic| nic.mac.eq_ignore_ascii_case(&interface.mac));
            let bridge = nic.map(|nic| nic.bridge.clone()).unwrap_or_default();
            interface.addresses.iter().map(move |(address, _)| (bridge.clone(), *address))
        })
        .collect();
    guests.take_addresses(boot.vmid, addresses);
    handle.hostname(&instance.hostname);
    handle.interfaces(instance.network.interfaces.clone());
    handle.agent(true);
}

/// user-data's part of the first boot.
async fn configure(
    guests: &Inner,
    boot: &Boot,
    seed: &Seed,
    meta_data: &MetaData,
    instance: &mut Instance,
    handle: &GuestHandle,
    keep: &(impl Fn(&Instance) + Sync),
) -> Result<(), Fault> {
    let user_data = CloudConfig::parse(&seed.user_data, meta_data)?;
    let Some(kubeadm) = Kubeadm::find(&user_data)? else { return Ok(()) };
    let version = kubeadm.kubernetes_version.as_deref().or(meta_data.kubernetes_version());
    let version = version.map_or_else(|| guests.version(&kubeadm.endpoint), str::to_owned);
    let host = Host {
        hostname: &instance.hostname,
        uuid: &boot.uuid,
        network: &instance.network,
        kubernetes_version: &version,
    };
    let machine = Machine::new(&kubeadm, host).map_err(|text| Fault::new(Stage::Kubeadm, text))?;
    instance.node =
        Some(NodeId { endpoint: kubeadm.endpoint.clone(), name: machine.node_name.clone() });
    sleep_until(Instant::now() + guests.config.kubeadm).await;
    keep(instance);
    run_kubeadm(guests, &kubeadm, &machine).await?;
    if matches!(kubeadm.role, Role::Init { .. }) {
        guests.learn_version(&kubeadm.endpoint, &version);
    }
    if let Some(sentinel) = &kubeadm.sentinel {
        handle.file(sentinel, "success\n");
    }
    Ok(())
}

/// kubeadm tries to reach its cluster until its deadline.
async fn run_kubeadm(
    guests: &Inner,
    kubeadm: &Kubeadm,
    machine: &Machine<'_>,
) -> Result<(), Fault> {
    let Some(workload) = &guests.config.workload else { return Ok(()) };
    let deadline = Instant::now() + guests.config.join_deadline;
    loop {
        match workload.boot(&kubeadm.endpoint, machine.role(), machine).await {
            Ok(()) => return Ok(()),
            Err(CallError::Refused(text)) => return Err(Fault::new(Stage::Join, text)),
            Err(CallError::NotYet(text)) => {
                let next = Instant::now() + guests.config.retry;
                if next > deadline {
                    let waited = guests.config.join_deadline;
                    let text = format!("gave up after {waited:?}: {text}");
                    return Err(Fault::new(Stage::Join, text));
                }
                sleep_until(next).await;
            }
        }
    }
}

/// A later boot: cloud-init and kubeadm have run and do not run again.
async fn resume(
    guests: &Inner,
    boot: &Boot,
    instance: Instance,
    handle: &GuestHandle,
) -> Result<Option<String>, Fault> {
    appear(guests, boot, &instance, handle);
    match instance.outcome {
        None => {
            let text = "the first boot was cut off, and cloud-init runs its commands only once";
            Err(Fault::new(Stage::UserData, text))
        }
        Some(Err(fault)) => Err(fault),
        Some(Ok(())) => {
            if let (Some(node), Some(workload)) = (&instance.node, &guests.config.workload) {
                let told = workload.power(&node.endpoint, &node.name, Power::On).await;
                told.map_err(|error| Fault::new(Stage::Join, error.to_string()))?;
            }
            handle.cloud_init(CloudInit::Done);
            Ok(instance.node.map(|node| node.name))
        }
    }
}

//! The cluster at one moment, as Kubernetes and the simulator tell of it.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result};
use capmox::api::capi::{Cluster, Machine, is_control_plane};
use capmox::api::conditions::Condition;
use capmox::api::{ProxmoxCluster, ProxmoxMachine};
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::CLUSTER;
use super::stage::Stage;

/// The cluster at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The Cluster's phase; none if there is no Cluster.
    pub(crate) cluster: Option<String>,
    /// Its machines: control plane first, then by name.
    pub(crate) rows: Vec<Row>,
    /// ProxmoxMachines and ProxmoxClusters that are left.
    infrastructure: usize,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) is_control_plane: bool,
    pub(crate) phase: String,
    pub(crate) node: String,
    pub(crate) vmid: String,
    pub(crate) address: String,
    /// In a sentence.
    pub(crate) waits_for: String,
    /// Of the clone, in percent.
    pub(crate) progress: Option<u8>,
    /// Since the machine was made.
    pub(crate) age: Duration,
}

impl Snapshot {
    /// Asks the API server and the simulator.
    pub(crate) async fn take(stage: &Stage) -> Result<Self> {
        let (client, namespace) = (stage.client(), stage.namespace());
        let clusters = Api::<Cluster>::namespaced(client.clone(), namespace);
        let cluster = clusters.get_opt(CLUSTER).await.context("cannot read the Cluster")?;
        let machines: Vec<Machine> = list(&client, namespace).await?;
        let infra: Vec<ProxmoxMachine> = list(&client, namespace).await?;
        let infra_clusters: Vec<ProxmoxCluster> = list(&client, namespace).await?;
        let mut rows: Vec<Row> = machines
            .iter()
            .map(|machine| {
                let name = machine.spec.infrastructure_ref.as_ref().and_then(|r| r.name.as_deref());
                let vm = infra.iter().find(|vm| Some(vm.name_any().as_str()) == name);
                row(machine, vm, stage)
            })
            .collect();
        rows.sort_by_key(|row| (!row.is_control_plane, row.name.clone()));
        let phase = |cluster: Cluster| cluster.status.and_then(|status| status.phase);
        Ok(Self {
            cluster: cluster.map(|cluster| phase(cluster).unwrap_or_default()),
            rows,
            infrastructure: infra.len() + infra_clusters.len(),
        })
    }

    /// How many machines are Running in Cluster API's eyes.
    pub(crate) fn running(&self) -> usize {
        self.rows.iter().filter(|row| row.phase == "Running").count()
    }

    /// Whether there are exactly these machines, and all are Running.
    pub(crate) fn is_settled(&self, control_plane: usize, workers: usize) -> bool {
        let found = self.rows.iter().filter(|row| row.is_control_plane).count();
        self.cluster.as_deref() == Some("Provisioned")
            && found == control_plane
            && self.rows.len() == control_plane + workers
            && self.running() == self.rows.len()
    }

    /// Whether neither the Cluster nor anything of its infrastructure is left.
    pub(crate) fn is_gone(&self) -> bool {
        self.cluster.is_none() && self.rows.is_empty() && self.infrastructure == 0
    }
}

async fn list<K>(client: &Client, namespace: &str) -> Result<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::namespaced(client.clone(), namespace);
    let found = api.list(&ListParams::default()).await;
    Ok(found.with_context(|| format!("cannot list {}", K::plural(&())))?.items)
}

fn row(machine: &Machine, vm: Option<&ProxmoxMachine>, stage: &Stage) -> Row {
    let phase = machine.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let status = vm.and_then(|vm| vm.status.as_ref());
    let addresses = status.map(|status| status.ip_addresses.values()).into_iter().flatten();
    let address = addresses.into_iter().find_map(|address| address.ipv4.clone());
    let created = machine.metadata.creation_timestamp.as_ref();
    let task = status.and_then(|status| status.task_ref.as_deref());
    Row {
        name: machine.name_any(),
        is_control_plane: is_control_plane(&machine.metadata),
        node: status.and_then(|status| status.proxmox_node.clone()).unwrap_or_default(),
        vmid: vm
            .and_then(|vm| vm.spec.virtual_machine_id)
            .map(|id| id.to_string())
            .unwrap_or_default(),
        address: address.unwrap_or_default(),
        waits_for: waits_for(machine, vm, &phase),
        progress: task.and_then(|upid| stage.clone_progress(upid)),
        age: created.map(|time| age(time.0.as_second())).unwrap_or_default(),
        phase,
    }
}

/// Since a moment in seconds of the Unix epoch.
fn age(second: i64) -> Duration {
    let then = std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(second).unwrap_or(0));
    then.elapsed().unwrap_or_default()
}

fn waits_for(machine: &Machine, vm: Option<&ProxmoxMachine>, phase: &str) -> String {
    if phase == "Running" {
        return String::new();
    }
    let conditions = vm.and_then(|vm| vm.status.as_ref()).map(|status| &status.conditions);
    let ready = conditions.and_then(|all| all.iter().find(|condition| condition.type_ == "Ready"));
    let own = machine.status.as_ref().map(|status| &status.conditions);
    let bootstrap =
        own.and_then(|all| all.iter().find(|condition| condition.type_ == "BootstrapReady"));
    let open = |condition: &&Condition| condition.status != "True";
    match (ready.filter(open), bootstrap.filter(open)) {
        (Some(condition), _) | (None, Some(condition)) => text(condition),
        (None, None) if ready.is_some() => "its Node".to_owned(),
        (None, None) => String::new(),
    }
}

fn text(condition: &Condition) -> String {
    let message = condition.message.clone().filter(|message| !message.is_empty());
    message.or_else(|| condition.reason.clone()).unwrap_or_default().replace('\n', " ")
}

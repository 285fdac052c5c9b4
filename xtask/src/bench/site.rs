//! A namespace with a Cluster and machines, and what Cluster API's core would say and do in it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use capmox::api::capi::{Cluster, Machine};
use capmox::api::{ProxmoxCluster, ProxmoxMachine};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use testbed::World;
use testbed::apply::create;

use super::objects::{self, CLUSTER};

/// Requests of the driver under way at once.
const AT_ONCE: usize = 8;

/// Machines of one cluster, and how they are driven.
pub(crate) struct Site {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    names: Vec<String>,
}

/// When each machine came to something, since the start.
pub(crate) type Times = BTreeMap<String, Duration>;

impl Site {
    /// Makes namespace, Cluster and ProxmoxCluster, and Machines with their bootstrap Secrets.
    pub(crate) async fn make(world: &World, machines: usize) -> Result<Self> {
        let client = world.client().await?;
        let namespace = world.namespace("bench").await?;
        let names = (0..machines).map(|at| format!("{CLUSTER}-{at:04}")).collect();
        let site = Self { client, namespace, names };
        let cluster = create(&site.api::<Cluster>(), objects::cluster()).await?;
        let infra =
            objects::proxmox_cluster(cluster.metadata.uid.as_deref(), "10.10.1.0-10.10.9.255");
        create(&site.api::<ProxmoxCluster>(), infra).await?;
        Ok(site)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Waits until the ProxmoxCluster is ready, says so in the Cluster as core does, and makes the
    /// Machines.
    pub(crate) async fn prepare(&self, within: Duration) -> Result<()> {
        let ready = |infra: Option<&ProxmoxCluster>| {
            infra.and_then(|infra| infra.status.as_ref()).is_some_and(|status| status.ready)
        };
        let waiting = kube::runtime::wait::await_condition(self.api(), CLUSTER, ready);
        tokio::time::timeout(within, waiting).await.context("the cluster does not get ready")??;
        let status = json!({"status": {"infrastructureReady": true}});
        let params = PatchParams::default();
        self.api::<Cluster>().patch_status(CLUSTER, &params, &Patch::Merge(&status)).await?;
        self.each(async |name| {
            create(&self.api::<Secret>(), objects::bootstrap_secret(name)).await?;
            create(&self.api::<Machine>(), objects::machine(name)).await?;
            Ok(())
        })
        .await
    }

    /// Makes the ProxmoxMachines and gives when each was made.
    pub(crate) async fn start(&self, began: Instant) -> Result<Times> {
        let owners = self.api::<Machine>().list_metadata(&kube::api::ListParams::default()).await?;
        let owners: BTreeMap<String, Option<String>> =
            owners.iter().map(|owner| (owner.name_any(), owner.uid())).collect();
        let api = self.api::<ProxmoxMachine>();
        let made = stream::iter(&self.names).map(|name| {
            let (api, owners) = (&api, &owners);
            async move {
                let owner = owners.get(name).cloned().flatten();
                create(api, objects::proxmox_machine(name, owner.as_deref())).await?;
                anyhow::Ok((name.clone(), began.elapsed()))
            }
        });
        made.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Says of all machines that their nodes have joined.
    pub(crate) async fn join(&self) -> Result<()> {
        let api = self.api::<Machine>();
        self.each(async |name| {
            let node = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name});
            let status = json!({"status": {"bootstrapReady": true, "nodeRef": node}});
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
            Ok(())
        })
        .await
    }

    /// Deletes all ProxmoxMachines.
    pub(crate) async fn delete(&self) -> Result<()> {
        let api = self.api::<ProxmoxMachine>();
        self.each(async |name| {
            api.delete(name, &DeleteParams::background()).await?;
            Ok(())
        })
        .await
    }

    /// Deletes the Machines, the Cluster and what belongs to them, so that nothing is left that the
    /// next measurement would see.
    pub(crate) async fn clear(&self, within: Duration) -> Result<()> {
        self.each(async |name| {
            self.api::<Machine>().delete(name, &DeleteParams::default()).await?;
            self.api::<Secret>().delete(name, &DeleteParams::default()).await?;
            Ok(())
        })
        .await?;
        self.api::<Cluster>().delete(CLUSTER, &DeleteParams::default()).await?;
        let infra = self.api::<ProxmoxCluster>();
        infra.delete(CLUSTER, &DeleteParams::default()).await?;
        let gone = |infra: Option<&ProxmoxCluster>| infra.is_none();
        let waiting = kube::runtime::wait::await_condition(infra, CLUSTER, gone);
        tokio::time::timeout(within, waiting).await.context("the cluster does not go")??;
        Ok(())
    }

    async fn each(&self, act: impl AsyncFn(&str) -> Result<()>) -> Result<()> {
        let act = &act;
        let all = stream::iter(&self.names).map(|name| async move { act(name).await });
        all.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Watches until `done` holds of every machine, or of as many as are asked for; `None` for one
    /// that is gone.
    pub(crate) async fn until(
        &self,
        what: &str,
        (began, within): (Instant, Duration),
        wanted: usize,
        done: impl Fn(Option<&ProxmoxMachine>) -> bool,
    ) -> Result<Times> {
        let mut times = Times::new();
        let mut seen: BTreeMap<String, ProxmoxMachine> = BTreeMap::new();
        let mut events = watcher(self.api::<ProxmoxMachine>(), watcher::Config::default())
            .default_backoff()
            .boxed();
        let look = async {
            while let Some(event) = events.next().await {
                match event? {
                    watcher::Event::Apply(machine) | watcher::Event::InitApply(machine) => {
                        let name = machine.name_any();
                        if done(Some(&machine)) {
                            times.entry(name.clone()).or_insert_with(|| began.elapsed());
                        }
                        seen.insert(name, machine);
                    }
                    watcher::Event::Delete(machine) => {
                        let name = machine.name_any();
                        seen.remove(&name);
                        if done(None) {
                            times.entry(name).or_insert_with(|| began.elapsed());
                        }
                    }
                    watcher::Event::InitDone if done(None) => {
                        for name in self.names.iter().filter(|name| !seen.contains_key(*name)) {
                            times.entry(name.clone()).or_insert_with(|| began.elapsed());
                        }
                    }
                    watcher::Event::Init | watcher::Event::InitDone => {}
                }
                if times.len() >= wanted {
                    return Ok(());
                }
            }
            bail!("the watch ended")
        };
        match tokio::time::timeout(within, look).await {
            Ok(result) => result?,
            Err(_) => bail!(
                "{what}: {} of {wanted} after {} s; of the others: {}",
                times.len(),
                within.as_secs(),
                tell(&seen, &times)
            ),
        }
        Ok(times)
    }
}

/// What some of those say that are not there yet.
fn tell(seen: &BTreeMap<String, ProxmoxMachine>, times: &Times) -> String {
    let late = seen.iter().filter(|(name, _)| !times.contains_key(*name)).take(3);
    let texts = late.map(|(name, machine)| {
        let mut conditions = machine.status.iter().flat_map(|status| &status.conditions);
        let text = conditions.find_map(|condition| condition.message.as_deref());
        format!("{name}: {}", text.unwrap_or_default())
    });
    texts.collect::<Vec<_>>().join("; ")
}

//! Plays Cluster API's core: makes Cluster, Machine and bootstrap Secret, says what core would say
//! in their status, and deletes as core does.

use anyhow::{Context as _, Result};
use capmox::api::capi::{Cluster, Machine};
use capmox::api::ipam::{IPAddress, IPAddressClaim};
use capmox::api::{ProxmoxCluster, ProxmoxMachine};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::wait::{Condition, await_condition};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::apply::create;

use crate::site::Site;

/// Name of the Cluster in each namespace.
pub(crate) const CLUSTER: &str = "lab";

/// What the bootstrap Secret of each machine holds, but for the machine's name.
pub(crate) fn user_data(machine: &str) -> String {
    format!("#cloud-config\nwrite_files:\n- path: /etc/motd\n  content: {machine}\n")
}

impl Site {
    pub(crate) fn machines(&self) -> Api<ProxmoxMachine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn owners(&self) -> Api<Machine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn claims(&self) -> Api<IPAddressClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn addresses(&self) -> Api<IPAddress> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Makes Cluster and ProxmoxCluster, and waits until the manager has made it ready.
    pub(crate) async fn make_cluster(&self) -> Result<()> {
        let clusters: Api<Cluster> = Api::namespaced(self.client.clone(), &self.namespace);
        let infra: Api<ProxmoxCluster> = Api::namespaced(self.client.clone(), &self.namespace);
        let cluster = create(
            &clusters,
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1",
                "kind": "Cluster",
                "metadata": {"name": CLUSTER},
                "spec": {"infrastructureRef": reference("ProxmoxCluster", CLUSTER)},
            }),
        )
        .await?;
        let mut object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ProxmoxCluster",
            "metadata": {
                "name": CLUSTER,
                "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta1",
                    "kind": "Cluster",
                    "name": CLUSTER,
                    "uid": cluster.metadata.uid,
                }],
            },
            "spec": {
                "controlPlaneEndpoint": {"host": "10.10.10.9", "port": 6443},
                "allowedNodes": ["pve1", "pve2", "pve3"],
                "dnsServers": ["10.10.10.1"],
                "ipv4Config": {
                    "addresses": ["10.10.10.10-10.10.10.250"],
                    "prefix": 24,
                    "gateway": "10.10.10.1",
                    "metric": 100,
                },
            },
        });
        for (key, value) in self.cluster_change().as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        create(&infra, object).await?;
        let is_ready = |found: Option<&ProxmoxCluster>| {
            found.and_then(|one| one.status.as_ref()).is_some_and(|status| status.ready)
        };
        self.within("the cluster's readiness", CLUSTER, until(&infra, CLUSTER, is_ready)).await?;
        let ready = json!({"status": {"infrastructureReady": true}});
        clusters
            .patch_status(CLUSTER, &PatchParams::default(), &Patch::Merge(&ready))
            .await
            .context("cannot say that the infrastructure is ready")?;
        Ok(())
    }

    /// Makes Machine, bootstrap Secret and ProxmoxMachine of this spec.
    pub(crate) async fn make_machine(&self, name: &str, spec: Value) -> Result<ProxmoxMachine> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        create(
            &secrets,
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name},
                "type": "cluster.x-k8s.io/secret",
                "stringData": {"value": user_data(name), "format": "cloud-config"},
            }),
        )
        .await?;
        let owner = create(
            &self.owners(),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta1",
                "kind": "Machine",
                "metadata": {
                    "name": name,
                    "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
                },
                "spec": {
                    "clusterName": CLUSTER,
                    "version": "v1.33.4",
                    "bootstrap": {"dataSecretName": name},
                    "infrastructureRef": reference("ProxmoxMachine", name),
                },
            }),
        )
        .await?;
        create(
            &self.machines(),
            json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
                "kind": "ProxmoxMachine",
                "metadata": {
                    "name": name,
                    "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER},
                    "ownerReferences": [{
                        "apiVersion": "cluster.x-k8s.io/v1beta1",
                        "kind": "Machine",
                        "name": name,
                        "uid": owner.metadata.uid,
                        "controller": true,
                    }],
                },
                "spec": spec,
            }),
        )
        .await
    }

    /// Writes parts of a ProxmoxMachine's status, as another provider before this one.
    pub(crate) async fn set_status(&self, name: &str, status: Value) -> Result<()> {
        let patch = json!({"status": status});
        let params = PatchParams::default();
        self.machines().patch_status(name, &params, &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Waits until the machine is as core wants it before it takes its addresses and provider id.
    pub(crate) async fn ready(&self, name: &str) -> Result<ProxmoxMachine> {
        let is_ready = |found: Option<&ProxmoxMachine>| {
            found.is_some_and(|one| {
                one.spec.provider_id.is_some() && one.status.as_ref().is_some_and(|s| s.ready)
            })
        };
        let found = self.within("readiness", name, until(&self.machines(), name, is_ready)).await?;
        found.context("the machine vanished")
    }

    /// Says that the node has joined.
    pub(crate) async fn join(&self, name: &str) -> Result<()> {
        let node = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": "0-0"});
        let status = json!({"status": {"bootstrapReady": true, "nodeRef": node}});
        let params = PatchParams::default();
        self.owners().patch_status(name, &params, &Patch::Merge(&status)).await?;
        Ok(())
    }

    /// Waits until the machine says that its seed is gone.
    pub(crate) async fn unseeded(&self, name: &str) -> Result<ProxmoxMachine> {
        let is_unseeded = |found: Option<&ProxmoxMachine>| {
            found.and_then(|one| one.status.as_ref()).is_some_and(|s| s.bootstrap_iso.is_none())
        };
        let machines = self.machines();
        let waiting = until(&machines, name, is_unseeded);
        self.within("the end of the seed", name, waiting).await?.context("the machine vanished")
    }

    /// Deletes the ProxmoxMachine, waits until it is gone, and deletes what is left, as core does.
    pub(crate) async fn delete_machine(&self, name: &str) -> Result<()> {
        self.machines().delete(name, &DeleteParams::default()).await?;
        self.deleted(name).await
    }

    /// Waits until a ProxmoxMachine that is being deleted is gone, and deletes what is left.
    pub(crate) async fn deleted(&self, name: &str) -> Result<()> {
        let machines = self.machines();
        let is_gone = |found: Option<&ProxmoxMachine>| found.is_none();
        self.within("the machine's end", name, until(&machines, name, is_gone)).await?;
        self.owners().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until neither claim nor address of the machine is left.
    pub(crate) async fn addresses_given_back(&self, name: &str) -> Result<()> {
        let claim = format!("{name}-net0-inet");
        let no_claim = |found: Option<&IPAddressClaim>| found.is_none();
        self.within("the claim's end", name, until(&self.claims(), &claim, no_claim)).await?;
        let no_address = |found: Option<&IPAddress>| found.is_none();
        self.within("the address's end", name, until(&self.addresses(), &claim, no_address))
            .await?;
        Ok(())
    }
}

pub(crate) async fn until<K>(
    api: &Api<K>,
    name: &str,
    condition: impl Condition<K>,
) -> Result<Option<K>, kube::runtime::wait::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    await_condition(api.clone(), name, condition).await
}

fn reference(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": kind,
        "name": name,
    })
}

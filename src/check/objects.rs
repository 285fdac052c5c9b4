//! Reads what a cluster asks for from the management cluster.

use kube::api::ListParams;
use kube::{Api, Client};

use super::report::Finding;
use crate::api::{
    ProxmoxCluster, ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineTemplate, capi,
};
use crate::hypervisor::ObjectKey;

/// A ProxmoxCluster and the machines that it has or is to have.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) cluster: ProxmoxCluster,
    pub(super) specs: Vec<ProxmoxMachineSpec>,
    /// What could not be read.
    pub(super) findings: Vec<Finding>,
}

/// Reads them.
///
/// # Errors
/// One finding when there is no such cluster, or nobody says.
pub(super) async fn read(client: &Client, key: &ObjectKey) -> Result<Objects, Finding> {
    let clusters: Api<ProxmoxCluster> = Api::namespaced(client.clone(), &key.namespace);
    let subject = format!("ProxmoxCluster {key}");
    let cluster = match clusters.get_opt(&key.name).await {
        Ok(Some(cluster)) => cluster,
        Ok(None) => {
            return Err(Finding::failed("object", subject, "does not exist")
                .remedy("kubectl get proxmoxclusters --all-namespaces"));
        }
        Err(error) => return Err(unreadable(subject, &error)),
    };
    // Its Cluster owns it, and labels what belongs to it.
    let owner = capi::owner(&cluster.metadata, "Cluster").map(|owner| owner.name.clone());
    let name = owner
        .or_else(|| capi::cluster_name(&cluster.metadata).map(str::to_owned))
        .unwrap_or_else(|| key.name.clone());
    let mut specs: Vec<ProxmoxMachineSpec> = Vec::new();
    let mut findings = Vec::new();
    if let Some(clone) = &cluster.spec.clone_spec {
        specs.extend(clone.machine_spec.values().cloned());
    }
    let templates: Api<ProxmoxMachineTemplate> = Api::namespaced(client.clone(), &key.namespace);
    match templates.list(&ListParams::default()).await {
        Ok(list) => {
            let mine = list.items.into_iter().filter(|template| {
                let meta = &template.metadata;
                capi::owner(meta, "Cluster").is_some_and(|owner| owner.name == name)
                    || capi::cluster_name(meta) == Some(name.as_str())
            });
            specs.extend(mine.map(|template| template.spec.template.spec));
        }
        Err(error) => findings.push(unreadable("ProxmoxMachineTemplates".to_owned(), &error)),
    }
    let machines: Api<ProxmoxMachine> = Api::namespaced(client.clone(), &key.namespace);
    let labelled = ListParams::default().labels(&format!("{}={name}", capi::CLUSTER_NAME_LABEL));
    match machines.list(&labelled).await {
        Ok(list) => {
            // One that is going away needs nothing any more.
            let here = list
                .items
                .into_iter()
                .filter(|machine| machine.metadata.deletion_timestamp.is_none());
            specs.extend(here.map(|machine| machine.spec));
        }
        Err(error) => findings.push(unreadable("ProxmoxMachines".to_owned(), &error)),
    }
    if specs.is_empty() && findings.is_empty() {
        findings.push(
            Finding::unknown("object", subject, format!("Cluster {name} has no machine templates"))
                .remedy(
                    "apply its ProxmoxMachineTemplates, or give --template, --storage, --bridge \
                     and the like",
                ),
        );
    }
    Ok(Objects { cluster, specs, findings })
}

fn unreadable(subject: String, error: &kube::Error) -> Finding {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            Finding::unknown("object", subject, format!("may not be read: {}", status.message))
                .remedy("kubectl auth whoami; a kubeconfig that may read them, by --kubeconfig")
        }
        kube::Error::Api(status) if status.code == 404 => {
            Finding::failed("object", subject, format!("cannot be read: {}", status.message))
                .remedy("install the provider's CRDs")
        }
        error => Finding::unknown("object", subject, format!("cannot be read: {error}")),
    }
}

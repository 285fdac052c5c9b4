//! Looks whether the in-cluster IPAM provider is installed. Reads only.

use futures::TryFutureExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::rival::{Installed, LEASE, PROVIDER_LABEL};

/// Reads what an installation of the provider leaves. What cannot be read is logged and left open:
/// a narrow role must not keep the allocator from running, and answers are noticed all the same.
pub(super) async fn survey(client: &Client) -> Installed {
    let deployments = Api::<Deployment>::all(client.clone());
    let leases = Api::<Lease>::all(client.clone());
    let kind = GroupVersionKind::gvk("clusterctl.cluster.x-k8s.io", "v1alpha3", "Provider");
    let inventory = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let (labelled, named) = (
        ListParams::default().labels(PROVIDER_LABEL),
        ListParams::default().fields(&format!("metadata.name={LEASE}")),
    );
    let everything = ListParams::default();
    let (deployments, leases, inventory) = tokio::join!(
        list("Deployments", deployments, &labelled),
        list("Leases", leases, &named),
        list("clusterctl Providers", inventory, &everything).map_ok(entries),
    );
    Installed { deployments: deployments.ok(), leases: leases.ok(), inventory: inventory.ok() }
}

/// clusterctl's entries for the provider.
fn entries(providers: Vec<DynamicObject>) -> Vec<String> {
    let is = |provider: &DynamicObject, field: &str, value: &str| {
        provider.data.get(field).and_then(|found| found.as_str()) == Some(value)
    };
    providers
        .into_iter()
        .filter(|provider| {
            is(provider, "type", "IPAMProvider") && is(provider, "providerName", "in-cluster")
        })
        .map(|provider| {
            format!("{}/{}", provider.namespace().unwrap_or_default(), provider.name_any())
        })
        .collect()
}

async fn list<K>(what: &str, api: Api<K>, parameters: &ListParams) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.list(parameters).await {
        Ok(list) => Ok(list.items),
        // The kind is not installed, and so neither is any object of it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(vec![]),
        Err(error) => {
            warn!(%error, "cannot look at {what} for another IPAM provider");
            Err(error)
        }
    }
}

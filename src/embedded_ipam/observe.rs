//! Reads everything the allocator decides on, and notices when any of it changes.
//!
//! Reads are lists without a resource version: the apiserver answers them from the newest state, so
//! an address created a moment ago is seen, and none is handed out twice. The watches carry
//! metadata only and serve as a bell, never as a source of facts.

use std::collections::BTreeMap;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, TryFutureExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{Predicate, PredicateConfig, WatchStreamExt, predicates, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tracing::debug;

use super::facts::{Facts, Pool, PoolKey, PoolKind, is_paused, key};
use crate::api::capi::Cluster;
use crate::api::ipam::{GlobalInClusterIPPool, IPAddress, IPAddressClaim, InClusterIPPool};

/// Something changed; what, is read again.
pub(super) type Bell = SelectAll<BoxStream<'static, ()>>;

/// A kind that cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list {plural}: {source}")]
pub(super) struct Unreadable {
    plural: String,
    source: Box<kube::Error>,
}

/// Reads everything.
///
/// Addresses come before claims: whoever makes both makes the claim first, so an address whose
/// claim is not in the later list has lost it. They also come before pools, so a pool that shows no
/// address in a later look has none.
pub(super) async fn observe(client: &Client) -> Result<Facts, Unreadable> {
    let addresses = all::<IPAddress>(client).await?;
    let claims = all::<IPAddressClaim>(client).await?;
    let (local, global, clusters) = tokio::try_join!(
        all::<InClusterIPPool>(client),
        all::<GlobalInClusterIPPool>(client),
        all::<Cluster>(client),
    )?;
    let local = local.into_iter().map(|pool| Pool {
        key: pool_key(PoolKind::InCluster, &pool.metadata),
        metadata: pool.metadata,
        spec: pool.spec,
        shown: pool.status.and_then(|status| status.ip_addresses),
    });
    let global = global.into_iter().map(|pool| Pool {
        key: pool_key(PoolKind::Global, &pool.metadata),
        metadata: pool.metadata,
        spec: pool.spec.0,
        shown: pool.status.and_then(|status| status.ip_addresses),
    });
    Ok(Facts {
        claims,
        addresses: addresses.into_iter().map(|address| (key(&address.metadata), address)).collect(),
        pools: local.chain(global).map(|pool| (pool.key.clone(), pool)).collect(),
        clusters: clusters
            .into_iter()
            .map(|cluster| {
                let paused =
                    cluster.spec.paused.unwrap_or_default() || is_paused(&cluster.metadata);
                (key(&cluster.metadata), paused)
            })
            .collect::<BTreeMap<_, _>>(),
    })
}

fn pool_key(kind: PoolKind, metadata: &ObjectMeta) -> PoolKey {
    let (namespace, name) = key(metadata);
    PoolKey { kind, namespace, name }
}

async fn all<K>(client: &Client) -> Result<Vec<K>, Unreadable>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let list = api
        .list(&ListParams::default())
        .map_err(|source| Unreadable {
            plural: K::plural(&()).into_owned(),
            source: Box::new(source),
        })
        .await?;
    Ok(list.items)
}

/// Rings for every change that can matter. Of clusters only spec and annotations do.
pub(super) fn bell(client: &Client) -> Bell {
    let clusters = Api::<PartialObjectMeta<Cluster>>::all(client.clone());
    let clusters = watcher(clusters, watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .predicate_filter(
            predicates::generation.combine(predicates::annotations),
            PredicateConfig::default(),
        );
    futures::stream::select_all([
        changes::<IPAddressClaim>(client),
        changes::<IPAddress>(client),
        changes::<InClusterIPPool>(client),
        changes::<GlobalInClusterIPPool>(client),
        quietly(clusters),
    ])
}

fn changes<K>(client: &Client) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let api = Api::<PartialObjectMeta<K>>::all(client.clone());
    quietly(watcher(api, watcher::Config::default()).default_backoff().touched_objects())
}

/// A failing watch heals itself; until then the regular look stands in for it.
fn quietly<T: Send + 'static>(
    events: impl futures::Stream<Item = Result<T, watcher::Error>> + Send + 'static,
) -> BoxStream<'static, ()> {
    events
        .filter_map(async |event| match event {
            Ok(_) => Some(()),
            Err(error) => {
                debug!(%error, "watch interrupted");
                None
            }
        })
        .boxed()
}

//! Asks Proxmox. No answer is an unknown, and nothing here has an opinion about an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use futures::future::join_all;
use k8s_openapi::jiff::fmt::rfc2822;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::facts::{self, Facts};
use super::wanted::Wanted;
use crate::ids::VmId;
use crate::preflight::Place;
use crate::pve::{Client, Error, ErrorKind, Version};
use crate::seen::Seen;

/// Tries at finding a VMID that nobody has: guests that are not shown have some.
const VMID_TRIES: usize = 5;

/// The server's clock less this machine's, by an answer that has just come.
fn skew(client: &Client, now: fn() -> Timestamp) -> Seen<SignedDuration> {
    let Some((date, _)) = client.server_date() else { return Seen::Absent };
    match rfc2822::parse(&date) {
        Ok(theirs) => {
            let theirs = theirs.timestamp().as_second();
            Seen::Present(SignedDuration::from_secs(theirs - now().as_second()))
        }
        Err(error) => Seen::Unknown(format!("the server's time {date:?} is not read: {error}")),
    }
}

fn seen<T>(answer: Result<T, Error>) -> Seen<T> {
    match answer {
        Ok(value) => Seen::Present(value),
        Err(error) => unknown(&error),
    }
}

fn unknown<T>(error: &impl Display) -> Seen<T> {
    Seen::Unknown(error.to_string())
}

/// Looks at all that judging takes.
pub(super) async fn observe(
    client: &Client,
    version: Version,
    now: fn() -> Timestamp,
    wanted: &Wanted,
) -> Facts {
    let skew = skew(client, now);
    let (nodes, resources, vnets, pools, permissions) = tokio::join!(
        client.nodes(),
        client.cluster_resources(),
        client.vnets(),
        client.pools(),
        client.permissions(None)
    );
    let resources = seen(resources);
    let mut facts = Facts {
        version,
        skew,
        nodes: seen(nodes),
        guests: resources.as_ref().map(|resources| facts::guests(resources)),
        shared: resources.present().map(|found| facts::shared(found)).unwrap_or_default(),
        templates: BTreeMap::new(),
        storages: BTreeMap::new(),
        bridges: BTreeMap::new(),
        // A Proxmox without SDN has no virtual networks.
        vnets: match vnets {
            Err(error) if *error.kind() == ErrorKind::NotImplemented => Seen::Absent,
            vnets => seen(vnets),
        },
        pools: seen(pools).map(|pools| pools.into_iter().map(|pool| pool.poolid).collect()),
        free: BTreeMap::new(),
        permissions: seen(permissions),
    };
    templates(client, wanted, &mut facts).await;
    let known = facts.nodes.present().map(Vec::as_slice).unwrap_or_default();
    join_all(facts::nodes(wanted, known).into_iter().map(|node| {
        let online = facts.is_online(&node);
        async move {
            if online {
                let (storages, bridges) =
                    tokio::join!(client.storages(&node), client.node_bridges(&node));
                (node, seen(storages), seen(bridges))
            } else {
                let why = format!("node {node} is not online");
                (node, unknown(&why), unknown(&why))
            }
        }
    }))
    .await
    .into_iter()
    .for_each(|(node, storages, bridges)| {
        facts.storages.insert(node.clone(), storages);
        facts.bridges.insert(node, bridges);
    });
    for range in &wanted.ranges {
        let free = free(client, *range, &facts).await;
        facts.free.insert(*range, free);
    }
    permissions_by_path(client, wanted, &mut facts).await;
    facts
}

async fn templates(client: &Client, wanted: &Wanted, facts: &mut Facts) {
    let guests = facts.guests.present().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<_> =
        wanted.templates.iter().filter_map(|template| facts::find(template, guests).ok()).collect();
    for template in found {
        let config = if facts.is_online(&template.node) {
            match client.vm_config(&template.node, template.vmid).await {
                Err(error) if error.is_vm_missing() => Seen::Absent,
                answer => seen(answer),
            }
        } else {
            Seen::Unknown(format!("node {} is not online", template.node))
        };
        facts.templates.insert(template.vmid, config);
    }
}

/// A VMID of the range that Proxmox says is free.
async fn free(client: &Client, (start, end): (i64, i64), facts: &Facts) -> Seen<VmId> {
    let (Ok(start), Ok(end)) = (VmId::try_from(start), VmId::try_from(end)) else {
        return Seen::Unknown("is no range of VMIDs".to_owned());
    };
    let guests = facts.guests.present().map(Vec::as_slice).unwrap_or_default();
    let taken: BTreeSet<VmId> = guests.iter().map(|guest| guest.vmid).collect();
    let all = std::iter::successors(Some(start), |vmid| vmid.next()).take_while(|id| *id <= end);
    let mut candidates = all.filter(|vmid| !taken.contains(vmid));
    for vmid in candidates.by_ref().take(VMID_TRIES) {
        match client.vmid_is_free(vmid).await {
            Ok(true) => return Seen::Present(vmid),
            Ok(false) => {}
            Err(error) => return unknown(&error),
        }
    }
    match candidates.next() {
        None => Seen::Absent,
        Some(_) => Seen::Unknown(format!(
            "{VMID_TRIES} of it are taken by guests that the token does not see"
        )),
    }
}

/// The listing of all privileges hides paths that a rule takes everything away from, so each path
/// that matters is asked for by itself.
async fn permissions_by_path(client: &Client, wanted: &Wanted, facts: &mut Facts) {
    let needs = facts::needs(wanted, facts);
    let places = needs.iter().flat_map(|need| &need.places);
    let paths: BTreeSet<&str> = places
        .filter_map(|place| match place {
            Place::On(path) | Place::Below(path) => Some(path.as_str()),
            Place::Somewhere(_) => None,
        })
        .collect();
    let Seen::Present(held) = &mut facts.permissions else { return };
    for answer in join_all(paths.into_iter().map(|path| client.permissions(Some(path)))).await {
        // Without an answer the listing stands.
        held.extend(answer.unwrap_or_default());
    }
}

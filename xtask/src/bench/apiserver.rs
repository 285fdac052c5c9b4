//! Writes to the API server by kind, from its own count of requests.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;

/// Kinds that only the manager writes to, but for what the driver is known to write itself.
const KINDS: &[&str] = &[
    "proxmoxmachines",
    "proxmoxclusters",
    "ipaddressclaims",
    "inclusterippools",
    "events",
    "machines",
    "clusters",
];

/// What the provider of addresses writes.
const OF_IPAM: &[&str] =
    &["PATCH ipaddressclaims", "APPLY ipaddressclaims/status", "APPLY inclusterippools/status"];

const WRITES: &[&str] = &["POST", "PUT", "PATCH", "APPLY", "DELETE"];

/// Requests so far by `VERB resource[/subresource]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes(BTreeMap<String, u64>);

impl Writes {
    /// Asks the API server.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await.context("no metrics of the API server")?;
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("apiserver_request_total{") else { continue };
            let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
                let rest = labels.get(start..)?;
                rest.get(..rest.find('"')?)
            };
            let (Some(verb), Some(resource)) = (label("verb"), label("resource")) else { continue };
            if !WRITES.contains(&verb) || !KINDS.contains(&resource) {
                continue;
            }
            let subresource = label("subresource").filter(|text| !text.is_empty());
            let name = match subresource {
                Some(below) => format!("{verb} {resource}/{below}"),
                None => format!("{verb} {resource}"),
            };
            let value: f64 = value.trim().parse().unwrap_or(0.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let value = value as u64;
            *counts.entry(name).or_default() += value;
        }
        Ok(Self(counts))
    }

    /// What came since `before`, without what others than the manager wrote.
    pub(crate) fn since(&self, before: &Self, others: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (name, count) in &self.0 {
            let old = before.0.get(name).copied().unwrap_or(0);
            let others = others.iter().filter(|(other, _)| other == name);
            let theirs: u64 = others.map(|(_, count)| count).sum();
            let left = count.saturating_sub(old).saturating_sub(theirs);
            if left > 0 && !OF_IPAM.contains(&name.as_str()) {
                counts.insert(name.clone(), left);
            }
        }
        counts
    }
}

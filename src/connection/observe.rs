//! Reads what [`super::decide`] needs. Chooses nothing.

use k8s_openapi::jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::{Api, Client};
use tokio::time::Instant;

use super::Guard;
use super::facts::{Answer, Facts, Probe};
use crate::api::CONNECTION_GROUP;
use crate::connections::{Connections, Source, ailment, failing};
use crate::hypervisor::Endpoint;
use crate::seen::Seen;

/// A kind that kubemox serves beside ProxmoxConnection and nobody else does.
const KIND_OF_KUBEMOX: &str = "virtualmachines";

/// The ProxmoxConnection as it is now; `None` when it is gone.
pub(super) async fn connection(client: &Client, name: &str) -> Result<Option<Guard>, kube::Error> {
    Api::<Guard>::all(client.clone()).get_opt(name).await
}

/// Whether kubemox is installed, by the kinds that are served; no right is needed to see those.
pub(super) async fn kubemox(client: &Client) -> Seen<()> {
    match client.list_api_group_resources(&format!("{CONNECTION_GROUP}/v1alpha1")).await {
        Ok(list) if list.resources.iter().any(|one| one.name == KIND_OF_KUBEMOX) => {
            Seen::Present(())
        }
        Ok(_) => Seen::Absent,
        Err(error) => Seen::Unknown(error.to_string()),
    }
}

/// All that a connection is judged by.
pub(super) async fn facts(
    connections: &Connections,
    name: &str,
    now: impl Fn() -> Timestamp,
) -> Facts {
    let look = connections.connection(name).await;
    let endpoint = match look.endpoint {
        Ok(endpoint) => {
            let source = Source::Connection(name.to_owned());
            Ok(probe(&source, &endpoint, look.insecure, now).await)
        }
        Err(fault) => Err(fault),
    };
    Facts { secrets: look.secrets, endpoint }
}

async fn probe(
    source: &Source,
    endpoint: &Endpoint,
    insecure: Option<String>,
    now: impl Fn() -> Timestamp,
) -> Probe {
    let version = match endpoint.ask_version().await {
        Ok(version) => {
            let ahead = ahead(endpoint, now());
            let permissions = endpoint.client().permissions(None).await;
            let permissions = permissions.map_err(|error| error.to_string());
            Ok(Answer { version, permissions, ahead })
        }
        Err(error) => Err((ailment(&error), failing(source, endpoint, &error))),
    };
    Probe { address: endpoint.client().active_url().to_string(), insecure, version }
}

/// How far the clock of Proxmox is ahead, by the header of its latest answer.
fn ahead(endpoint: &Endpoint, now: Timestamp) -> Option<SignedDuration> {
    let (date, came) = endpoint.client().server_date()?;
    let then = rfc2822::DateTimeParser::new().parse_timestamp(date.trim()).ok()?;
    let since = SignedDuration::try_from(Instant::now().duration_since(came)).ok()?;
    Some(then.duration_since(now) + since)
}

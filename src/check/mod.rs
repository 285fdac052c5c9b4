//! `capmox check`: looks whether a Proxmox VE is as the provider needs it, and changes nothing.
//!
//! Observing (`observe`, `objects`) is apart from judging ([`judge`], pure) and from printing
//! ([`print`](mod@print), pure). What nobody answered is unknown, never a failure.

pub mod facts;
pub mod judge;
mod objects;
mod observe;
pub mod print;
pub mod report;
pub mod wanted;

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::ProxmoxMachineSpec;
use crate::connections::{self, Connections, Given, Own};
use crate::fault::{Class, Fault};
use crate::hypervisor::ObjectKey;
use crate::ids::StorageName;
use crate::pve::{self, Call, Observer};

pub use report::{Finding, Report, Verdict};
use wanted::Wanted;

/// What is to be checked.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Request {
    /// Through what.
    pub access: Access,
    /// What is wanted beside what a cluster says.
    pub extra: Option<ProxmoxMachineSpec>,
    /// The storages for bootstrap data that the manager was told, the preferred one first.
    pub iso_storages: Vec<StorageName>,
    /// Tells the time.
    pub now: fn() -> Timestamp,
}

/// Whose credentials are used, and what says what is wanted.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub enum Access {
    /// Address and token by hand.
    Given(Given),
    /// An object of the management cluster.
    Object {
        /// The management cluster.
        client: kube::Client,
        /// Which one.
        object: Object,
        /// The manager's own credentials, for a cluster that names none.
        own: Given,
    },
}

/// An object that says how to reach a Proxmox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A ProxmoxCluster, with what belongs to it.
    Cluster(ObjectKey),
    /// A ProxmoxConnection.
    Connection(String),
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster(key) => write!(f, "ProxmoxCluster {key}"),
            Self::Connection(name) => write!(f, "ProxmoxConnection {name}"),
        }
    }
}

/// Nobody counts the calls of a command.
#[derive(Debug)]
struct Uncounted;

impl Observer for Uncounted {
    fn called(&self, _: &Call) {}
}

/// Checks. Nothing is changed on Proxmox or in the management cluster.
pub async fn run(request: Request) -> Report {
    let Request { access, extra, iso_storages, now } = request;
    let mut specs: Vec<ProxmoxMachineSpec> = extra.into_iter().collect();
    let mut allowed = Vec::new();
    let mut findings = Vec::new();
    // Ends what an endpoint does in the background.
    let shutdown = CancellationToken::new();
    let _ends_with_this = shutdown.clone().drop_guard();
    let opened = match access {
        Access::Given(given) => connections::client(given),
        Access::Object { client, object, own } => {
            let (wakes, _) = mpsc::unbounded_channel();
            let connections = Connections::new(connections::Settings {
                client: client.clone(),
                own: Own::new(own),
                wakes,
                observer: Arc::new(Uncounted),
                fence: crate::pve::Fence::default(),
                clones: crate::hypervisor::CloneLimits::default(),
                shutdown,
            });
            let endpoint = match object {
                Object::Connection(name) => connections.connection(&name).await.endpoint,
                Object::Cluster(key) => {
                    let objects = match objects::read(&client, &key).await {
                        Ok(objects) => objects,
                        Err(finding) => return Report { findings: vec![finding] },
                    };
                    specs.extend(objects.specs);
                    findings.extend(objects.findings);
                    allowed.extend(objects.cluster.spec.allowed_nodes.clone().unwrap_or_default());
                    connections.of(&objects.cluster).await
                }
            };
            endpoint.map(|endpoint| endpoint.client().clone())
        }
    };
    let mut wanted = Wanted::of(&specs, &allowed);
    wanted.iso_storages = iso_storages;
    match opened {
        Ok(client) => findings.extend(look(&client, &wanted, now).await),
        Err(fault) => findings.push(no_client(&fault)),
    }
    Report { findings }
}

async fn look(client: &pve::Client, wanted: &Wanted, now: fn() -> Timestamp) -> Vec<Finding> {
    let (url, who) = (client.base_url().to_string(), client.who());
    let version = match client.version().await {
        Ok(version) => version,
        Err(error) => return judge::not_reached(&url, who, &error),
    };
    let url = client.active_url().to_string();
    let mut findings = judge::reached(&url, who, client.is_verified(), &version);
    let facts = observe::observe(client, version, now, wanted).await;
    findings.extend(judge::judge(wanted, &facts));
    findings
}

/// The fault says what is wrong and which form is right.
fn no_client(fault: &Fault) -> Finding {
    let (check, subject) = ("credentials", "Proxmox");
    if fault.class == Class::Transient {
        Finding::unknown(check, subject, &fault.message)
    } else {
        Finding::failed(check, subject, &fault.message)
    }
}

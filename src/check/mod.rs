//! `capmox check`: looks whether a Proxmox VE is as the provider needs it, and changes nothing.
//!
//! Observing (`observe`, `objects`) is apart from judging ([`judge`], pure) and from printing
//! ([`print`], pure). What nobody answered is unknown, never a failure.

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
use crate::pve;

use observe::Clocks;
pub use report::{Finding, Report, Verdict};
use wanted::Wanted;

/// Whose credentials are used, and what says what is wanted.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub enum Access {
    /// Address and token by hand.
    Given(Given),
    /// A ProxmoxCluster, with what belongs to it.
    Cluster {
        /// The management cluster.
        client: kube::Client,
        /// Namespace and name.
        key: ObjectKey,
        /// The manager's own credentials, for a cluster that names none.
        own: Given,
    },
}

/// What is to be checked.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Request {
    /// Through what.
    pub access: Access,
    /// What is wanted beside what the cluster says.
    pub extra: Option<ProxmoxMachineSpec>,
    /// Tells the time.
    pub now: fn() -> Timestamp,
}

/// Checks. Nothing is changed on Proxmox or in the management cluster.
pub async fn run(request: Request) -> Report {
    let Request { access, extra, now } = request;
    let clocks = Arc::new(Clocks::new(now));
    let mut specs: Vec<ProxmoxMachineSpec> = extra.into_iter().collect();
    let mut allowed = Vec::new();
    let mut findings = Vec::new();
    // Ends what an endpoint does in the background.
    let shutdown = CancellationToken::new();
    let _ends_with_this = shutdown.clone().drop_guard();
    let client = match access {
        Access::Given(given) => connections::client(given, Arc::clone(&clocks) as _),
        Access::Cluster { client, key, own } => {
            let objects = match objects::read(&client, &key).await {
                Ok(objects) => objects,
                Err(finding) => return Report { findings: vec![finding] },
            };
            specs.extend(objects.specs);
            findings.extend(objects.findings);
            allowed.extend(objects.cluster.spec.allowed_nodes.clone().unwrap_or_default());
            let (wakes, _) = mpsc::unbounded_channel();
            let settings = connections::Settings {
                client,
                own: Own::new(own),
                wakes,
                observer: Arc::clone(&clocks) as _,
                shutdown,
            };
            let opened = Connections::new(settings).of(&objects.cluster).await;
            opened.map(|endpoint| endpoint.client().clone())
        }
    };
    let wanted = Wanted::of(&specs, &allowed);
    match client {
        Ok(client) => findings.extend(look(&client, &wanted, &clocks).await),
        Err(fault) => findings.push(no_client(&fault)),
    }
    Report { findings }
}

async fn look(client: &pve::Client, wanted: &Wanted, clocks: &Clocks) -> Vec<Finding> {
    let (url, who) = (client.base_url().to_string(), client.who());
    let version = match client.version().await {
        Ok(version) => version,
        Err(error) => return judge::not_reached(&url, who, &error),
    };
    let mut findings = judge::reached(&url, who, client.is_verified(), &version);
    let facts = observe::observe(client, version, clocks, wanted).await;
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

//! An allocator for small clusters that serves the pools of the in-cluster IPAM provider.
//!
//! Off by default. It answers claims on `InClusterIPPool` and `GlobalInClusterIPPool` by the
//! contract of that provider, v1.0.3, and says on the claim what it waits for. It does not start
//! where the provider itself is installed, and ends when another one answers a claim.
//!
//! One task does everything, pass by pass: look at everything, decide, write, report. A pass reads
//! the newest state and starts from nothing else, so a restart at any point loses nothing. Only one
//! process may run it; that is the business of the leader election around it.
//!
//! It knows nothing of Proxmox, of machines, or of who made the claims.

mod act;
mod decide;
mod facts;
mod observe;
mod report;
mod rival;
mod survey;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use act::Outcome;
use decide::{Decision, Step};
use report::Report;
pub use rival::Evidence;

/// Field manager of all writes.
pub const FIELD_MANAGER: &str = "capmox-embedded-ipam";

/// Changes tend to come in bursts: a pass waits until there is none for this long …
const QUIET: Duration = Duration::from_millis(50);
/// … but no longer than this.
const PATIENCE: Duration = Duration::from_millis(500);
/// A regular look, in case a change was missed.
const REGULAR: Duration = Duration::from_mins(1);
/// Requests in flight at once.
const AT_ONCE: usize = 8;
/// Wait after a failure; doubled with each further one.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// Why the allocator does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another provider serves the same pools.
    #[error(
        "the embedded IPAM does not run beside another provider for InClusterIPPool: {0}. Remove \
         that provider (clusterctl delete --ipam in-cluster), or start capmox without \
         --embedded-ipam"
    )]
    Rival(Evidence),
}

/// Serves pools until `shutdown`.
///
/// Call it in one process at a time, while that one is the leader.
///
/// # Errors
///
/// [`Error::Rival`] at once where another provider is installed, or later when one answers. Failing
/// requests are logged and tried again.
pub async fn run(client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    if let Some(evidence) = rival::installed(&survey::survey(&client).await, &now()) {
        return Err(Error::Rival(evidence));
    }
    info!("embedded IPAM serves InClusterIPPool and GlobalInClusterIPPool");
    let mut bell = observe::bell(&client);
    let mut worker = Worker::new(client);
    while !shutdown.is_cancelled() {
        let turn = shutdown.run_until_cancelled(worker.pass()).await;
        let Some(wait) = turn.transpose()? else { break };
        shutdown.run_until_cancelled(rest(&mut bell, wait)).await;
    }
    Ok(())
}

/// Waits for a change, and then for the end of a burst of them; at most as long as told.
async fn rest(bell: &mut observe::Bell, wait: Wait) {
    let limit = match wait {
        Wait::ForChange => REGULAR,
        // What failed is tried again in time; changes meanwhile would only hasten the failures.
        Wait::ToRetry(after) => {
            let until = Instant::now() + after;
            while timeout_at(until, bell.next()).await.is_ok() {}
            return;
        }
    };
    if timeout(limit, bell.next()).await.is_ok() {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && timeout(QUIET, bell.next()).await.is_ok() {}
    }
}

#[expect(clippy::disallowed_methods, reason = "the driver's clock; what decides gets the time")]
fn now() -> Time {
    Time(Timestamp::now())
}

/// When to look again.
#[derive(Debug, Clone, Copy)]
enum Wait {
    ForChange,
    ToRetry(Duration),
}

struct Worker {
    client: Client,
    rivals: rival::Watch,
    retry: Duration,
    /// What went wrong last, so that it is logged once.
    trouble: Option<String>,
    /// Pools that cannot be understood, so that each is logged once.
    invalid: BTreeMap<facts::PoolKey, String>,
}

impl Worker {
    fn new(client: Client) -> Self {
        Self {
            client,
            rivals: rival::Watch::default(),
            retry: RETRY_FIRST,
            trouble: None,
            invalid: BTreeMap::new(),
        }
    }

    /// Looks, decides, writes, reports.
    async fn pass(&mut self) -> Result<Wait, Error> {
        let facts = match observe::observe(&self.client).await {
            Ok(facts) => facts,
            Err(error) => return Ok(self.failed(&error.to_string())),
        };
        if let Some(evidence) = self.rivals.look(&facts.claims) {
            return Err(Error::Rival(evidence));
        }
        let decision = decide::decide(&facts);
        self.note_invalid(&decision);
        let reports = report::reports(&facts, &decision, &now());
        let taken = self.steps(decision.steps).await;
        let reported = self.reports(reports).await;
        Ok(match taken.or(reported) {
            Some(error) => self.failed(&error.to_string()),
            None => self.succeeded(),
        })
    }

    /// Takes all steps, some at a time: each stands for itself, and one that fails does not hold up
    /// the others.
    async fn steps(&self, steps: Vec<Step>) -> Option<act::Failed> {
        let taken = steps.into_iter().map(|step| {
            let client = self.client.clone();
            async move {
                match act::perform(&client, &step).await? {
                    Outcome::Done => log_step(&step),
                    Outcome::Outdated => debug!(?step, "outdated, decided again"),
                }
                Ok(())
            }
        });
        first_failure(taken).await
    }

    async fn reports(&self, reports: Vec<Report>) -> Option<act::Failed> {
        let written = reports.into_iter().map(|report| {
            let client = self.client.clone();
            async move {
                act::write_status(&client, &report).await?;
                if let Some((reason, why)) = report.waits {
                    let claim = act::name_of(&report.target);
                    info!(claim, reason = reason.as_str(), why, "waits");
                }
                Ok(())
            }
        });
        first_failure(written).await
    }

    fn note_invalid(&mut self, decision: &Decision) {
        let invalid: BTreeMap<_, _> =
            decision.invalid.iter().map(|(pool, why)| (pool.clone(), why.to_string())).collect();
        for (pool, why) in &invalid {
            if self.invalid.get(pool) != Some(why) {
                warn!(%pool, why, "pool cannot be used");
            }
        }
        self.invalid = invalid;
    }

    fn failed(&mut self, error: &str) -> Wait {
        if self.trouble.as_deref() != Some(error) {
            warn!(error, "embedded IPAM is held up");
            self.trouble = Some(error.to_owned());
        }
        let wait = self.retry;
        self.retry = (self.retry * 2).min(RETRY_LAST);
        Wait::ToRetry(wait)
    }

    fn succeeded(&mut self) -> Wait {
        if self.trouble.take().is_some() {
            info!("embedded IPAM goes on");
        }
        self.retry = RETRY_FIRST;
        Wait::ForChange
    }
}

/// Lets all of them end, and keeps the first failure.
async fn first_failure<F>(writes: impl Iterator<Item = F>) -> Option<act::Failed>
where
    F: Future<Output = Result<(), act::Failed>>,
{
    let outcomes: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
    outcomes.into_iter().find_map(Result::err)
}

fn log_step(step: &Step) {
    match step {
        Step::CreateAddress(address) => {
            let (namespace, name) = facts::key(&address.metadata);
            info!(namespace, name, address = address.spec.address, "address handed out");
        }
        Step::DeleteAddress { address: (namespace, name), .. } => {
            info!(namespace, name, "address released");
        }
        Step::SetFinalizers { .. } | Step::CompleteAddress { .. } => debug!(?step, "done"),
    }
}

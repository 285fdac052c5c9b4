//! Leader election by a Lease, by the rules of Kubernetes' own clients, so that a capmox of either
//! make waits for the other.
//!
//! Every write carries the version of what was read: of two that take a lease at once, one is
//! refused. A holder that cannot renew in time gives up before others may take over.

mod record;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use record::{Holder, Sighting};

use crate::pve::Fence;

/// Name of the Lease, the same as in capmox v0.7.
pub(super) const NAME: &str = "controller-leader-elect-capmox";

/// How long a lease lasts and how often it is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Others take over a lease that was not renewed for this long. Whole seconds.
    pub duration: Duration,
    /// The holder gives up when it could not renew for this long.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry_period: Duration,
}

impl Default for LeaseTimes {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl LeaseTimes {
    /// # Errors
    ///
    /// A sentence, when two processes could believe to hold the lease.
    pub fn check(&self) -> Result<(), String> {
        if self.duration < Duration::from_secs(1) {
            Err("--leader-elect-lease-duration must be at least 1s".to_owned())
        } else if self.duration.as_secs() <= self.renew_deadline.as_secs() {
            Err("--leader-elect-lease-duration must be longer, in whole seconds, than \
                 --leader-elect-renew-deadline"
                .to_owned())
        } else if self.renew_deadline <= self.retry_period {
            Err("--leader-elect-renew-deadline must be longer than --leader-elect-retry-period"
                .to_owned())
        } else {
            Ok(())
        }
    }
}

/// How an attempt to take or renew ended.
enum Attempt {
    Held,
    Other(String),
}

/// Takes part in one election.
pub(super) struct Elector {
    leases: Api<Lease>,
    name: String,
    us: String,
    times: LeaseTimes,
    /// Open while the lease is held for certain.
    fence: Fence,
    /// The Lease as it was last read or written.
    known: Option<Lease>,
    seen: Option<Sighting>,
}

/// Why a held lease is held no more.
pub(super) enum End {
    /// The process is to end; the lease is still held.
    Asked,
    /// Somebody else may work now.
    Lost(String),
}

impl Elector {
    pub(super) fn new(
        leases: Api<Lease>,
        name: &str,
        us: String,
        times: LeaseTimes,
        fence: Fence,
    ) -> Self {
        Self { leases, name: name.to_owned(), us, times, fence, known: None, seen: None }
    }

    /// Waits until the lease is ours; false when `shutdown` came first.
    pub(super) async fn acquire(&mut self, shutdown: &CancellationToken) -> bool {
        let mut told: Option<String> = None;
        loop {
            let sent = Instant::now();
            let tell = match shutdown.run_until_cancelled(self.try_once()).await {
                None => return false,
                Some(Ok(Attempt::Held)) => {
                    self.fence.open_until(sent + self.times.renew_deadline);
                    info!(lease = self.name, identity = self.us, "leading");
                    return true;
                }
                Some(Ok(Attempt::Other(holder))) => format!("it is held by {holder}"),
                Some(Err(why)) => why,
            };
            if told.as_ref() != Some(&tell) {
                info!(lease = self.name, why = tell, "waiting for the lease");
                told = Some(tell);
            }
            if timeout(self.times.retry_period, shutdown.cancelled()).await.is_ok() {
                return false;
            }
        }
    }

    /// Renews the lease until it is lost or `shutdown` comes.
    pub(super) async fn keep(&mut self, shutdown: &CancellationToken) -> End {
        let mut renewed = Instant::now();
        loop {
            if timeout(self.times.retry_period, shutdown.cancelled()).await.is_ok() {
                return End::Asked;
            }
            // What counts is when the request was sent: others may have read the record since.
            let sent = Instant::now();
            let until = renewed + self.times.renew_deadline;
            match timeout_at(until, self.try_once()).await {
                Ok(Ok(Attempt::Held)) => {
                    renewed = sent;
                    self.fence.open_until(sent + self.times.renew_deadline);
                }
                Ok(Ok(Attempt::Other(holder))) => return End::Lost(format!("{holder} holds it")),
                Ok(Err(why)) => warn!(lease = self.name, why, "the lease was not renewed"),
                Err(_) => {
                    let limit = self.times.renew_deadline;
                    return End::Lost(format!("it could not be renewed within {limit:?}"));
                }
            }
        }
    }

    /// Gives the lease away, so that the next one need not wait. Only once nothing works any more.
    pub(super) async fn release(mut self) {
        let Some(mut lease) = self.known.take() else { return };
        let Some(spec) = lease.spec.as_ref() else { return };
        if spec.holder_identity.as_deref() != Some(self.us.as_str()) {
            return;
        }
        lease.spec = Some(record::released(spec, now()));
        let how = PostParams::default();
        let put = self.leases.replace(&self.name, &how, &lease);
        match timeout(self.times.retry_period, put).await {
            Ok(Ok(_)) => debug!(lease = self.name, "released"),
            Ok(Err(error)) => debug!(lease = self.name, %error, "not released; it runs out"),
            Err(_) => debug!(lease = self.name, "not released in time; it runs out"),
        }
    }

    /// One attempt, which takes at most half of the time in which two of them must succeed.
    async fn try_once(&mut self) -> Result<Attempt, String> {
        match timeout(self.times.renew_deadline / 2, self.attempt()).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err("the API server does not answer".to_owned()),
        }
    }

    async fn attempt(&mut self) -> Result<Attempt, kube::Error> {
        // Who holds it writes at once; a conflict then says that somebody else wrote.
        let ours = self.known.take().filter(|lease| {
            lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref())
                == Some(self.us.as_str())
        });
        if let Some(lease) = ours
            && self.write(lease).await?
        {
            return Ok(Attempt::Held);
        }
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let created = self.create().await?;
            return Ok(if created { Attempt::Held } else { other("somebody else") });
        };
        let now = Instant::now();
        let spec = lease.spec.clone().unwrap_or_default();
        let seen = Sighting::update(self.seen.take(), spec, now);
        let holder = seen.holder(&self.us, now);
        self.seen = Some(seen);
        if let Holder::Other(holder) = holder {
            return Ok(Attempt::Other(holder));
        }
        Ok(if self.write(lease).await? { Attempt::Held } else { other("somebody else") })
    }

    /// False when somebody else was faster.
    async fn write(&mut self, mut lease: Lease) -> Result<bool, kube::Error> {
        lease.spec = Some(record::taken(lease.spec.as_ref(), &self.us, &self.times, now()));
        let put = self.leases.replace(&self.name, &PostParams::default(), &lease).await;
        self.keep_if_written(put)
    }

    async fn create(&mut self) -> Result<bool, kube::Error> {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: Some(record::taken(None, &self.us, &self.times, now())),
        };
        let made = self.leases.create(&PostParams::default(), &lease).await;
        self.keep_if_written(made)
    }

    fn keep_if_written(&mut self, result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
        match result {
            Ok(lease) => {
                self.known = Some(lease);
                Ok(true)
            }
            // 404: it was deleted in between; the next attempt makes a new one.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn other(name: &str) -> Attempt {
    Attempt::Other(name.to_owned())
}

#[expect(clippy::disallowed_methods, reason = "the record holds the time for people to read")]
fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

#[cfg(test)]
mod tests;

//! The server in front of the model: sockets, clock, faults, hooks, journal, guests.

mod admin;
mod answer;
mod body;
mod call;
mod connection;
mod driver;
mod multipart;
mod shared;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) use shared::Shared;

use crate::config::{Release, Timings};
use crate::fault::{Action, FaultRule, Faults};
use crate::guest::Guest;
use crate::hook::Hook;
use crate::journal::Journal;
use crate::model::{Change, Model, Violation};
use crate::seed::Seed;

/// How a simulator is started.
#[derive(Clone)]
pub struct Config {
    /// What exists before the first call.
    pub seed: Seed,
    /// The release to be.
    pub release: Release,
    /// Already scaled.
    pub timings: Timings,
    /// HTTPS with a certificate of its own instead of plain HTTP.
    pub tls: bool,
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Plays the guests; the built-in one if none.
    pub guest: Option<Arc<dyn Guest>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("release", &self.release)
            .field("tls", &self.tls)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}

impl Default for Config {
    /// [`Seed::three_nodes`], 9.1, fifty times as fast as life, plain HTTP on a free port.
    fn default() -> Self {
        Self {
            seed: Seed::three_nodes(),
            release: Release::default(),
            timings: Timings::default().scaled(0.02),
            tls: false,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            guest: None,
        }
    }
}

impl Config {
    /// With another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: Seed) -> Self {
        self.seed = seed;
        self
    }

    /// As another release.
    #[must_use]
    pub fn with_release(mut self, release: Release) -> Self {
        self.release = release;
        self
    }

    /// Life's timings times `factor`: 1 is a real cluster, 0.02 fifty times as fast.
    #[must_use]
    pub fn with_time_scale(mut self, factor: f64) -> Self {
        self.timings = Timings::default().scaled(factor);
        self
    }

    /// HTTPS.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// With somebody who plays the guests.
    #[must_use]
    pub fn with_guest(mut self, guest: Arc<dyn Guest>) -> Self {
        self.guest = Some(guest);
        self
    }
}

/// An API token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// `user@realm!name`.
    pub id: String,
    /// The secret.
    pub secret: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A running simulator. When it goes, rules that were broken and not taken fail the test.
pub struct Fake {
    shared: Arc<Shared>,
    address: SocketAddr,
    certificate: Option<tls::Certificate>,
    token: Token,
    tasks: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fake").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl Fake {
    /// Starts listening.
    ///
    /// # Errors
    /// If the address cannot be bound or no certificate can be made.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.listen).await?;
        let address = listener.local_addr()?;
        let certificate = config.tls.then(tls::Certificate::new).transpose()?;
        let token = config.seed.tokens.first();
        let token = Token {
            id: token.map(|token| token.id.clone()).unwrap_or_default(),
            secret: token.map(|token| token.secret.clone()).unwrap_or_default(),
        };
        let shared = Arc::new(Shared::new(&config));
        let acceptor = certificate.as_ref().map(tls::Certificate::acceptor).transpose()?;
        let tasks = vec![
            tokio::spawn(connection::accept(Arc::clone(&shared), listener, acceptor)),
            tokio::spawn(driver::drive(Arc::downgrade(&shared), Arc::clone(&shared.wake))),
        ];
        Ok(Self { shared, address, certificate, token, tasks })
    }

    /// `http://127.0.0.1:PORT`, or `https`.
    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The first token of the seed.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// SHA-256 of the certificate.
    pub fn fingerprint(&self) -> Option<[u8; 32]> {
        self.certificate.as_ref().map(tls::Certificate::fingerprint)
    }

    /// The certificate as PEM, to be trusted.
    pub fn certificate_pem(&self) -> Option<&str> {
        self.certificate.as_ref().map(tls::Certificate::pem)
    }

    /// The model, advanced to the present and locked: keep it for a statement, not across an await.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.shared.wake.notify_one();
        self.shared.present()
    }

    /// The calls so far.
    pub fn journal(&self) -> Journal {
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The fault script, locked.
    pub fn faults(&self) -> MutexGuard<'_, Faults> {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next call of that method and path pattern goes wrong like that.
    pub fn fail_next(&self, method: &str, path: &str, action: Action) {
        self.faults().add(FaultRule::once(method, path, action));
    }

    /// Something happens to the cluster, now.
    pub fn change(&self, change: Change) {
        self.model().change(change);
    }

    /// Lets time pass at once.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.skip(by);
        drop(self.model());
    }

    /// Code to be called before and after each call's effect; none to stop that.
    pub fn set_hook(&self, hook: Option<Hook>) {
        *self.shared.hook.lock().unwrap_or_else(PoisonError::into_inner) = hook;
    }

    /// The rules broken so far.
    pub fn check(&self) -> Vec<Violation> {
        self.model().violations().to_vec()
    }

    /// The rules broken so far, taken: they fail nothing any more.
    pub fn take_violations(&self) -> Vec<Violation> {
        self.model().take_violations()
    }

    /// Writes ISO files without a VM down as violations, and gives all violations.
    pub fn check_no_leaks(&self) -> Vec<Violation> {
        let mut model = self.model();
        model.check_no_leaks();
        model.violations().to_vec()
    }

    /// Closes every connection, keep-alive or not, as a restart of pveproxy does.
    pub fn close_connections(&self) {
        self.shared.close.send_modify(|generation| *generation += 1);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.close_connections();
        let violations = self.check_no_leaks();
        if !violations.is_empty() && !std::thread::panicking() {
            let texts =
                violations.iter().map(|broken| format!("{:?}: {}", broken.rule, broken.text));
            let texts: Vec<String> = texts.collect();
            #[expect(clippy::panic, reason = "what fails a test is a panic")]
            {
                panic!("rules were broken at the simulator:\n{}", texts.join("\n"));
            }
        }
    }
}

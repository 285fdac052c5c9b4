//! The two simulators behind one face.

use std::time::Duration;

use capmox::ids::NodeName;
use capmox::pve::{Auth, Client, ClientConfig, Limits, TaskExit, TaskStatus, Tls, Upid, token};
use pve_fake::peer::Fakepve;
use pve_fake::{Config, Fake, Release, Seed};
use tokio::time::Instant;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A simulator.
pub(crate) enum Peer {
    /// `pve-fake`.
    Ours(Fake),
    /// `fakepve`, a process.
    Theirs(Fakepve, Seed),
}

impl Peer {
    pub(crate) async fn ours() -> Self {
        Self::ours_as(Release::default()).await
    }

    pub(crate) async fn ours_as(release: Release) -> Self {
        Self::Ours(Fake::start(Config::default().with_release(release)).await.unwrap())
    }

    pub(crate) async fn theirs() -> Self {
        let seed = Seed::three_nodes();
        let start = move || (Fakepve::start(&seed, 0.0).unwrap(), seed);
        let (process, seed) = tokio::task::spawn_blocking(start).await.unwrap();
        Self::Theirs(process, seed)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Ours(fake) => fake.url(),
            Self::Theirs(process, _) => process.url().to_owned(),
        }
    }

    pub(crate) fn tls(&self) -> Tls {
        match self {
            Self::Ours(_) => Tls::System,
            Self::Theirs(process, _) => Tls::Bundle(process.certificate_pem().into()),
        }
    }

    pub(crate) fn token(&self) -> Auth {
        match self {
            Self::Ours(fake) => token(&fake.token().id, &fake.token().secret).unwrap(),
            Self::Theirs(_, seed) => token(&seed.tokens[0].id, &seed.tokens[0].secret).unwrap(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_as(self.token())
    }

    pub(crate) fn client_as(&self, auth: Auth) -> Client {
        client(&self.url(), auth, self.tls(), Limits::default())
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
}

pub(crate) fn client(url: &str, auth: Auth, tls: Tls, limits: Limits) -> Client {
    Client::new(ClientConfig { base_url: url.parse().unwrap(), auth, tls, limits }).unwrap()
}

pub(crate) fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

/// The end of a task.
pub(crate) async fn end_of(client: &Client, upid: &Upid) -> TaskExit {
    let deadline = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    loop {
        ticks.tick().await;
        if let TaskStatus::Stopped { exit } = client.task_status(upid).await.unwrap() {
            return exit;
        }
        assert!(Instant::now() < deadline, "{upid} does not end");
    }
}

/// Waits for a task that must do what it is for.
pub(crate) async fn done(client: &Client, upid: impl Into<Option<Upid>>) {
    let upid = upid.into().expect("a task");
    let exit = end_of(client, &upid).await;
    assert!(exit.is_success(), "{upid}: {exit:?}");
}

/// One contract, two simulators.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod ours {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&$crate::peer::Peer::ours().await).await;
            })*
        }
        mod theirs {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&$crate::peer::Peer::theirs().await).await;
            })*
        }
    };
}
pub(crate) use on_both;

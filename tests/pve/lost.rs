//! An endpoint that is lost, asked by many through what they share of it: one at a time finds out
//! whether it is back, and the others do not knock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use capmox::hypervisor::{Admission, CloneLimits, Endpoint, Ledger};
use capmox::pve::{Client, ClientConfig, Limits, Tls, token};
use futures::future::join_all;
use pve_fake::{Action, Config, Fake, FaultRule};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout};
use tokio_util::sync::CancellationToken;

/// How many want something, and how many of them may ask at once.
const MANY: usize = 100;
const AT_ONCE: usize = 10;

fn endpoint(fake: &Fake) -> Arc<Endpoint> {
    let auth = token(&fake.token().id, &fake.token().secret).unwrap();
    let base_url = fake.url().parse().unwrap();
    let limits = Limits::default();
    let client = Client::new(ClientConfig { base_url, auth, tls: Tls::System, limits }).unwrap();
    let (wakes, _) = mpsc::unbounded_channel();
    let ledger = Arc::new(std::sync::Mutex::new(Ledger::default()));
    Endpoint::start(client, ledger, CloneLimits::default(), wakes, CancellationToken::new())
}

/// As a machine does: who finds out does so by a reading. Whether it gets on.
async fn knock(endpoint: &Arc<Endpoint>) -> bool {
    match endpoint.admit(AT_ONCE).await {
        Admission::Granted(leave) if leave.is_probe => endpoint.view(Instant::now()).await.is_ok(),
        Admission::Granted(_) => true,
        Admission::Lost(_) | Admission::Full => false,
    }
}

async fn all_knock(endpoint: &Arc<Endpoint>) -> usize {
    join_all((0..MANY).map(|_| knock(endpoint))).await.into_iter().filter(|on| *on).count()
}

/// Knocks on and on, until it comes to a reading.
async fn until_asked<F: Future<Output = ()>>(fake: &Fake, mut knocks: impl FnMut() -> F) {
    let readings = || fake.journal().count("GET", "/cluster/resources");
    let before = readings();
    let asking = async {
        let mut pace = interval(Duration::from_millis(50));
        while readings() == before {
            pace.tick().await;
            knocks().await;
        }
    };
    timeout(Duration::from_secs(30), asking).await.expect("the pause ends");
}

#[tokio::test]
async fn many_do_not_knock_at_once_at_an_endpoint_that_is_down_nor_when_it_is_back() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let endpoint = endpoint(&fake);
    let readings = || fake.journal().count("GET", "/cluster/resources");
    let down = FaultRule::always("GET", "/**", Action::DropBefore);
    fake.faults().add(down);
    endpoint.view(Instant::now()).await.unwrap_err();
    let lost = readings();
    assert_eq!(lost, 3, "a read and its repetitions");

    assert_eq!(all_knock(&endpoint).await, 0);
    assert_eq!(readings(), lost, "what just failed stands for all");
    until_asked(&fake, || async { assert_eq!(all_knock(&endpoint).await, 0) }).await;
    assert!(readings() <= lost + 3, "one finds out");

    fake.faults().clear();
    let before = readings();
    let in_again = AtomicUsize::new(0);
    until_asked(&fake, || async { in_again.store(all_knock(&endpoint).await, Relaxed) }).await;
    assert!(in_again.into_inner() >= 1, "one finds out, and whoever comes after it gets in");
    assert_eq!(readings(), before + 1);
    assert_eq!(all_knock(&endpoint).await, MANY, "in turns");
    assert_eq!(readings(), before + 1, "nobody has to find out any more");
}

#[tokio::test]
async fn one_asks_for_the_version_of_an_endpoint_that_is_down_and_of_one_that_is_back() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let endpoint = endpoint(&fake);
    let asked = || fake.journal().count("GET", "/version");
    fake.faults().add(FaultRule::always("GET", "/**", Action::DropBefore));
    let all = || async {
        let all = join_all((0..MANY).map(|_| endpoint.version())).await;
        all.into_iter().flatten().count()
    };
    assert_eq!(all().await, 0);
    assert_eq!(asked(), 3, "a read and its repetitions");
    fake.faults().clear();
    assert!(all().await >= 1);
    assert_eq!(all().await, MANY, "from memory");
    assert_eq!(asked(), 4);
}

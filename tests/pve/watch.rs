//! Whose VMs an endpoint watches, and what becomes of that when its credentials are replaced.

use std::sync::{Arc, Mutex};

use capmox::hypervisor::{CloneLimits, Endpoint, Ledger, ObjectKey, Wakes};
use capmox::pve::{Client, ClientConfig, Limits, Tls, token};
use pve_fake::{Change, Config, Fake};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

fn endpoint(fake: &Fake, ledger: &Arc<Mutex<Ledger>>, wakes: &Wakes) -> Arc<Endpoint> {
    let auth = token(&fake.token().id, &fake.token().secret).unwrap();
    let base_url = fake.url().parse().unwrap();
    let limits = Limits::default();
    let client = Client::new(ClientConfig { base_url, auth, tls: Tls::System, limits }).unwrap();
    let (ledger, wakes) = (Arc::clone(ledger), wakes.clone());
    Endpoint::start(client, ledger, CloneLimits::default(), wakes, CancellationToken::new())
}

#[tokio::test]
async fn a_loss_is_noticed_by_the_endpoint_that_took_over() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let ledger = Arc::default();
    let (wakes, mut woken) = mpsc::unbounded_channel();
    let key = |name: &str| ObjectKey { namespace: "lab".to_owned(), name: name.to_owned() };
    let before = endpoint(&fake, &ledger, &wakes);
    before.watch("9000".parse().unwrap(), key("lost"));
    before.view(Instant::now()).await.unwrap();
    assert!(woken.try_recv().is_err(), "nothing happened yet");

    // The machine does not come by meanwhile.
    let after = endpoint(&fake, &ledger, &wakes);
    assert!(after.is_same_proxmox(&before.shared_ledger()));
    after.take_over(before.watch_list());
    fake.change(Change::VmGone { vmid: 9000 });
    after.view(Instant::now()).await.unwrap();
    assert_eq!(woken.try_recv().ok(), Some(key("lost")));
}

//! A guest of one's own behind the agent.

use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use pve_fake::{Boot, CloudInit, Config, Guest, GuestHandle};
use serde_json::json;

use crate::client::{Client, until};

#[derive(Default)]
struct Recorder {
    boots: Mutex<Vec<(Boot, GuestHandle)>>,
    stops: Mutex<Vec<u32>>,
}

impl Guest for Recorder {
    fn started(&self, boot: Boot, handle: GuestHandle) -> BoxFuture<'_, ()> {
        handle.agent(true);
        handle.hostname(&boot.name);
        handle.cloud_init(CloudInit::Running);
        self.boots.lock().unwrap().push((boot, handle));
        async {}.boxed()
    }

    fn stopped(&self, vmid: u32) -> BoxFuture<'_, ()> {
        self.stops.lock().unwrap().push(vmid);
        async {}.boxed()
    }
}

#[tokio::test]
async fn a_guest_is_told_of_start_and_stop_and_tells_of_itself() {
    let guest = Arc::new(Recorder::default());
    let client = Client::with(Config::default().with_guest(Arc::clone(&guest) as _)).await;
    let vm = client.cloned(101).await;
    let answer = client.post(&format!("{vm}/status/start"), &[]).await;
    assert_eq!(client.exit(&answer).await, "OK");
    until("the guest is told", || guest.boots.lock().unwrap().len() == 1).await;
    let (boot, handle) = guest.boots.lock().unwrap()[0].clone();
    assert_eq!((boot.vmid, boot.name.as_str(), boot.nics.len()), (101, "m101", 1));
    let name = client.get(&format!("{vm}/agent/get-host-name")).await;
    assert_eq!(name.body["data"]["result"], json!({ "host-name": "m101" }));
    assert!(handle.is_running());
    handle.power_off();
    until("the guest is told", || *guest.stops.lock().unwrap() == [101]).await;
    assert!(!handle.is_running());
    handle.agent(true);
    assert_eq!(client.get(&format!("{vm}/agent/get-osinfo")).await.reason, "VM 101 is not running");
    let answer = client.post(&format!("{vm}/status/start"), &[]).await;
    assert_eq!(client.exit(&answer).await, "OK");
    until("the second run is told", || guest.boots.lock().unwrap().len() == 2).await;
    let request = client.request(reqwest::Method::DELETE, &vm);
    let refused = client.send(request).await.unwrap();
    assert_eq!(refused.reason, "VM 101 is running - destroy failed");
    client.fake.take_violations();
}

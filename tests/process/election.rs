//! Two of them, of which one works.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use testbed::ManagerProcess;

use crate::stage::{PATIENCE, end_of, ready, says, world};

const NAME: &str = "controller-leader-elect-capmox";

async fn contender(namespace: &str) -> ManagerProcess {
    let namespace = format!("--leader-election-namespace={namespace}");
    let times = [
        "--leader-elect-lease-duration=3s",
        "--leader-elect-renew-deadline=2s",
        "--leader-elect-retry-period=200ms",
    ];
    let mut args = vec!["--leader-elect", namespace.as_str()];
    args.extend(times);
    ready(&[], &args).await
}

async fn leads(manager: &ManagerProcess) -> bool {
    manager.metrics().await.unwrap().contains("capmox_leader 1")
}

#[tokio::test]
async fn the_lease_goes_to_the_other_at_once_when_its_holder_ends() {
    let namespace = world().await.namespace("election").await.unwrap();
    let mut first = contender(&namespace).await;
    says(&mut first, &["leading"]).await;
    let mut second = contender(&namespace).await;
    says(&mut second, &["waiting for the lease", "it is held by"]).await;
    assert!(leads(&first).await, "{}", first.log_tail(20));
    assert!(!leads(&second).await, "{}", second.log_tail(20));

    assert_eq!(first.stop().await.unwrap().code(), Some(0));
    says(&mut second, &["leading"]).await;
    let leases: Api<Lease> = Api::namespaced(world().await.client().await.unwrap(), &namespace);
    let spec = leases.get(NAME).await.unwrap().spec.unwrap();
    assert_eq!(spec.lease_transitions, Some(1));

    assert_eq!(second.stop().await.unwrap().code(), Some(0));
    let spec = leases.get(NAME).await.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(""), "given away");
}

#[tokio::test]
async fn a_holder_that_stalls_is_replaced_and_ends_when_it_wakes() {
    let namespace = world().await.namespace("election").await.unwrap();
    let mut first = contender(&namespace).await;
    says(&mut first, &["leading"]).await;
    let mut second = contender(&namespace).await;
    first.freeze();
    says(&mut second, &["leading"]).await;
    first.thaw();
    assert_eq!(end_of(&mut first).await, Some(1));
    let log = first.log_tail(5);
    assert!(log.contains("is lost"), "{log}");
    assert!(leads(&second).await);
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_holder_whose_lease_was_taken_ends() {
    let namespace = world().await.namespace("election").await.unwrap();
    let mut manager = contender(&namespace).await;
    says(&mut manager, &["leading"]).await;
    let leases: Api<Lease> = Api::namespaced(world().await.client().await.unwrap(), &namespace);
    let thief = serde_json::json!({"spec": {"holderIdentity": "thief"}});
    let how = kube::api::PatchParams::default();
    tokio::time::timeout(PATIENCE, leases.patch(NAME, &how, &kube::api::Patch::Merge(thief)))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(end_of(&mut manager).await, Some(1));
    assert!(manager.log_tail(5).contains("thief holds it"), "{}", manager.log_tail(5));
}

//! Every read, on both simulators and as every release.

use capmox::pve::{Auth, Resource, TaskStatus};
use pve_fake::{Change, Release};

use crate::peer::{Peer, done, node, on_both};

on_both!(the_cluster_is_read_in_full);

async fn the_cluster_is_read_in_full(peer: &Peer) {
    let (client, pve1) = (peer.client(), node("pve1"));
    assert!(client.version().await.unwrap().major().is_some_and(|major| major >= 7));
    let nodes = client.nodes().await.unwrap();
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| node.status.as_deref() == Some("online")));
    let status = client.node_status(&pve1).await.unwrap();
    assert!(status.memory.total.is_some());

    let resources = client.cluster_resources().await.unwrap();
    let templates = resources.iter().filter(
        |resource| matches!(resource, Resource::Vm(guest) if guest.template && guest.node == pve1),
    );
    assert_eq!(templates.count(), 2);
    let listed = |wanted: fn(&Resource) -> bool| resources.iter().filter(|one| wanted(one)).count();
    assert_eq!(listed(|resource| matches!(resource, Resource::Node(_))), 3);
    assert!(listed(|resource| matches!(resource, Resource::Storage(_))) > 0);
    let guests = client.cluster_guests().await.unwrap();
    assert_eq!(guests.len(), 2);
    assert_eq!(client.node_vms(&pve1).await.unwrap().len(), 2);
    assert!(client.node_vms(&node("pve2")).await.unwrap().is_empty());
    assert!(client.node_containers(&pve1).await.unwrap().is_empty());

    let members = client.cluster_status().await.unwrap();
    let nodes = members.iter().filter(|entry| entry.kind.as_deref() == Some("node"));
    assert_eq!(nodes.count(), 3);
    assert!(members.iter().any(|entry| entry.quorate == Some(true)));

    let storages = client.storages(&pve1).await.unwrap();
    let takes = |content| storages.iter().filter(|storage| storage.takes(content)).count();
    assert_eq!((takes("iso"), takes("images")), (1, 2));

    let template = "9000".parse().unwrap();
    let config = client.vm_config(&pve1, template).await.unwrap();
    // The other one leaves this out of the configuration.
    assert!(config.is_template() || !peer.is_ours());
    assert_eq!(config.net_devices().len(), 1);
    assert!(client.vm_status(&pve1, template).await.unwrap().template);

    let held = client.permissions(None).await.unwrap();
    assert!(held.by_path().values().any(|privileges| privileges.contains_key("VM.Clone")));
    let held = client.permissions(Some("/vms")).await.unwrap();
    // The other one answers for all paths whatever is asked.
    assert!(held.has("/vms", "VM.Clone") || !peer.is_ours(), "{held:?}");
}

#[tokio::test]
async fn tasks_are_listed_and_have_a_log() {
    let peer = Peer::ours().await;
    let (client, pve1) = (peer.client(), node("pve1"));
    let options = capmox::pve::CloneOptions::new("150".parse().unwrap());
    let task = client.clone_vm(&pve1, "9000".parse().unwrap(), &options).await.unwrap().unwrap();
    assert_eq!(client.task_status(&task).await.unwrap(), TaskStatus::Running);
    done(&client, task.clone()).await;
    let tasks = client.cluster_tasks().await.unwrap();
    let listed = tasks.iter().find(|listed| listed.upid == task).unwrap();
    assert_eq!(listed.status.as_deref(), Some("OK"));
    assert!(listed.starttime.is_some() && listed.endtime.is_some());
    let log = client.task_log(&task, 0).await.unwrap();
    assert!(log.iter().any(|line| line.text.as_deref() == Some("TASK OK")), "{log:?}");
    let all = capmox::pve::DestroyOptions::default();
    done(&client, client.destroy_vm(&pve1, options.newid, all).await.unwrap()).await;
}

#[tokio::test]
async fn numbers_that_come_as_texts_are_read_all_the_same() {
    let peer = Peer::ours().await;
    let Peer::Ours(fake) = &peer else { panic!("ours") };
    fake.change(Change::TextNumbers { on: true });
    the_cluster_is_read_in_full(&peer).await;
}

#[tokio::test]
async fn older_releases_are_read_all_the_same() {
    for release in [Release::V7, Release::V8] {
        let peer = Peer::ours_as(release).await;
        the_cluster_is_read_in_full(&peer).await;
    }
}

#[tokio::test]
async fn a_ticket_opens_what_a_token_opens() {
    for peer in [Peer::ours().await, Peer::theirs().await] {
        let auth = Auth::Ticket { user: "root@pam".to_owned(), password: "secret".into() };
        let client = peer.client_as(auth);
        assert_eq!(client.nodes().await.unwrap().len(), 3);
        let task = client.start_vm(&node("pve1"), "9000".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(task.user(), "root@pam");
        if let Peer::Ours(fake) = &peer {
            assert_eq!(fake.journal().count("POST", "access/ticket"), 1);
            fake.take_violations();
        }
    }
}

//! What is refused, and that it is understood alike from both simulators.

use std::collections::BTreeMap;
use std::time::Duration;

use capmox::fault::Class;
use capmox::ids::VmId;
use capmox::pve::{
    Auth, Cause, CloneOptions, ConfigUpdate, DestroyOptions, ErrorKind, TaskExit, Upid, token,
};

use crate::peer::{Peer, done, end_of, node, on_both};

on_both!(
    a_missing_vm_is_missing_everywhere,
    a_taken_vmid_is_told_from_a_free_one,
    a_bad_parameter_is_named,
    wrong_credentials_are_denied,
    a_stale_digest_is_a_conflict,
    what_a_vm_is_not_ready_for_is_told_by_the_task,
    an_agent_that_is_not_there_is_down,
    nodes_and_tasks_that_do_not_exist_are_told,
);

fn missing() -> VmId {
    "777".parse().unwrap()
}

fn update(set: &[(&str, &str)]) -> ConfigUpdate {
    let set = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ConfigUpdate { set: set.collect::<BTreeMap<_, _>>(), ..ConfigUpdate::default() }
}

async fn a_missing_vm_is_missing_everywhere(peer: &Peer) {
    let (client, pve1, id) = (peer.client(), node("pve1"), missing());
    let errors = [
        client.vm_config(&pve1, id).await.unwrap_err(),
        client.vm_status(&pve1, id).await.unwrap_err(),
        client.update_vm_config(&pve1, id, &update(&[("cores", "1")])).await.unwrap_err(),
        client.clone_vm(&pve1, id, &CloneOptions::new("778".parse().unwrap())).await.unwrap_err(),
        client.resume_vm(&pve1, id).await.unwrap_err(),
        client.shutdown_vm(&pve1, id, Duration::from_mins(1)).await.unwrap_err(),
        client.destroy_vm(&pve1, id, DestroyOptions::default()).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_vm_missing(), "{error}");
        assert_eq!((error.class(), error.outcome_unknown()), (Class::Blocked, false), "{error}");
    }
    let task = client.start_vm(&pve1, id).await;
    match task {
        Ok(task) => {
            assert_eq!(end_of(&client, &task.unwrap()).await.cause(), Some(Cause::VmMissing));
        }
        Err(error) => assert!(error.is_vm_missing(), "{error}"),
    }
    drop_violations(peer);
}

/// Our simulator notes writes to what does not exist; here they are meant.
fn drop_violations(peer: &Peer) {
    if let Peer::Ours(fake) = peer {
        fake.take_violations();
    }
}

async fn a_taken_vmid_is_told_from_a_free_one(peer: &Peer) {
    let (client, pve1) = (peer.client(), node("pve1"));
    let taken = "9001".parse().unwrap();
    assert!(!client.vmid_is_free(taken).await.unwrap());
    assert!(client.vmid_is_free(missing()).await.unwrap());
    let source = "9000".parse().unwrap();
    let error = client.clone_vm(&pve1, source, &CloneOptions::new(taken)).await.unwrap_err();
    assert!(error.is_vmid_taken(), "{error}");
    assert_eq!(error.class(), Class::Conflict);
    drop_violations(peer);
}

async fn a_bad_parameter_is_named(peer: &Peer) {
    let (client, pve1) = (peer.client(), node("pve1"));
    let id = "9000".parse().unwrap();
    let error = client.update_vm_config(&pve1, id, &update(&[("cores", "many")])).await;
    let error = error.unwrap_err();
    let ErrorKind::BadRequest { errors } = error.kind() else { panic!("{error}") };
    assert!(errors.contains_key("cores"), "{error}");
    assert_eq!((error.status(), error.class()), (Some(400), Class::Invalid));
    assert!(error.message().contains("cores: "), "{error}");
}

async fn wrong_credentials_are_denied(peer: &Peer) {
    let wrong = token("capmox@pve!capi", "00000000-0000-0000-0000-000000000000").unwrap();
    let error = peer.client_as(wrong).nodes().await.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::Unauthorized, Class::Denied));
    let auth = Auth::Ticket { user: "root@pam".to_owned(), password: "nonsense".into() };
    let error = peer.client_as(auth).nodes().await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (&ErrorKind::Unauthorized, "/access/ticket"));
    assert!(!error.to_string().contains("nonsense"), "{error}");
}

async fn a_stale_digest_is_a_conflict(peer: &Peer) {
    let (client, pve1) = (peer.client(), node("pve1"));
    let id: VmId = "121".parse().unwrap();
    let source = "9000".parse().unwrap();
    done(&client, client.clone_vm(&pve1, source, &CloneOptions::new(id)).await.unwrap()).await;
    let digest = client.vm_config(&pve1, id).await.unwrap().digest().map(str::to_owned);
    let guarded = |cores| ConfigUpdate { digest: digest.clone(), ..update(&[("cores", cores)]) };
    let task = client.update_vm_config(&pve1, id, &guarded("3")).await.unwrap().unwrap();
    done(&client, task).await;
    match client.update_vm_config(&pve1, id, &guarded("4")).await {
        Err(error) => {
            assert_eq!(
                (error.kind(), error.class()),
                (&ErrorKind::DigestMismatch, Class::Conflict)
            );
        }
        Ok(task) => {
            let exit = end_of(&client, &task.unwrap()).await;
            assert_eq!(exit.cause(), Some(Cause::DigestMismatch), "{exit:?}");
        }
    }
    let delete = ConfigUpdate { delete: vec!["agent".to_owned()], ..ConfigUpdate::default() };
    let task = client.update_vm_config(&pve1, id, &delete).await.unwrap().unwrap();
    done(&client, task).await;
    assert_eq!(client.vm_config(&pve1, id).await.unwrap().get("agent"), None);
    let task = client.destroy_vm(&pve1, id, DestroyOptions::default()).await.unwrap();
    done(&client, task).await;
}

async fn what_a_vm_is_not_ready_for_is_told_by_the_task(peer: &Peer) {
    let (client, pve1) = (peer.client(), node("pve1"));
    let template = "9000".parse().unwrap();
    let task = client.start_vm(&pve1, template).await.unwrap().unwrap();
    let exit = end_of(&client, &task).await;
    assert!(matches!(exit, TaskExit::Failed(_)), "{exit:?}");
    assert_eq!(exit.class(), Some(Class::TaskFailed));
    drop_violations(peer);
}

async fn an_agent_that_is_not_there_is_down(peer: &Peer) {
    let (client, pve1) = (peer.client(), node("pve1"));
    let stopped = "9000".parse().unwrap();
    let error = client.agent_osinfo(&pve1, stopped).await.unwrap_err();
    assert_eq!(error.status(), Some(500), "{error}");
    assert!(error.is_agent_down(), "{error}");
}

async fn nodes_and_tasks_that_do_not_exist_are_told(peer: &Peer) {
    let client = peer.client();
    let error = client.node_status(&node("pve9")).await.unwrap_err();
    assert!(matches!(error.status(), Some(500 | 595 | 596)), "{error}");
    let upid: Upid =
        "UPID:pve1:0000ACD1:00BC614E:679A423B:qmstart:9000:capmox@pve!capi:".parse().unwrap();
    let error = client.task_status(&upid).await.unwrap_err();
    assert!(error.is_task_unknown(), "{error}");
}

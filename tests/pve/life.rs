//! A whole machine's life, call by call.

use std::collections::BTreeMap;
use std::time::Duration;

use capmox::ids::VmId;
use capmox::pve::{
    AgentExecStatus, Client, CloneOptions, ConfigUpdate, DestroyOptions, Resource, TaskExit,
};
use pve_fake::Release;
use tokio::time::Instant;

use crate::peer::{PATIENCE, Peer, done, end_of, node, on_both};

on_both!(a_machine_lives_from_clone_to_destruction, a_full_copy_goes_where_it_is_told);

fn vmid(id: i64) -> VmId {
    VmId::try_from(id).unwrap()
}

async fn configure(client: &Client, id: VmId, set: &[(&str, &str)]) {
    let set: BTreeMap<String, String> =
        set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let update = ConfigUpdate { set, ..ConfigUpdate::default() };
    let task = client.update_vm_config(&node("pve1"), id, &update).await.unwrap();
    done(client, task.expect("a task")).await;
}

async fn a_machine_lives_from_clone_to_destruction(peer: &Peer) {
    let (client, pve1) = (peer.client(), node("pve1"));
    let id = client.next_id().await.unwrap();
    assert!(client.vmid_is_free(id).await.unwrap());
    let mut options = CloneOptions::new(id);
    options.name = Some("w-1".to_owned());
    options.description = Some("rack 7; a=b & c%d".to_owned());
    let task = client.clone_vm(&pve1, vmid(9000), &options).await.unwrap().unwrap();
    assert_eq!((task.kind(), task.node()), ("qmclone", &pve1));
    done(&client, task).await;
    assert!(!client.vmid_is_free(id).await.unwrap());

    let fresh = client.vm_config(&pve1, id).await.unwrap();
    assert_eq!(fresh.name(), Some("w-1"));
    assert_eq!(fresh.description().as_deref(), Some("rack 7; a=b & c%d"));
    assert!(fresh.uuid().is_some() && fresh.digest().is_some() && !fresh.is_template());
    let mut net = fresh.net("net0").unwrap();
    let mac = net.mac().unwrap().to_owned();
    net.set("bridge", "vmbr1");
    net.set("mtu", 1500);
    let net = net.to_string();
    let set = [
        ("cores", "4"),
        ("memory", "4096"),
        ("net0", net.as_str()),
        ("tags", "b;a"),
        ("sockets", "1"),
    ];
    configure(&client, id, &set).await;
    let config = client.vm_config(&pve1, id).await.unwrap();
    assert_eq!((config.number("cores"), config.memory_mib()), (Some(4), Some(4096)));
    assert_eq!(config.net("net0").unwrap().mac(), Some(mac.as_str()));
    assert_eq!(config.net("net0").unwrap().bridge(), Some("vmbr1"));
    assert!(config.tags().contains("A") && config.tags().contains("b"));
    assert_ne!(config.digest(), fresh.digest());

    // Release 7 grows it at once, without a task.
    if let Some(task) = client.resize_disk(&pve1, id, "scsi0", "20G").await.unwrap() {
        done(&client, task).await;
    }
    if peer.is_ours() {
        let disk = client.vm_config(&pve1, id).await.unwrap().drive("scsi0").unwrap();
        assert_eq!(disk.size(), Some(20 << 30));
    }
    boots_from_an_iso_and_goes(&client, id).await;
}

async fn boots_from_an_iso_and_goes(client: &Client, id: VmId) {
    let (pve1, local) = (node("pve1"), "local".parse().unwrap());
    let name = format!("user-data-{id}.iso");
    let image = bytes::Bytes::from(vec![7_u8; 70_000]);
    let task = client.upload_iso(&pve1, &local, &name, image).await.unwrap().unwrap();
    assert_eq!(task.kind(), "imgcopy");
    done(client, task).await;
    let volid = format!("local:iso/{name}");
    let listed = client.storage_content(&pve1, &local, Some("iso")).await.unwrap();
    assert!(listed.iter().any(|volume| volume.volid == volid), "{listed:?}");
    client.volume(&pve1, &local, &volid).await.unwrap();

    let drive = format!("{volid},media=cdrom");
    configure(client, id, &[("ide0", &drive), ("boot", "order=scsi0;ide0")]).await;
    let config = client.vm_config(&pve1, id).await.unwrap();
    assert_eq!(config.boot_order().devices(), ["scsi0", "ide0"]);
    assert!(config.drive("ide0").unwrap().is_cdrom());
    assert_eq!(config.drive("ide0").unwrap().volume(), Some(volid.as_str()));

    done(client, client.start_vm(&pve1, id).await.unwrap()).await;
    assert!(client.vm_status(&pve1, id).await.unwrap().is_running());
    let cloud_init = agent_says(client, id).await;
    assert_eq!(cloud_init.exit_code, Some(0), "{cloud_init:?}");
    assert!(cloud_init.out_data.is_some_and(|text| text.contains("done")));
    client.agent_interfaces(&pve1, id).await.unwrap();

    configure(client, id, &[("ide0", "none,media=cdrom")]).await;
    let task = client.delete_volume(&pve1, &local, &volid).await.unwrap();
    done(client, task.expect("a task")).await;
    assert!(client.volume(&pve1, &local, &volid).await.unwrap_err().is_volume_missing());

    done(client, client.stop_vm(&pve1, id).await.unwrap()).await;
    assert!(!client.vm_status(&pve1, id).await.unwrap().is_running());
    let task = client.destroy_vm(&pve1, id, DestroyOptions::default()).await.unwrap();
    done(client, task).await;
    assert!(client.vm_config(&pve1, id).await.unwrap_err().is_vm_missing());
    assert!(client.vmid_is_free(id).await.unwrap());
}

#[tokio::test]
async fn a_machine_lives_on_older_releases_too() {
    for release in [Release::V7, Release::V8] {
        a_machine_lives_from_clone_to_destruction(&Peer::ours_as(release).await).await;
    }
}

/// Asks until the agent is up, as a controller does, and runs `cloud-init status`.
async fn agent_says(client: &Client, id: VmId) -> AgentExecStatus {
    let pve1 = node("pve1");
    let deadline = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        assert!(Instant::now() < deadline, "the agent does not answer");
        match client.agent_osinfo(&pve1, id).await {
            Ok(_) => {}
            Err(error) if error.is_agent_down() => continue,
            Err(error) => panic!("{error}"),
        }
        let pid = client.agent_exec(&pve1, id, &["cloud-init", "status"]).await.unwrap();
        let status = loop {
            ticks.tick().await;
            let status = client.agent_exec_status(&pve1, id, pid).await.unwrap();
            if status.has_ended() {
                break status;
            }
        };
        if status.out_data.as_ref().is_none_or(|text| !text.contains("running")) {
            return status;
        }
    }
}

async fn a_full_copy_goes_where_it_is_told(peer: &Peer) {
    let (client, pve1, pve2) = (peer.client(), node("pve1"), node("pve2"));
    let options = CloneOptions {
        full: true,
        storage: Some("shared".parse().unwrap()),
        target: Some(pve2.clone()),
        ..CloneOptions::new(vmid(120))
    };
    done(&client, client.clone_vm(&pve1, vmid(9000), &options).await.unwrap()).await;
    assert!(client.vm_config(&pve1, vmid(120)).await.unwrap_err().is_vm_missing());
    let config = client.vm_config(&pve2, vmid(120)).await.unwrap();
    assert_eq!(config.drive("scsi0").unwrap().storage(), Some("shared"));
    let listed = client.cluster_resources().await.unwrap();
    let found = listed.iter().find_map(|resource| match resource {
        Resource::Vm(guest) if guest.vmid == vmid(120) => Some(guest.node.clone()),
        _ => None,
    });
    assert_eq!(found, Some(pve2.clone()));
    let again = client.clone_vm(&pve1, vmid(9000), &options).await;
    match again {
        Err(error) => assert!(error.is_vmid_taken(), "{error}"),
        // On another node it only shows when the task ends.
        Ok(task) => {
            let exit = end_of(&client, &task.unwrap()).await;
            assert_eq!(exit.cause(), Some(capmox::pve::Cause::VmIdTaken), "{exit:?}");
            assert!(matches!(exit, TaskExit::Failed(_)));
        }
    }
    let all = DestroyOptions { purge: true, destroy_unreferenced_disks: true };
    done(&client, client.destroy_vm(&pve2, vmid(120), all).await.unwrap()).await;
}

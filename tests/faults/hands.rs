//! What people and hardware do to machines that are up, and pausing.

use std::time::Duration;

use capmox::api::{ProxmoxCluster, ProxmoxClusterStatus, ProxmoxMachine, ProxmoxMachineStatus};
use kube::api::DeleteParams;
use pve_fake::{Change, VmSeed, VmView};
use serde_json::json;

use crate::case::Case;
use crate::objects::CLUSTER;

async fn up() -> (Case, VmView) {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    case.ready("m").await;
    let vm = case.vm_of("m");
    (case, vm)
}

pub(crate) async fn a_vm_stopped_by_hand_is_started_again() {
    let (case, vm) = up().await;
    case.fake.change(Change::VmCrashed { vmid: vm.vmid });
    case.sees("it runs again", |fake| fake.model().vm_view(vm.vmid)?.running.then_some(())).await;
    let machine = case.ready("m").await;
    assert!(machine.status.unwrap().failure_reason.is_none());
    case.end().await;
}

pub(crate) async fn a_vm_destroyed_by_hand_is_not_replaced() {
    let (case, vm) = up().await;
    case.fake.change(Change::VmGone { vmid: vm.vmid });
    let words = [&*format!("VM {}", vm.vmid), "delete the Machine", "restore the VM"];
    case.says("m", "False Error NotFound", &words).await;
    let machine = case.until("m", "notfound", |found| {
        found.status.as_ref().is_some_and(|s| s.vm_status.as_deref() == Some("notfound"))
    });
    assert!(machine.await.status.unwrap().ready, "the contract: once ready, always ready");
    assert!(case.vms_of("m").is_empty());
    // People restore it from a backup.
    let VmView { vmid, node, config, .. } = vm;
    let back = VmSeed { vmid, node, config, running: true, foreign: false };
    case.fake.change(Change::VmAppears { vm: back });
    case.ready("m").await;
    assert_eq!(case.fake.journal().count("POST", "/nodes/*/qemu/*/clone"), 1);
    // Once more, and now it is deleted.
    case.fake.change(Change::VmGone { vmid });
    case.end().await;
}

pub(crate) async fn a_vm_whose_uuid_was_changed_keeps_its_address_until_it_is_told_whose_it_is() {
    let (case, vm) = up().await;
    let replaced = |uuid: Option<&str>| {
        let VmView { vmid, node, mut config, .. } = vm.clone();
        match uuid {
            Some(uuid) => drop(config.insert("smbios1".to_owned(), format!("uuid={uuid}"))),
            None => drop(config.remove("smbios1")),
        }
        case.fake.change(Change::VmGone { vmid });
        let vm = VmSeed { vmid, node, config, running: true, foreign: true };
        case.fake.change(Change::VmAppears { vm });
    };
    replaced(Some("00000000-0000-4000-8000-00000000dead"));
    case.delete("m").await;
    let command = format!("qm set {} --smbios1 uuid=", vm.vmid);
    let words = ["by its name", "00000000-0000-4000-8000-00000000dead", &command];
    case.says("m", "False Warning Deleting", &words).await;
    replaced(None);
    case.says("m", "False Warning Deleting", &["it has no BIOS uuid", &command]).await;
    case.stays(Duration::from_secs(3), "the VM runs on", |fake| {
        fake.model().vm_view(vm.vmid).is_some_and(|vm| vm.running)
    })
    .await;
    assert_eq!(case.list::<capmox::api::ipam::IPAddressClaim>().await.len(), 1);
    // Somebody sees to it.
    case.fake.change(Change::VmGone { vmid: vm.vmid });
    case.fake.change(Change::VmAppears {
        vm: VmSeed {
            vmid: vm.vmid,
            node: vm.node.clone(),
            config: vm.config.clone(),
            running: true,
            foreign: false,
        },
    });
    case.gone("m").await;
    assert!(case.vms_of("m").is_empty());
    case.end().await;
}

pub(crate) async fn a_number_that_a_machine_of_another_proxmox_has_too_does_not_keep_a_seed() {
    // A number that no other case has.
    let number = json!({"vmIDRange": {"start": 7710, "end": 7710}});
    let other = Case::sound().await;
    other.machine("n", number.clone()).await;
    other.ready("n").await;
    other.join_without_seed("n").await;
    let read = "/cluster/resources";
    let before = other.fake.journal().count("GET", read);
    other
        .sees("its list is read", |fake| {
            (fake.journal().count("GET", read) > before + 1).then_some(())
        })
        .await;
    let case = Case::sound().await;
    case.machine("m", number).await;
    case.ready("m").await;
    let VmView { vmid, node, .. } = case.vm_of("m");
    assert_eq!((vmid, other.vm_of("n").vmid), (7710, 7710));
    case.fake.change(Change::VmGone { vmid });
    case.fake.change(Change::VmAppears { vm: VmSeed::new(vmid, &node, "else", "local") });
    case.delete("m").await;
    case.gone("m").await;
    let journal = case.fake.journal();
    assert_eq!(journal.count("DELETE", "/nodes/*/storage/*/content/**"), 1, "its seed is left");
    drop(journal);
    case.fake.change(Change::VmGone { vmid });
    case.end().await;
    other.end().await;
}

pub(crate) async fn a_vm_whose_machine_and_cluster_were_deleted_first_goes_with_its_object() {
    let (case, vm) = up().await;
    let (background, group) = (DeleteParams::background(), "cluster.x-k8s.io");
    let owner = case.dynamic(group, "v1beta1", "Machine");
    let cluster = case.dynamic(group, "v1beta1", "Cluster");
    owner.delete("m", &background).await.unwrap();
    cluster.delete(CLUSTER, &background).await.unwrap();
    assert!(owner.get_opt("m").await.unwrap().is_none(), "the Machine is gone");
    assert!(cluster.get_opt(CLUSTER).await.unwrap().is_none(), "the Cluster is gone");
    case.stays(Duration::from_secs(2), "the VM runs on", |fake| {
        fake.model().vm_view(vm.vmid).is_some_and(|vm| vm.running)
    })
    .await;
    case.delete("m").await;
    case.end_of::<ProxmoxMachine>("m").await;
    assert!(case.vms_of("m").is_empty(), "its VM is left");
    // The end deletes the Cluster itself.
    case.create(crate::objects::cluster(&case.namespace)).await;
    case.end().await;
}

pub(crate) async fn a_vm_moved_by_hand_is_followed() {
    let (case, vm) = up().await;
    // With an ISO of local storage in its drive, Proxmox would not move it.
    case.join_without_seed("m").await;
    case.fake.change(Change::VmMoved { vmid: vm.vmid, node: "pve3".into() });
    case.until("m", "on pve3", |found| {
        found.status.as_ref().is_some_and(|s| s.proxmox_node.as_deref() == Some("pve3"))
    })
    .await;
    case.until_object::<ProxmoxCluster>(CLUSTER, "location on pve3", |found| {
        let status = found.status.as_ref();
        status.and_then(|status| status.node_locations.as_ref()).is_some_and(|locations| {
            locations.workers.iter().any(|at| at.machine.name == "m" && at.node == "pve3")
        })
    })
    .await;
    case.end().await;
}

pub(crate) async fn a_node_that_reboots_gets_its_vm_back() {
    let (case, vm) = up().await;
    case.fake.change(Change::NodeOffline { node: vm.node.clone() });
    case.stays(Duration::from_secs(5), "nothing is made or destroyed", |fake| {
        fake.model().vm_view(vm.vmid).is_some() && fake.journal().count("DELETE", "/**") == 0
    })
    .await;
    case.fake.change(Change::NodeOnline { node: vm.node.clone() });
    case.sees("it runs again", |fake| fake.model().vm_view(vm.vmid)?.running.then_some(())).await;
    case.ready("m").await;
    assert_eq!(case.vm_of("m").vmid, vm.vmid);
    case.end().await;
}

pub(crate) async fn a_paused_cluster_is_left_alone() {
    let case = Case::sound().await;
    let pause = async |paused: bool| {
        let api = case.dynamic("cluster.x-k8s.io", "v1beta1", "Cluster");
        let patch = kube::api::Patch::Merge(json!({"spec": {"paused": paused}}));
        api.patch(CLUSTER, &kube::api::PatchParams::default(), &patch).await.unwrap();
    };
    let paused = |wanted: &'static str| {
        move |found: &ProxmoxMachine| {
            let conditions = found.status.as_ref().map(ProxmoxMachineStatus::v1beta2_conditions);
            let paused = conditions.unwrap_or_default().iter().find(|c| c.type_ == "Paused");
            paused.is_some_and(|condition| condition.status == wanted)
        }
    };
    pause(true).await;
    case.until_object::<ProxmoxCluster>(CLUSTER, "paused", |found| {
        let conditions = found.status.as_ref().map(ProxmoxClusterStatus::v1beta2_conditions);
        let all = conditions.unwrap_or_default();
        all.iter().any(|c| c.type_ == "Paused" && c.status == "True")
    })
    .await;
    case.machine("m", json!({})).await;
    case.until("m", "paused", paused("True")).await;
    assert!(case.is_untouched());
    pause(false).await;
    case.ready("m").await;
    pause(true).await;
    case.until("m", "paused", paused("True")).await;
    case.delete("m").await;
    case.stays(Duration::from_secs(5), "the VM is left alone", |fake| {
        fake.model().vms().iter().any(|vm| vm.name.as_deref() == Some("m") && vm.running)
    })
    .await;
    pause(false).await;
    case.gone("m").await;
    case.end().await;
}

pub(crate) async fn a_vm_paused_by_hand_goes_on() {
    let (case, vm) = up().await;
    case.fake.change(Change::VmPaused { vmid: vm.vmid, paused: true });
    let resumed = "/nodes/*/qemu/*/status/resume";
    case.sees("it goes on", |fake| (fake.journal().count("POST", resumed) > 0).then_some(())).await;
    case.ready("m").await;
    case.end().await;
}

pub(crate) async fn a_vm_in_ha_is_taken_out_of_it_before_it_goes() {
    let (case, vm) = up().await;
    case.fake.change(Change::VmInHa { vmid: vm.vmid });
    case.delete("m").await;
    case.gone("m").await;
    let journal = case.fake.journal();
    let seq = |method, path| journal.calls(method, path).map(|call| call.seq).next();
    let left = seq("DELETE", "/cluster/ha/resources/*").expect("it left HA");
    let stopped = seq("POST", "/nodes/*/qemu/*/status/stop").expect("it was stopped");
    assert!(left < stopped, "the HA manager would start it again");
    drop(journal);
    case.end().await;
}

pub(crate) async fn a_guest_shuts_down_first_where_that_is_asked_for() {
    let (case, _) = up().await;
    let wish = json!({"metadata": {"annotations": {
        capmox::api::SHUTDOWN_TIMEOUT_ANNOTATION: "30s",
    }}});
    case.change::<ProxmoxMachine>("m", wish).await;
    case.delete("m").await;
    case.gone("m").await;
    let journal = case.fake.journal();
    assert_eq!(journal.count("POST", "/nodes/*/qemu/*/status/shutdown"), 1);
    assert_eq!(journal.count("POST", "/nodes/*/qemu/*/status/stop"), 0);
    drop(journal);
    case.end().await;
}

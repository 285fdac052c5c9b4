//! What a copy brings along that is not its own: options of the template, and machines that record the
//! VM of another.

use std::time::Duration;

use capmox::api::ProxmoxMachine;
use pve_fake::{Action, Change, Config, FaultRule, Timings, VmSeed};
use serde_json::json;

use crate::case::{Case, said, text};

const CLONE: &str = "/nodes/*/qemu/*/clone";

fn template(vmid: u32) -> VmSeed {
    VmSeed::new(vmid, "pve1", &format!("template-{vmid}.lab"), "shared").template()
}

/// A protected template, with cloud-init's own drive and a NIC whose cable is unplugged.
pub(crate) async fn what_guards_a_template_does_not_guard_its_clones() {
    let case = Case::sound().await;
    let nic = "virtio=BC:24:11:00:AA:01,bridge=vmbr0,firewall=1,link_down=1";
    let vm = template(9100)
        .with("protection", "1")
        .with("boot", "order=scsi0;ide2;net0")
        .with("net0", nic)
        .with("ide2", "shared:vm-9100-cloudinit,media=cdrom");
    case.fake.change(Change::VmAppears { vm });
    case.machine("m", json!({"templateID": 9100})).await;
    case.ready("m").await;
    let vm = case.vm_of("m");
    assert!(!vm.config.contains_key("ide2"), "{:?}", vm.config);
    assert!(!vm.config["net0"].contains("link_down"), "{}", vm.config["net0"]);
    assert!(vm.config["net0"].contains("firewall=1"), "{}", vm.config["net0"]);
    case.delete("m").await;
    case.gone("m").await;

    // A machine that is deleted while it is cloned.
    case.machine("n", json!({"templateID": 9100})).await;
    case.sees("the clone", |fake| (fake.journal().count("POST", CLONE) >= 2).then_some(())).await;
    case.delete("n").await;
    case.gone("n").await;
    case.end().await;
}

/// The template was written from a machine, with its VMID.
pub(crate) async fn machines_that_come_with_one_number_get_numbers_of_their_own() {
    let timings = Timings { clone_full: Duration::from_secs(3), ..Timings::default() };
    let case = Case::with(Config { timings, ..Config::default() }, json!({})).await;
    let names = ["a", "b", "c"];
    for name in names {
        case.machine(name, json!({"virtualMachineID": 500})).await;
    }
    let mut numbers = Vec::new();
    for name in names {
        let confused = |found: &ProxmoxMachine| {
            said(found).is_some_and(|condition| text(condition).contains("go round in circles"))
        };
        let up = case.until(name, "ready, or confused", |found| {
            confused(found) || found.status.as_ref().is_some_and(|status| status.ready)
        });
        let up = up.await;
        assert!(!confused(&up), "{name}: {:?}", said(&up));
        numbers.push(case.vm_of(name).vmid);
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "{numbers:?}");
    case.end().await;
}

/// The template was written from a machine, with all that identifies its VM.
pub(crate) async fn a_machine_that_records_the_vm_of_another_leaves_it_alone() {
    let case = Case::sound().await;
    case.machine("m", json!({})).await;
    let own = case.ready("m").await;
    let vm = case.vm_of("m");
    let copied = json!({"virtualMachineID": vm.vmid, "providerID": own.spec.provider_id});
    case.machine("copy", copied).await;
    let words = ["not this machine's", "/m, which records the same", "ProxmoxMachineTemplate"];
    case.says("copy", "False Error NotFound", &words).await;
    case.delete("copy").await;
    case.gone("copy").await;
    let left = case.vm_of("m");
    assert!(left.running && left.vmid == vm.vmid && left.config == vm.config, "{left:?}");
    case.ready("m").await;
    case.delete("m").await;
    case.gone("m").await;
    case.end().await;
}

/// As enterprise distributions have it.
pub(crate) async fn an_agent_that_executes_nothing_is_told_with_the_remedy() {
    let case = Case::sound().await;
    let text = "Agent error: Command guest-exec has been disabled: the command is not allowed";
    let refusal = Action::Reply { status: 500, text: text.to_owned() };
    case.fake.faults().add(FaultRule::always("POST", "/nodes/*/qemu/*/agent/exec", refusal));
    case.machine("m", json!({})).await;
    let words = ["guest-exec has been disabled", "spec.checks.skipCloudInitStatus"];
    case.says("m", "Unknown Unknown", &words).await;
    case.edit("m", json!({"checks": {"skipCloudInitStatus": true}})).await;
    case.ready("m").await;
    case.end().await;
}

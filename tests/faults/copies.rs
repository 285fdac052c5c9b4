//! What a copy brings along that is not its own: options of the template, and machines that record the
//! VM of another.

use capmox::api::ProxmoxMachine;
use serde_json::json;

use crate::case::Case;

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

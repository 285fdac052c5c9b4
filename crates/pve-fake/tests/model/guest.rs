//! The guest agent and what stands behind it.

use http::Method;
use pve_fake::{CloudInit, Interface, Report};
use serde_json::json;

use crate::world::{World, error_of, refusal, world};

fn started(world: &mut World) -> String {
    let vm = world.cloned("101", "m1");
    let done = world.upload("pve1", "local", "user-data-101.iso", "SEED");
    world.exit(&done);
    let iso = "local:iso/user-data-101.iso,media=cdrom";
    world.put(&format!("{vm}/config"), &[("ide0", iso)]);
    let done = world.post(&format!("{vm}/status/start"), &[]);
    assert_eq!(world.exit(&done), "OK");
    vm
}

fn run(world: &mut World, vm: &str, command: &[&str]) -> serde_json::Value {
    let params: Vec<_> = command.iter().map(|word| ("command", *word)).collect();
    let pid = world.post(&format!("{vm}/agent/exec"), &params).data()["pid"].to_string();
    world.pass(1);
    world.send(Method::GET, &format!("{vm}/agent/exec-status"), &[("pid", &pid)]).data().clone()
}

#[test]
fn an_agent_that_cannot_answer_has_three_reasons() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let ping = format!("{vm}/agent/ping");
    assert_eq!(refusal(&world.post(&ping, &[])), (500, "VM 101 is not running"));
    let done = world.post(&format!("{vm}/status/start"), &[]);
    world.exit(&done);
    assert_eq!(refusal(&world.post(&ping, &[])), (500, "QEMU guest agent is not running"));
    world.pass(20);
    assert_eq!(world.post(&ping, &[]).data(), &json!({ "result": {} }));
    let done = world.post(&format!("{vm}/status/stop"), &[]);
    world.exit(&done);
    world.put(&format!("{vm}/config"), &[("delete", "agent")]);
    assert_eq!(refusal(&world.post(&ping, &[])), (500, "No QEMU guest agent configured"));
}

#[test]
fn cloud_init_runs_and_ends_with_its_exit_code() {
    let mut world = world();
    let vm = started(&mut world);
    world.pass(16);
    let status = run(&mut world, &vm, &["cloud-init", "status"]);
    assert_eq!(status["out-data"], "status: running\n");
    let boot = 1;
    for (state, code, text) in [
        (CloudInit::Done, 0, "status: done"),
        (CloudInit::Degraded("a warning".into()), 2, "a warning"),
        (CloudInit::Error("no route".into()), 1, "no route"),
    ] {
        world.model.report(101, boot, Report::CloudInit(state));
        let status = run(&mut world, &vm, &["cloud-init", "status", "--long"]);
        assert_eq!((&status["exited"], &status["exitcode"]), (&1.into(), &code.into()));
        assert!(status["out-data"].as_str().unwrap().contains(text));
    }
}

#[test]
fn a_result_is_handed_out_once_and_unknown_programs_do_not_start() {
    let mut world = world();
    let vm = started(&mut world);
    world.pass(20);
    let pid = world.post(&format!("{vm}/agent/exec"), &[("command", "hostname")]);
    let pid = pid.data()["pid"].to_string();
    let path = format!("{vm}/agent/exec-status");
    let status = |world: &mut World| world.send(Method::GET, &path, &[("pid", &pid)]);
    assert_eq!(status(&mut world).data(), &json!({ "exited": 0 }));
    world.pass(1);
    assert_eq!(status(&mut world).data()["out-data"], "m1\n");
    let text = format!("Agent error: PID {pid} does not exist");
    assert_eq!(refusal(&status(&mut world)), (500, text.as_str()));
    let unknown = world.post(&format!("{vm}/agent/exec"), &[("command", "nope")]);
    assert!(unknown.reason.unwrap().starts_with("Agent error: Guest command failed to start"));
    let missing = world.post(&format!("{vm}/agent/exec"), &[]);
    assert_eq!(error_of(&missing, "command"), "property is missing and it is not optional");
}

#[test]
fn reports_of_a_run_that_is_over_are_dropped() {
    let mut world = world();
    let vm = started(&mut world);
    for action in ["stop", "start"] {
        let done = world.post(&format!("{vm}/status/{action}"), &[]);
        assert_eq!(world.exit(&done), "OK");
    }
    world.model.report(101, 1, Report::Agent(true));
    assert_eq!(world.post(&format!("{vm}/agent/ping"), &[]).status, 500);
    world.model.report(101, 2, Report::Agent(true));
    let mac = "BC:24:11:00:00:01".to_owned();
    let addresses = vec![("10.0.0.5".parse().unwrap(), 24)];
    let eth = Interface { name: "eth0".into(), mac, addresses };
    world.model.report(101, 2, Report::Interfaces(vec![eth]));
    let data = world.data(&format!("{vm}/agent/network-get-interfaces"));
    let eth = &data["result"][1];
    assert_eq!(eth["hardware-address"], "bc:24:11:00:00:01");
    let address = json!({ "ip-address": "10.0.0.5", "ip-address-type": "ipv4", "prefix": 24 });
    assert_eq!(eth["ip-addresses"][0], address);
}

#[test]
fn a_starting_vm_shows_its_guest_all_it_can_see() {
    let mut world = world();
    started(&mut world);
    let effects = world.model.take_effects();
    let [pve_fake::model::Effect::Started(boot)] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!((boot.vmid, boot.name.as_str(), boot.node.as_str()), (101, "m1", "pve1"));
    assert_eq!(boot.cdroms[0].data, "SEED");
    assert_eq!((boot.nics[0].device.as_str(), boot.nics[0].bridge.as_str()), ("net0", "vmbr0"));
    assert_eq!(boot.uuid.len(), 36);
}

//! Tasks, locks, nodes and quorum.

use http::Method;
use pve_fake::model::{Credentials, Request};
use pve_fake::{Change, Release, Seed, TaskFate};

use crate::world::{TOKEN, World, error_of, refusal, world};

#[test]
fn power_calls_on_what_is_not_there_or_not_right_fail_where_proxmox_fails_them() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let missing = "/nodes/pve1/qemu/555";
    let table: &[(&str, &str, &str)] = &[
        (missing, "start", "Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist"),
        (missing, "stop", "unable to find configuration file for VM 555 on node 'pve1'"),
        ("/nodes/pve1/qemu/9000", "start", "you can't start a vm if it's a template"),
        (&vm, "stop", "OK"),
        (&vm, "start", "OK"),
        (&vm, "start", "VM 101 already running"),
    ];
    for (path, action, exit) in table {
        let response = world.post(&format!("{path}/status/{action}"), &[]);
        assert_eq!(world.exit(&response), *exit, "{action} {path}");
    }
    for action in ["shutdown", "reboot", "resume"] {
        let response = world.post(&format!("{missing}/status/{action}"), &[]);
        let text = "unable to find configuration file for VM 555 on node 'pve1'";
        assert_eq!(refusal(&response), (500, text), "{action}");
    }
    let text = "Configuration file 'nodes/pve1/qemu-server/555.conf' does not exist";
    assert_eq!(refusal(&world.get(&format!("{missing}/config"))), (500, text));
    assert_eq!(refusal(&world.delete(missing, &[])), (500, text));
}

#[test]
fn a_running_protected_or_ha_vm_is_not_destroyed() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    world.put(&format!("{vm}/config"), &[("protection", "1")]);
    let response = world.delete(&vm, &[]);
    assert_eq!(refusal(&response), (500, "can't remove VM 101 - protection mode enabled"));
    world.put(&format!("{vm}/config"), &[("protection", "0")]);
    world.post("/cluster/ha/resources", &[("sid", "vm:101")]);
    let response = world.delete(&vm, &[]);
    let text = "unable to remove VM 101 - used in HA resources and purge parameter not set.";
    assert_eq!(refusal(&response), (500, text));
    let started = world.post(&format!("{vm}/status/start"), &[]);
    assert!(started.data().as_str().unwrap().contains(":hastart:"));
    world.exit(&started);
    let response = world.delete(&vm, &[("purge", "1")]);
    assert_eq!(refusal(&response), (500, "VM 101 is running - destroy failed"));
    assert_eq!(world.model.take_violations().len(), 1);
}

#[test]
fn a_destroy_shows_its_lock_until_the_vm_is_gone() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let response = world.delete(&vm, &[]);
    assert_eq!(world.data(&format!("{vm}/config"))["lock"], "destroyed");
    let again = world.delete(&vm, &[]);
    assert_eq!(world.exit(&response), "OK");
    let text = "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist";
    assert_eq!(world.exit(&again), text);
}

#[test]
fn tasks_of_one_vm_wait_for_each_other_and_give_up_after_ten_seconds() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let started = world.post(&format!("{vm}/status/start"), &[]);
    world.exit(&started);
    let first = world.post(&format!("{vm}/config"), &[("description", "a")]);
    let second = world.post(&format!("{vm}/config"), &[("description", "b")]);
    assert_eq!([world.exit(&first), world.exit(&second)], ["OK", "OK"]);
    assert_eq!(world.data(&format!("{vm}/config"))["description"], "b");
    // No agent yet: the shutdown waits for a minute and holds the lock.
    let shutdown = world.post(&format!("{vm}/status/shutdown"), &[]);
    let stop = world.post(&format!("{vm}/status/stop"), &[]);
    let text = "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout";
    assert_eq!(world.exit(&stop), text);
    let stop = world.post(&format!("{vm}/status/stop"), &[("overrule-shutdown", "1")]);
    assert_eq!(world.exit(&stop), "OK");
    assert_eq!(world.exit(&shutdown), "received interrupt");
}

#[test]
fn a_shutdown_without_an_agent_times_out() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    let started = world.post(&format!("{vm}/status/start"), &[]);
    world.exit(&started);
    let response = world.post(&format!("{vm}/status/shutdown"), &[("timeout", "5")]);
    assert_eq!(world.exit(&response), "VM quit/powerdown failed - got timeout");
    world.pass(20);
    let response = world.post(&format!("{vm}/status/shutdown"), &[]);
    assert_eq!(world.exit(&response), "OK");
    assert_eq!(world.data(&format!("{vm}/status/current"))["status"], "stopped");
}

#[test]
fn a_task_is_read_listed_and_logged() {
    let mut world = world();
    let response = world.post("/nodes/pve1/qemu/9000/clone", &[("newid", "101"), ("name", "m1")]);
    let upid = response.data().as_str().unwrap().to_owned();
    let parts: Vec<&str> = upid.split(':').collect();
    assert_eq!((parts.len(), parts[0], parts[1], parts[5]), (9, "UPID", "pve1", "qmclone"));
    assert_eq!((parts[6], parts[7]), ("9000", "capmox@pve!capi"), "the id is the source's");
    let status = world.data(&format!("/nodes/pve1/tasks/{upid}/status"));
    assert_eq!((&status["status"], status.get("exitstatus")), (&"running".into(), None));
    assert_eq!((&status["user"], &status["tokenid"]), (&"capmox@pve".into(), &"capi".into()));
    world.exit(&response);
    let log = world.get(&format!("/nodes/pve1/tasks/{upid}/log"));
    assert_eq!(log.data()[0]["t"], "TASK OK");
    assert_eq!(log.body["total"], 1);
    assert_eq!(world.data("/cluster/tasks")[0]["upid"], upid.as_str());
    assert_eq!(world.data("/nodes/pve1/tasks")[0]["status"], "OK");
    let elsewhere = world.get(&format!("/nodes/pve2/tasks/{upid}/status"));
    assert_eq!(error_of(&elsewhere, "upid"), "no such task");
    let nonsense = world.get("/nodes/pve2/tasks/abc/status");
    assert_eq!(error_of(&nonsense, "upid"), "unable to parse worker upid");
}

#[test]
fn a_stopped_clone_leaves_nothing() {
    let mut world = world();
    let response = world.post("/nodes/pve1/qemu/9000/clone", &[("newid", "101"), ("full", "1")]);
    let upid = response.data().as_str().unwrap().to_owned();
    assert_eq!(world.delete(&format!("/nodes/pve1/tasks/{upid}"), &[]).status, 200);
    assert_eq!(world.exit(&response), "received interrupt");
    assert!(world.model.vm_view(101).is_none());
}

#[test]
fn a_task_is_made_to_fail_with_or_without_its_effect() {
    for with_effect in [false, true] {
        let mut world = world();
        let vm = world.cloned("101", "m1");
        let token = Some(TOKEN.to_owned());
        let credentials = Credentials { token, ..Credentials::default() };
        let request = Request::new(Method::POST, &format!("{vm}/status/start"), credentials);
        let fate = TaskFate { text: "start failed: QEMU exited with code 1".into(), with_effect };
        let response = world.model.handle_fated(&request, world.now, Some(fate));
        assert_eq!(world.exit(&response), "start failed: QEMU exited with code 1");
        let running = world.model.vm_view(101).unwrap().running;
        assert_eq!(running, with_effect);
    }
}

#[test]
fn a_node_that_is_away_answers_as_the_proxy_does() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    world.pass(11);
    world.model.change(Change::NodeOffline { node: "pve1".into() });
    assert_eq!(refusal(&world.get(&format!("{vm}/config"))), (595, "No route to host"));
    let list = world.data("/cluster/resources");
    let entry = list.as_array().unwrap().iter().find(|entry| entry["vmid"] == 101).unwrap();
    assert_eq!(entry["status"], "unknown", "unknown, never absent");
    world.model.change(Change::NodeOnline { node: "pve1".into() });
    world.model.change(Change::NodeSilent { node: "pve1".into(), millis: Some(5000) });
    let response = world.get(&format!("{vm}/config"));
    assert_eq!(refusal(&response), (596, "Connection timed out"));
    assert_eq!(response.delay.as_secs(), 30);
    assert_eq!(world.data("/nodes/pve2/qemu"), serde_json::json!([]));
    world.pass(5);
    assert_eq!(world.get(&format!("{vm}/config")).status, 200);
}

#[test]
fn the_tasks_of_a_silent_node_are_listed_as_it_told_them_last_and_of_one_that_is_down_not_at_all() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    world.pass(11);
    let started = world.post(&format!("{vm}/status/start"), &[]).data().clone();
    let entry = |world: &mut World| {
        let list = world.data("/cluster/tasks");
        list.as_array().unwrap().iter().find(|task| task["upid"] == started).cloned()
    };
    world.model.change(Change::NodeSilent { node: "pve1".into(), millis: None });
    world.pass(60);
    assert!(entry(&mut world).unwrap().get("endtime").is_none(), "nobody tells of its end");
    world.model.change(Change::NodeOnline { node: "pve1".into() });
    assert_eq!(entry(&mut world).unwrap()["status"], "OK");
    world.model.change(Change::NodeOffline { node: "pve1".into() });
    assert_eq!(entry(&mut world), None);
}

#[test]
fn without_quorum_reads_go_on_and_writes_do_not() {
    let mut world = world();
    let vm = world.cloned("101", "m1");
    world.model.change(Change::QuorumLost { millis: Some(1000) });
    assert_eq!(world.get(&format!("{vm}/config")).status, 200);
    let status = world.data("/cluster/status");
    assert_eq!(status[0]["quorate"], 0);
    let text = "cluster not ready - no quorum?";
    assert_eq!(refusal(&world.post(&format!("{vm}/status/start"), &[])), (500, text));
    let clone = world.post("/nodes/pve1/qemu/9000/clone", &[("newid", "102")]);
    assert_eq!(refusal(&clone), (500, text));
    let config = world.post(&format!("{vm}/config"), &[("cores", "1")]);
    assert!(config.reason.unwrap().ends_with("Permission denied"));
    world.pass(1);
    assert_eq!(world.post(&format!("{vm}/status/start"), &[]).status, 200);
}

#[test]
fn unknown_paths_and_methods_are_not_implemented() {
    let mut world = world();
    let response = world.get("/nodes/pve1/qemu/101/nope");
    let text = "Method 'GET /nodes/pve1/qemu/101/nope' not implemented";
    assert_eq!(refusal(&response), (501, text));
    let response = world.send(Method::HEAD, "/version", &[]);
    assert_eq!(refusal(&response), (501, "method 'HEAD' not available"));
}

#[test]
fn every_release_says_what_it_is() {
    for (release, version) in [(Release::V7, "7.4"), (Release::V8, "8.4"), (Release::V9, "9.1")] {
        let mut world = World::of(Seed::three_nodes(), release);
        let data = world.data("/version");
        assert_eq!(data["release"], version);
        assert!(data["version"].as_str().unwrap().starts_with(version));
    }
}

#[test]
fn a_node_that_dies_leaves_the_lock_of_its_clone_behind() {
    let mut world = world();
    let response = world.post("/nodes/pve1/qemu/9000/clone", &[("newid", "101"), ("full", "1")]);
    world.model.change(Change::NodeOffline { node: "pve1".into() });
    world.model.change(Change::NodeOnline { node: "pve1".into() });
    assert_eq!(world.exit(&response), "unexpected status");
    let deletion = world.delete("/nodes/pve1/qemu/101", &[]);
    assert_eq!(world.exit(&deletion), "VM is locked (clone)");
    world.model.change(Change::VmLocked { vmid: 101, lock: None });
    let deletion = world.delete("/nodes/pve1/qemu/101", &[]);
    assert_eq!(world.exit(&deletion), "OK");
}

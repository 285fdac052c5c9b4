use serde_json::json;

use super::*;

#[test]
fn resources_are_told_apart_and_strange_ones_do_no_harm() {
    let list: Vec<Resource> = crate::pve::wire::value_list(json!([
        {"type": "qemu", "id": "qemu/100", "vmid": "100", "node": "a", "template": 1,
         "tags": "B;a", "maxmem": 1024, "new-field": {}},
        {"id": "qemu/101", "node": "a", "template": "", "status": "unknown"},
        {"type": "lxc", "vmid": 102, "node": "a", "name": null},
        {"type": "node", "node": "a", "status": "online", "maxmem": 4096.0},
        {"type": "node", "id": "node/b", "status": "offline"},
        {"type": "storage", "node": "a", "storage": "local", "content": "iso,vztmpl", "shared": 0},
        {"type": "sdn", "node": "a"},
        {"type": "qemu", "vmid": 103},
        7
    ]))
    .unwrap();
    let [Resource::Vm(first), Resource::Vm(second), Resource::Container(third), rest @ ..] =
        list.as_slice()
    else {
        panic!("{list:?}")
    };
    assert!(first.template && first.tags.len() == 2 && first.maxmem == Some(1024));
    assert!(second.vmid.get() == 101 && !second.template && second.maxmem.is_none());
    assert!(third.vmid.get() == 102 && third.name.is_none());
    let [
        Resource::Node(a),
        Resource::Node(b),
        Resource::Storage(local),
        Resource::Other,
        Resource::Other,
    ] = rest
    else {
        panic!("{rest:?}")
    };
    assert_eq!((a.maxmem, b.node.as_str()), (Some(4096), "b"));
    assert_eq!((local.content.len(), local.shared), (2, Some(false)));
}

#[test]
fn a_configuration_is_read_whatever_the_types_of_its_values() {
    let config: VmConfig = serde_json::from_value(json!({
        "name": "w-1", "cores": 2, "memory": "2048", "template": 1, "digest": "abc",
        "smbios1": "uuid=AB12,serial=eD0x,base64=1", "tags": "B a", "net1": "virtio,bridge=vmbr1",
        "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "net10": "e1000", "netx": "no",
        "description": "text\n", "gone": null, "boot": "order=scsi0", "scsi0": "l:d,size=8G"
    }))
    .unwrap();
    assert_eq!((config.name(), config.digest()), (Some("w-1"), Some("abc")));
    assert_eq!(config.uuid().as_deref(), Some("ab12"));
    assert_eq!((config.number("cores"), config.memory_mib()), (Some(2), Some(2048)));
    assert_eq!(config.description().as_deref(), Some("text"));
    assert!(config.is_template() && !config.is_protected() && config.lock().is_none());
    assert_eq!(config.tags().to_string(), "a;B");
    let names: Vec<String> = config.net_devices().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["net0", "net1", "net10"]);
    assert_eq!(config.drive("scsi0").and_then(|drive| drive.size()), Some(8 << 30));
    assert!(config.boot_order().contains("scsi0"));
    assert_eq!(config.get("gone"), None);
    let newer: VmConfig = [("memory", "current=4096")].into_iter().collect();
    assert_eq!(newer.memory_mib(), Some(4096));
}

#[test]
fn tasks_without_a_usable_id_are_left_out_of_the_list() {
    let upid = "UPID:a:1:2:3:qmstart:100:root@pam:";
    let tasks: Vec<TaskSummary> = crate::pve::wire::value_list(json!([
        {"upid": upid, "starttime": "5", "status": "OK", "endtime": 6},
        {"upid": upid, "status": "RUNNING"},
        {"upid": "strange"},
        {"id": "100"}
    ]))
    .unwrap();
    assert_eq!(tasks.len(), 2);
    assert_eq!((tasks[0].starttime, tasks[0].status.as_deref()), (Some(5), Some("OK")));
    assert_eq!(tasks[1].status, None);
}

#[test]
fn privileges_are_held_whether_or_not_paths_below_inherit_them() {
    let held: Permissions = serde_json::from_value(json!({
        "/": {"Sys.Audit": 1}, "/vms": {"VM.Clone": 0}, "/odd": []
    }))
    .unwrap();
    assert!(held.has("/", "Sys.Audit") && held.has("/vms", "VM.Clone"));
    assert!(!held.has("/vms", "Sys.Audit") && !held.has("/odd", "x"));
    assert_eq!(serde_json::from_value::<Permissions>(json!(null)).unwrap(), Permissions::default());
}

#[test]
fn a_path_that_is_not_listed_has_what_the_closest_one_above_hands_down() {
    let mut held: Permissions = serde_json::from_value(json!({
        "/": {"Sys.Audit": 1, "Sys.Modify": 0},
        "/vms": {"VM.Audit": "1", "VM.Clone": "0"},
        "/vms/100": {"VM.PowerMgmt": 1},
    }))
    .unwrap();
    for (path, privilege, on, below) in [
        ("/", "Sys.Audit", true, true),
        ("/", "Sys.Modify", true, false),
        ("/nodes/pve1", "Sys.Audit", true, true),
        ("/nodes/pve1", "Sys.Modify", false, false),
        ("/vms", "VM.Clone", true, false),
        ("/vms/101", "VM.Audit", true, true),
        ("/vms/101", "VM.Clone", false, false),
        ("/vms/100", "VM.Audit", false, false),
        ("/vms/100", "VM.PowerMgmt", true, true),
    ] {
        assert_eq!(held.holds(path, privilege), on, "{path} {privilege}");
        assert_eq!(held.holds_below(path, privilege), below, "below {path} {privilege}");
    }
    assert!(held.holds_somewhere("/vms", "VM.PowerMgmt"));
    assert!(held.holds_somewhere("/", "VM.PowerMgmt"));
    assert!(!held.holds_somewhere("/vm", "VM.PowerMgmt"));
    assert!(!held.holds_somewhere("/storage", "VM.PowerMgmt"));

    // What is said of one path alone is the whole truth about it.
    held.extend(serde_json::from_value(json!({"/nodes/pve1": {}})).unwrap());
    assert!(!held.holds("/nodes/pve1", "Sys.Audit") && held.holds("/nodes/pve2", "Sys.Audit"));
}

#[test]
fn the_version_says_what_generation_it_is() {
    let major =
        |version| serde_json::from_value::<Version>(json!({ "version": version })).unwrap().major();
    assert_eq!(major(json!("9.1.4")), Some(9));
    assert_eq!(major(json!("7.4-17")), Some(7));
    assert_eq!(major(json!(8.4)), Some(8));
    assert_eq!(major(json!(null)), None);
}

#[test]
fn a_storage_takes_what_it_is_for_unless_it_is_off() {
    let storage = |value| serde_json::from_value::<StorageStatus>(value).unwrap();
    assert!(storage(json!({"storage": "l", "content": "iso,images"})).takes("iso"));
    assert!(!storage(json!({"storage": "l", "content": "images"})).takes("iso"));
    assert!(!storage(json!({"storage": "l", "content": "iso", "enabled": 0})).takes("iso"));
    assert!(!storage(json!({"storage": "l", "content": "iso", "active": "0"})).takes("iso"));
}

#[test]
fn a_paused_vm_runs_but_its_processors_do_not() {
    let status = |value| serde_json::from_value::<VmStatus>(value).unwrap();
    let paused = status(json!({"status": "running", "qmpstatus": "paused", "agent": 1}));
    assert!(paused.is_running() && paused.is_paused() && paused.agent == Some(true));
    let stopped = status(json!({"status": "stopped", "qmpstatus": "stopped", "template": ""}));
    assert!(!stopped.is_running() && !stopped.is_paused() && !stopped.template);
}

#[test]
fn the_state_of_a_vm_is_read_from_whichever_field_tells_it() {
    for (value, running, stopped, paused, in_ha) in [
        (json!({"status": "Running"}), true, false, false, false),
        (json!({"qmpstatus": "stopped", "ha": {"managed": "1"}}), false, true, false, true),
        (json!({"status": "paused", "ha": {"managed": 0}}), false, false, true, false),
        (json!({"status": "suspended", "ha": null}), false, false, true, false),
        (json!({"status": "running", "qmpstatus": "suspended", "ha": 1}), true, false, true, false),
        (json!({"status": null, "uptime": "x", "maxmem": {}}), false, false, false, false),
    ] {
        let status: VmStatus = serde_json::from_value(value.clone()).unwrap();
        let told = (status.is_running(), status.is_stopped(), status.is_paused(), status.is_in_ha);
        assert_eq!(told, (running, stopped, paused, in_ha), "{value}");
    }
}

#[test]
fn a_guest_process_has_ended_when_anything_says_so() {
    for (value, ended) in [
        (json!({"exited": 1, "exitcode": 0}), true),
        (json!({"exited": "true"}), true),
        (json!({"exitcode": "2"}), true),
        (json!({"signal": 9}), true),
        (json!({"exited": false}), false),
        (json!({"exited": false, "exitcode": 0, "signal": 0, "out-data": ""}), false),
        (json!({"exitcode": null, "signal": 0}), false),
        (json!({"exited": 0, "out-data": 5}), false),
        (json!({}), false),
    ] {
        let status: AgentExecStatus = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(status.has_ended(), ended, "{value}");
    }
}

/// Of every answer only what is needed of it has to be there, and nothing else may be in the way.
#[test]
fn answers_with_strange_or_missing_fields_are_read_all_the_same() {
    let strange = || json!({"status": {}, "name": [], "uptime": "soon", "memory": 7, "x": null});
    for value in [json!({}), strange()] {
        serde_json::from_value::<Version>(value.clone()).unwrap();
        serde_json::from_value::<VmStatus>(value.clone()).unwrap();
        serde_json::from_value::<VmConfig>(value.clone()).unwrap();
        serde_json::from_value::<NodeStatus>(value.clone()).unwrap();
        serde_json::from_value::<TaskRecord>(value.clone()).unwrap();
        serde_json::from_value::<AgentOsInfo>(value.clone()).unwrap();
        serde_json::from_value::<AgentExecStatus>(value.clone()).unwrap();
        serde_json::from_value::<ClusterStatusEntry>(value.clone()).unwrap();
        serde_json::from_value::<VolumeInfo>(value.clone()).unwrap();
        serde_json::from_value::<Resource>(value).unwrap();
    }
    let node: NodeSummary = serde_json::from_value(json!({"node": "a", "maxmem": "4096"})).unwrap();
    assert_eq!((node.maxmem, node.status), (Some(4096), None));
    let volume: Volume =
        serde_json::from_value(json!({"volid": "l:iso/a", "size": "70", "vmid": ""})).unwrap();
    assert_eq!((volume.size, volume.vmid), (Some(70), None));
    let status: NodeStatus = serde_json::from_value(json!({"memory": {"total": "8"}})).unwrap();
    assert_eq!(status.memory.total, Some(8));
}

/// Answers of a real qemu-guest-agent 7.2 and 10.0, as Proxmox hands them on; captured by
/// `cargo xtask test-boot`.
#[test]
fn answers_of_a_real_guest_agent_are_read() {
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let told = read(include_str!("fixtures/network-get-interfaces.json"));
    let list: Vec<AgentInterface> = crate::pve::wire::value_list(told["result"].clone()).unwrap();
    let names: Vec<&str> = list.iter().filter_map(|one| one.name.as_deref()).collect();
    assert_eq!(names, ["lo", "ens18", "ens19", "ens20", "vrf-ext"]);
    assert_eq!(list[1].hardware_address.as_deref(), Some("bc:24:11:00:0a:00"));
    let addresses = list[1].ip_addresses.iter();
    let addresses: Vec<_> =
        addresses.map(|one| (one.ip_address.as_deref().unwrap(), one.prefix)).collect();
    assert_eq!(addresses[0], ("10.0.0.5", Some(24)));
    assert_eq!(addresses[2], ("2001:db8::5", Some(64)));
    // A VRF has no list of addresses at all.
    assert!(told["result"][4].get("ip-addresses").is_none() && list[4].ip_addresses.is_empty());

    let told = read(include_str!("fixtures/get-osinfo.json"));
    let system: AgentOsInfo = serde_json::from_value(told["result"].clone()).unwrap();
    assert_eq!((system.id.as_deref(), system.version_id.as_deref()), (Some("debian"), Some("13")));
    assert_eq!(system.pretty_name.as_deref(), Some("Debian GNU/Linux 13 (trixie)"));

    let told = read(include_str!("fixtures/exec-status.json"));
    for (key, code, words) in [
        ("cloud-init 22.4, running", 0, "status: running\n"),
        ("cloud-init 22.4, done", 0, "status: done\n"),
        ("cloud-init 25.1, error", 1, "status: error\n"),
    ] {
        let status: AgentExecStatus = serde_json::from_value(told[key].clone()).unwrap();
        assert!(
            status.has_ended() && status.signal.is_none() && status.err_data.is_none(),
            "{key}"
        );
        assert_eq!((status.exit_code, status.out_data.as_deref()), (Some(code), Some(words)));
    }
}

//! `/nodes` and what a node says of itself.

use serde_json::{Value, json};

use super::get;
use crate::config::Release;
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may};
use crate::model::state::Run;

const KERNEL: &str = "6.14.11-1-pve";

pub(super) const ROUTES: &[Route] = &[
    get("/nodes", Need::Login, &[], nodes),
    get("/nodes/{node}/status", Need::All("/nodes/{node}", &["Sys.Audit"]), &[], status),
    get("/nodes/{node}/version", Need::Login, &[], version),
    get("/nodes/{node}/qemu", Need::Login, &[may("full", Kind::Flag)], qemu),
    get("/nodes/{node}/lxc", Need::Login, &[], lxc),
    get("/nodes/{node}/network", Need::Login, &[may("type", Kind::Text)], network),
];

fn nodes(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let entries = model.nodes.keys().map(|name| {
        let mut entry = model.node_entry(name);
        let audits = model.allows(&call.caller, &format!("/nodes/{name}"), "Sys.Audit");
        if let (false, Some(map)) = (audits, entry.as_object_mut()) {
            for figure in ["cpu", "maxcpu", "mem", "maxmem", "disk", "maxdisk", "uptime"] {
                map.remove(figure);
            }
        }
        if let Some(map) = entry.as_object_mut() {
            map.remove("hastate");
        }
        entry
    });
    Ok(Reply::list(entries.collect()))
}

fn status(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = call.node();
    let Some(node) = model.nodes.get(name) else { return Ok(Reply::default()) };
    let used = model.node_memory_used(name);
    let free = node.memory.saturating_sub(used);
    let mut memory = json!({ "total": node.memory, "used": used, "free": free });
    if let (Release::V9, Some(map)) = (model.release, memory.as_object_mut()) {
        map.insert("available".to_owned(), json!(free));
    }
    Ok(Reply::data(json!({
        "cpu": 0.02, "wait": 0, "idle": 0,
        "uptime": model.now.since(model.born).as_secs() + 86_400,
        "loadavg": ["0.10", "0.10", "0.10"],
        "kversion": format!("Linux {KERNEL}"),
        "current-kernel":
            { "sysname": "Linux", "release": KERNEL, "version": "#1", "machine": "x86_64" },
        "boot-info": { "mode": "efi", "secureboot": 0 },
        "cpuinfo": {
            "cpus": node.cpus, "cores": node.cpus, "sockets": 1, "model": "Simulated CPU",
            "mhz": "3000", "flags": "", "hvm": "1", "user_hz": 100,
        },
        "memory": memory,
        "swap": { "total": 0, "used": 0, "free": 0 },
        "ksm": { "shared": 0 },
        "rootfs": {
            "total": 100_u64 << 30, "used": 4_u64 << 30, "free": 96_u64 << 30,
            "avail": 96_u64 << 30,
        },
        "pveversion": format!("pve-manager/{}/0123456789abcdef", model.release.version()),
    })))
}

fn version(model: &mut Model, _: &Call) -> Result<Reply, Refusal> {
    let (version, release) = (model.release.version(), model.release.release());
    Ok(Reply::data(json!({ "version": version, "release": release, "repoid": "0123456789abcdef" })))
}

fn qemu(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let visible = |vmid: u32| model.allows(&call.caller, &format!("/vms/{vmid}"), "VM.Audit");
    let vms = model.vms.iter().filter(|(vmid, vm)| vm.node == call.node() && visible(**vmid));
    let entries = vms.map(|(&vmid, vm)| {
        let mut entry = vm_status(model, vmid, vm);
        if let (true, Some(map)) = (call.params.flag("full"), entry.as_object_mut()) {
            map.insert("qmpstatus".to_owned(), json!(vm.run.qmp()));
        }
        entry
    });
    Ok(Reply::list(entries.collect()))
}

/// The live figures of a VM, which lists and `status/current` share.
pub(super) fn vm_status(model: &Model, vmid: u32, vm: &crate::model::state::Vm) -> Value {
    let running = vm.run != Run::Stopped;
    let uptime = if running { model.now.since(vm.started).as_secs() } else { 0 };
    let mut entry = json!({
        "vmid": vmid, "name": vm.name(vmid), "status": vm.run.status(),
        "cpus": vm.cpus(), "cpu": 0, "maxmem": vm.memory(),
        "mem": if running { vm.memory() / 2 } else { 0 },
        "maxdisk": vm.disk(), "disk": 0, "uptime": uptime,
        "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0,
    });
    if let Some(map) = entry.as_object_mut() {
        if model.release == Release::V9 {
            map.insert("memhost".to_owned(), json!(if running { vm.memory() / 2 } else { 0 }));
        }
        if vm.is_template() {
            map.insert("template".to_owned(), json!(1));
        }
        if running {
            map.insert("pid".to_owned(), json!(vm.pid));
        }
        for key in ["tags", "lock"] {
            if let Some(value) = vm.get(key) {
                map.insert(key.to_owned(), json!(value));
            }
        }
    }
    entry
}

fn lxc(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let here = model.containers.iter().filter(|(vmid, container)| {
        container.node == call.node()
            && model.allows(&call.caller, &format!("/vms/{vmid}"), "VM.Audit")
    });
    let entries = here.map(|(vmid, container)| {
        json!({
            "vmid": vmid, "name": container.name, "type": "lxc", "maxmem": container.memory,
            "status": if container.running { "running" } else { "stopped" },
            "mem": if container.running { container.memory / 2 } else { 0 },
            "cpus": 1, "maxdisk": 8_u64 << 30, "uptime": 0,
        })
    });
    Ok(Reply::list(entries.collect()))
}

fn network(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let bridges = model.nodes.get(call.node()).map(|node| node.bridges.clone());
    let entries = bridges
        .unwrap_or_default()
        .into_iter()
        .map(|name| json!({ "iface": name, "type": "bridge", "active": 1, "method": "static" }));
    Ok(Reply::list(entries.collect()))
}

//! `/version` and `/cluster`: what is answered without asking any node.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::get;
use crate::config::Release;
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may};
use crate::model::state::{NodeState, Run, Vm};

pub(super) const ROUTES: &[Route] = &[
    get("/version", Need::Login, &[], version),
    get(
        "/cluster/resources",
        Need::Login,
        &[may("type", Kind::OneOf(&["vm", "storage", "node", "sdn"]))],
        resources,
    ),
    get("/cluster/nextid", Need::Login, &[may("vmid", Kind::Vmid)], nextid),
    get("/cluster/status", Need::All("/", &["Sys.Audit"]), &[], status),
    get("/cluster/tasks", Need::Login, &[], tasks),
    get("/cluster/options", Need::Login, &[], options),
];

/// Ended tasks of a node in `cluster/tasks`.
const ENDED_LISTED: usize = 25;

fn version(model: &mut Model, _: &Call) -> Result<Reply, Refusal> {
    Ok(Reply::data(json!({
        "version": model.release.version(),
        "release": model.release.release(),
        "repoid": "0123456789abcdef",
    })))
}

fn resources(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let kind = call.params.text("type");
    let mut items = Vec::new();
    if kind.is_none_or(|kind| kind == "vm") {
        let seen = |vmid: &u32| model.allows(&call.caller, &format!("/vms/{vmid}"), "VM.Audit");
        items.extend(
            model.vms.keys().filter(|vmid| seen(vmid)).map(|&vmid| model.vm_resource(vmid)),
        );
        for (vmid, container) in model.containers.iter().filter(|(vmid, _)| seen(vmid)) {
            items.push(json!({
                "id": format!("lxc/{vmid}"), "type": "lxc", "vmid": vmid, "node": container.node,
                "name": container.name, "maxmem": container.memory, "template": 0,
                "status": if container.running { "running" } else { "stopped" },
            }));
        }
    }
    if kind.is_none_or(|kind| kind == "node") {
        items.extend(model.nodes.keys().map(|name| {
            let mut entry = model.node_entry(name);
            if let Some(map) = entry.as_object_mut() {
                map.insert("cgroup-mode".to_owned(), json!(2));
                map.remove("ssl_fingerprint");
            }
            entry
        }));
    }
    if kind.is_none_or(|kind| kind == "storage") {
        items.extend(model.storage_resources(call));
    }
    let zone = "/sdn/zones/localnetwork";
    let sdn = model.require(&call.caller, zone, &["SDN.Audit", "SDN.Use"]).is_ok();
    if sdn && model.release > Release::V7 && kind.is_none_or(|kind| kind == "sdn") {
        items.extend(model.nodes.keys().map(|node| {
            json!({
                "id": format!("sdn/{node}/localnetwork"), "type": "sdn", "node": node,
                "sdn": "localnetwork", "status": "ok",
            })
        }));
    }
    Ok(Reply::list(items))
}

impl Model {
    /// A VM as the cluster knows it: place and tags of now, the rest of the last broadcast.
    fn vm_resource(&self, vmid: u32) -> Value {
        let Some(vm) = self.vms.get(&vmid) else { return Value::Null };
        let mut entry = Map::new();
        entry.insert("id".to_owned(), json!(format!("qemu/{vmid}")));
        entry.insert("type".to_owned(), json!("qemu"));
        entry.insert("vmid".to_owned(), json!(vmid));
        entry.insert("node".to_owned(), json!(vm.node));
        entry.insert("status".to_owned(), json!("unknown"));
        if let Some(seen) = &vm.seen {
            let online =
                self.nodes.get(&vm.node).is_some_and(|node| node.state == NodeState::Online);
            let status = if online { seen.status } else { "unknown" };
            let running = status == "running";
            let memory = if running { seen.memory / 2 } else { 0 };
            entry.insert("status".to_owned(), json!(status));
            entry.insert("name".to_owned(), json!(seen.name));
            entry.insert("template".to_owned(), json!(u8::from(seen.template)));
            entry.insert("maxcpu".to_owned(), json!(seen.cpus));
            entry.insert("cpu".to_owned(), json!(0));
            entry.insert("maxmem".to_owned(), json!(seen.memory));
            entry.insert("mem".to_owned(), json!(memory));
            if self.release == Release::V9 {
                entry.insert("memhost".to_owned(), json!(memory));
            }
            entry.insert("maxdisk".to_owned(), json!(seen.disk));
            entry.insert("uptime".to_owned(), json!(seen.uptime));
            for key in ["disk", "netin", "netout", "diskread", "diskwrite"] {
                entry.insert(key.to_owned(), json!(0));
            }
        }
        for key in ["tags", "lock"] {
            if let Some(value) = vm.get(key) {
                entry.insert(key.to_owned(), json!(value));
            }
        }
        if let Some((pool, _)) = self.pools.iter().find(|(_, pool)| pool.vms.contains(&vmid)) {
            entry.insert("pool".to_owned(), json!(pool));
        }
        if let Some(ha) = self.ha.get(&format!("vm:{vmid}")) {
            entry.insert("hastate".to_owned(), json!(ha.state));
        }
        Value::Object(entry)
    }

    /// A node with its figures.
    pub(crate) fn node_entry(&self, name: &str) -> Value {
        let Some(node) = self.nodes.get(name) else { return Value::Null };
        let id = format!("node/{name}");
        if node.state != NodeState::Online {
            let status = "offline";
            return json!({ "id": id, "type": "node", "node": name, "status": status, "level": "" });
        }
        json!({
            "id": id, "type": "node", "node": name, "status": "online", "level": "",
            "ssl_fingerprint": "00:00", "cpu": 0.02, "maxcpu": node.cpus,
            "mem": self.node_memory_used(name), "maxmem": node.memory,
            "disk": 4_u64 << 30, "maxdisk": 100_u64 << 30,
            "uptime": self.now.since(self.born).as_secs() + 86_400,
            "hastate": if node.maintenance { "maintenance" } else { "online" },
        })
    }

    /// Memory taken by the host itself and what runs on it.
    pub(crate) fn node_memory_used(&self, name: &str) -> u64 {
        let vms = self.vms.values().filter(|vm| vm.node == name && vm.run != Run::Stopped);
        let containers = self.containers.values();
        let containers = containers.filter(|guest| guest.node == name && guest.running);
        (1 << 30)
            + vms.map(Vm::memory).sum::<u64>()
            + containers.map(|guest| guest.memory).sum::<u64>()
    }

    fn storage_resources(&self, call: &Call) -> Vec<Value> {
        let mut items = Vec::new();
        for (node, state) in &self.nodes {
            for (name, storage) in self.storages.iter().filter(|(_, storage)| storage.is_on(node)) {
                let path = format!("/storage/{name}");
                let rights = ["Datastore.Audit", "Datastore.AllocateSpace"];
                if storage.disabled || self.require(&call.caller, &path, &rights).is_err() {
                    continue;
                }
                let up = state.state == NodeState::Online;
                items.push(json!({
                    "id": format!("storage/{node}/{name}"), "type": "storage", "storage": name,
                    "node": node, "plugintype": storage.kind, "content": storage.content.join(","),
                    "shared": u8::from(storage.shared),
                    "status": if up { "available" } else { "unknown" },
                    "maxdisk": if up { storage.size } else { 0 },
                    "disk": if up { self.used(name, node) } else { 0 },
                }));
            }
        }
        items
    }

    fn is_taken(&self, vmid: u32) -> bool {
        self.vms.contains_key(&vmid) || self.containers.contains_key(&vmid)
    }
}

fn nextid(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let wanted = call.params.text("vmid").and_then(|text| text.parse::<u32>().ok());
    if let Some(vmid) = wanted {
        if model.is_taken(vmid) {
            return Err(Refusal::param("vmid", format!("VM {vmid} already exists")));
        }
        return Ok(Reply::data(json!(vmid.to_string())));
    }
    let free = (100..1_000_000).find(|&vmid| !model.is_taken(vmid));
    let none = || Refusal::die("unable to get any free VMID in range [100, 1000000]");
    free.map(|vmid| Reply::data(json!(vmid.to_string()))).ok_or_else(none)
}

fn status(model: &mut Model, _: &Call) -> Result<Reply, Refusal> {
    let mut items = Vec::new();
    if !model.cluster.is_empty() {
        items.push(json!({
            "type": "cluster", "id": "cluster", "name": model.cluster, "version": 3,
            "nodes": model.nodes.len(), "quorate": u8::from(model.quorate),
        }));
    }
    for (at, (name, node)) in model.nodes.iter().enumerate() {
        items.push(json!({
            "type": "node", "id": format!("node/{name}"), "name": name, "nodeid": at + 1,
            "ip": format!("10.0.0.{}", at + 1), "local": u8::from(*name == model.local),
            "online": u8::from(node.state == NodeState::Online), "level": "",
        }));
    }
    Ok(Reply::list(items))
}

fn tasks(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let mut tasks: Vec<_> =
        model.tasks.values().filter(|task| model.may_see(&call.caller, task)).collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(task.order));
    // Each node tells of its running tasks and of the last ones that ended. What a silent one told
    // last is shown for as long as it is a member of the cluster.
    let (mut ended, mut listed): (BTreeMap<&str, usize>, Vec<Value>) = Default::default();
    for task in tasks {
        let node = model.nodes.get(&task.node);
        let told = node.and_then(|node| node.told).unwrap_or(model.now);
        if task.start > told || node.is_none_or(|node| node.state == NodeState::Offline) {
            continue;
        }
        let has_ended = task.end.is_some_and(|end| end <= told);
        let count = ended.entry(&task.node).or_default();
        *count += usize::from(has_ended);
        if has_ended && *count > ENDED_LISTED {
            continue;
        }
        let mut entry = task.entry();
        if !has_ended && let Some(entry) = entry.as_object_mut() {
            entry.remove("endtime");
            entry.remove("status");
        }
        listed.push(entry);
    }
    Ok(Reply::list(listed))
}

fn options(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let mut data = BTreeMap::new();
    if model.allows(&call.caller, "/", "Sys.Audit") {
        data.insert("keyboard", json!("en-us"));
        data.insert("mac_prefix", json!("BC:24:11"));
        if !model.registered_tags.is_empty() {
            data.insert("registered-tags", json!(model.registered_tags));
        }
    }
    if model.release > Release::V7 || !model.registered_tags.is_empty() {
        data.insert("allowed-tags", json!(model.registered_tags));
    }
    Ok(Reply::data(json!(data)))
}

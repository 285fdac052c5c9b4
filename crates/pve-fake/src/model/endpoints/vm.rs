//! A VM's configuration and state as read, its resize and its end.

use serde_json::{Map, Value, json};

use super::node::vm_status;
use super::{get, route};
use crate::config::Release;
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may, must};
use crate::model::state::{Run, show_option};
use crate::model::work::{DestroyWork, ResizeWork, Work};

const AUDIT: Need = Need::All("/vms/{vmid}", &["VM.Audit"]);
const VM: &str = "/nodes/{node}/qemu/{vmid}";

pub(super) const ROUTES: &[Route] = &[
    get(
        "/nodes/{node}/qemu/{vmid}/config",
        AUDIT,
        &[may("current", Kind::Flag), may("snapshot", Kind::ConfigId)],
        config,
    ),
    get("/nodes/{node}/qemu/{vmid}/pending", AUDIT, &[], pending),
    get("/nodes/{node}/qemu/{vmid}/status/current", AUDIT, &[], current),
    get(
        "/nodes/{node}/qemu/{vmid}/feature",
        AUDIT,
        &[
            must("feature", Kind::OneOf(&["snapshot", "clone", "copy"])),
            may("snapname", Kind::ConfigId),
        ],
        feature,
    ),
    route(
        "PUT",
        "/nodes/{node}/qemu/{vmid}/resize",
        Need::All("/vms/{vmid}", &["VM.Config.Disk"]),
        &[
            must("disk", Kind::Drives),
            must("size", Kind::DiskSize),
            may("digest", Kind::Short(40)),
            may("skiplock", Kind::Flag),
        ],
        resize,
    ),
    route(
        "DELETE",
        VM,
        Need::All("/vms/{vmid}", &["VM.Allocate"]),
        &[
            may("purge", Kind::Flag),
            may("destroy-unreferenced-disks", Kind::Flag),
            may("skiplock", Kind::Flag),
        ],
        destroy,
    ),
];

fn config(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.vm(call.node(), call.vmid())?;
    let mut config = vm.config.clone();
    if let Some(name) = call.params.text("snapshot") {
        let snapshot = vm.snapshots.get(name);
        let missing = || Refusal::die(format!("snapshot '{name}' does not exist"));
        config = snapshot.ok_or_else(missing)?.config.clone();
    } else if !call.params.flag("current") {
        for (key, value) in &vm.pending {
            match value {
                Some(value) => config.insert(key.clone(), value.clone()),
                None => config.remove(key),
            };
        }
    }
    let shown =
        config.iter().map(|(key, value)| (key.clone(), show_option(key, value, model.release)));
    let mut data: Map<String, Value> = shown.collect();
    data.insert("digest".to_owned(), json!(vm.digest()));
    Ok(Reply::data(Value::Object(data)))
}

fn pending(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.vm(call.node(), call.vmid())?;
    let mut items = Vec::new();
    for (key, value) in &vm.config {
        let mut item = json!({ "key": key, "value": show_option(key, value, model.release) });
        match (vm.pending.get(key), item.as_object_mut()) {
            (Some(Some(new)), Some(map)) => {
                map.insert("pending".to_owned(), show_option(key, new, model.release));
            }
            (Some(None), Some(map)) => {
                map.insert("delete".to_owned(), json!(1));
            }
            _ => {}
        }
        items.push(item);
    }
    for (key, value) in vm.pending.iter().filter(|(key, _)| !vm.config.contains_key(*key)) {
        if let Some(value) = value {
            items.push(json!({ "key": key, "pending": show_option(key, value, model.release) }));
        }
    }
    Ok(Reply::list(items))
}

fn current(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vmid = call.vmid();
    let vm = model.vm(call.node(), vmid)?;
    let mut data = vm_status(model, vmid, vm);
    if let Some(map) = data.as_object_mut() {
        map.insert("qmpstatus".to_owned(), json!(vm.run.qmp()));
        let ha = model.ha.get(&format!("vm:{vmid}"));
        map.insert(
            "ha".to_owned(),
            match ha {
                Some(ha) => json!({ "managed": 1, "state": ha.state }),
                None => json!({ "managed": 0 }),
            },
        );
        if vm.agent_enabled() {
            map.insert("agent".to_owned(), json!(1));
        }
        if vm.run != Run::Stopped {
            map.insert("running-qemu".to_owned(), json!("10.0.2"));
            map.insert("running-machine".to_owned(), json!("pc-i440fx-10.0+pve0"));
        }
    }
    Ok(Reply::data(data))
}

fn feature(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.vm(call.node(), call.vmid())?;
    let shared = |name: &str| model.storages.get(name).is_some_and(|storage| storage.shared);
    let local = vm.drives().iter().any(|(_, drive)| drive.storage().is_some_and(|s| !shared(s)));
    let nodes: Vec<&String> = if local { vec![&vm.node] } else { model.nodes.keys().collect() };
    Ok(Reply::data(json!({ "hasFeature": 1, "nodes": nodes })))
}

fn resize(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let (node, vmid) = (call.node().to_owned(), call.vmid());
    let text = |key| call.params.text(key).map(str::to_owned);
    let work = ResizeWork {
        node: node.clone(),
        vmid,
        disk: text("disk").unwrap_or_default(),
        size: text("size").unwrap_or_default(),
        digest: text("digest"),
    };
    model.vm(&node, vmid)?;
    if model.release == Release::V7 {
        work.check(model).and_then(|()| work.finish(model)).map_err(Refusal::die)?;
        return Ok(Reply::null(format!("resized {} of {vmid}", work.disk)));
    }
    let id = vmid.to_string();
    Ok(Reply::task(model.submit(&node, "resize", &id, &call.caller, Work::Resize(work))))
}

fn destroy(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let (node, vmid) = (call.node().to_owned(), call.vmid());
    let vm = model.vm(&node, vmid)?;
    if vm.get("protection") == Some("1") {
        return Err(Refusal::die(format!("can't remove VM {vmid} - protection mode enabled")));
    }
    model.need_writable(&node, vmid)?;
    let purge = call.params.flag("purge");
    if model.ha.contains_key(&format!("vm:{vmid}")) && !purge {
        return Err(Refusal::die(format!(
            "unable to remove VM {vmid} - used in HA resources and purge parameter not set."
        )));
    }
    if model.replicated.contains(&vmid) && !purge {
        return Err(Refusal::die(format!(
            "There is a replication job '{vmid}-0' for guest '{vmid}' - Please remove that first."
        )));
    }
    if vm.run != Run::Stopped {
        model.check_destroy(vmid);
        return Err(Refusal::die(format!("VM {vmid} is running - destroy failed")));
    }
    let unreferenced = call.params.flag("destroy-unreferenced-disks");
    let work = DestroyWork { node: node.clone(), vmid, purge, unreferenced };
    let id = vmid.to_string();
    Ok(Reply::task(model.submit(&node, "qmdestroy", &id, &call.caller, Work::Destroy(work))))
}

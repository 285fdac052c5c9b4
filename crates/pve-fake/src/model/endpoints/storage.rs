//! Storages and what is on them.

use serde_json::{Value, json};

use super::{get, route};
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may};
use crate::model::state::Storage;
use crate::model::work::{UnlinkWork, Work};

const READ: &[&str] = &["Datastore.Audit", "Datastore.AllocateSpace"];
const VISIBLE: Need = Need::Any("/storage/{storage}", READ);

pub(super) const ROUTES: &[Route] = &[
    get("/storage", Need::Login, &[may("type", Kind::Text)], definitions),
    get(
        "/nodes/{node}/storage",
        Need::Login,
        &[
            may("storage", Kind::StorageId),
            may("content", Kind::Text),
            may("enabled", Kind::Flag),
            may("target", Kind::Node),
            may("format", Kind::Flag),
        ],
        list,
    ),
    get("/nodes/{node}/storage/{storage}/status", VISIBLE, &[], status),
    get(
        "/nodes/{node}/storage/{storage}/content",
        VISIBLE,
        &[may("content", Kind::Text), may("vmid", Kind::Vmid)],
        content,
    ),
    get("/nodes/{node}/storage/{storage}/content/{volume}", Need::Login, &[], volume),
    route(
        "DELETE",
        "/nodes/{node}/storage/{storage}/content/{volume}",
        Need::Login,
        &[may("delay", Kind::Int(1, 30))],
        delete,
    ),
];

fn definitions(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let mut items = Vec::new();
    for (name, storage) in &model.storages {
        if model.require(&call.caller, &format!("/storage/{name}"), READ).is_err() {
            continue;
        }
        let mut item = json!({
            "storage": name, "type": storage.kind, "content": storage.content.join(","),
            "digest": "0000000000000000000000000000000000000000",
        });
        if let Some(map) = item.as_object_mut() {
            if storage.shared {
                map.insert("shared".to_owned(), json!(1));
            }
            if storage.disabled {
                map.insert("disable".to_owned(), json!(1));
            }
            if !storage.nodes.is_empty() {
                map.insert("nodes".to_owned(), json!(storage.nodes.join(",")));
            }
        }
        items.push(item);
    }
    Ok(Reply::list(items))
}

fn list(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let node = call.node();
    let contents = call.params.words("content");
    let mut items = Vec::new();
    for (name, storage) in &model.storages {
        let wanted = call.params.text("storage").is_none_or(|only| only == name)
            && (contents.is_empty() || contents.iter().any(|kind| storage.takes(kind)))
            && call.params.text("target").is_none_or(|target| storage.is_on(target))
            && !(call.params.flag("enabled") && storage.disabled);
        let visible = model.require(&call.caller, &format!("/storage/{name}"), READ).is_ok();
        if storage.is_on(node) && wanted && visible {
            items.push(model.storage_status(name, storage, node, true));
        }
    }
    Ok(Reply::list(items))
}

impl Model {
    #[expect(clippy::cast_precision_loss, reason = "a fraction for people")]
    fn storage_status(&self, name: &str, storage: &Storage, node: &str, named: bool) -> Value {
        let used = self.used(name, node);
        let mut item = json!({
            "type": storage.kind, "content": storage.content.join(","),
            "enabled": u8::from(!storage.disabled), "active": u8::from(!storage.disabled),
            "shared": u8::from(storage.shared), "total": storage.size, "used": used,
            "avail": storage.size.saturating_sub(used),
        });
        if let (true, Some(map)) = (named, item.as_object_mut()) {
            map.insert("storage".to_owned(), json!(name));
            map.insert("used_fraction".to_owned(), json!(used as f64 / storage.size.max(1) as f64));
        }
        item
    }

    /// A storage that is known, on and switched on at the node.
    pub(super) fn usable_storage(&self, name: &str, node: &str) -> Result<&Storage, Refusal> {
        let storage = self.storages.get(name);
        let storage =
            storage.ok_or_else(|| Refusal::die(format!("storage '{name}' does not exist")))?;
        if storage.disabled {
            return Err(Refusal::die(format!("storage '{name}' is disabled")));
        }
        if !storage.is_on(node) {
            let text = format!("storage '{name}' is not available on node '{node}'");
            return Err(Refusal::die(text));
        }
        Ok(storage)
    }
}

fn status(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let (name, node) = (call.storage(), call.node());
    let storage = model.storages.get(name);
    let storage =
        storage.ok_or_else(|| Refusal::die(format!("storage '{name}' does not exist")))?;
    Ok(Reply::data(model.storage_status(name, storage, node, false)))
}

fn content(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let (name, node) = (call.storage(), call.node());
    model.usable_storage(name, node)?;
    let prefix = format!("{name}:");
    let mut items = Vec::new();
    for ((place, volid), volume) in &model.volumes {
        let here = volid.starts_with(&prefix) && (place.is_empty() || place == node);
        let kind = call.params.text("content").is_none_or(|kind| kind == volume.content);
        let vmid = call.params.number("vmid");
        if !here || !kind || vmid.is_some_and(|vmid| volume.owner.map(u64::from) != Some(vmid)) {
            continue;
        }
        let mut item = json!({
            "volid": volid, "content": volume.content, "format": volume.format,
            "size": volume.size, "ctime": volume.created.secs(),
        });
        if let Some(map) = item.as_object_mut() {
            if let Some(owner) = volume.owner {
                map.insert("vmid".to_owned(), json!(owner));
            }
            if let Some(parent) = &volume.parent {
                map.insert("parent".to_owned(), json!(parent));
            }
        }
        items.push(item);
    }
    Ok(Reply::list(items))
}

/// The whole volume id of the path, which may leave the storage away.
fn volid(call: &Call) -> Result<String, Refusal> {
    let (storage, volume) = (call.storage(), call.named("volume"));
    match volume.split_once(':') {
        None => Ok(format!("{storage}:{volume}")),
        Some((other, _)) if other == storage => Ok(volume.to_owned()),
        Some((other, _)) => {
            let text = format!("storage ID mismatch ({storage} != {other})");
            Err(Refusal::param("volume", text))
        }
    }
}

fn volume(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let volid = volid(call)?;
    model.require(&call.caller, &format!("/storage/{}", call.storage()), READ)?;
    model.usable_storage(call.storage(), call.node())?;
    let Some(volume) = model.find_volume(call.node(), &volid) else {
        return Err(Refusal::die(format!("volume_size_info on '{volid}' failed - no format")));
    };
    let file = volid.split_once(':').map_or("", |(_, file)| file);
    let path = match volume.content {
        "iso" => format!("/var/lib/vz/template/{file}"),
        _ => format!("/dev/{}/{file}", call.storage()),
    };
    Ok(Reply::data(json!({
        "path": path, "size": volume.size, "used": volume.size, "format": volume.format,
    })))
}

fn delete(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let volid = volid(call)?;
    let (node, storage) = (call.node().to_owned(), call.storage());
    model.usable_storage(storage, &node)?;
    let path = format!("/storage/{storage}");
    let owner = model.find_volume(&node, &volid).and_then(|volume| volume.owner);
    match owner {
        Some(vmid) => {
            model.require(&call.caller, &path, &["Datastore.AllocateSpace"])?;
            model.require(&call.caller, &format!("/vms/{vmid}"), &["VM.Config.Disk"])?;
        }
        None => model.require(&call.caller, &path, &["Datastore.Allocate"])?,
    }
    let id = match owner {
        Some(vmid) => format!("{vmid}@{storage}"),
        None => storage.to_owned(),
    };
    let work = Work::Unlink(UnlinkWork { node: node.clone(), volid });
    Ok(Reply::task(model.submit(&node, "imgdel", &id, &call.caller, work)))
}

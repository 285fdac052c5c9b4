//! `/pools`: by query from 8.1 on, by path before and still.

use serde_json::{Value, json};

use super::{get, post, route};
use crate::config::Release;
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Field, Kind, may, must};
use crate::model::state::Pool;

const CHANGE: &[Field] = &[
    may("poolid", Kind::PoolId),
    may("comment", Kind::Text),
    may("vms", Kind::Text),
    may("storage", Kind::Text),
    may("delete", Kind::Flag),
    may("allow-move", Kind::Flag),
];
const ALLOCATE: Need = Need::All("/pool/{poolid}", &["Pool.Allocate"]);

pub(super) const ROUTES: &[Route] = &[
    get(
        "/pools",
        Need::Login,
        &[may("poolid", Kind::PoolId), may("type", Kind::OneOf(&["qemu", "lxc", "storage"]))],
        list,
    ),
    get(
        "/pools/{poolid}",
        Need::All("/pool/{poolid}", &["Pool.Audit"]),
        &[may("type", Kind::OneOf(&["qemu", "lxc", "storage"]))],
        one,
    ),
    post("/pools", ALLOCATE, &[must("poolid", Kind::PoolId), may("comment", Kind::Text)], create),
    route("PUT", "/pools", ALLOCATE, CHANGE, change),
    route("PUT", "/pools/{poolid}", ALLOCATE, CHANGE, change),
    route("DELETE", "/pools", ALLOCATE, &[must("poolid", Kind::PoolId)], delete),
    route("DELETE", "/pools/{poolid}", ALLOCATE, &[], delete),
];

fn name(call: &Call) -> String {
    let path = call.named("poolid");
    let name = if path.is_empty() { call.params.text("poolid").unwrap_or_default() } else { path };
    name.to_owned()
}

impl Model {
    fn members(&self, pool: &Pool) -> Vec<Value> {
        let vms = pool.vms.iter().filter_map(|vmid| Some((vmid, self.vms.get(vmid)?)));
        let vms = vms.map(|(vmid, vm)| {
            json!({
                "id": format!("qemu/{vmid}"), "type": "qemu", "vmid": vmid, "node": vm.node,
                "name": vm.name(*vmid), "status": vm.run.status(),
                "template": u8::from(vm.is_template()),
            })
        });
        let storages = pool.storages.iter().map(
            |name| json!({ "id": format!("storage/{name}"), "type": "storage", "storage": name }),
        );
        vms.chain(storages).collect()
    }

    fn pool(&self, name: &str) -> Result<&Pool, Refusal> {
        self.pools.get(name).ok_or_else(|| Refusal::die(format!("pool '{name}' does not exist")))
    }
}

/// A pool without a comment has no such key.
fn entry(name: &str, pool: &Pool) -> Value {
    if pool.comment.is_empty() {
        json!({ "poolid": name })
    } else {
        json!({ "poolid": name, "comment": pool.comment })
    }
}

fn list(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let visible = |name: &String| {
        let path = format!("/pool/{name}");
        model.require(&call.caller, &path, &["Pool.Audit", "Pool.Allocate"]).is_ok()
    };
    if let Some(name) = call.params.text("poolid").filter(|_| model.release > Release::V7) {
        model.require(&call.caller, &format!("/pool/{name}"), &["Pool.Audit"])?;
        let pool = model.pool(name)?;
        let mut item = entry(name, pool);
        if let Some(map) = item.as_object_mut() {
            map.insert("members".to_owned(), json!(model.members(pool)));
        }
        return Ok(Reply::list(vec![item]));
    }
    let pools = model.pools.iter().filter(|(name, _)| visible(name));
    let items = pools.map(|(name, pool)| entry(name, pool));
    Ok(Reply::list(items.collect()))
}

fn one(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let pool = model.pool(call.named("poolid"))?;
    Ok(Reply::data(json!({ "comment": pool.comment, "members": model.members(pool) })))
}

fn create(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = name(call);
    if model.pools.contains_key(&name) {
        return Err(Refusal::die(format!("create pool failed: pool '{name}' already exists")));
    }
    let comment = call.params.text("comment").unwrap_or_default().to_owned();
    model.pools.insert(name.clone(), Pool { comment, ..Pool::default() });
    Ok(Reply::null(format!("created pool {name}")))
}

fn change(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = name(call);
    let failed = |text: String| Refusal::die(format!("update pools failed: {text}"));
    model.pool(&name).map_err(|refusal| failed(refusal.text))?;
    let vms = call.params.words("vms").into_iter().filter_map(|id| id.parse::<u32>().ok());
    let vms: Vec<u32> = vms.collect();
    let removes = call.params.flag("delete");
    for vmid in &vms {
        let path = format!("/vms/{vmid}");
        model.require(&call.caller, &path, &["VM.Allocate", "Permissions.Modify"])?;
        let holder = model.pools.iter().find(|(_, pool)| pool.vms.contains(vmid));
        let holder = holder.map(|(name, _)| name.clone());
        match (removes, holder) {
            (true, Some(pool)) if pool == name => {}
            (true, _) => return Err(failed(format!("VM {vmid} is not a pool member"))),
            (false, Some(pool)) if pool == name => {
                return Err(failed(format!("VM {vmid} is already a pool member")));
            }
            (false, Some(pool)) if !call.params.flag("allow-move") => {
                return Err(failed(format!(
                    "VM {vmid} belongs already to pool '{pool}' and 'allow-move' is not set"
                )));
            }
            (false, _) => {}
        }
    }
    for pool in model.pools.values_mut() {
        pool.vms.retain(|vmid| !vms.contains(vmid));
    }
    if let Some(pool) = model.pools.get_mut(&name) {
        if !removes {
            pool.vms.extend(vms);
            pool.storages.extend(call.params.words("storage"));
        }
        if let Some(comment) = call.params.text("comment") {
            comment.clone_into(&mut pool.comment);
        }
    }
    Ok(Reply::null(format!("changed pool {name}")))
}

fn delete(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = name(call);
    let pool = model
        .pool(&name)
        .map_err(|refusal| Refusal::die(format!("delete pool failed: {}", refusal.text)))?;
    if let Some(vmid) = pool.vms.first() {
        let text = format!("delete pool failed: pool '{name}' is not empty (contains VM {vmid})");
        return Err(Refusal::die(text));
    }
    model.pools.remove(&name);
    Ok(Reply::null(format!("deleted pool {name}")))
}

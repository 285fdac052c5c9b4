//! Snapshots and conversion to a template.

use serde_json::{Value, json};

use super::{get, post, route};
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may, must};
use crate::model::state::Run;
use crate::model::work::{SnapshotStep, SnapshotWork, Work};

const TAKE: Need = Need::All("/vms/{vmid}", &["VM.Snapshot"]);

pub(super) const ROUTES: &[Route] = &[
    get("/nodes/{node}/qemu/{vmid}/snapshot", Need::All("/vms/{vmid}", &["VM.Audit"]), &[], list),
    post(
        "/nodes/{node}/qemu/{vmid}/snapshot",
        TAKE,
        &[
            must("snapname", Kind::ConfigId),
            may("vmstate", Kind::Flag),
            may("description", Kind::Text),
        ],
        take,
    ),
    route(
        "DELETE",
        "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}",
        TAKE,
        &[may("force", Kind::Flag)],
        delete,
    ),
    post(
        "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback",
        Need::Any("/vms/{vmid}", &["VM.Snapshot", "VM.Snapshot.Rollback"]),
        &[may("start", Kind::Flag)],
        rollback,
    ),
    post(
        "/nodes/{node}/qemu/{vmid}/template",
        Need::All("/vms/{vmid}", &["VM.Allocate"]),
        &[may("disk", Kind::Drives)],
        template,
    ),
];

/// Each with the one before it as its parent; last the present state.
fn list(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.vm(call.node(), call.vmid())?;
    let mut snapshots: Vec<_> = vm.snapshots.iter().collect();
    snapshots.sort_by_key(|(_, snapshot)| snapshot.taken);
    let mut items: Vec<Value> = snapshots
        .iter()
        .map(|(name, snapshot)| {
            json!({
                "name": name, "description": snapshot.description,
                "snaptime": snapshot.taken.secs(), "vmstate": 0,
            })
        })
        .collect();
    items.push(json!({
        "name": "current", "description": "You are here!", "digest": vm.digest(),
        "running": u8::from(vm.run != Run::Stopped),
    }));
    for (item, (parent, _)) in items.iter_mut().skip(1).zip(&snapshots) {
        if let Some(map) = item.as_object_mut() {
            map.insert("parent".to_owned(), json!(parent));
        }
    }
    Ok(Reply::list(items))
}

fn submit(
    model: &mut Model,
    call: &Call,
    kind: &'static str,
    step: SnapshotStep,
) -> Result<Reply, Refusal> {
    let (node, vmid) = (call.node().to_owned(), call.vmid());
    model.vm(&node, vmid)?;
    model.need_writable(&node, vmid)?;
    let work = Work::Snapshot(SnapshotWork { node: node.clone(), vmid, step });
    Ok(Reply::task(model.submit(&node, kind, &vmid.to_string(), &call.caller, work)))
}

fn take(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = call.params.text("snapname").unwrap_or_default().to_owned();
    if matches!(name.as_str(), "current" | "pending") {
        return Err(Refusal::die(format!("unable to use snapshot name '{name}' (reserved name)")));
    }
    let description = call.params.text("description").unwrap_or_default().to_owned();
    submit(model, call, "qmsnapshot", SnapshotStep::Take { name, description })
}

fn delete(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = call.named("snapname").to_owned();
    submit(model, call, "qmdelsnapshot", SnapshotStep::Delete { name })
}

fn rollback(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = call.named("snapname").to_owned();
    submit(model, call, "qmrollback", SnapshotStep::Rollback { name })
}

fn template(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.unlocked_vm(call.node(), call.vmid())?;
    if vm.is_template() {
        return Err(Refusal::die("you can't convert a template to a template"));
    }
    submit(model, call, "qmtemplate", SnapshotStep::Template)
}

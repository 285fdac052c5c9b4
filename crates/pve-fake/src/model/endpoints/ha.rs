//! `/cluster/ha/resources`: kept and shown; there is no resource manager behind it.

use serde_json::json;

use super::{get, post, route};
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Field, Kind, may, must};
use crate::model::state::HaResource;

const STATES: Kind = Kind::OneOf(&["started", "stopped", "enabled", "disabled", "ignored"]);
const FIELDS: &[Field] = &[
    may("state", STATES),
    may("comment", Kind::Text),
    may("group", Kind::Text),
    may("max_restart", Kind::Int(0, i64::MAX)),
    may("max_relocate", Kind::Int(0, i64::MAX)),
    may("failback", Kind::Flag),
    may("digest", Kind::Short(64)),
    may("delete", Kind::Text),
];
const CREATE: &[Field] = &[
    must("sid", Kind::Text),
    may("type", Kind::Text),
    may("state", STATES),
    may("comment", Kind::Text),
    may("group", Kind::Text),
    may("max_restart", Kind::Int(0, i64::MAX)),
    may("max_relocate", Kind::Int(0, i64::MAX)),
    may("failback", Kind::Flag),
];
const READ: Need = Need::All("/", &["Sys.Audit"]);
const WRITE: Need = Need::All("/", &["Sys.Console"]);

pub(super) const ROUTES: &[Route] = &[
    get("/cluster/ha/resources", READ, &[may("type", Kind::Text)], list),
    get("/cluster/ha/resources/{sid}", READ, &[], one),
    post("/cluster/ha/resources", WRITE, CREATE, create),
    route("PUT", "/cluster/ha/resources/{sid}", WRITE, FIELDS, change),
    route("DELETE", "/cluster/ha/resources/{sid}", WRITE, &[may("purge", Kind::Flag)], delete),
];

fn sid(text: &str) -> String {
    if text.contains(':') { text.to_owned() } else { format!("vm:{text}") }
}

fn entry(sid: &str, ha: &HaResource) -> serde_json::Value {
    json!({
        "sid": sid, "type": "vm", "state": ha.state, "comment": ha.comment,
        "max_restart": ha.max_restart, "max_relocate": ha.max_relocate,
        "digest": "0000000000000000000000000000000000000000",
    })
}

fn list(model: &mut Model, _: &Call) -> Result<Reply, Refusal> {
    Ok(Reply::list(model.ha.iter().map(|(sid, ha)| entry(sid, ha)).collect()))
}

fn one(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let sid = sid(call.named("sid"));
    let missing = || Refusal::die(format!("no such resource '{sid}'"));
    let ha = model.ha.get(&sid).ok_or_else(missing)?;
    Ok(Reply::data(entry(&sid, ha)))
}

fn set(ha: &mut HaResource, call: &Call) {
    if let Some(state) = call.params.text("state") {
        state.clone_into(&mut ha.state);
    }
    if let Some(comment) = call.params.text("comment") {
        comment.clone_into(&mut ha.comment);
    }
    ha.max_restart = call.params.number("max_restart").unwrap_or(ha.max_restart);
    ha.max_relocate = call.params.number("max_relocate").unwrap_or(ha.max_relocate);
}

fn create(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let sid = sid(call.params.text("sid").unwrap_or_default());
    if call.params.has("group") && model.release == crate::config::Release::V9 {
        return Err(Refusal::die(
            "invalid parameter 'group': ha groups have been migrated to rules",
        ));
    }
    if model.ha.contains_key(&sid) {
        return Err(Refusal::die(format!("resource ID '{sid}' already defined")));
    }
    let mut ha = HaResource {
        state: "started".to_owned(),
        max_restart: 1,
        max_relocate: 1,
        ..HaResource::default()
    };
    set(&mut ha, call);
    model.ha.insert(sid.clone(), ha);
    Ok(Reply::null(format!("made {sid} highly available")))
}

fn change(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let sid = sid(call.named("sid"));
    let missing = || Refusal::die(format!("no such resource '{sid}'"));
    set(model.ha.get_mut(&sid).ok_or_else(missing)?, call);
    Ok(Reply::null(format!("changed {sid}")))
}

fn delete(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let sid = sid(call.named("sid"));
    if model.ha.remove(&sid).is_none() {
        return Err(Refusal::die(format!("cannot delete service '{sid}', not HA managed!")));
    }
    Ok(Reply::null(format!("took {sid} out of HA")))
}

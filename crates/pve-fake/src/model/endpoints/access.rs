//! `/access`: tickets and one's own rights.

use serde_json::{Map, Value, json};

use super::{get, post};
use crate::model::Model;
use crate::model::access::Caller;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may, must};

pub(super) const ROUTES: &[Route] = &[
    post(
        "/access/ticket",
        Need::World,
        &[
            must("username", Kind::Text),
            must("password", Kind::Text),
            may("realm", Kind::Text),
            may("otp", Kind::Text),
            may("new-format", Kind::Flag),
        ],
        ticket,
    ),
    get(
        "/access/permissions",
        Need::Login,
        &[may("path", Kind::Text), may("userid", Kind::Text)],
        permissions,
    ),
];

fn ticket(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = call.params.text("username").unwrap_or_default();
    let user = match call.params.text("realm") {
        Some(realm) if !name.contains('@') => format!("{name}@{realm}"),
        _ => name.to_owned(),
    };
    let password = call.params.text("password").unwrap_or_default();
    let made = model.access.login(&user, password, model.now, call.ticket_dice);
    let Some((ticket, csrf)) = made else {
        let refusal = Refusal::new(401, "authentication failure");
        return Err(refusal.after(model.timings.unauthorized));
    };
    Ok(Reply::data(json!({
        "username": user,
        "ticket": ticket,
        "CSRFPreventionToken": csrf,
        "cap": { "access": {}, "dc": {}, "nodes": {}, "sdn": {}, "storage": {}, "vms": {} },
    })))
}

fn permissions(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let caller = match call.params.text("userid") {
        None => call.caller.clone(),
        Some(id) if id == call.caller.id => call.caller.clone(),
        Some(id) => {
            model.require(&call.caller, "/access", &["Sys.Audit"])?;
            let user = id.split('!').next().unwrap_or_default().to_owned();
            Caller { id: id.to_owned(), user, privsep: false }
        }
    };
    let granted = model.access.granted(&caller);
    let Some(path) = call.params.text("path") else {
        let paths = granted.into_iter().map(|(path, names)| (path, flags(names)));
        return Ok(Reply::data(Value::Object(paths.collect())));
    };
    let mut names: Vec<String> = granted.into_values().flatten().collect();
    names.sort();
    names.dedup();
    names.retain(|name| model.allows(&caller, path, name));
    Ok(Reply::data(json!({ path: flags(names) })))
}

fn flags(names: Vec<String>) -> Value {
    Value::Object(names.into_iter().map(|name| (name, json!(1))).collect::<Map<_, _>>())
}

//! Tasks as read and stopped.

use serde_json::json;

use super::{get, route};
use crate::model::Model;
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may};
use crate::model::task::Task;

pub(super) const ROUTES: &[Route] = &[
    get(
        "/nodes/{node}/tasks",
        Need::Login,
        &[
            may("start", Kind::Int(0, i64::MAX)),
            may("limit", Kind::Int(0, i64::MAX)),
            may("userfilter", Kind::Text),
            may("typefilter", Kind::Text),
            may("vmid", Kind::Vmid),
            may("errors", Kind::Flag),
            may("source", Kind::OneOf(&["archive", "active", "all"])),
            may("since", Kind::Int(0, i64::MAX)),
            may("until", Kind::Int(0, i64::MAX)),
            may("statusfilter", Kind::Text),
        ],
        list,
    ),
    get("/nodes/{node}/tasks/{upid}/status", Need::Login, &[], status),
    get(
        "/nodes/{node}/tasks/{upid}/log",
        Need::Login,
        &[
            may("start", Kind::Int(0, i64::MAX)),
            may("limit", Kind::Int(0, i64::MAX)),
            may("download", Kind::Flag),
        ],
        log,
    ),
    route("DELETE", "/nodes/{node}/tasks/{upid}", Need::Login, &[], stop),
];

fn number(call: &Call, key: &str, default: usize) -> usize {
    call.params.number(key).and_then(|value| usize::try_from(value).ok()).unwrap_or(default)
}

fn list(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let source = call.params.text("source").unwrap_or("archive");
    let mut tasks: Vec<_> = model
        .tasks
        .values()
        .filter(|task| task.node == call.node() && model.may_see(&call.caller, task))
        .filter(|task| match source {
            "active" => task.end.is_none(),
            "archive" => task.end.is_some(),
            _ => true,
        })
        .filter(|task| call.params.text("vmid").is_none_or(|vmid| task.id == vmid))
        .filter(|task| call.params.text("typefilter").is_none_or(|kind| task.kind == kind))
        .filter(|task| !call.params.flag("errors") || task.exit.as_deref() != Some("OK"))
        .collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(task.order));
    let total = tasks.len();
    let (start, limit) = (number(call, "start", 0), number(call, "limit", 50));
    let page = tasks.into_iter().skip(start).take(limit).map(Task::entry);
    Ok(Reply { total: Some(total), ..Reply::list(page.collect()) })
}

fn status(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let task = model.visible_task(&call.caller, call.node(), call.named("upid"))?;
    Ok(Reply::data(task.status()))
}

fn log(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let task = model.visible_task(&call.caller, call.node(), call.named("upid"))?;
    let limit = match number(call, "limit", 50) {
        0 => usize::MAX,
        limit => limit,
    };
    let lines = task.log.iter().enumerate().skip(number(call, "start", 0)).take(limit);
    let lines: Vec<_> = lines.map(|(at, text)| json!({ "n": at + 1, "t": text })).collect();
    let lines = if lines.is_empty() { vec![json!({ "n": 1, "t": "no content" })] } else { lines };
    Ok(Reply { total: Some(task.log.len().max(1)), ..Reply::list(lines) })
}

fn stop(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let upid = model.visible_task(&call.caller, call.node(), call.named("upid"))?.upid.clone();
    model.kill_task(&upid);
    Ok(Reply::null(format!("stopped {upid}")))
}

//! Other ways to say the same: what servers that speak Proxmox's API were seen or are likely to do
//! differently. None of it may make a difference to any machine.

use std::collections::BTreeMap;

use pve_fake::VmView;
use pve_fake::model::Response;
use serde_json::{Map, Value, json};

use super::world::State;
use crate::pve::Asked;

/// One way in which a server differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Fields that are not set are there, and are empty or zero.
    Blanks,
    /// Fields that are not needed are left out.
    Terse,
    /// Flags are booleans.
    Booleans,
    /// What is wrong is told by status 500 alone.
    Blunt,
    /// What is not there is told by status 404.
    NotFound,
    /// The list of the cluster is made every ten seconds.
    StaleList,
    /// A new VM is in no list for some seconds.
    LateList,
    /// A VM that is being cloned shows nowhere, and its number is taken.
    HiddenClones,
    /// `cluster/tasks` is empty.
    NoTaskList,
    /// `cluster/tasks` has no tasks that run.
    EndedTasks,
    /// `cluster/tasks` has the last three tasks of all nodes.
    FewTasks,
    /// `cluster/nextid` does not look at the number that it is asked about.
    BlindNextId,
    /// A start of what runs, and a stop of what does not, are refused at once.
    Eager,
    /// Whatever keeps a guest from answering, its agent is not running.
    PlainAgent,
    /// The parameter `purge` is not known.
    Unlearned,
}

/// Each of them.
pub(super) const ALL: &[Dialect] = &[
    Dialect::Blanks,
    Dialect::Terse,
    Dialect::Booleans,
    Dialect::Blunt,
    Dialect::NotFound,
    Dialect::StaleList,
    Dialect::LateList,
    Dialect::HiddenClones,
    Dialect::NoTaskList,
    Dialect::EndedTasks,
    Dialect::FewTasks,
    Dialect::BlindNextId,
    Dialect::Eager,
    Dialect::PlainAgent,
    Dialect::Unlearned,
];

/// Those that go together in one server that was written quickly.
pub(super) const HOMEMADE: &[Dialect] = &[
    Dialect::Blanks,
    Dialect::Booleans,
    Dialect::Blunt,
    Dialect::StaleList,
    Dialect::FewTasks,
    Dialect::Eager,
    Dialect::PlainAgent,
];

/// How long a reading of the cluster is given again, and a new VM is missing from it.
const LAG: u64 = 10_000;
const LATE: u64 = 8_000;

/// VMs that were there before.
const OLD: [u64; 2] = [100, 9000];

/// Tasks that are listed by [`Dialect::FewTasks`].
const FEW: usize = 3;

/// What a server with dialects remembers.
#[derive(Debug, Default)]
pub(super) struct Spoken {
    list: Option<(u64, Value)>,
    first_seen: BTreeMap<u64, u64>,
}

/// What is answered without being asked of the model.
pub(super) fn instead(dialects: &[Dialect], state: &State, asked: &Asked) -> Option<Response> {
    let has = |dialect| dialects.contains(&dialect);
    let vm = || -> Option<VmView> {
        let vmid = asked.path.strip_prefix("/nodes/")?.split('/').nth(2)?.parse().ok()?;
        state.model.vm_view(vmid)
    };
    if has(Dialect::Eager) {
        let running = vm().is_some_and(|vm| vm.running);
        if asked.path.ends_with("/status/start") && running {
            return Some(refusal(500, "VM already running".to_owned()));
        }
        if asked.path.ends_with("/status/stop") && !running {
            return Some(refusal(500, "VM is not running".to_owned()));
        }
    }
    if has(Dialect::Unlearned) {
        let knows = !asked.parameters.iter().any(|(key, _)| key == "purge");
        if !knows {
            let mut response = refusal(400, "Parameter verification failed.".to_owned());
            let why = "property is not defined in schema and the schema does not allow \
                       additional properties";
            response.body["errors"] = json!({"purge": why});
            return Some(response);
        }
    }
    if has(Dialect::HiddenClones)
        && asked.method == "GET"
        && vm().is_some_and(|vm| vm.lock.as_deref() == Some("clone"))
    {
        return Some(refusal(500, "Configuration file does not exist".to_owned()));
    }
    None
}

/// Says an answer of the model in another way.
pub(super) fn say(
    dialects: &[Dialect],
    state: &mut State,
    millis: u64,
    asked: &Asked,
    response: &mut Response,
) {
    if asked.path == "/cluster/nextid"
        && dialects.contains(&Dialect::BlindNextId)
        && let Some((_, vmid)) = asked.parameters.iter().find(|(key, _)| key == "vmid")
    {
        *response = Response { body: json!({"data": vmid}), ..refusal(200, String::new()) };
        return;
    }
    for dialect in dialects {
        say_one(*dialect, state, millis, asked, response);
    }
}

fn say_one(
    dialect: Dialect,
    state: &mut State,
    millis: u64,
    asked: &Asked,
    response: &mut Response,
) {
    let path = asked.path.as_str();
    let is_list = path == "/cluster/resources";
    match dialect {
        Dialect::Blunt if response.status == 400 => {
            let errors = response.body["errors"].as_object().cloned().unwrap_or_default();
            let texts: Vec<&str> = errors.values().filter_map(Value::as_str).collect();
            *response = refusal(500, texts.join("; "));
        }
        Dialect::NotFound if matches!(response.status, 400 | 500) => {
            let text = response.reason.clone().unwrap_or_default();
            let errors = response.body["errors"].to_string();
            if text.contains("does not exist") || text.contains("unable to find") {
                *response = refusal(404, text);
            } else if errors.contains("no such task") {
                *response = refusal(404, "no such task".to_owned());
            }
        }
        Dialect::PlainAgent if path.contains("/agent/") && response.status == 500 => {
            *response = refusal(500, "QEMU guest agent is not running".to_owned());
        }
        _ if response.status != 200 => {}
        Dialect::StaleList if is_list => {
            let held = state.spoken.list.take().filter(|(at, _)| millis < at + LAG);
            let (at, list) = held.unwrap_or((millis, response.body.clone()));
            response.body = list.clone();
            state.spoken.list = Some((at, list));
        }
        Dialect::LateList if is_list => {
            let seen = &mut state.spoken.first_seen;
            keep(&mut response.body, |entry| {
                let Some(vmid) = entry["vmid"].as_u64() else { return true };
                OLD.contains(&vmid) || millis >= *seen.entry(vmid).or_insert(millis) + LATE
            });
        }
        Dialect::HiddenClones if is_list => {
            keep(&mut response.body, |entry| entry["lock"] != json!("clone"));
        }
        Dialect::NoTaskList if path == "/cluster/tasks" => response.body = json!({"data": []}),
        Dialect::EndedTasks if path == "/cluster/tasks" => {
            keep(&mut response.body, |entry| !entry["endtime"].is_null());
        }
        Dialect::FewTasks if path == "/cluster/tasks" => {
            if let Some(list) = response.body["data"].as_array_mut() {
                list.truncate(FEW);
            }
        }
        Dialect::Blanks => each(&mut response.body, &|entry| blanks(path, entry)),
        Dialect::Terse => each(&mut response.body, &|entry| terse(path, entry)),
        Dialect::Booleans => each(&mut response.body, &booleans),
        _ => {}
    }
}

fn refusal(status: u16, text: String) -> Response {
    Response {
        status,
        reason: Some(text),
        body: json!({"data": null}),
        delay: std::time::Duration::ZERO,
        endpoint: "",
        effect: None,
        blocked: false,
    }
}

fn keep(body: &mut Value, holds: impl FnMut(&Value) -> bool) {
    if let Some(list) = body["data"].as_array_mut() {
        let mut holds = holds;
        list.retain(|entry| holds(entry));
    }
}

/// Changes each object of the data.
fn each(body: &mut Value, change: &dyn Fn(&mut Map<String, Value>)) {
    match &mut body["data"] {
        Value::Object(object) => change(object),
        Value::Array(list) => list.iter_mut().filter_map(Value::as_object_mut).for_each(change),
        _ => {}
    }
}

fn blanks(path: &str, entry: &mut Map<String, Value>) {
    let texts: &[&str] = match path {
        "/cluster/resources" => {
            &["lock", "tags", "name", "pool", "hastate", "status", "content", "storage", "level"]
        }
        "/cluster/tasks" => &["status", "saved"],
        _ if path.ends_with("/config") => {
            &["lock", "tags", "description", "ide0", "parent", "hookscript", "net7", "scsi30"]
        }
        _ if path.ends_with("/status/current") => &["lock", "tags", "qmpstatus"],
        _ if path.contains("/tasks/") => &["exitstatus"],
        _ if path.ends_with("/exec-status") => &["out-data", "err-data"],
        _ => &[],
    };
    let numbers: &[&str] = match path {
        "/cluster/resources" => &["template", "maxmem", "mem", "vmid", "shared"],
        "/cluster/tasks" => &["endtime"],
        _ if path.ends_with("/config") => &["template", "protection"],
        _ if path.ends_with("/status/current") => &["template", "pid", "uptime"],
        _ if path.contains("/tasks/") => &["endtime"],
        _ if path.ends_with("/exec-status") => &["exitcode", "signal"],
        _ => &[],
    };
    let is_node = entry.get("type") == Some(&json!("node"));
    for key in texts {
        entry.entry(*key).or_insert_with(|| json!(""));
    }
    // What a node has no memory for is not known.
    for key in numbers.iter().filter(|key| !(is_node && **key == "maxmem")) {
        entry.entry(*key).or_insert_with(|| json!(0));
    }
}

fn terse(path: &str, entry: &mut Map<String, Value>) {
    let needless: &[&str] = match path {
        "/cluster/resources" => {
            &["hastate", "pool", "uptime", "cpu", "maxcpu", "level", "plugintype", "id", "disk"]
        }
        _ if path.ends_with("/config") => &["digest", "meta", "vmgenid"],
        _ if path.ends_with("/status/current") => {
            &["qmpstatus", "ha", "lock", "pid", "agent", "uptime", "name", "maxmem"]
        }
        _ if path.ends_with("/storage") => &["avail", "total", "used", "used_fraction", "shared"],
        _ if path.contains("/tasks") => &["pid", "pstart", "type", "id", "user", "node"],
        _ => &[],
    };
    for key in needless {
        entry.remove(*key);
    }
}

fn booleans(entry: &mut Map<String, Value>) {
    let flags = [
        "template",
        "shared",
        "quorate",
        "online",
        "local",
        "exited",
        "enabled",
        "active",
        "protection",
        "managed",
        "onboot",
        "agent",
    ];
    for (_, value) in entry.iter_mut().filter(|(key, _)| flags.contains(&key.as_str())) {
        if let Some(number) = value.as_u64().filter(|number| *number < 2) {
            *value = json!(number == 1);
        } else if value.is_object() {
            *value = json!({"managed": value["managed"] == json!(1)});
        }
    }
}

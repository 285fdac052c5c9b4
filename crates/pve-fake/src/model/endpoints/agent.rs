//! `…/agent`: what a guest answers through its agent, and Proxmox in its stead.

use serde_json::{Value, json};

use super::{get, post};
use crate::model::Model;
use crate::model::request::{Param, Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may, must};
use crate::model::state::{Run, Vm};

const AUDIT: Need = Need::Agent(&["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"]);
const EXEC: Need = Need::Agent(&["VM.GuestAgent.Unrestricted"]);
const READ: Need = Need::Agent(&["VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted"]);

pub(super) const ROUTES: &[Route] = &[
    post("/nodes/{node}/qemu/{vmid}/agent/ping", AUDIT, &[], ping),
    get("/nodes/{node}/qemu/{vmid}/agent/get-osinfo", AUDIT, &[], osinfo),
    get("/nodes/{node}/qemu/{vmid}/agent/get-host-name", AUDIT, &[], hostname),
    get("/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces", AUDIT, &[], interfaces),
    post(
        "/nodes/{node}/qemu/{vmid}/agent/exec",
        EXEC,
        &[must("command", Kind::List), may("input-data", Kind::Short(65_536))],
        exec,
    ),
    get(
        "/nodes/{node}/qemu/{vmid}/agent/exec-status",
        EXEC,
        &[must("pid", Kind::Int(0, i64::MAX))],
        exec_status,
    ),
    get(
        "/nodes/{node}/qemu/{vmid}/agent/file-read",
        READ,
        &[must("file", Kind::Text), may("count", Kind::Int(1, 16_777_216))],
        file_read,
    ),
    post(
        "/nodes/{node}/qemu/{vmid}/agent/shutdown",
        Need::Agent(&["VM.PowerMgmt", "VM.GuestAgent.Unrestricted"]),
        &[],
        shutdown,
    ),
];

impl Model {
    /// The VM if its agent answers.
    fn agent(&self, call: &Call) -> Result<&Vm, Refusal> {
        let vm = self.vm(call.node(), call.vmid())?;
        if vm.get("agent").is_none() {
            return Err(Refusal::die("No QEMU guest agent configured"));
        }
        if vm.run == Run::Stopped {
            return Err(Refusal::die(format!("VM {} is not running", call.vmid())));
        }
        if !vm.guest.agent || vm.run == Run::Paused {
            let refusal = Refusal::die("QEMU guest agent is not running");
            return Err(refusal.after(self.timings.agent_ping));
        }
        Ok(vm)
    }
}

fn result(value: &Value) -> Result<Reply, Refusal> {
    Ok(Reply::data(json!({ "result": value })))
}

fn ping(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.agent(call)?;
    result(&json!({}))
}

fn osinfo(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.agent(call)?;
    result(&json!({
        "id": "ubuntu", "name": "Ubuntu", "pretty-name": "Ubuntu 24.04.2 LTS",
        "version": "24.04.2 LTS (Noble Numbat)", "version-id": "24.04",
        "kernel-release": "6.8.0-60-generic", "kernel-version": "#63-Ubuntu SMP",
        "machine": "x86_64",
    }))
}

fn hostname(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let name = model.agent(call)?.guest.hostname.clone();
    result(&json!({ "host-name": name.unwrap_or_else(|| "localhost".to_owned()) }))
}

fn interfaces(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.agent(call)?;
    let mut list = vec![json!({
        "name": "lo", "hardware-address": "00:00:00:00:00:00",
        "ip-addresses": [
            { "ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8 },
            { "ip-address": "::1", "ip-address-type": "ipv6", "prefix": 128 },
        ],
    })];
    for interface in &vm.guest.interfaces {
        let addresses = interface.addresses.iter().map(|(address, prefix)| {
            let kind = if address.is_ipv4() { "ipv4" } else { "ipv6" };
            json!({ "ip-address": address, "ip-address-type": kind, "prefix": prefix })
        });
        list.push(json!({
            "name": interface.name,
            "hardware-address": interface.mac.to_ascii_lowercase(),
            "ip-addresses": addresses.collect::<Vec<_>>(),
        }));
    }
    result(&Value::Array(list))
}

fn exec(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.agent(call)?;
    let mut command = call.params.list("command");
    // Before 8 a list came as one string, its items apart by NUL or blanks.
    let split: Vec<&str> = match (model.release, call.params.0.get("command")) {
        (crate::config::Release::V7, Some(Param::One(text))) => {
            text.split(['\0', ' ']).filter(|word| !word.is_empty()).collect()
        }
        _ => Vec::new(),
    };
    if !split.is_empty() {
        command = split;
    }
    let input = call.params.text("input-data").unwrap_or_default();
    let Some(done) = vm.guest.exec(&command, input) else {
        let program = command.first().copied().unwrap_or_default();
        return Err(Refusal::die(format!(
            "Agent error: Guest command failed to start: Failed to execute child process \
             \u{201c}{program}\u{201d} (No such file or directory)"
        )));
    };
    let (ready, vmid) = (model.now + model.timings.exec, call.vmid());
    let line = command.join(" ");
    let vm = model.vm_mut(call.node(), vmid)?;
    vm.guest.next_pid += 1;
    let pid = 700 + vm.guest.next_pid;
    vm.guest.running.insert(pid, (ready, done));
    Ok(Reply { effect: Some(format!("ran {line}")), ..Reply::data(json!({ "pid": pid })) })
}

/// A result is handed out once.
fn exec_status(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.agent(call)?;
    let now = model.now;
    let pid = u32::try_from(call.params.number("pid").unwrap_or(0)).unwrap_or(0);
    let vm = model.vm_mut(call.node(), call.vmid())?;
    let missing = || Refusal::die(format!("Agent error: PID {pid} does not exist"));
    let (ready, _) = vm.guest.running.get(&pid).ok_or_else(missing)?;
    if *ready > now {
        return Ok(Reply::data(json!({ "exited": 0 })));
    }
    let (_, done) = vm.guest.running.remove(&pid).ok_or_else(missing)?;
    let mut data = json!({ "exited": 1, "exitcode": done.code });
    if let Some(map) = data.as_object_mut() {
        for (key, text) in [("out-data", done.out), ("err-data", done.err)] {
            if !text.is_empty() {
                map.insert(key.to_owned(), json!(text));
            }
        }
    }
    Ok(Reply::data(data))
}

fn file_read(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let vm = model.agent(call)?;
    let path = call.params.text("file").unwrap_or_default();
    let content = vm.guest.files.get(path).ok_or_else(|| {
        Refusal::die(format!(
            "Agent error: failed to open file '{path}' (mode: 'r'): No such file or directory"
        ))
    })?;
    Ok(Reply::data(json!({ "content": content, "bytes-read": content.len() })))
}

fn shutdown(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    model.agent(call)?;
    model.power_off(call.vmid());
    Ok(Reply { effect: Some("guest shut down".to_owned()), ..Reply::data(json!({ "result": {} })) })
}

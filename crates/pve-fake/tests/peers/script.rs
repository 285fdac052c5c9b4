//! One script of calls, played on this simulator and on fakepve.

use std::time::{Duration, Instant};

use hyper::ext::ReasonPhrase;
use pve_fake::peer::Fakepve;
use pve_fake::{Config, Fake, Seed, StorageSeed, Timings};
use reqwest::{Client, Method};
use serde_json::Value;

use crate::divergences::KNOWN;
use crate::shape::differences;

struct Step {
    name: &'static str,
    method: Method,
    path: &'static str,
    params: &'static [(&'static str, &'static str)],
}

const fn step(
    name: &'static str,
    method: Method,
    path: &'static str,
    params: &'static [(&'static str, &'static str)],
) -> Step {
    Step { name, method, path, params }
}

const fn get(name: &'static str, path: &'static str) -> Step {
    step(name, Method::GET, path, &[])
}

const VM: &str = "/nodes/pve1/qemu/101";

fn script() -> Vec<Step> {
    use Method as M;
    vec![
        get("version", "/version"),
        get("nodes", "/nodes"),
        get("node status", "/nodes/pve1/status"),
        get("cluster status", "/cluster/status"),
        get("resources", "/cluster/resources"),
        step("resources of VMs", M::GET, "/cluster/resources", &[("type", "vm")]),
        step("resources of nonsense", M::GET, "/cluster/resources", &[("type", "x")]),
        get("next id", "/cluster/nextid"),
        step("free id", M::GET, "/cluster/nextid", &[("vmid", "555")]),
        step("taken id", M::GET, "/cluster/nextid", &[("vmid", "9000")]),
        step("bad id", M::GET, "/cluster/nextid", &[("vmid", "9")]),
        get("permissions", "/access/permissions"),
        get("VM list", "/nodes/pve1/qemu"),
        get("container list", "/nodes/pve1/lxc"),
        get("storages", "/nodes/pve1/storage"),
        step("ISO storages", M::GET, "/nodes/pve1/storage", &[("content", "iso")]),
        get("storage status", "/nodes/pve1/storage/local/status"),
        get("empty content", "/nodes/pve1/storage/local/content"),
        get("unknown path", "/nope"),
        get("unknown node", "/nodes/pve7/qemu"),
        get("config of a missing VM", "/nodes/pve1/qemu/555/config"),
        get("status of a missing VM", "/nodes/pve1/qemu/555/status/current"),
        get("template config", "/nodes/pve1/qemu/9000/config"),
        get("template status", "/nodes/pve1/qemu/9000/status/current"),
        step("clone without id", M::POST, "/nodes/pve1/qemu/9000/clone", &[("name", "a")]),
        step(
            "clone with a bad name",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("name", "a_b")],
        ),
        step(
            "clone with a bad flag",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("full", "2")],
        ),
        step(
            "clone with an unknown option",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("x", "1")],
        ),
        step("clone of a missing VM", M::POST, "/nodes/pve1/qemu/555/clone", &[("newid", "101")]),
        step(
            "linked clone with storage",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("storage", "shared")],
        ),
        step(
            "clone to a storage that is not",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("full", "1"), ("storage", "none")],
        ),
        step(
            "clone to a node that is not",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("target", "pve7")],
        ),
        step(
            "clone into a pool that is not",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("pool", "none")],
        ),
        step(
            "clone with local disks to another node",
            M::POST,
            "/nodes/pve1/qemu/9001/clone",
            &[("newid", "109"), ("full", "1"), ("target", "pve2")],
        ),
        step(
            "clone",
            M::POST,
            "/nodes/pve1/qemu/9000/clone",
            &[("newid", "101"), ("name", "m1"), ("full", "1")],
        ),
        step("clone onto a taken id", M::POST, "/nodes/pve1/qemu/9000/clone", &[("newid", "101")]),
        get("clone's config", "/nodes/pve1/qemu/101/config"),
        get("clone's status", "/nodes/pve1/qemu/101/status/current"),
        step("config without options", M::POST, "/nodes/pve1/qemu/101/config", &[]),
        step(
            "config with a bad digest",
            M::POST,
            "/nodes/pve1/qemu/101/config",
            &[("cores", "4"), ("digest", "0000000000000000000000000000000000000000")],
        ),
        step("config with a bad number", M::POST, "/nodes/pve1/qemu/101/config", &[("cores", "x")]),
        step(
            "config with a bad tag",
            M::POST,
            "/nodes/pve1/qemu/101/config",
            &[("tags", "fd00::1")],
        ),
        step(
            "config with an unknown option",
            M::POST,
            "/nodes/pve1/qemu/101/config",
            &[("nope", "1")],
        ),
        step(
            "config with mixed boot syntax",
            M::POST,
            "/nodes/pve1/qemu/101/config",
            &[("boot", "c;ide0")],
        ),
        step(
            "config deletes nonsense",
            M::POST,
            "/nodes/pve1/qemu/101/config",
            &[("delete", "nope")],
        ),
        step(
            "config",
            M::POST,
            "/nodes/pve1/qemu/101/config",
            &[("cores", "4"), ("memory", "4096"), ("tags", "a;b"), ("description", "d")],
        ),
        step(
            "synchronous config",
            M::PUT,
            "/nodes/pve1/qemu/101/config",
            &[("net1", "virtio=BC:24:11:00:00:02,bridge=vmbr0")],
        ),
        get("config after", "/nodes/pve1/qemu/101/config"),
        get("pending", "/nodes/pve1/qemu/101/pending"),
        step(
            "config of a missing VM is not set",
            M::PUT,
            "/nodes/pve1/qemu/555/config",
            &[("cores", "4")],
        ),
        step(
            "resize",
            M::PUT,
            "/nodes/pve1/qemu/101/resize",
            &[("disk", "scsi0"), ("size", "20G")],
        ),
        step(
            "resize with a bad size",
            M::PUT,
            "/nodes/pve1/qemu/101/resize",
            &[("disk", "scsi0"), ("size", "20Q")],
        ),
        step(
            "attach an ISO that is not",
            M::PUT,
            "/nodes/pve1/qemu/101/config",
            &[("ide0", "local:iso/none.iso,media=cdrom")],
        ),
        get("missing volume", "/nodes/pve1/storage/local/content/local:iso/none.iso"),
        step(
            "delete a missing ISO",
            M::DELETE,
            "/nodes/pve1/storage/local/content/local:iso/none.iso",
            &[],
        ),
        step("agent of a stopped VM", M::POST, "/nodes/pve1/qemu/101/agent/ping", &[]),
        step("start", M::POST, "/nodes/pve1/qemu/101/status/start", &[]),
        get("status of a running VM", "/nodes/pve1/qemu/101/status/current"),
        step("agent ping", M::POST, "/nodes/pve1/qemu/101/agent/ping", &[]),
        get("agent OS", "/nodes/pve1/qemu/101/agent/get-osinfo"),
        get("agent interfaces", "/nodes/pve1/qemu/101/agent/network-get-interfaces"),
        step("agent exec without command", M::POST, "/nodes/pve1/qemu/101/agent/exec", &[]),
        step(
            "agent exec",
            M::POST,
            "/nodes/pve1/qemu/101/agent/exec",
            &[("command", "cloud-init"), ("command", "status")],
        ),
        step("delete a running VM", M::DELETE, VM, &[]),
        step("stop", M::POST, "/nodes/pve1/qemu/101/status/stop", &[]),
        step("reboot a stopped VM", M::POST, "/nodes/pve1/qemu/101/status/reboot", &[]),
        step("shut a missing VM down", M::POST, "/nodes/pve1/qemu/555/status/shutdown", &[]),
        step("snapshot", M::POST, "/nodes/pve1/qemu/101/snapshot", &[("snapname", "s1")]),
        get("snapshots", "/nodes/pve1/qemu/101/snapshot"),
        step("protect", M::PUT, "/nodes/pve1/qemu/101/config", &[("protection", "1")]),
        step("delete a protected VM", M::DELETE, VM, &[]),
        step("unprotect", M::PUT, "/nodes/pve1/qemu/101/config", &[("protection", "0")]),
        step("delete with a bad flag", M::DELETE, VM, &[("purge", "maybe")]),
        step("delete", M::DELETE, VM, &[("purge", "1")]),
        get("config of a deleted VM", "/nodes/pve1/qemu/101/config"),
        get("task list", "/nodes/pve1/tasks"),
        get("cluster tasks", "/cluster/tasks"),
        get("status of nonsense", "/nodes/pve1/tasks/abc/status"),
        step("pool", M::POST, "/pools", &[("poolid", "p1")]),
        get("pools", "/pools"),
        step("one pool", M::GET, "/pools", &[("poolid", "p1")]),
        step("pool twice", M::POST, "/pools", &[("poolid", "p1")]),
        step("pool deletion", M::DELETE, "/pools", &[("poolid", "p1")]),
    ]
}

struct Side {
    http: Client,
    url: String,
    token: String,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    text: String,
    body: Value,
}

impl Side {
    fn new(url: &str, certificate: Option<&str>, token: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = Client::builder().no_proxy();
        if let Some(pem) = certificate {
            let certificate = reqwest::Certificate::from_pem(pem.as_bytes()).unwrap();
            http = http.tls_certs_only([certificate]);
        }
        Self { http: http.build().unwrap(), url: url.to_owned(), token: token.to_owned() }
    }

    async fn send(&self, step: &Step) -> Answer {
        let url = format!("{}/api2/json{}", self.url, step.path);
        let mut request = self.http.request(step.method.clone(), url);
        request = request.header("Authorization", format!("PVEAPIToken={}", self.token));
        request = match step.method {
            Method::GET | Method::DELETE => request.query(step.params),
            _ => request.form(step.params),
        };
        let response = request.send().await.unwrap();
        let status = response.status();
        let sent = response.extensions().get::<ReasonPhrase>();
        let sent = sent.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
        let text = sent.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().to_owned());
        let body = response.text().await.unwrap();
        let body = serde_json::from_str(&body).unwrap_or(Value::Null);
        Answer { status: status.as_u16(), text, body }
    }

    /// Waits for a started task and gives its exit text.
    async fn settle(&self, answer: &Answer) -> Option<String> {
        let upid = answer.body["data"].as_str().filter(|data| data.starts_with("UPID:"))?;
        let node = upid.split(':').nth(1)?;
        let path: &'static str = format!("/nodes/{node}/tasks/{upid}/status").leak();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.send(&get("task", path)).await;
            if let Some(exit) = status.body["data"]["exitstatus"].as_str() {
                return Some(exit.to_owned());
            }
            assert!(Instant::now() < deadline, "{upid} does not end: {status:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Every difference of a step, one line each.
async fn compare(step: &Step, ours: &Side, theirs: &Side) -> Vec<String> {
    let (mine, other) = (ours.send(step).await, theirs.send(step).await);
    let mut lines = Vec::new();
    if mine.status != other.status {
        lines.push(format!("status: {} | {}", mine.status, other.status));
    }
    if mine.text != other.text {
        lines.push(format!("text: {} | {}", mine.text, other.text));
    }
    if mine.body["errors"] != other.body["errors"] {
        lines.push(format!("errors: {} | {}", mine.body["errors"], other.body["errors"]));
    }
    lines.extend(differences(&mine.body["data"], &other.body["data"]));
    let exits = (ours.settle(&mine).await, theirs.settle(&other).await);
    if exits.0 != exits.1 {
        lines.push(format!("exit: {:?} | {:?}", exits.0, exits.1));
    }
    lines.into_iter().map(|line| format!("{}: {line}", step.name)).collect()
}

fn seed() -> Seed {
    let seed = Seed::three_nodes();
    let local = StorageSeed::new("local", "dir", false, "iso,vztmpl,backup");
    let mut seed = seed.with_storage(local);
    seed.nodes.truncate(2);
    seed
}

#[tokio::test]
async fn both_simulators_answer_one_script_alike_but_for_the_listed_divergences() {
    let seed = seed();
    let zero = Timings {
        lock_wait: Duration::from_secs(10),
        keep_alive: Duration::from_secs(5),
        ticket: Duration::from_secs(7200),
        // fakepve is never stale.
        broadcast: Duration::from_millis(1),
        ..Timings::default().scaled(0.0)
    };
    let config = Config { timings: zero, ..Config::default() };
    let fake = Fake::start(config.with_seed(seed.clone())).await.unwrap();
    let peer = tokio::task::spawn_blocking(move || Fakepve::start(&seed, 0.0)).await.unwrap();
    let peer = peer.unwrap();
    let token = format!("{}={}", fake.token().id, fake.token().secret);
    let ours = Side::new(&fake.url(), None, &token);
    let theirs = Side::new(peer.url(), Some(peer.certificate_pem()), &token);
    let mut found = Vec::new();
    for step in script() {
        found.extend(compare(&step, &ours, &theirs).await);
    }
    let known = |line: &String| KNOWN.iter().any(|(start, _)| line.starts_with(start));
    let new: Vec<&String> = found.iter().filter(|line| !known(line)).collect();
    let gone: Vec<&str> = KNOWN
        .iter()
        .map(|(start, _)| *start)
        .filter(|start| !found.iter().any(|line| line.starts_with(start)))
        .collect();
    assert!(new.is_empty(), "new divergences (ours | theirs):\n{new:#?}");
    assert!(gone.is_empty(), "listed divergences that are none any more: {gone:#?}");
    fake.take_violations();
}

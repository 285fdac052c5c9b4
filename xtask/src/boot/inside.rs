//! Looks at a guest from inside, through its agent, and judges cloud-init as the provider does.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use capmox::bootstrap::cloud_init::{self, Answer, Progress};
use capmox::pve::{AgentExecStatus, AgentInterface, AgentOsInfo};
use serde_json::{Value, json};

use super::agent::Agent;
use super::cases::{Case, End, UUID};
use super::checks::{self, Check, Network, check};
use super::guest::Guest;

/// Kernel to agent, on an emulated processor that others use too.
const BOOT: Duration = Duration::from_mins(20);

/// Agent to the end of cloud-init.
const CLOUD_INIT: Duration = Duration::from_mins(20);

/// How long an agent that is not there is called.
const SILENCE: Duration = Duration::from_secs(20);

/// Between two questions for cloud-init's status.
const LOOK: Duration = Duration::from_secs(4);

/// Everything that can be asked of the guest. Its answers are kept in `log`, as Proxmox hands them on.
pub(crate) fn checks(case: &Case, guest: &mut Guest, log: &Path) -> Result<Vec<Check>> {
    if case.end == End::Silent {
        return without_agent(case, guest);
    }
    let agent = Agent::connect(guest.socket(), BOOT)?;
    let mut agent = agent.with_context(|| format!("no agent; {}", guest.last_words()))?;
    let mut answers = serde_json::Map::new();
    let progress = cloud_init(&mut agent, &mut answers)?;
    let mut checks = vec![ended(case.end, &progress, &answers)];
    let osinfo = agent.call("guest-get-osinfo", Value::Null)?;
    let read: AgentOsInfo = serde_json::from_value(osinfo.clone())?;
    checks.push(check("the agent tells its system", read.id.as_deref() == Some("debian"), &osinfo));
    answers.insert("get-osinfo".to_owned(), json!({ "result": osinfo }));
    let seen = network(&mut agent, &mut answers)?;
    fs::write(log.join("answers.json"), serde_json::to_vec_pretty(&answers)?)?;
    checks.extend(checks::network(&case.plan, &seen));
    checks.extend(identity(case, &mut agent)?);
    if case.end == End::Done {
        checks.extend(user_data(&mut agent)?);
    }
    Ok(checks)
}

/// Without an agent only the console tells; and the socket stays silent.
fn without_agent(case: &Case, guest: &mut Guest) -> Result<Vec<Check>> {
    guest.wait("user-data's last command", BOOT + CLOUD_INIT, |guest| {
        guest.words().lines().any(|line| line.trim() == "RAN")
    })?;
    let words = guest.words();
    let addresses = words.lines().find_map(|line| line.trim().strip_prefix("ADDRESSES "));
    let addresses = addresses.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let mut checks = vec![check("user-data ran to its end", true, "")];
    for ethernet in &case.plan.ethernets {
        checks.extend(checks::links(ethernet, &addresses));
    }
    let agent = Agent::connect(guest.socket(), SILENCE)?;
    checks.push(check("the agent's socket stays silent", agent.is_none(), "it answered"));
    Ok(checks)
}

/// Asks until cloud-init has ended, as the provider does, and keeps the first and the last answer.
fn cloud_init(agent: &mut Agent, answers: &mut serde_json::Map<String, Value>) -> Result<Progress> {
    let start = Instant::now();
    loop {
        let answer = agent.run(&["cloud-init", "status"])?;
        let key = if answers.is_empty() { "first-status" } else { "status" };
        answers.insert(key.to_owned(), answer.clone());
        let progress = judged(&answer)?;
        if progress != Progress::Running || start.elapsed() > CLOUD_INIT {
            answers.insert("status".to_owned(), answer);
            // What follows looks at the guest when all is done, whatever was said before.
            agent.run(&["systemctl", "is-active", "--quiet", "cloud-final.service"])?;
            answers.insert("wait".to_owned(), agent.run(&["cloud-init", "status", "--wait"])?);
            settle(agent)?;
            let long = agent.run(&["cloud-init", "status", "--long"])?;
            answers.insert("long".to_owned(), long);
            let last = agent.run(&["cloud-init", "status"])?;
            let progress = judged(&last)?;
            answers.insert("last-status".to_owned(), last);
            return Ok(progress);
        }
        std::thread::sleep(LOOK);
    }
}

/// cloud-init 22.4 says `error` while it still runs, and does not wait then.
fn settle(agent: &mut Agent) -> Result<()> {
    let start = Instant::now();
    let finished = ["test", "-e", "/run/cloud-init/result.json"];
    while agent.run(&finished)?.get("exitcode") != Some(&json!(0)) && start.elapsed() < CLOUD_INIT {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn judged(answer: &Value) -> Result<Progress> {
    let read: AgentExecStatus =
        serde_json::from_value(answer.clone()).context("the provider cannot read the answer")?;
    Ok(cloud_init::judge(&Answer {
        exit_code: read.exit_code,
        signal: read.signal,
        output: read.out_data.as_deref().unwrap_or_default(),
        errors: read.err_data.as_deref().unwrap_or_default(),
    }))
}

/// Whether the provider's judgement is the right one.
fn ended(end: End, progress: &Progress, answers: &serde_json::Map<String, Value>) -> Check {
    let long = answers.get("long").and_then(|long| long["out-data"].as_str()).unwrap_or_default();
    let cause = cloud_init::errors_of(long).unwrap_or_default();
    let found = format!("{progress:?}, with the cause {cause:?}");
    match end {
        End::Done | End::Silent => {
            // A root this small has recoverable errors, such as no keys for the SSH server it lacks.
            check("cloud-init is judged done", matches!(progress, Progress::Done(_)), found)
        }
        End::Failed(why) => {
            let is_so = matches!(progress, Progress::Failed(_)) && cause.contains(why);
            check(format!("cloud-init is judged failed, with the cause ({why})"), is_so, found)
        }
        End::Ignored => {
            let is_so = !matches!(progress, Progress::Running | Progress::Unknown(_));
            check(format!("unreadable user-data: the provider says {found}"), is_so, "")
        }
    }
}

/// What the guest's programs tell of its network.
fn network(agent: &mut Agent, answers: &mut serde_json::Map<String, Value>) -> Result<Network> {
    let interfaces = agent.call("guest-network-get-interfaces", Value::Null)?;
    answers.insert("network-get-interfaces".to_owned(), json!({ "result": interfaces }));
    let mut seen = Network {
        interfaces: serde_json::from_value::<Vec<AgentInterface>>(interfaces)
            .context("the provider cannot read the agent's interfaces")?,
        addresses: agent.json(&["ip", "-json", "-details", "address"])?,
        dns: agent.output(&["resolvectl", "dns"])?,
        ..Network::default()
    };
    for family in ["-4", "-6"] {
        let list = |value: Value| value.as_array().cloned().unwrap_or_default();
        let routes = ["ip", "-json", family, "route", "show", "table", "all"];
        seen.routes.extend(list(agent.json(&routes)?));
        seen.rules.extend(list(agent.json(&["ip", "-json", family, "rule"])?));
    }
    answers.insert("addresses".to_owned(), seen.addresses.clone());
    answers.insert("routes".to_owned(), seen.routes.iter().cloned().collect());
    answers.insert("rules".to_owned(), seen.rules.iter().cloned().collect());
    answers.insert("dns".to_owned(), json!(seen.dns));
    Ok(seen)
}

/// Who the guest thinks it is, and whether packets find their way to the gateways.
fn identity(case: &Case, agent: &mut Agent) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let hostname = agent.output(&["hostname"])?;
    checks.push(check("hostname", hostname.trim() == Case::identity().hostname, &hostname));
    for (what, path) in [
        ("instance-id", "/var/lib/cloud/data/instance-id"),
        ("instance-id is the SMBIOS UUID", "/sys/class/dmi/id/product_uuid"),
    ] {
        let found = agent.output(&["cat", path])?;
        checks.push(check(what, found.trim() == UUID, &found));
    }
    let Some(first) = case.plan.ethernets.first() else { return Ok(checks) };
    for fixed in [&first.ipv4, &first.ipv6].into_iter().flatten() {
        let Some(gateway) = &fixed.gateway else { continue };
        let answer = agent.run(&["ping", "-c", "3", "-W", "5", gateway])?;
        let is_so = answer.get("exitcode") == Some(&json!(0));
        checks.push(check(format!("the gateway {gateway} answers"), is_so, &answer));
    }
    Ok(checks)
}

/// What user-data was to do.
fn user_data(agent: &mut Agent) -> Result<Vec<Check>> {
    let identity = Case::identity();
    let file = agent.output(&["cat", "/root/kubeadm.yaml"])?;
    let mode = agent.output(&["stat", "--format=%a %U", "/root/kubeadm.yaml"])?;
    let told = agent.output(&["cat", "/root/told"])?;
    let kubelet = format!("provider-id: \"proxmox://{UUID}\"");
    let version = identity.kubernetes_version.unwrap_or_default();
    let wanted = format!("{} {version}", identity.provider_id.unwrap_or_default());
    let name = format!("name: '{}'", identity.hostname);
    Ok(vec![
        check("write_files: the kubelet's provider-id", file.contains(&kubelet), &file),
        check("write_files: the node's name", file.contains(&name), &file),
        check("write_files: mode and owner", mode.trim() == "640 root", &mode),
        check("runcmd: provider-id and version of meta-data", told.trim() == wanted, &told),
    ])
}

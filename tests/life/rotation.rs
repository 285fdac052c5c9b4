//! Credentials that change while machines are made: the real program goes on, with the rights of an
//! installation, and shows nobody what it was given.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use capmox::api::{ProxmoxCluster, ProxmoxConnection, ProxmoxMachine};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use pve_fake::{Change, Fake};
use serde_json::{Value, json};

use crate::core::{CLUSTER, until};
use crate::gate::Gate;
use crate::lane::{quick, spec};
use crate::site::{PATIENCE, Proxmox, Site, play};

const MACHINES: usize = 20;

/// The user of the simulator's token.
const USER: &str = "capmox@pve";

/// What comes after the token's first secret, and a password: each is looked for everywhere.
const FRESH: &str = "1f2e3d4c-5b6a-4798-8a9b-0c1d2e3f4a5b";
const PASSWORD: &str = "pa55word-0f-the-u5er";

/// A manager that says as much as it ever does, not yet started.
async fn site(prefix: &str, proxmox: Proxmox) -> Result<Site> {
    let mut site = Site::make(prefix, proxmox, Arc::new(Gate::default())).await?;
    site.argue("--v=99".to_owned());
    site.serve_metrics();
    Ok(site)
}

fn secrets(site: &Site) -> Api<Secret> {
    Api::namespaced(site.client.clone(), &site.namespace)
}

async fn make_secret(site: &Site, data: &Value) -> Result<()> {
    let secret = json!({"metadata": {"name": "creds"}, "stringData": data});
    secrets(site).create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    Ok(())
}

async fn change_secret(site: &Site, data: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"stringData": data}));
    secrets(site).patch("creds", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Makes all machines and waits until some of them are being cloned.
async fn begin(site: &Site, fake: &Fake) -> Result<Vec<String>> {
    let names: Vec<String> = (0..MACHINES).map(|number| format!("m{number}")).collect();
    let mut small = spec();
    small["memoryMiB"] = json!(1024);
    try_join_all(names.iter().map(|name| site.make_machine(name, small.clone()))).await?;
    let deadline = Instant::now() + PATIENCE;
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    while fake.journal().count("POST", "/nodes/*/qemu/*/clone") < 3 {
        ticks.tick().await;
        ensure!(Instant::now() < deadline, "no clones: {}", site.gate.log_tail(30));
    }
    Ok(names)
}

/// Waits until all machines are ready, each with one VM and without a failure.
async fn finish(site: &Site, fake: &Fake, names: &[String]) -> Result<()> {
    for name in names {
        site.ready(name).await?;
    }
    for machine in site.machines().list(&ListParams::default()).await? {
        let status = machine.status.context("no status")?;
        let failure = (status.failure_reason, status.failure_message);
        ensure!(failure == (None, None), "{failure:?}");
    }
    let vms = fake.model().vms();
    let made = vms.iter().filter(|vm| vm.name.as_ref().is_some_and(|name| names.contains(name)));
    ensure!(made.count() == MACHINES, "not one VM for each machine");
    let broken = fake.check_no_leaks();
    ensure!(broken.is_empty(), "rules were broken: {broken:?}");
    Ok(())
}

async fn delete(site: &Site, fake: &Fake, names: &[String]) -> Result<()> {
    try_join_all(names.iter().map(|name| site.delete_machine(name))).await?;
    let vms = fake.model().vms();
    let left: Vec<_> = vms.iter().filter(|vm| !vm.template).collect();
    ensure!(left.is_empty(), "VMs are left: {left:?}");
    Ok(())
}

/// Waits until `ClusterReady` is as `reason` says; none for true.
async fn cluster_says(site: &Site, reason: Option<&str>) -> Result<()> {
    let api: Api<ProxmoxCluster> = Api::namespaced(site.client.clone(), &site.namespace);
    let says = |found: Option<&ProxmoxCluster>| {
        let conditions = found.and_then(|one| one.status.as_ref()).map(|one| &one.conditions);
        conditions.into_iter().flatten().any(|one| {
            one.type_ == "ClusterReady"
                && match reason {
                    None => one.status == "True",
                    Some(reason) => one.reason.as_deref() == Some(reason),
                }
        })
    };
    site.within("a condition of the cluster", CLUSTER, until(&api, CLUSTER, says)).await?;
    Ok(())
}

fn reads(of: &[String]) -> usize {
    of.iter().filter(|name| *name == "creds").count()
}

/// Clients that were made for a Proxmox.
fn opened(site: &Site) -> Result<usize> {
    let (log, ..) = site.gate.manager().context("no manager")?;
    let log = std::fs::read_to_string(log)?;
    Ok(log.lines().filter(|line| line.contains("Proxmox endpoint opened")).count())
}

/// All that anybody can see: the log, events, objects but for what people wrote there, metrics.
async fn seen(site: &Site) -> Result<String> {
    let (log, _, port) = site.gate.manager().context("no manager")?;
    let mut text = std::fs::read_to_string(log)?;
    ensure!(text.contains("TRACE") || text.contains("DEBUG"), "the log is short: {text}");
    let clusters: Api<ProxmoxCluster> = Api::namespaced(site.client.clone(), &site.namespace);
    let every = ListParams::default();
    for cluster in clusters.list(&every).await? {
        text.push_str(&serde_json::to_string(&cluster)?);
    }
    for machine in site.machines().list(&every).await? {
        text.push_str(&serde_json::to_string::<ProxmoxMachine>(&machine)?);
    }
    for claim in site.claims().list(&every).await? {
        text.push_str(&serde_json::to_string(&claim)?);
    }
    let connections: Api<ProxmoxConnection> = Api::all(site.client.clone());
    for connection in connections.list(&every).await? {
        text.push_str(&serde_json::to_string(&connection.status)?);
    }
    let mut events = 0;
    for path in ["/api/v1/events", "/apis/events.k8s.io/v1/events"] {
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = site.client.request_text(request).await?;
        events += answer.matches("\"reason\"").count();
        text.push_str(&answer);
    }
    ensure!(events > 0, "no events");
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let metrics = client.get(format!("http://127.0.0.1:{port}/metrics")).send().await?;
    let metrics = metrics.text().await?;
    ensure!(metrics.contains("capmox_"), "no metrics: {metrics}");
    write!(text, "{metrics}")?;
    Ok(text)
}

async fn shows_none_of(site: &Site, planted: &[&str]) -> Result<()> {
    let text = seen(site).await?;
    for secret in planted {
        let line = text.lines().find(|line| line.contains(secret));
        ensure!(line.is_none(), "{secret} is in {line:?}");
    }
    Ok(())
}

#[test]
fn the_manager_s_secret_is_rotated_without_a_restart_and_no_machine_of_twenty_fails() {
    play(async {
        let fake = Fake::start(quick()).await?;
        let (id, old) = (fake.token().id.clone(), fake.token().secret.clone());
        let proxmox =
            Proxmox { url: fake.url(), token: id.clone(), secret: old.clone(), authority: None };
        let mut site = site("own", proxmox).await?;
        site.argue(format!("--credentials-secret={}/creds", site.namespace));
        make_secret(&site, &json!({"url": fake.url(), "token": id, "secret": old})).await?;
        site.start_manager()?;
        let started = site.gate.manager();
        site.make_cluster().await?;
        let names = begin(&site, &fake).await?;

        // The worst order: the old one is refused before the new one is there.
        fake.change(Change::TokenSecret { token: id, secret: FRESH.to_owned() });
        cluster_says(&site, Some("ProxmoxUnreachable")).await?;
        let before = site.take_tally();
        ensure!(opened(&site)? == 1, "{} clients before the rotation", opened(&site)?);
        change_secret(&site, json!({"secret": format!("{FRESH}\n")})).await?;
        cluster_says(&site, None).await?;
        finish(&site, &fake, &names).await?;

        let after = site.take_tally();
        let (clients, read) = (opened(&site)? - 1, reads(&after.reads));
        println!(
            "{MACHINES} machines and a rotation: {clients} client made, the Secret read {read} \
             times; watches of it {:?}, of all {:?}; before it read {} times, {:?}, {:?}",
            after.one,
            after.all,
            reads(&before.reads),
            before.one,
            before.all,
        );
        ensure!(clients == 1, "{clients} clients were made");
        ensure!((1..=2).contains(&read), "the Secret was read {read} times");
        ensure!(reads(&before.reads) <= 4, "{before:?}");
        // One list and one watch at the start, and an event of some hundred bytes.
        ensure!((before.one.lists, before.one.watches) == (1, 1), "{before:?}");
        ensure!(after.one.lists + after.one.watches <= 1, "{after:?}");
        ensure!((1..4096).contains(&after.one.bytes), "{after:?}");
        for tally in [&before, &after] {
            ensure!(tally.refused.is_empty() && tally.whole.is_empty(), "{tally:?}");
        }
        ensure!(site.gate.manager() == started, "the manager was started again");
        shows_none_of(&site, &[&old, FRESH]).await?;
        delete(&site, &fake, &names).await
    });
}

#[test]
fn a_ticket_runs_out_in_the_middle_of_a_rollout_of_a_connection_with_a_password() {
    play(async {
        let mut config = quick();
        for user in config.seed.users.iter_mut().filter(|user| user.id == USER) {
            user.password = PASSWORD.to_owned();
        }
        let fake = Fake::start(config).await?;
        let nothing = Proxmox {
            url: String::new(),
            token: String::new(),
            secret: String::new(),
            authority: None,
        };
        let mut site = site("ticket", nothing).await?;
        make_secret(&site, &json!({"password": format!("{PASSWORD}\n")})).await?;
        let reference = json!({"name": "creds", "namespace": site.namespace, "key": "password"});
        let connection = json!({
            "apiVersion": "proxmox.alperen.cloud/v1alpha1",
            "kind": "ProxmoxConnection",
            "metadata": {"name": site.namespace},
            "spec": {"endpoint": fake.url(), "username": USER, "passwordFrom": reference},
        });
        testbed::apply::apply(&site.client, &connection, &site.namespace).await?;
        site.argue("--connection-status=write".to_owned());
        site.change_cluster(json!({"connectionRef": {"name": site.namespace}}));
        site.start_manager()?;
        site.make_cluster().await?;
        let names = begin(&site, &fake).await?;
        let tickets = || fake.journal().count("POST", "/access/ticket");
        let before = tickets();
        fake.advance(Duration::from_hours(3));
        finish(&site, &fake, &names).await?;
        println!("{} ticket before it ran out, {} after", before, tickets() - before);
        ensure!((before, tickets() - before) == (1, 1), "{before}, then {}", tickets() - before);
        let asked = site.take_tally();
        ensure!(asked.refused.is_empty() && asked.whole.is_empty(), "{asked:?}");
        shows_none_of(&site, &[PASSWORD, "PVE:capmox@pve:", "PVEAuthCookie"]).await?;
        delete(&site, &fake, &names).await
    });
}

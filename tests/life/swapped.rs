//! capmox's Deployment with nothing but the image changed: its roles, its definitions, and this program.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use pve_fake::Fake;
use serde_json::{Value, json};
use testbed::{Options, World, apply, crds};
use tokio_util::sync::CancellationToken;

use crate::capmox_crds;
use crate::gate::Gate;
use crate::lane::{Lane, quick, spec};
use crate::site::{PATIENCE, Proxmox, Site, play};

/// The rules of capmox's `capmox-manager-role`, v0.7.7.
fn role() -> Value {
    let own = "infrastructure.cluster.x-k8s.io";
    let ipam = "ipam.cluster.x-k8s.io";
    let all = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    let read = json!(["get", "list", "watch"]);
    let rule = |group: &str, resources: Value, verbs: Value| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "capmox-manager-role"},
        "rules": [
            rule("", json!(["events"]), json!(["create", "get", "list", "patch", "update", "watch"])),
            rule("", json!(["secrets"]), json!(["get", "list", "patch", "watch"])),
            rule(
                "cluster.x-k8s.io",
                json!(["clusters", "clusters/status", "machines", "machines/status"]),
                json!(["get", "list", "patch", "watch"]),
            ),
            rule(own, json!(["proxmoxclusters", "proxmoxmachines"]), all.clone()),
            rule(own, json!(["proxmoxclusters/finalizers", "proxmoxmachines/finalizers"]),
                json!(["update"])),
            rule(own, json!(["proxmoxclusters/status", "proxmoxmachines/status"]),
                json!(["get", "patch", "update"])),
            rule(ipam, json!(["inclusterippools", "globalinclusterippools"]), all),
            rule(ipam, json!(["ipaddressclaims"]),
                json!(["create", "delete", "get", "list", "update", "watch"])),
            rule(ipam, json!(["ipaddresses"]), read),
        ],
    })
}

/// capmox's `capmox-leader-election-role` and its binding.
async fn lead(site: &Site) -> Result<()> {
    let all = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "Role",
        "metadata": {"name": "capmox-leader-election-role"},
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": all},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": all},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        ],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "capmox-leader-election-rolebinding"},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "capmox-leader-election-role"},
        "subjects": [{"kind": "ServiceAccount", "name": "manager", "namespace": site.namespace}],
    });
    for object in [role, binding] {
        apply::apply(&site.client, &object, &site.namespace).await?;
    }
    Ok(())
}

/// An API server with Cluster API's definitions, the pools', and capmox's own; none of ours.
async fn world() -> Result<&'static World> {
    let world = World::start(Options { crds: false, ..Options::default() }).await?;
    let root = testbed::root();
    let mut definitions = crds::cluster_api(&root)?;
    let pools = |one: &Value| one["spec"]["group"] == "ipam.cluster.x-k8s.io";
    definitions.extend(crds::ours(&root)?.into_iter().filter(pools));
    definitions.extend(capmox_crds::definitions());
    let client = world.client().await?;
    crds::install(&client, definitions).await?;
    tokio::spawn(capmox::embedded_ipam::run(client, CancellationToken::new()));
    // Its children end with the process.
    Ok(Box::leak(Box::new(world)))
}

#[test]
fn capmoxs_deployment_with_the_image_alone_changed_serves_machines_and_says_what_it_cannot_do() {
    play(async {
        let fake = Fake::start(quick()).await?;
        let gate = Arc::new(Gate::default());
        let mut site =
            Site::make_in(world().await?, "swapped", role(), Proxmox::of(&fake), gate).await?;
        lead(&site).await?;
        site.argue("--leader-elect".to_owned());
        site.argue(format!("--leader-election-namespace={}", site.namespace));
        site.serve_metrics();
        site.start_manager()?;
        site.make_cluster().await?;
        let lane = Lane { site, fake };
        let site = &lane.site;
        site.make_machine("w-1", spec()).await?;
        site.ready("w-1").await?;
        site.join("w-1").await?;
        site.unseeded("w-1").await?;
        lane.eventually("the seed is gone", || lane.check_unseeded("w-1")).await?;
        let events: Api<Event> = Api::namespaced(site.client.clone(), &site.namespace);
        let events = events.list(&ListParams::default()).await?.items;
        let about: BTreeSet<_> =
            events.iter().map(|one| one.involved_object.kind.clone()).collect();
        ensure!(about.contains(&Some("ProxmoxMachine".to_owned())), "{events:?}");
        site.delete_machine("w-1").await?;
        site.addresses_given_back("w-1").await?;
        ensure!(lane.vm("w-1").is_err(), "its VM is left");
        ensure!(lane.seeds().is_empty(), "{:?}", lane.seeds());
        let refused = site.take_tally().refused;
        let to = |path: &str| refused.iter().filter(|one| one.contains(path)).count();
        let events = to("/apis/events.k8s.io/");
        let connections = to("/proxmoxconnections");
        ensure!(events + connections == refused.len(), "{refused:?}");
        // One event for each controller that has something to tell, and a look at times.
        ensure!(events <= 2 && connections <= 4, "{refused:?}");
        let log = site.gate.log_tail(1000);
        for (what, needle) in [
            (
                "the right that is missing",
                "group=\"events.k8s.io\" resource=\"events\" verbs=\"create,patch\"",
            ),
            ("what it is for", "apply the roles of this version"),
            ("the fields that are not kept", "status.bootstrapISO"),
            ("the kind that is missing", "ProxmoxConnection is not installed"),
            ("where events go", "events are written in the core group"),
        ] {
            ensure!(log.contains(needle), "{what}: no {needle} in\n{log}");
        }
        let (_, _, port) = site.gate.manager().context("no manager")?;
        let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
        let metrics = client.get(format!("http://127.0.0.1:{port}/metrics")).send().await?;
        let metrics = metrics.text().await?;
        for needle in [
            "capmox_lacking_rights{group=\"events.k8s.io\",resource=\"events\"} 2",
            "capmox_lacking_fields{kind=\"ProxmoxMachine\"}",
        ] {
            ensure!(metrics.contains(needle), "no {needle} in\n{metrics}");
        }
        Ok(())
    });
}

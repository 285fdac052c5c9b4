//! Every rule on a cluster's spec.

use serde_json::{Value, json};

use crate::stage::{Case, Stage, accepted, merged, refused};

fn base() -> Value {
    json!({
        "controlPlaneEndpoint": {"host": "10.0.0.5", "port": 6443},
        "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24},
        "dnsServers": ["1.1.1.1"]
    })
}

const PORT: &[&str] = &["controlPlaneEndpoint", "port must be within 1-65535"];

fn cases() -> Vec<Case> {
    let base = base();
    let no = |what, change: Value, texts| refused(what, &base, &change, texts);
    let yes = |what, change: Value| accepted(what, &base, &change);
    let port = |port: i64| json!({"controlPlaneEndpoint": {"port": port}});
    let host = |length: usize| json!({"controlPlaneEndpoint": {"host": "h".repeat(length)}});
    let v6 = |change: Value| json!({"ipv6Config": merged(&json!({"addresses": ["fd00::/64"], "prefix": 64}), &change)});
    vec![
        yes("as little as usual", json!({})),
        yes("no endpoint", json!({"controlPlaneEndpoint": null})),
        no("port 0", port(0), PORT),
        no("port 65536", port(65536), PORT),
        yes("port 1", port(1)),
        yes("port 65535", port(65535)),
        no("no port", json!({"controlPlaneEndpoint": {"port": null}}), &["port", "Required"]),
        no("long host", host(513), &["controlPlaneEndpoint.host"]),
        yes("longest host", host(512)),
        no("no name servers", json!({"dnsServers": null}), &["dnsServers", "Required"]),
        no("empty name servers", json!({"dnsServers": []}), &["dnsServers"]),
        no(
            "no IPv4 addresses",
            json!({"ipv4Config": {"addresses": []}}),
            &["ipv4Config", "IPv4Config addresses must be provided"],
        ),
        no(
            "no IPv6 addresses",
            v6(json!({"addresses": []})),
            &["ipv6Config", "IPv6Config addresses must be provided"],
        ),
        yes("both families", v6(json!({}))),
        no("long prefix", v6(json!({"prefix": 129})), &["ipv6Config.prefix", "128"]),
        no("no prefix", v6(json!({"prefix": null})), &["ipv6Config.prefix", "Required"]),
        yes("metric", v6(json!({"metric": 0, "gateway": "fd00::1"}))),
        no(
            "no control plane to clone",
            json!({"cloneSpec": {"machineSpec": {"workerNode": {}}}}),
            &["Cowardly refusing to deploy cluster without control plane"],
        ),
        no("nothing to clone", json!({"cloneSpec": {}}), &["cloneSpec.machineSpec", "Required"]),
        yes(
            "all the rest",
            json!({
                "externalManagedControlPlane": true,
                "allowedNodes": ["pve1"],
                "schedulerHints": {"memoryAdjustment": 0},
                "cloneSpec": {
                    "machineSpec": {"controlPlane": {}, "workerNode": {}},
                    "sshAuthorizedKeys": ["ssh-ed25519 AAAA"],
                    "virtualIPNetworkInterface": "eth0"
                },
                "credentialsRef": {"name": "pve", "namespace": "secrets"}
            }),
        ),
    ]
}

fn failure_domains() -> Vec<Case> {
    let base = base();
    let no = |what, change: Value, texts| refused(what, &base, &change, texts);
    let yes = |what, change: Value| accepted(what, &base, &change);
    let domains = |all: Value| json!({"failureDomains": all});
    vec![
        yes(
            "failure domains",
            domains(json!([
                {"name": "a", "nodes": ["pve1", "pve2"]},
                {"name": "b", "nodes": ["pve3"], "controlPlane": false}
            ])),
        ),
        no(
            "two failure domains of one name",
            domains(json!([{"name": "a", "nodes": ["pve1"]}, {"name": "a", "nodes": ["pve2"]}])),
            &["failureDomains[1]", "Duplicate value"],
        ),
        no(
            "failure domain without nodes",
            domains(json!([{"name": "a", "nodes": []}])),
            &["failureDomains[0].nodes"],
        ),
        no(
            "failure domain without a name",
            domains(json!([{"nodes": ["pve1"]}])),
            &["failureDomains[0].name", "Required"],
        ),
        no(
            "failure domain with an empty node",
            domains(json!([{"name": "a", "nodes": [""]}])),
            &["failureDomains[0].nodes[0]"],
        ),
    ]
}

#[tokio::test]
async fn rules_hold_for_clusters() {
    let stage = Stage::set().await;
    stage.hold("ProxmoxCluster", &cases(), Value::clone).await;
    stage.hold("ProxmoxCluster", &failure_domains(), Value::clone).await;
}

#[tokio::test]
async fn rules_hold_in_cluster_templates() {
    let wrap = |spec: &Value| json!({"template": {"spec": spec}});
    let stage = Stage::set().await;
    stage.hold("ProxmoxClusterTemplate", &cases(), wrap).await;
    stage.hold("ProxmoxClusterTemplate", &failure_domains(), wrap).await;
}

/// Only a cluster has to have addresses; a template may leave them to patches.
#[tokio::test]
async fn addresses_are_required_of_clusters_only() {
    let stage = Stage::set().await;
    let none = json!({"dnsServers": ["1.1.1.1"]});
    let said = stage.attempt("ProxmoxCluster", &none).await.unwrap_err();
    let rule = "at least one ip config must be set, either ipv4Config or ipv6Config";
    assert!(said.contains(rule), "{said}");
    let six = merged(&none, &json!({"ipv6Config": {"addresses": ["fd00::1"], "prefix": 64}}));
    stage.attempt("ProxmoxCluster", &six).await.unwrap();
    let template = json!({"template": {"spec": none}});
    stage.attempt("ProxmoxClusterTemplate", &template).await.unwrap();
    // Rules on the spec do not ask for a spec.
    stage.attempt("ProxmoxCluster", &Value::Null).await.unwrap();
}

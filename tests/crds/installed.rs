//! The install manifests on a real API server, and what the manager may do once they are applied.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use capmox::runtime::rbac::{self, Grant};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview,
};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use testbed::Binaries;

use crate::stage::{Stage, world};

const NAMESPACE: &str = "capmox-system";

/// What kustomize makes of a folder of `config`.
fn rendered(folder: &str) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(Binaries::new().path("kubectl").unwrap())
        .arg("kustomize")
        .arg(root.join("config").join(folder))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    testbed::apply::documents(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

async fn install(client: &Client) {
    for object in rendered("plain").iter().chain(&rendered("ipam")) {
        // cert-manager is not there, and nobody serves the webhooks.
        let api_version = object["apiVersion"].as_str().unwrap();
        let kind = object["kind"].as_str().unwrap();
        if !api_version.starts_with("cert-manager.io/") && kind != "ValidatingWebhookConfiguration"
        {
            testbed::apply::apply(client, object, "default").await.unwrap();
        }
    }
}

async fn may(client: &Client, namespace: Option<&str>, what: [&str; 3]) -> bool {
    let [group, resource, verb] = what;
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                verb: Some(verb.to_owned()),
                namespace: namespace.map(ToOwned::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api = Api::all(client.clone());
    api.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

fn each(grants: &'static [Grant]) -> impl Iterator<Item = [&'static str; 3]> {
    grants.iter().flat_map(|grant| {
        grant.resources.iter().flat_map(move |resource| {
            grant.verbs.iter().map(move |verb| [grant.group, *resource, *verb])
        })
    })
}

#[tokio::test]
async fn manifests_are_accepted_and_grant_what_is_needed_and_no_more() {
    let stage = Stage::set().await;
    install(&stage.client).await;
    let deployments: Api<Deployment> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let deployment = deployments.get("capmox-controller-manager").await.unwrap();
    let account = deployment.spec.unwrap().template.spec.unwrap().service_account_name.unwrap();

    let kubeconfig = world().await.service_account(NAMESPACE, &account).await.unwrap();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let manager = Client::try_from(config).unwrap();

    for what in each(rbac::MANAGER).chain(each(rbac::DIAGNOSTICS)).chain(each(rbac::EMBEDDED_IPAM))
    {
        assert!(may(&manager, None, what).await, "{what:?} is refused");
    }
    for what in each(rbac::LEADER_ELECTION) {
        assert!(may(&manager, Some(NAMESPACE), what).await, "{what:?} is refused");
    }
    let own = capmox::api::GROUP;
    for what in [
        ["", "secrets", "create"],
        ["", "secrets", "delete"],
        ["", "pods", "list"],
        ["coordination.k8s.io", "leases", "update"],
        ["cluster.x-k8s.io", "machines", "patch"],
        ["cluster.x-k8s.io", "clusters", "delete"],
        [own, "proxmoxmachines", "create"],
        [own, "proxmoxmachines", "delete"],
        [own, "proxmoxmachinetemplates", "update"],
        ["rbac.authorization.k8s.io", "clusterroles", "get"],
    ] {
        assert!(!may(&manager, None, what).await, "{what:?} is allowed");
    }
}

/// Group, resource and verb of everything that a client may do in a namespace, by rule; names of
/// objects and URLs that a rule is bound to are part of it.
async fn all_rights(client: &Client, namespace: &str) -> BTreeSet<String> {
    let review: SelfSubjectRulesReview =
        serde_json::from_value(json!({"spec": {"namespace": namespace}})).unwrap();
    let review = Api::all(client.clone()).create(&PostParams::default(), &review).await.unwrap();
    let status = review.status.unwrap();
    assert!(!status.incomplete, "{status:?}");
    let mut all = BTreeSet::new();
    for rule in status.resource_rules {
        let names = rule.resource_names.unwrap_or_default().join(",");
        for group in rule.api_groups.unwrap_or_default() {
            for resource in rule.resources.clone().unwrap_or_default() {
                all.extend(
                    rule.verbs.iter().map(|verb| format!("{group} {resource} {verb} {names}")),
                );
            }
        }
    }
    all
}

#[tokio::test]
async fn the_manager_may_do_what_the_table_says_and_nothing_else() {
    let stage = Stage::set().await;
    install(&stage.client).await;
    let account = "capmox-controller-manager";
    let client = |kubeconfig: std::path::PathBuf| async move {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        Client::try_from(config).unwrap()
    };
    let manager = client(world().await.service_account(NAMESPACE, account).await.unwrap()).await;
    // What every account may do is no right of the manager's.
    let nobody = client(world().await.service_account(NAMESPACE, "nobody").await.unwrap()).await;
    let table = |tables: &[&'static [Grant]]| -> BTreeSet<String> {
        let all = tables.iter().flat_map(|grants| each(grants));
        all.map(|[group, resource, verb]| format!("{group} {resource} {verb} ")).collect()
    };
    let everywhere = [rbac::MANAGER, rbac::DIAGNOSTICS, rbac::EMBEDDED_IPAM];
    let own = [everywhere.as_slice(), &[rbac::LEADER_ELECTION]].concat();
    for (namespace, tables) in [("default", everywhere.as_slice()), (NAMESPACE, &own)] {
        let anybody = all_rights(&nobody, namespace).await;
        let found = all_rights(&manager, namespace).await;
        let found: BTreeSet<String> = found.difference(&anybody).cloned().collect();
        let wanted = table(tables);
        let more: Vec<_> = found.difference(&wanted).collect();
        let less: Vec<_> = wanted.difference(&found).collect();
        assert!(more.is_empty() && less.is_empty(), "{namespace}: more {more:?}, less {less:?}");
    }
}

/// What a swap of the image in an installation of capmox relies on.
#[test]
fn names_and_selectors_are_those_of_capmox() {
    let objects = rendered("default");
    let has = |kind: &str, name: &str| {
        objects.iter().any(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    };
    for (kind, name) in [
        ("Namespace", "capmox-system"),
        ("ServiceAccount", "capmox-controller-manager"),
        ("Role", "capmox-leader-election-role"),
        ("RoleBinding", "capmox-leader-election-rolebinding"),
        ("ClusterRole", "capmox-manager-role"),
        ("ClusterRoleBinding", "capmox-manager-rolebinding"),
        ("ClusterRole", "capmox-proxy-role"),
        ("ClusterRoleBinding", "capmox-proxy-rolebinding"),
        ("ClusterRole", "capmox-metrics-reader"),
        ("Secret", "capmox-manager-credentials"),
        ("Service", "capmox-webhook-service"),
        ("Service", "capmox-controller-manager-metrics-service"),
        ("Deployment", "capmox-controller-manager"),
        ("Issuer", "capmox-selfsigned-issuer"),
        ("Certificate", "capmox-serving-cert"),
        ("ValidatingWebhookConfiguration", "capmox-validating-webhook-configuration"),
    ] {
        assert!(has(kind, name), "{kind} {name} is missing");
    }
    for object in &objects {
        let label = &object["metadata"]["labels"]["cluster.x-k8s.io/provider"];
        assert_eq!(label, "infrastructure-proxmox", "{}", object["metadata"]["name"]);
    }
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(
        deployment["spec"]["selector"]["matchLabels"],
        serde_json::json!({
            "cluster.x-k8s.io/provider": "infrastructure-proxmox",
            "control-plane": "controller-manager"
        })
    );
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["name"], "manager");
    let text = serde_json::to_string(&rendered("plain")).unwrap();
    assert!(!text.contains("${"), "a variable that nobody fills in");
    assert!(!text.contains("stringData"), "applying again would empty the credentials");
}

//! With a management cluster: all is read from a ProxmoxCluster or a ProxmoxConnection.

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use pve_fake::{Config, Fake, Seed};
use serde_json::json;
use testbed::{Options, World};
use tokio::sync::OnceCell;

use crate::command::{Answer, check};

static WORLD: OnceCell<World> = OnceCell::const_new();

async fn world() -> &'static World {
    WORLD.get_or_init(async || World::start(Options::default()).await.unwrap()).await
}

struct Stage {
    namespace: String,
    fake: Fake,
}

impl Stage {
    /// A ProxmoxCluster `c` with a machine template of its own and one of another cluster.
    async fn set() -> Self {
        let namespace = world().await.namespace("check").await.unwrap();
        let fake = Fake::start(Config::default().with_seed(Seed::three_nodes())).await.unwrap();
        let stage = Self { namespace, fake };
        let token = stage.fake.token();
        let secret = json!({"metadata": {"name": "creds"}, "stringData": {
            "url": stage.fake.url(), "token": token.id, "secret": token.secret,
        }});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let client = world().await.client().await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &stage.namespace);
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        stage
            .apply(
                "{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: ProxmoxCluster, \
                 metadata: {name: c}, spec: {dnsServers: [10.0.0.1], allowedNodes: [pve1, pve2], \
                 credentialsRef: {name: creds}, ipv4Config: {addresses: [10.0.0.0/24], prefix: \
                 24}}}",
            )
            .await;
        stage
    }

    async fn apply(&self, yaml: &str) {
        let client = world().await.client().await.unwrap();
        for object in testbed::apply::documents(yaml).unwrap() {
            testbed::apply::apply(&client, &object, &self.namespace).await.unwrap();
        }
    }

    async fn template(&self, cluster: &str, vmid: u32) {
        self.apply(&format!(
            "{{apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1, kind: \
             ProxmoxMachineTemplate, metadata: {{name: {cluster}-{vmid}, labels: \
             {{cluster.x-k8s.io/cluster-name: {cluster}}}}}, spec: {{template: {{spec: \
             {{sourceNode: pve1, templateID: {vmid}, pool: lab, network: {{default: {{bridge: \
             vmbr0}}}}}}}}}}}}"
        ))
        .await;
    }

    async fn check(&self, arguments: &[&str]) -> Answer {
        let kubeconfig = world().await.kubeconfig().to_str().unwrap();
        let answer =
            check(&[], &[&["--kubeconfig", kubeconfig, "-o", "json"], arguments].concat()).await;
        assert!(!answer.text.contains(&self.fake.token().secret), "{}", answer.text);
        answer
    }

    async fn check_cluster(&self, name: &str) -> Answer {
        self.check(&["--cluster", &format!("{}/{name}", self.namespace)]).await
    }
}

#[tokio::test]
async fn a_cluster_says_what_is_looked_at() {
    let stage = Stage::set().await;
    stage.check_cluster("c").await.only(2, &["unknown object ProxmoxCluster", "machine templates"]);
    stage.template("other", 9009).await;
    stage.template("c", 9000).await;
    let answer = stage.check_cluster("c").await;
    // The pool is what the cluster's own template asks for; the other template is not its own.
    answer.only(1, &["pool lab", "does not exist"]);
    assert!(answer.text.contains("kube-template (9000) on pve1"), "{}", answer.text);
    assert!(!answer.text.contains("pve3"), "only allowed nodes: {}", answer.text);
    stage.check_cluster("gone").await.only(1, &["ProxmoxCluster", "does not exist"]);
}

#[tokio::test]
async fn a_connection_is_looked_at_by_its_name() {
    let stage = Stage::set().await;
    let (url, token) = (stage.fake.url(), stage.fake.token());
    let name = format!("lab-{}", stage.namespace);
    stage
        .apply(&format!(
            "{{apiVersion: proxmox.alperen.cloud/v1alpha1, kind: ProxmoxConnection, metadata: \
             {{name: {name}}}, spec: {{endpoint: \"{url}\", tokenID: \"{}\", secretFrom: {{name: \
             creds, namespace: {}, key: secret}}}}}}",
            token.id, stage.namespace
        ))
        .await;
    let answer = stage.check(&["--connection", &name, "--template", "9000"]).await;
    assert_eq!((answer.bad(), answer.code), (vec![], 0));
    let answer = stage.check(&["--connection", "gone"]).await;
    assert_eq!(answer.code, 1);
    assert!(answer.bad()[0].contains("gone"), "{answer:?}");
}

#[tokio::test]
async fn a_management_cluster_that_does_not_answer_leaves_the_question_open() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&file, config.to_string()).unwrap();
    for file in [file.to_str().unwrap(), "/nowhere"] {
        let arguments = ["--kubeconfig", file, "--cluster", "a/b", "-o", "json"];
        check(&[], &arguments).await.only(2, &["unknown object ProxmoxCluster a/b"]);
    }
}

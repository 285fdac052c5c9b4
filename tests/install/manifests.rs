//! What the components hold, looked at by themselves.

use std::collections::BTreeSet;
use std::io::Read as _;

use base64::Engine as _;
use release::components::{COMPONENTS, INSTALL};
use release::{Files, package};
use serde_json::{Value, json};
use testbed::{apply, root};

fn files() -> Files {
    Files::read(&root().join("components")).unwrap()
}

fn objects(file: &str) -> Vec<Value> {
    apply::documents(files().text(file).unwrap()).unwrap()
}

fn all<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = all(objects, kind);
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

/// Every `${…}` of a text, without what is done to it.
fn variables(text: &str) -> BTreeSet<String> {
    let after = text.split("${").skip(1);
    after.map(|rest| rest.split([':', '=', '}', '-']).next().unwrap().to_owned()).collect()
}

#[test]
fn variables_are_those_of_capmox_and_stand_only_in_the_secret_and_the_arguments() {
    let found = variables(files().text(COMPONENTS).unwrap());
    let wanted = [
        "CAPI_DIAGNOSTICS_ADDRESS",
        "CAPI_INSECURE_DIAGNOSTICS",
        "CAPMOX_LOGLEVEL",
        "ClusterTopology",
        "PROXMOX_SECRET",
        "PROXMOX_TOKEN",
        "PROXMOX_URL",
    ];
    assert_eq!(found, wanted.map(str::to_owned).into());
    for object in objects(COMPONENTS) {
        let kind = object["kind"].as_str().unwrap();
        let has = object.to_string().contains("${");
        assert_eq!(has, ["Secret", "Deployment"].contains(&kind), "{kind}");
    }
    assert_eq!(variables(files().text(INSTALL).unwrap()), BTreeSet::new());
}

#[test]
fn every_object_is_the_providers_and_in_its_one_namespace() {
    for file in [COMPONENTS, INSTALL] {
        let objects = objects(file);
        let namespace = one(&objects, "Namespace");
        assert_eq!(namespace["metadata"]["name"], "capmox-system");
        let labels = &namespace["metadata"]["labels"];
        assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
        for object in &objects {
            let label = &object["metadata"]["labels"]["cluster.x-k8s.io/provider"];
            assert_eq!(label, "infrastructure-proxmox", "{}", object["metadata"]["name"]);
            let place = object["metadata"]["namespace"].as_str();
            assert!(place.is_none_or(|place| place == "capmox-system"), "{object}");
        }
        let names: BTreeSet<_> = objects
            .iter()
            .map(|o| (&o["kind"], &o["metadata"]["name"]))
            .map(|(kind, name)| format!("{kind}{name}"))
            .collect();
        assert_eq!(names.len(), objects.len(), "an object is there twice");
    }
}

#[test]
fn the_pod_asks_for_no_rights_and_is_probed() {
    let objects = objects(COMPONENTS);
    let deployment = one(&objects, "Deployment");
    assert_eq!(deployment["metadata"]["name"], "capmox-controller-manager");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    assert_eq!(container["name"], "manager");
    assert_eq!(container["image"], format!("localhost/capmox:v{}", env!("CARGO_PKG_VERSION")));
    let wanted = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
    });
    assert_eq!(container["securityContext"], wanted);
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"]["port"], "healthz");
    }
    for kind in ["requests", "limits"] {
        assert!(container["resources"][kind]["memory"].is_string());
        assert!(container["resources"][kind]["cpu"].is_string());
    }
    // The operator sets flags by this form only.
    for arg in container["args"].as_array().unwrap() {
        assert!(arg.as_str().unwrap().split_once('=').is_some(), "{arg} has no =");
    }
}

#[test]
fn every_service_leads_to_a_port_that_the_pod_declares() {
    for file in [COMPONENTS, INSTALL] {
        let objects = objects(file);
        let pod = &one(&objects, "Deployment")["spec"]["template"];
        let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        let services = all(&objects, "Service");
        assert_eq!(services.len(), 2, "those of webhooks and metrics");
        for service in services {
            let spec = &service["spec"];
            for (label, value) in spec["selector"].as_object().unwrap() {
                assert_eq!(&pod["metadata"]["labels"][label], value, "{label}");
            }
            for port in spec["ports"].as_array().unwrap() {
                let target = &port["targetPort"];
                let is_it = |declared: &&Value| {
                    &declared["name"] == target || &declared["containerPort"] == target
                };
                let found = ports.iter().filter(is_it).count();
                assert_eq!(found, 1, "{} to {target}", service["metadata"]["name"]);
            }
        }
    }
}

#[test]
fn the_webhook_has_a_certificate_of_its_services_name() {
    let objects = objects(COMPONENTS);
    let certificate = one(&objects, "Certificate");
    let (name, secret) = (&certificate["metadata"]["name"], &certificate["spec"]["secretName"]);
    let webhooks = one(&objects, "ValidatingWebhookConfiguration");
    let asks = &webhooks["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    assert_eq!(asks, &format!("capmox-system/{}", name.as_str().unwrap()));
    let pod = &one(&objects, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(&pod["volumes"][0]["secret"]["secretName"], secret);
    for webhook in webhooks["webhooks"].as_array().unwrap() {
        let service = &webhook["clientConfig"]["service"];
        let host = format!(
            "{}.{}.svc",
            service["name"].as_str().unwrap(),
            service["namespace"].as_str().unwrap()
        );
        let names = certificate["spec"]["dnsNames"].as_array().unwrap();
        assert!(names.contains(&json!(host)), "{host} is not in {names:?}");
        let services = all(&objects, "Service");
        assert!(services.iter().any(|found| found["metadata"]["name"] == service["name"]));
    }
}

#[test]
fn the_package_holds_the_components_and_can_be_told_from_every_other() {
    let files = files();
    let objects = objects("operator/configmap.yaml");
    let package = one(&objects, "ConfigMap");
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(package["metadata"]["name"], version);
    let labels = json!({ package::LABEL.0: package::LABEL.1, package::VERSION_LABEL: version });
    assert_eq!(package["metadata"]["labels"], labels);
    assert_eq!(package["metadata"]["annotations"], json!({ package::COMPRESSED: "true" }));
    assert_eq!(package["data"]["metadata"], files.text("metadata.yaml").unwrap());
    let packed = package["binaryData"]["components"].as_str().unwrap();
    let packed = base64::engine::general_purpose::STANDARD.decode(packed).unwrap();
    assert_eq!(files.get("chart/files/components.gz").unwrap(), packed);
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut text).unwrap();
    assert_eq!(text, files.text(COMPONENTS).unwrap());

    let objects = apply::documents(files.text("operator/provider.yaml").unwrap()).unwrap();
    let provider = one(&objects, "InfrastructureProvider");
    assert_eq!(provider["metadata"]["name"], "proxmox");
    assert_eq!(provider["spec"]["version"], version);
    assert_eq!(provider["spec"]["fetchConfig"]["selector"]["matchLabels"], labels);
}

#[test]
fn the_package_leaves_room_in_etcd_and_kubectl_and_has_no_credentials() {
    let files = files();
    let size = files.get("operator/configmap.yaml").unwrap().len();
    // An alarm at half of what is refused, while there is time to do something about it.
    assert!(size < package::LIMIT / 2, "the package has {size} of {} bytes", package::LIMIT);
    for (path, _) in files.iter().filter(|(path, _)| path.starts_with("operator")) {
        let text = files.text(path.to_str().unwrap()).unwrap();
        assert!(all(&apply::documents(text).unwrap(), "Secret").is_empty(), "{path:?}");
    }
    for (path, _) in files.iter().filter(|(path, _)| path.starts_with("chart/templates")) {
        assert!(!files.text(path.to_str().unwrap()).unwrap().contains("kind: Secret"));
    }
}

#[test]
fn the_example_of_credentials_is_the_secret_that_the_package_asks_for() {
    let text = std::fs::read_to_string(root().join("examples/operator-credentials.yaml")).unwrap();
    let example = apply::documents(&text).unwrap();
    let secret = one(&example, "Secret");
    let provider = objects("operator/provider.yaml");
    let wanted = &one(&provider, "InfrastructureProvider")["spec"]["configSecret"];
    assert_eq!(secret["metadata"], *wanted);
    let components = objects(COMPONENTS);
    let asked = variables(&one(&components, "Secret").to_string());
    let given: BTreeSet<_> = secret["stringData"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(given, asked);
}

#[test]
fn clusterctl_finds_every_template_and_class_by_its_name() {
    let files = files();
    let folder = std::fs::read_dir(root().join("templates")).unwrap();
    let templates = folder.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut classes = 0;
    for path in templates {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        if name.starts_with("cluster-template") {
            assert_eq!(files.text(&name).unwrap(), text);
        } else {
            let class = text.split("kind: ClusterClass\nmetadata:\n  name: ").nth(1).unwrap();
            let class = class.lines().next().unwrap();
            assert_eq!(files.text(&format!("clusterclass-{class}.yaml")).unwrap(), text);
            classes += 1;
        }
    }
    assert!(classes > 0);
}

/// Each edge, and what in the components makes it one.
#[test]
fn what_the_package_requires_is_what_its_components_show() {
    let requires = &objects("requires.yaml")[0]["requires"];
    let edges: Vec<(&str, &str)> = requires
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| (edge["type"].as_str().unwrap(), edge["name"].as_str().unwrap()))
        .collect();
    let wanted = [
        ("CoreProvider", "cluster-api"),
        ("IPAMProvider", "in-cluster"),
        ("Addon", "cert-manager"),
    ];
    assert_eq!(edges, wanted);
    let metadata = &objects("metadata.yaml")[0]["releaseSeries"];
    for series in metadata.as_array().unwrap() {
        assert_eq!(series["contract"], requires[0]["contract"]);
    }
    let objects = objects(COMPONENTS);
    for definition in all(&objects, "CustomResourceDefinition") {
        // A ProxmoxConnection is no kind of a contract.
        if definition["spec"]["group"] != "infrastructure.cluster.x-k8s.io" {
            continue;
        }
        let labels = &definition["metadata"]["labels"];
        assert_eq!(labels["cluster.x-k8s.io/v1beta1"], "v1alpha1");
    }
    let roles = all(&objects, "ClusterRole");
    let manager = roles.iter().find(|role| role["metadata"]["name"] == "capmox-manager-role");
    let claims = |rule: &&Value| rule["resources"] == json!(["ipaddressclaims"]);
    assert!(manager.unwrap()["rules"].as_array().unwrap().iter().any(|rule| claims(&rule)));
    assert!(!all(&objects, "Issuer").is_empty(), "cert-manager would not be needed");
    // Proxmox is outside; nothing of KubeVirt is called.
    let text = serde_json::to_string(&objects).unwrap().to_lowercase();
    assert!(!text.contains("kubevirt.io"));
}

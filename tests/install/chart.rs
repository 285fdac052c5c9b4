//! The chart, by helm itself.

use std::process::Command;

use serde_json::Value;
use testbed::{Binaries, apply, root};

/// What helm says, or why it refuses.
fn helm(args: &[&str]) -> Result<String, String> {
    let program = Binaries::new().path("helm").unwrap();
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .env("HOME", home.path())
        .env("HELM_CACHE_HOME", home.path())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn render(args: &[&str]) -> Result<Vec<Value>, String> {
    let mut all = vec!["template", "capmox", "components/chart", "--namespace", "capmox-system"];
    all.extend(args);
    helm(&all).map(|text| apply::documents(&text).unwrap())
}

fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap()
}

#[test]
fn helm_finds_nothing_to_say_about_the_chart() {
    let said = helm(&["lint", "--strict", "components/chart"]).unwrap();
    assert!(said.contains("0 chart(s) failed"), "{said}");
}

#[test]
fn the_chart_renders_the_plain_package() {
    let rendered = render(&[]).unwrap();
    let text = std::fs::read_to_string(root().join("components/operator/configmap.yaml")).unwrap();
    assert_eq!(find(&rendered, "ConfigMap"), &apply::documents(&text).unwrap()[0]);
    let text = std::fs::read_to_string(root().join("components/operator/provider.yaml")).unwrap();
    let plain = apply::documents(&text).unwrap();
    let provider = find(&rendered, "InfrastructureProvider");
    for field in ["version", "configSecret", "fetchConfig"] {
        assert_eq!(provider["spec"][field], plain[0]["spec"][field], "{field}");
    }
    assert_eq!(rendered.len(), 2, "the chart renders something else, too");
}

#[test]
fn values_reach_the_provider() {
    let rendered = render(&[
        "--set=credentialsSecretName=vault",
        "--set=credentialsSecretNamespace=secrets",
        "--set=image=registry.example/capmox:v9",
        "--set=replicas=2",
        "--set-string=additionalArgs.--embedded-ipam=true",
        "--set=nodeSelector.disk=fast",
        "--set=resources.limits.memory=256Mi",
    ]);
    let rendered = rendered.unwrap();
    let spec = &find(&rendered, "InfrastructureProvider")["spec"];
    assert_eq!(spec["configSecret"]["name"], "vault");
    assert_eq!(spec["configSecret"]["namespace"], "secrets");
    assert_eq!(spec["manager"]["additionalArgs"]["--embedded-ipam"], "true");
    assert_eq!(spec["deployment"]["replicas"], 2);
    assert_eq!(spec["deployment"]["nodeSelector"]["disk"], "fast");
    let container = &spec["deployment"]["containers"][0];
    assert_eq!(container["name"], "manager");
    assert_eq!(container["imageUrl"], "registry.example/capmox:v9");
    assert_eq!(container["resources"]["limits"]["memory"], "256Mi");
}

#[test]
fn wrong_values_are_refused_by_name() {
    for (value, named) in [
        ("credentialsSecretName=", "credentialsSecretName"),
        ("credentialsSecretname=x", "credentialsSecretname"),
        ("image=registry.example/capmox", "image"),
        ("replicas=many", "replicas"),
        ("additionalArgs.v=2", "'v'"),
    ] {
        let refusal = render(&[&format!("--set-string={value}")]).unwrap_err();
        assert!(refusal.contains(named), "{value}: {refusal}");
    }
}

//! docs/templates.md lists exactly the variables that clusterctl finds in the templates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::stage::{FLAVOURS, clusterctl, request};

/// Variable to default, by flavour.
type Variables = BTreeMap<String, BTreeMap<String, Option<String>>>;

/// The document's table of variables.
fn documented() -> Variables {
    let text = std::fs::read_to_string(testbed::root().join("docs/templates.md")).unwrap();
    let mut all = Variables::new();
    let rows = text.lines().skip_while(|line| !line.starts_with("| variable | default | flavours"));
    for row in rows.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, variable, default, flavours, _, _] = cells[..] else { panic!("{row}") };
        let plain = |text: &str| text.trim_matches('`').to_owned();
        let default = (!default.is_empty()).then(|| plain(default));
        for flavour in meant(flavours) {
            let variables = all.entry(flavour.to_owned()).or_default();
            let known = variables.insert(plain(variable), default.clone());
            assert!(known.is_none(), "{variable} is there twice for flavour {flavour:?}");
        }
    }
    all
}

/// `all`, `all but one, two` or `one, two`.
fn meant(text: &str) -> BTreeSet<&'static str> {
    let named = |list: &str| -> BTreeSet<&'static str> {
        let find = |name: &str| FLAVOURS.iter().copied().find(|flavour| *flavour == name);
        list.split(", ")
            .map(|name| find(name).unwrap_or_else(|| panic!("flavour {name}")))
            .collect()
    };
    let all: BTreeSet<&'static str> = FLAVOURS.iter().copied().collect();
    match text.strip_prefix("all but ") {
        _ if text == "all" => all,
        Some(others) => &all - &named(others),
        None => named(text),
    }
}

#[test]
fn the_documented_variables_and_defaults_are_those_of_the_templates() {
    let (clusterctl, _folder) = clusterctl();
    let mut documented = documented();
    for flavour in FLAVOURS {
        let found = clusterctl.variables(flavour).unwrap();
        assert_eq!(documented.remove(*flavour).unwrap_or_default(), found, "flavour {flavour:?}");
    }
}

#[test]
fn a_missing_variable_is_named() {
    let (clusterctl, _folder) = clusterctl();
    let by_argument = [
        "CLUSTER_NAME",
        "KUBERNETES_VERSION",
        "CONTROL_PLANE_MACHINE_COUNT",
        "WORKER_MACHINE_COUNT",
        "NAMESPACE",
    ];
    for (flavour, variables) in documented() {
        let request = request(&flavour, "any", &[]);
        let refusal = clusterctl.generate(Path::new("none"), &request).unwrap_err().to_string();
        let (_, list) = refusal.split_once("variables [").unwrap_or_else(|| panic!("{refusal}"));
        let named: BTreeSet<&str> = list.split_once(']').unwrap().0.split(", ").collect();
        let needed: BTreeSet<&str> = variables
            .iter()
            .filter(|(name, default)| default.is_none() && !by_argument.contains(&name.as_str()))
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(named, needed, "flavour {flavour:?}: {refusal}");
    }
    let class = testbed::root().join("templates/cluster-class-calico.yaml");
    let refusal = clusterctl.fill_in(&class, &[]).unwrap_err().to_string();
    assert!(refusal.contains("[BRIDGE]"), "{refusal}");
}

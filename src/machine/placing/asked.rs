//! Which nodes are asked for: by target, failure domain and allowed nodes. Pure.

use super::super::facts::Facts;
use crate::api::FailureDomain;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Asked {
    /// This node.
    Target(String),
    /// One of these.
    OneOf {
        /// What names them, for people.
        field: String,
        /// The failure domain that they are in, if there is one.
        domain: Option<String>,
        /// Their names.
        nodes: Vec<String>,
    },
    /// The node of the template.
    BesideTemplate,
}

/// Which nodes a machine may be made on.
///
/// # Errors
/// A text for people when the failure domain does not exist, or leaves no node.
pub(in super::super) fn asked(facts: &Facts) -> Result<Asked, String> {
    let spec = &facts.machine.spec;
    let domain = domain(facts)?;
    if let Some(target) = spec.target.as_deref().filter(|target| !target.is_empty()) {
        return match domain.filter(|domain| !domain.nodes.iter().any(|node| node == target)) {
            None => Ok(Asked::Target(target.to_owned())),
            Some(FailureDomain { name, nodes, .. }) => Err(format!(
                "node {target} (spec.target) is not in failure domain {name} of the Machine \
                 (spec.failureDomain), whose nodes are {}: remove spec.target, or add the node to \
                 the domain in ProxmoxCluster spec.failureDomains",
                nodes.join(", ")
            )),
        };
    }
    let allowed = allowed(facts);
    let Some(FailureDomain { name, nodes, .. }) = domain else {
        return Ok(allowed.map_or(Asked::BesideTemplate, |(field, nodes)| Asked::OneOf {
            field: field.to_owned(),
            domain: None,
            nodes: nodes.clone(),
        }));
    };
    let Some((field, allowed)) = allowed else {
        let field = format!("failure domain {name}");
        return Ok(Asked::OneOf { field, domain: Some(name.clone()), nodes: nodes.clone() });
    };
    let both: Vec<String> = nodes.iter().filter(|node| allowed.contains(node)).cloned().collect();
    if both.is_empty() {
        return Err(format!(
            "no node of failure domain {name} of the Machine (spec.failureDomain), whose nodes are \
             {}, is in {field}, which has {}: allow one of them there, or change the domain in \
             ProxmoxCluster spec.failureDomains",
            nodes.join(", "),
            allowed.join(", ")
        ));
    }
    let field = format!("failure domain {name} and {field}");
    Ok(Asked::OneOf { field, domain: Some(name.clone()), nodes: both })
}

/// The nodes that are allowed, with the field that says so.
fn allowed(facts: &Facts) -> Option<(&'static str, &Vec<String>)> {
    let of_cluster = facts.infra.as_ref().and_then(|infra| infra.spec.allowed_nodes.as_ref());
    [
        ("ProxmoxMachine spec.allowedNodes", facts.machine.spec.allowed_nodes.as_ref()),
        ("ProxmoxCluster spec.allowedNodes", of_cluster),
    ]
    .into_iter()
    .find_map(|(field, nodes)| Some((field, nodes.filter(|nodes| !nodes.is_empty())?)))
}

/// The failure domain that the Machine names. A cluster without any keeps to capmox, for which the
/// name has no meaning.
fn domain(facts: &Facts) -> Result<Option<&FailureDomain>, String> {
    let named = facts.owner.as_ref().and_then(|owner| owner.spec.failure_domain.as_deref());
    let domains = facts.infra.as_ref().and_then(|infra| infra.spec.failure_domains.as_deref());
    let (Some(named), Some(domains)) =
        (named.filter(|name| !name.is_empty()), domains.filter(|all| !all.is_empty()))
    else {
        return Ok(None);
    };
    domains.iter().find(|domain| domain.name == named).map(Some).ok_or_else(|| {
        let known: Vec<&str> = domains.iter().map(|domain| domain.name.as_str()).collect();
        format!(
            "the Machine asks for failure domain {named} (spec.failureDomain), which ProxmoxCluster \
             spec.failureDomains does not have; it has {}: add it there, or delete the Machine \
             after its owner names another",
            known.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::super::super::fixture::fresh;
    use super::*;

    fn facts(machine: &Value, cluster: &Value, domain: &str) -> Facts {
        let mut facts = fresh();
        facts.machine.spec.target = serde_json::from_value(machine["target"].clone()).unwrap();
        facts.machine.spec.allowed_nodes =
            serde_json::from_value(machine["allowedNodes"].clone()).unwrap();
        let infra = facts.infra.as_mut().unwrap();
        infra.spec.allowed_nodes = serde_json::from_value(cluster["allowedNodes"].clone()).unwrap();
        infra.spec.failure_domains =
            serde_json::from_value(cluster["failureDomains"].clone()).unwrap();
        facts.owner.as_mut().unwrap().spec.failure_domain = Some(domain.to_owned());
        facts
    }

    fn domains() -> Value {
        json!([{"name": "a", "nodes": ["pve1", "pve2"]}, {"name": "b", "nodes": ["pve3"]}])
    }

    #[test]
    fn a_machine_stays_within_its_failure_domain() {
        let no = json!({});
        let both = |nodes: &[&str]| json!({"allowedNodes": nodes, "failureDomains": domains()});
        let only = json!({"failureDomains": domains()});
        let own = |nodes: &[&str]| json!({"allowedNodes": nodes});
        for (machine, cluster, domain, wanted) in [
            (no.clone(), only.clone(), "a", "pve1 pve2"),
            (no.clone(), only.clone(), "b", "pve3"),
            (no.clone(), both(&["pve3", "pve2"]), "a", "pve2"),
            (own(&["pve1"]), both(&["pve2"]), "a", "pve1"),
            (own(&[]), both(&["pve2", "pve3"]), "a", "pve2"),
            (json!({"target": "pve2"}), only.clone(), "a", "target pve2"),
            // A Machine without a domain goes anywhere.
            (no.clone(), both(&["pve3", "pve2"]), "", "pve3 pve2"),
            (no.clone(), only, "", "template"),
            // Without domains the name has no meaning, as in capmox.
            (no.clone(), no.clone(), "a", "template"),
            (no.clone(), json!({"failureDomains": []}), "a", "template"),
            (own(&["pve1"]), no, "a", "pve1"),
        ] {
            let said = match asked(&facts(&machine, &cluster, domain)).unwrap() {
                Asked::Target(node) => format!("target {node}"),
                Asked::OneOf { nodes, .. } => nodes.join(" "),
                Asked::BesideTemplate => "template".to_owned(),
            };
            assert_eq!(said, wanted, "{machine} {cluster} {domain:?}");
        }
    }

    #[test]
    fn a_failure_domain_that_leaves_no_node_is_told_and_never_left_out() {
        for (machine, cluster, domain, wanted) in [
            (json!({}), json!({}), "z", ["domain z", "it has a, b", "add it there"]),
            (
                json!({"target": "pve3"}),
                json!({}),
                "a",
                ["pve3 (spec.target)", "are pve1, pve2", "remove spec.target"],
            ),
            (
                json!({"allowedNodes": ["pve3", "pve4"]}),
                json!({}),
                "a",
                ["ProxmoxMachine spec.allowedNodes", "has pve3, pve4", "allow one of them"],
            ),
            (
                json!({}),
                json!({"allowedNodes": ["pve9"]}),
                "b",
                ["ProxmoxCluster spec.allowedNodes", "are pve3", "change the domain"],
            ),
        ] {
            let mut cluster = cluster;
            cluster["failureDomains"] = domains();
            let why = asked(&facts(&machine, &cluster, domain)).unwrap_err();
            for text in wanted {
                assert!(why.contains(text), "{why} lacks {text:?}");
            }
        }
    }
}

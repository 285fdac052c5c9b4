//! Rules for ProxmoxMachineTemplate and ProxmoxClusterTemplate: what machines and clusters are made
//! from stays as it is.
//!
//! The owners of machines roll out by a template's name. What changes within one reaches no machine
//! that exists, and the next one that is made without anybody having asked for it. Two may change a
//! template nevertheless: Cluster API's topology controller, which tries its templates by dry run
//! before it makes new ones, and whoever writes the templates of a ClusterClass, from which that
//! controller copies.

use kube::core::DynamicObject;
use serde_json::Value;

use super::{Denial, Kind, Review, clone_spec, guest};
use crate::api::ProxmoxMachineSpec;

/// By this annotation the topology controller marks the objects of its dry runs.
const TOPOLOGY_DRY_RUN: &str = "topology.cluster.x-k8s.io/dry-run";
const TOPOLOGY_GROUP: &str = "cluster.x-k8s.io/";
/// Where a template has the spec of what is made from it.
const CONTENT: &str = "/spec/template/spec";

pub(super) fn judge(review: &Review<'_>) -> Result<Vec<String>, Denial> {
    let Some(old) = review.old else { return Ok(doubts(review)) };
    if is_tried(review) {
        return Ok(vec![]);
    }
    if belongs_to_class(old) {
        return Ok(clone_spec::doubts(review, CONTENT));
    }
    match first_change(content(old), content(review.object)) {
        None => Ok(vec![]),
        Some((field, value)) => Err(Denial::invalid(
            format!("spec.template.spec.{field}"),
            value,
            format!(
                "a template cannot be changed, since it would not reach what was made from it; \
                 make a new {} and refer to that",
                review.kind.as_str()
            ),
        )),
    }
}

/// Whether the topology controller only wants to see what would become of the object.
fn is_tried(review: &Review<'_>) -> bool {
    let annotations = review.object.metadata.annotations.as_ref();
    review.dry_run && annotations.is_some_and(|all| all.contains_key(TOPOLOGY_DRY_RUN))
}

fn belongs_to_class(object: &DynamicObject) -> bool {
    let mut owners = object.metadata.owner_references.iter().flatten();
    owners
        .any(|owner| owner.kind == "ClusterClass" && owner.api_version.starts_with(TOPOLOGY_GROUP))
}

fn content(object: &DynamicObject) -> Option<&Value> {
    object.data.pointer(CONTENT)
}

/// The first field, by name, that is not what it was, with its new value.
fn first_change(old: Option<&Value>, new: Option<&Value>) -> Option<(String, Value)> {
    // The apiserver has put in defaults on both sides; a null says as much as nothing.
    let field = |side: Option<&Value>, name: &str| {
        side.and_then(|side| side.get(name)).filter(|value| !value.is_null()).cloned()
    };
    let names = |side: Option<&Value>| {
        side.and_then(Value::as_object).into_iter().flat_map(|map| map.keys().cloned()).collect()
    };
    let mut all: Vec<String> = names(old);
    all.extend::<Vec<String>>(names(new));
    all.sort();
    all.into_iter()
        .find(|name| field(old, name) != field(new, name))
        .map(|name| (name.clone(), field(new, &name).unwrap_or_default()))
}

/// Fields by which a machine records its own VM.
const IDENTITY: [&str; 2] = ["providerID", "virtualMachineID"];

/// What a new template says that its machines will be refused for, or stick at. No more than a warning:
/// the patches of a ClusterClass may put it right.
fn doubts(review: &Review<'_>) -> Vec<String> {
    if review.kind == Kind::ProxmoxClusterTemplate {
        return clone_spec::doubts(review, CONTENT);
    }
    let spec = content(review.object).cloned().unwrap_or_default();
    let identity = IDENTITY.iter().filter(|field| spec.get(field).is_some_and(|it| !it.is_null()));
    let identity: Vec<String> = identity
        .map(|field| {
            format!(
                "every machine made from this template would record the same VM: remove \
                 spec.template.spec.{field}, which the provider writes into each machine"
            )
        })
        .collect();
    // What cannot be read, the apiserver refuses by the schema.
    let network = spec.get("network").cloned().unwrap_or_default();
    let Ok(spec) = serde_json::from_value::<ProxmoxMachineSpec>(spec) else { return identity };
    let refusals = spec.network.map_or_else(Vec::new, |asked| guest::refusals(&asked, &network));
    let refusal = refusals.into_iter().next();
    refusal
        .map(|denial| {
            let status = denial.into_status(Kind::ProxmoxMachine.as_str(), "of this template");
            format!("machines made from this template will be refused: {}", status.message)
        })
        .into_iter()
        .chain(identity)
        .collect()
}

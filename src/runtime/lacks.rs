//! What the management cluster does not give this program, though it needs it: rights, and fields of
//! definitions. So it is where only the image of capmox's Deployment was changed.
//!
//! Told once, at the start, in the log and as metrics; nothing is kept from starting by it. Of what is
//! not known nothing is said.

use std::collections::BTreeSet;

use axum::http::Request;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use serde_json::Value;
use tracing::{debug, warn};

use super::metrics::Metrics;
use super::rbac::{Grant, MANAGER};
use crate::api::{GROUP, ProxmoxConnection, VERSION, crd};

/// Looks, and tells of all that is missing.
pub(super) async fn tell(client: &Client, namespace: &str, metrics: &Metrics) {
    match lacking_rights(client, namespace).await {
        Ok(missing) => tell_of_rights(&missing, metrics),
        Err(error) => debug!(%error, "the rights of this manager are not known"),
    }
    match served(client, GROUP, VERSION).await {
        Ok(served) => tell_of_fields(&missing_fields(&crd::infrastructure(), &served), metrics),
        Err(error) => debug!(%error, "the definitions that are installed are not known"),
    }
    let (group, version) = (ProxmoxConnection::group(&()), ProxmoxConnection::version(&()));
    if let Err(error) = served(client, &group, &version).await {
        if is_missing(&error) {
            warn!(
                "ProxmoxConnection is not installed, so spec.connectionRef of a ProxmoxCluster has no \
                 effect: apply the definitions of this version"
            );
        } else {
            debug!(%error, "whether ProxmoxConnection is installed is not known");
        }
    }
}

fn tell_of_rights(missing: &[Missing], metrics: &Metrics) {
    for Missing { grant, resource, verbs } in missing {
        metrics.lacks_rights(grant.group, resource, verbs.len());
        warn!(
            group = grant.group,
            resource,
            verbs = verbs.join(","),
            "a right of the manager is missing: apply the roles of this version. It is there to: {}",
            grant.why
        );
    }
}

fn tell_of_fields(missing: &[(String, Vec<String>)], metrics: &Metrics) {
    for (kind, fields) in missing {
        metrics.lacks_fields(kind, fields.len());
        warn!(
            kind,
            fields = fields.join(","),
            "the definition that is installed does not keep all fields: apply the definitions of this \
             version. Till then machines are served all the same"
        );
    }
}

/// What the manager may not do in a namespace. Not every authorizer lists what it gives, so what is not
/// listed is asked for.
async fn lacking_rights(client: &Client, namespace: &str) -> kube::Result<Vec<Missing>> {
    let review = SelfSubjectRulesReview {
        metadata: ObjectMeta::default(),
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        status: None,
    };
    let reviewed = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    let rules = reviewed.status.map(|status| status.resource_rules).unwrap_or_default();
    let mut missing = Vec::new();
    for mut candidate in missing_rights(&rules) {
        let mut verbs = Vec::new();
        for verb in candidate.verbs {
            if !may(client, namespace, candidate.grant.group, candidate.resource, verb).await? {
                verbs.push(verb);
            }
        }
        candidate.verbs = verbs;
        if !candidate.verbs.is_empty() {
            missing.push(candidate);
        }
    }
    Ok(missing)
}

async fn may(
    client: &Client,
    namespace: &str,
    group: &str,
    resource: &str,
    verb: &str,
) -> kube::Result<bool> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource, None),
    };
    let asked = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource,
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        metadata: ObjectMeta::default(),
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked),
            ..SelfSubjectAccessReviewSpec::default()
        },
        status: None,
    };
    let reviewed = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}

/// The schemas that the API server serves for a version of a group.
async fn served(client: &Client, group: &str, version: &str) -> kube::Result<Value> {
    let path = format!("/openapi/v3/apis/{group}/{version}");
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request(request).await
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// A resource of a grant, with the verbs that are not given.
#[derive(Debug, PartialEq, Eq)]
struct Missing {
    grant: &'static Grant,
    resource: &'static str,
    verbs: Vec<&'static str>,
}

/// What is needed and not given. A rule for objects of certain names gives nothing.
fn missing_rights(rules: &[ResourceRule]) -> Vec<Missing> {
    let has = |list: Option<&Vec<String>>, wanted: &str| {
        list.into_iter().flatten().any(|one| one == "*" || one == wanted)
    };
    let gives = |rule: &ResourceRule, grant: &Grant, resource: &str, verb: &str| {
        rule.resource_names.as_ref().is_none_or(Vec::is_empty)
            && has(rule.api_groups.as_ref(), grant.group)
            && has(rule.resources.as_ref(), resource)
            && rule.verbs.iter().any(|one| one == "*" || one == verb)
    };
    let mut missing = Vec::new();
    for grant in MANAGER {
        for resource in grant.resources {
            let is_given = |verb: &str| rules.iter().any(|rule| gives(rule, grant, resource, verb));
            let verbs: Vec<_> =
                grant.verbs.iter().copied().filter(|verb| !is_given(verb)).collect();
            if !verbs.is_empty() {
                missing.push(Missing { grant, resource, verbs });
            }
        }
    }
    missing
}

/// Fields of spec and status that our definitions have and those that are served lack, by kind. Of a
/// kind that is not served nothing is said: without it nothing works, which shows elsewhere.
fn missing_fields(ours: &[Value], served: &Value) -> Vec<(String, Vec<String>)> {
    let schemas = served.pointer("/components/schemas").and_then(Value::as_object);
    let of_kind = |kind: &str| {
        let is_of = |schema: &&Value| {
            let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
            kinds.into_iter().flatten().any(|one| one["kind"] == kind)
        };
        schemas.into_iter().flat_map(serde_json::Map::values).find(is_of)
    };
    let names = |schema: &Value, part: &str| -> BTreeSet<String> {
        let properties = schema.pointer(&format!("/properties/{part}/properties"));
        let properties = properties.and_then(Value::as_object);
        properties.into_iter().flat_map(|all| all.keys().cloned()).collect()
    };
    let mut missing = Vec::new();
    for definition in ours {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap_or_default();
        let ours = definition.pointer("/spec/versions/0/schema/openAPIV3Schema");
        let (Some(ours), Some(there)) = (ours, of_kind(kind)) else { continue };
        let mut fields = Vec::new();
        for part in ["spec", "status"] {
            let lacking: Vec<_> =
                names(ours, part).difference(&names(there, part)).cloned().collect();
            fields.extend(lacking.into_iter().map(|name| format!("{part}.{name}")));
        }
        if !fields.is_empty() {
            missing.push((kind.to_owned(), fields));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use serde_json::json;

    use super::*;

    fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
        json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
    }

    fn missing(rules: Value) -> Vec<Missing> {
        missing_rights(&serde_json::from_value::<Vec<ResourceRule>>(rules).unwrap())
    }

    #[test]
    fn rights_are_missed_verb_by_verb_and_found_behind_wildcards() {
        assert!(missing(json!([rule(&["*"], &["*"], &["*"])])).is_empty());
        let all: Vec<Value> = MANAGER
            .iter()
            .map(|grant| rule(&[grant.group], grant.resources, grant.verbs))
            .collect();
        assert!(missing(json!(all)).is_empty());
        let mut fewer = all.clone();
        fewer.retain(|rule| rule["apiGroups"][0] != "events.k8s.io");
        let [Missing { resource: "events", verbs, .. }] = &missing(json!(fewer))[..] else {
            panic!("{:?}", missing(json!(fewer)))
        };
        assert_eq!(verbs, &["create", "patch"]);
        fewer.push(rule(&["events.k8s.io"], &["events"], &["create"]));
        assert_eq!(missing(json!(fewer))[0].verbs, ["patch"]);
        fewer.push(json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"],
            "resourceNames": ["one"]}));
        assert_eq!(missing(json!(fewer))[0].verbs, ["patch"]);
    }

    #[test]
    fn fields_that_the_installed_definition_lacks_are_named() {
        let ours = crd::infrastructure();
        let serving = |drop: &str| {
            let schemas = ours.iter().map(|definition| {
                let kind = definition["spec"]["names"]["kind"].clone();
                let mut schema =
                    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
                schema["x-kubernetes-group-version-kind"] = json!([{"kind": kind}]);
                let status = schema.pointer_mut("/properties/status/properties");
                status.and_then(Value::as_object_mut).and_then(|fields| fields.remove(drop));
                (kind.as_str().unwrap().to_owned(), schema)
            });
            json!({"components": {"schemas": schemas.collect::<serde_json::Map<_, _>>()}})
        };
        assert_eq!(missing_fields(&ours, &serving("nothing")), []);
        let expected = vec![("ProxmoxMachine".to_owned(), vec!["status.bootstrapISO".to_owned()])];
        assert_eq!(missing_fields(&ours, &serving("bootstrapISO")), expected);
        assert_eq!(missing_fields(&ours, &json!({})), []);
    }
}

//! `docs/reference.md`: every field of the four kinds, made from the definitions that are installed.
//!
//! Computes only. Fields that several kinds share are listed once and referred to.

use std::fmt::Write as _;

use capmox::api::crd;
use serde_json::Value;

const HEAD: &str = "<!-- Generated from the types in src/api. Edit those, then run `cargo xtask generate`. -->\n\n\
# API reference\n\n\
`infrastructure.cluster.x-k8s.io/v1alpha1`, as the definitions in `config/crd` have it. A field in\n\
bold has to be set once the object around it is there. `[]` stands for an element of a list, `{}`\n\
for a value by a name of your choice.\n";

/// The page.
pub(crate) fn page() -> String {
    let mut text = HEAD.to_owned();
    for definition in crd::infrastructure() {
        kind(&definition, &mut text);
    }
    text
}

fn kind(definition: &Value, text: &mut String) {
    let names = &definition["spec"]["names"];
    let version = &definition["spec"]["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let name = word(&names["kind"]);
    // Writing to a String does not fail.
    let _ = write!(text, "\n## {name}\n\n{}\n", cell(&schema["description"]));
    if let Some(short) = names["shortNames"].as_array().and_then(|all| all.first()) {
        let _ = write!(text, "\nShort name: `{}`.\n", word(short));
    }
    for part in ["spec", "status"] {
        let Some(fields) = schema["properties"].get(part) else { continue };
        let mut rows = String::new();
        let mut rules = Vec::new();
        collect(name, part, fields, &mut rows, &mut rules);
        if rows.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n### {name} {part}\n\n| field | type | what it is |\n|---|---|---|\n{rows}"
        );
        if !rules.is_empty() {
            let _ = write!(text, "\nRules:\n\n{}", rules.concat());
        }
    }
}

/// The rows of all fields below `path`, and the rules that hold for them.
fn collect(kind: &str, path: &str, schema: &Value, rows: &mut String, rules: &mut Vec<String>) {
    for rule in list(&schema["x-kubernetes-validations"]) {
        rules.push(format!("* `{path}`: {}\n", cell(&rule["message"])));
    }
    if let Some(of) = shared(kind, path) {
        let anchor = of.to_lowercase().replace(' ', "-");
        let _ = writeln!(rows, "| `{path}.…` | | the fields of [{of}](#{anchor}) |");
        return;
    }
    let needed = list(&schema["required"]);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let at = format!("{path}.{name}");
        // One with a default is filled in by the API server.
        let shown = if needed.iter().any(|one| one == name) && field.get("default").is_none() {
            format!("**`{at}`**")
        } else {
            format!("`{at}`")
        };
        let _ =
            writeln!(rows, "| {shown} | {} | {} |", kind_of(field), cell(&field["description"]));
        below(kind, &at, field, rows, rules);
    }
}

fn below(kind: &str, at: &str, field: &Value, rows: &mut String, rules: &mut Vec<String>) {
    collect(kind, at, field, rows, rules);
    if let Some(items) = field.get("items") {
        collect(kind, &format!("{at}[]"), items, rows, rules);
    }
    if let Some(values) = field.get("additionalProperties").filter(|values| values.is_object()) {
        collect(kind, &format!("{at}.{{}}"), values, rows, rules);
    }
}

/// Where the fields of this object are listed, if not here.
fn shared(kind: &str, path: &str) -> Option<&'static str> {
    match (kind, path) {
        ("ProxmoxClusterTemplate", "spec.template.spec") => Some("ProxmoxCluster spec"),
        ("ProxmoxMachineTemplate", "spec.template.spec") | (_, "spec.cloneSpec.machineSpec.{}") => {
            Some("ProxmoxMachine spec")
        }
        _ => None,
    }
}

/// Type, choice, limits and default.
fn kind_of(field: &Value) -> String {
    let mut text = word(&field["type"]).to_owned();
    if field["x-kubernetes-int-or-string"] == true {
        "integer or string".clone_into(&mut text);
    }
    if text == "array" {
        text = format!("list of {}", kind_of(&field["items"]));
    }
    let choice: Vec<_> =
        list(&field["enum"]).iter().map(|one| format!("`{}`", word(one))).collect();
    if !choice.is_empty() {
        text = choice.join(", ");
    }
    for (key, said) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("multipleOf", "a multiple of"),
        ("minLength", "characters at least"),
        ("maxLength", "characters at most"),
        ("minItems", "elements at least"),
    ] {
        if let Some(limit) = field.get(key) {
            let _ = write!(text, "; {said} {limit}");
        }
    }
    if let Some(default) = field.get("default").filter(|default| !default.is_object()) {
        let _ = write!(text, "; `{default}` when not set");
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Text as a cell of a table: on one line, and without what would end the cell or open a tag.
fn cell(value: &Value) -> String {
    let line = word(value).split_whitespace().collect::<Vec<_>>().join(" ");
    line.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_fields_and_shared_ones_stand_once() {
        let page = page();
        for kind in
            ["ProxmoxCluster", "ProxmoxClusterTemplate", "ProxmoxMachine", "ProxmoxMachineTemplate"]
        {
            assert!(page.contains(&format!("\n## {kind}\n")), "{kind}");
        }
        assert!(page.contains("| **`spec.dnsServers`** | list of string; elements at least 1 |"));
        assert_eq!(page.matches("| `spec.memoryMiB` |").count(), 1);
        assert!(page.contains("the fields of [ProxmoxMachine spec](#proxmoxmachine-spec)"));
        assert!(page.contains("### ProxmoxMachine status"));
    }
}

//! The software bill of materials: what of others is in the program, as SPDX 2.3 in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::files::sha256;

/// The program's own package.
const ROOT: &str = "capmox";

/// The bill for what is compiled in for one target; build scripts and tests are left out.
///
/// # Errors
/// If cargo cannot say what is in it.
pub fn spdx(root: &Path, cargo: &str, target: &str, version: &str) -> Result<String> {
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked"])
        .arg(format!("--filter-platform={target}"))
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata: {said}");
    let metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    document(&metadata, &checksums(&lock), version)
}

/// Checksums of a Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let field = |package: &str, name: &str| {
        let prefix = format!("{name} = \"");
        let line = package.lines().find_map(|line| line.strip_prefix(&prefix))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|one| {
            Some(((field(one, "name")?, field(one, "version")?), field(one, "checksum")?))
        })
        .collect()
}

fn document(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    version: &str,
) -> Result<String> {
    let packages: BTreeMap<&str, &Value> =
        list(&metadata["packages"]).map(|package| (text(package, "id"), package)).collect();
    let edges = edges(metadata);
    let (root, _) = packages
        .iter()
        .find(|(_, package)| package["name"] == ROOT && package["source"].is_null())
        .with_context(|| format!("no package {ROOT}"))?;
    let mut reached = BTreeSet::new();
    let mut next = vec![*root];
    while let Some(id) = next.pop() {
        if reached.insert(id) {
            next.extend(edges.get(id).into_iter().flatten());
        }
    }
    let name = |id: &str| {
        let package = packages.get(id).copied().unwrap_or(&Value::Null);
        let raw = format!("{}-{}", text(package, "name"), text(package, "version"));
        let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        format!("SPDXRef-{}", raw.chars().map(kept).collect::<String>())
    };
    let described: Vec<Value> = reached
        .iter()
        .filter_map(|id| Some(described(packages.get(id)?, &name(id), checksums)))
        .collect();
    let mut relationships = vec![json!({
        "spdxElementId": "SPDXRef-DOCUMENT",
        "relationshipType": "DESCRIBES",
        "relatedSpdxElement": name(root),
    })];
    for id in &reached {
        for other in edges.get(id).into_iter().flatten() {
            relationships.push(json!({
                "spdxElementId": name(id),
                "relationshipType": "DEPENDS_ON",
                "relatedSpdxElement": name(other),
            }));
        }
    }
    let digest = sha256(serde_json::to_string(&described)?.as_bytes());
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": format!("{ROOT}-{version}"),
        // A name, not an address; it differs wherever the content does.
        "documentNamespace": format!("https://spdx.org/spdxdocs/{ROOT}-{version}-{digest}"),
        "creationInfo": {
            "created": "1970-01-01T00:00:00Z",
            "creators": [format!("Tool: {ROOT}-release")],
        },
        "packages": described,
        "relationships": relationships,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Which package links which, by id; only what ends up in the program.
fn edges(metadata: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let is_linked =
        |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
    list(&metadata["resolve"]["nodes"])
        .map(|node| {
            let others = list(&node["deps"]).filter(is_linked);
            (text(node, "id"), others.map(|dependency| text(dependency, "pkg")).collect())
        })
        .collect()
}

fn described(package: &Value, id: &str, checksums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let licence = text(package, "license").replace('/', " OR ");
    let licence = if licence.is_empty() { "NOASSERTION".to_owned() } else { licence };
    let mut described = json!({
        "SPDXID": id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    });
    if let Some(sum) = checksums.get(&(name.to_owned(), version.to_owned())) {
        described["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": sum }]);
        described["externalRefs"] = json!([{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{version}"),
        }]);
    }
    described
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bill_has_what_is_linked_and_not_what_only_builds_or_tests() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = "x86_64-unknown-linux-gnu";
        let bill = spdx(&root, env!("CARGO"), target, "v0.7.100")?;
        assert_eq!(bill, spdx(&root, env!("CARGO"), target, "v0.7.100")?);
        let bill: Value = serde_json::from_str(&bill)?;
        let names: BTreeSet<_> = list(&bill["packages"]).map(|one| text(one, "name")).collect();
        for linked in ["capmox", "kube-client", "rustls", "ring", "tokio"] {
            assert!(names.contains(linked), "{linked} is missing");
        }
        for other in ["pve-fake", "proptest", "cc", "release", "tar"] {
            assert!(!names.contains(other), "{other} is not in the program");
        }
        let ids: BTreeSet<_> = list(&bill["packages"]).map(|one| text(one, "SPDXID")).collect();
        assert_eq!(ids.len(), list(&bill["packages"]).count(), "two packages of one id");
        for relationship in list(&bill["relationships"]) {
            assert!(ids.contains(text(relationship, "relatedSpdxElement")), "{relationship}");
        }
        let foreign = list(&bill["packages"]).filter(|one| one["name"] != ROOT);
        for package in foreign {
            assert!(package["checksums"][0]["checksumValue"].is_string(), "{package}");
            assert_ne!(package["licenseDeclared"], "NOASSERTION", "{package}");
        }
        Ok(())
    }
}

//! Shows that the comparison can fail: each change to our CRDs must be found, and harmless ones
//! must not be.

use capmox::api::crd;
use serde_json::{Value, json};

use crate::{compare, facts};

const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

/// Findings after a change to the CRD of ProxmoxMachine.
fn after(change: impl FnOnce(&mut Value)) -> Vec<String> {
    let mut crds = crd::infrastructure();
    let machine = crds
        .iter_mut()
        .find(|crd| crd["spec"]["names"]["kind"] == "ProxmoxMachine")
        .expect("ProxmoxMachine");
    let before = machine.clone();
    change(machine);
    assert_ne!(before, *machine, "the change changed nothing");
    compare::all(&facts::read(), &crds).into_iter().map(|finding| finding.what).collect()
}

/// Sets a keyword of a field of the spec; `Null` takes it away.
fn with(path: &str, key: &str, value: Value) -> Vec<String> {
    after(|crd| {
        let field = crd.pointer_mut(&format!("{SPEC}{path}")).expect(path);
        let field = field.as_object_mut().expect(path);
        if value.is_null() {
            field.remove(key);
        } else {
            field.insert(key.to_owned(), value);
        }
    })
}

#[test]
fn each_loss_and_each_tightening_is_found() {
    let cases: &[(&str, &str, Value, &str)] = &[
        ("/properties/full", "default", json!(false), ".spec.full: default was"),
        ("/properties/full", "default", Value::Null, ".spec.full: default was"),
        ("/properties/pool", "type", json!("integer"), ".spec.pool: type was"),
        ("/properties/pool", "minLength", json!(1), ".spec.pool: minLength 1 is new"),
        ("/properties/pool", "pattern", json!("^a"), ".spec.pool: pattern was"),
        ("/properties/pool", "enum", json!(["a"]), ".spec.pool: enum is new"),
        ("/properties/pool", "nullable", json!(true), ".spec.pool: nullable is new"),
        ("/properties/numCores", "minimum", json!(2), ".spec.numCores: minimum was 1, is 2"),
        ("/properties/numCores", "maximum", json!(64), ".spec.numCores: maximum 64 is new"),
        ("/properties/numCores", "format", json!("int64"), ".spec.numCores: format was"),
        ("/properties/memoryMiB", "multipleOf", json!(16), ".spec.memoryMiB: multipleOf was"),
        ("/properties/format", "enum", json!(["raw"]), ".spec.format: value qcow2 is refused now"),
        ("", "required", json!(["network"]), ".spec: network is required now"),
        ("", "x-kubernetes-validations", Value::Null, ".spec: rule lost: must define"),
        (
            "/properties/vmIDRange/properties/end",
            "maximum",
            json!(9999),
            ".spec.vmIDRange.end: maximum was 999999999, is 9999",
        ),
        (
            "/properties/tags",
            "x-kubernetes-list-type",
            Value::Null,
            ".spec.tags: x-kubernetes-list-type was",
        ),
        (
            "/properties/storage",
            "x-kubernetes-validations",
            json!([{"message": "no", "rule": "false"}]),
            ".spec.storage: rule is new: no",
        ),
    ];
    for (path, key, value, expected) in cases {
        let found = with(path, key, value.clone());
        assert!(
            found.iter().any(|what| what.starts_with(expected)),
            "{path} {key} {value}: {found:?}"
        );
    }
}

#[test]
fn lost_fields_names_and_columns_are_found() {
    let field = after(|crd| {
        let fields = crd.pointer_mut(&format!("{SPEC}/properties")).unwrap();
        fields.as_object_mut().unwrap().remove("snapName");
    });
    assert_eq!(field, [".spec.snapName: lost"]);
    let short = after(|crd| crd["spec"]["names"]["shortNames"] = json!([]));
    assert_eq!(short, [r#": short was "moxm", is """#]);
    let label = after(|crd| crd["metadata"]["labels"] = json!({}));
    assert_eq!(label, [": contract label lost"]);
    let status = after(|crd| crd["spec"]["versions"][0]["subresources"] = json!({}));
    assert_eq!(status, [r#": status was "true", is "false""#]);
    let column = after(|crd| {
        let columns = &mut crd["spec"]["versions"][0]["additionalPrinterColumns"];
        columns.as_array_mut().unwrap().remove(1);
    });
    assert!(column.iter().any(|what| what.contains("column 1 was")), "{column:?}");
    let kind = compare::all(&facts::read(), &[]);
    assert_eq!(kind.len(), 4);
}

#[test]
fn additions_and_wider_bounds_are_let_through() {
    let new = after(|crd| {
        let fields = crd.pointer_mut(&format!("{SPEC}/properties")).unwrap();
        fields["extra"] = json!({ "type": "string", "minLength": 5 });
    });
    assert_eq!(new, [""; 0]);
    assert_eq!(with("/properties/numCores", "minimum", json!(0)), [""; 0]);
    assert_eq!(with("/properties/format", "enum", json!(["raw", "qcow2", "vmdk", "x"])), [""; 0]);
    let column = after(|crd| {
        let columns = &mut crd["spec"]["versions"][0]["additionalPrinterColumns"];
        columns.as_array_mut().unwrap().push(json!({ "name": "X" }));
    });
    assert_eq!(column, [""; 0]);
}

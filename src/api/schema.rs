//! Schemas that a Rust type alone does not say: integer formats, and rules that several fields
//! share.
//!
//! Used by `#[schemars(with = …)]` only. They are part of compatibility: generated clients take
//! their integers from the formats, the API server warns on formats that it does not know, and
//! users script against the messages of the rules, which are therefore capmox's to the letter.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::TypedRef;

/// Implements `JsonSchema` for a marker type that stands for a fixed schema.
macro_rules! fixed_schema {
    ($(#[$doc:meta])* $name:ident, $schema:expr) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let schema: fn(&mut SchemaGenerator) -> Schema = $schema;
                schema(generator)
            }
        }
    };
}

fixed_schema!(
    /// An integer without a format.
    Integer,
    |_| json_schema!({ "type": "integer" })
);

fixed_schema!(
    /// An integer of 32 bits, as a hint: the API server does not check it.
    Int32,
    |_| json_schema!({ "type": "integer", "format": "int32" })
);

fixed_schema!(
    /// An MTU: 1 for the bridge's, or what Ethernet can carry.
    Mtu,
    |_| json_schema!({
        "type": "integer",
        "x-kubernetes-validations": [{
            "message": "invalid MTU value",
            "rule": "self == 1 || ( self >= 576 && self <= 65520)"
        }]
    })
);

fixed_schema!(
    /// Name of a Proxmox node.
    NodeNameText,
    |_| json_schema!({ "type": "string", "minLength": 1, "maxLength": 63 })
);

fixed_schema!(
    /// A Proxmox tag.
    Tag,
    |_| json_schema!({ "type": "string", "pattern": r"^(?i)[a-z0-9_][a-z0-9_\-\+\.]*$" })
);

fixed_schema!(
    /// Routing table of a VRF; those of the kernel are refused.
    VrfTable,
    |_| json_schema!({
        "type": "integer",
        "format": "int32",
        "maximum": u32::MAX,
        "x-kubernetes-validations": [{
            "message": "Cowardly refusing to insert l3mdev rules into kernel tables",
            "rule": "(self > 0 && self < 254) || (self > 255)"
        }]
    })
);

fixed_schema!(
    /// Priority of a routing rule; those of the kernel's own rules are refused.
    RulePriority,
    |_| json_schema!({
        "type": "integer",
        "format": "int32",
        "maximum": u32::MAX,
        "x-kubernetes-validations": [{
            "message": "Cowardly refusing to insert FIB rule matching kernel rules",
            "rule": "(self > 0 && self < 32765) || (self > 32766)"
        }]
    })
);

fixed_schema!(
    /// Reference to an IPv4 pool.
    Ipv4PoolRef,
    |generator| pool_ref(generator, "ipv4PoolRef")
);

fixed_schema!(
    /// Reference to an IPv6 pool.
    Ipv6PoolRef,
    |generator| pool_ref(generator, "ipv6PoolRef")
);

fn pool_ref(generator: &mut SchemaGenerator, field: &str) -> Schema {
    let mut schema = TypedRef::json_schema(generator);
    schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        serde_json::json!([
            {
                "message": format!("{field} allows only IPAM apiGroup ipam.cluster.x-k8s.io"),
                "rule": "self.apiGroup == 'ipam.cluster.x-k8s.io'"
            },
            {
                "message": format!("{field} allows either InClusterIPPool or GlobalInClusterIPPool"),
                "rule": "self.kind == 'InClusterIPPool' || self.kind == 'GlobalInClusterIPPool'"
            }
        ]),
    );
    schema
}

fixed_schema!(
    /// A `metav1` condition, as Kubernetes' own CRDs describe it.
    MetaConditionSchema,
    |_| json_schema!({
        "type": "object",
        "description": "A condition of an object.",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "type": {
                "description": "What the condition is about, in CamelCase.",
                "type": "string",
                "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            },
            "status": {
                "description": "`True`, `False` or `Unknown`.",
                "type": "string",
                "enum": ["True", "False", "Unknown"]
            },
            "observedGeneration": {
                "description": "The `metadata.generation` of the object that the condition speaks of.",
                "type": "integer",
                "format": "int64",
                "minimum": 0
            },
            "lastTransitionTime": {
                "description": "When the condition last changed its status.",
                "type": "string",
                "format": "date-time"
            },
            "reason": {
                "description": "Why the condition is as it is, in one word in CamelCase.",
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
            },
            "message": {
                "description": "Why the condition is as it is, in a sentence; may be empty.",
                "type": "string",
                "maxLength": 32768
            }
        }
    })
);

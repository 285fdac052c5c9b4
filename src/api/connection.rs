//! ProxmoxConnection: how a Proxmox VE is reached and as whom, as an object of its own.
//!
//! The kind is kubemox's (`proxmox.alperen.cloud/v1alpha1`): what v0.6.6 of its schema accepts is
//! accepted here, and means the same. Additions are said to be some.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::MetaConditionSchema;

/// API group of ProxmoxConnection.
pub const CONNECTION_GROUP: &str = "proxmox.alperen.cloud";

/// How a Proxmox VE is reached and as whom.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "proxmox.alperen.cloud",
    version = "v1alpha1",
    kind = "ProxmoxConnection",
    plural = "proxmoxconnections",
    shortname = "pxc",
    status = "ProxmoxConnectionStatus",
    doc = "ProxmoxConnection is a way to a Proxmox VE: its address, whom to believe there, and the credentials.",
    printcolumn = r#"{"name":"Endpoint","type":"string","jsonPath":".spec.endpoint"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.version"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "message": "Specify either username/password or tokenID/secret for authentication: set exactly one of username and tokenID",
        "rule": "has(self.username) != has(self.tokenID)"
    },
    {
        "message": "password and passwordFrom are both set: set exactly one of password and passwordFrom",
        "rule": "!(has(self.password) && has(self.passwordFrom))"
    },
    {
        "message": "secret and secretFrom are both set: set exactly one of secret and secretFrom",
        "rule": "!(has(self.secret) && has(self.secretFrom))"
    },
    {
        "message": "username has no password: set exactly one of password and passwordFrom",
        "rule": "!has(self.username) || has(self.password) || has(self.passwordFrom)"
    },
    {
        "message": "tokenID has no secret: set exactly one of secret and secretFrom",
        "rule": "!has(self.tokenID) || has(self.secret) || has(self.secretFrom)"
    },
    {
        "message": "password and passwordFrom go with username, not with tokenID: set exactly one of username and tokenID",
        "rule": "has(self.username) || !(has(self.password) || has(self.passwordFrom))"
    },
    {
        "message": "secret and secretFrom go with tokenID, not with username: set exactly one of username and tokenID",
        "rule": "has(self.tokenID) || !(has(self.secret) || has(self.secretFrom))"
    },
    {
        "message": "caBundle and caBundleFrom are both set: set at most one of caBundle and caBundleFrom",
        "rule": "!(has(self.caBundle) && has(self.caBundleFrom))"
    },
    {
        "message": "fingerprint leaves caBundle and caBundleFrom without effect: set at most one of fingerprint and caBundle",
        "rule": "!(has(self.fingerprint) && (has(self.caBundle) || has(self.caBundleFrom)))"
    },
    {
        "message": "insecureSkipVerify leaves fingerprint, caBundle and caBundleFrom without effect: set at most one of insecureSkipVerify and fingerprint or caBundle",
        "rule": "!(has(self.insecureSkipVerify) && self.insecureSkipVerify && (has(self.fingerprint) || has(self.caBundle) || has(self.caBundleFrom)))"
    }
]))]
pub struct ProxmoxConnectionSpec {
    /// Address of a Proxmox node, for example `https://pve.example.com:8006`. `https://` and port
    /// 8006 are added to a name or address alone; a path `/api2/json` may follow.
    pub endpoint: String,

    /// More nodes of the same Proxmox cluster, asked in this order when no connection to the one
    /// before comes about. The credentials are those of the cluster, and so the same. An addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub additional_endpoints: Vec<AdditionalEndpoint>,

    /// User with realm, for example `root@pam`, who logs in with `password` or `passwordFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,

    /// Password of `username`. Everybody who may read this object reads it: better use
    /// `passwordFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Plain>,

    /// Key of a Secret with the password of `username`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_from: Option<SecretKeyRef>,

    /// API token with user and realm, for example `root@pam!kubemox`.
    #[serde(default, rename = "tokenID", skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,

    /// Secret of the API token, a UUID. Everybody who may read this object reads it: better use
    /// `secretFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Plain>,

    /// Key of a Secret with the secret of the API token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_from: Option<SecretKeyRef>,

    /// Whether any certificate is believed. Then whoever is on the way reads the credentials.
    /// Defaults to false.
    #[serde(default)]
    pub insecure_skip_verify: bool,

    /// Certificate authorities to believe beside the system's, as PEM: for example
    /// `/etc/pve/pve-root-ca.pem` of the Proxmox cluster. An addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,

    /// Key of a Secret with what else would stand in `caBundle`. An addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_from: Option<SecretKeyRef>,

    /// SHA-256 fingerprint of the certificate of `endpoint`, as `pvenode cert info` prints it: that
    /// certificate is believed and no other. An addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "message": "fingerprint must be SHA-256: 64 hexadecimal digits, with or without colons between pairs",
        "rule": "self.matches('^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$')"
    }]))]
    pub fingerprint: Option<String>,

    /// Namespaces whose ProxmoxClusters may use this connection by `spec.connectionRef`. All when
    /// the field is absent, none when it is empty. An addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub allowed_namespaces: Option<Vec<String>>,
}

/// Another node of the same Proxmox cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdditionalEndpoint {
    /// Its address, in the form of `spec.endpoint`.
    pub endpoint: String,

    /// Fingerprint of its certificate, needed when `spec.fingerprint` is set and its certificate is
    /// another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// A text that is written into the object and is not to be seen elsewhere.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Plain(pub String);

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(***)")
    }
}

/// A key of a Secret. The connection has no namespace, so the Secret's is always named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretKeyRef {
    /// Name of the Secret.
    #[schemars(length(min = 1))]
    pub name: String,

    /// Namespace of the Secret.
    #[schemars(length(min = 1))]
    pub namespace: String,

    /// Key within the Secret.
    #[schemars(length(min = 1))]
    pub key: String,
}

/// What is known of a ProxmoxConnection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxmoxConnectionStatus {
    /// Conditions: `Ready` sums up the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<MetaConditionSchema>")]
    pub conditions: Vec<MetaCondition>,

    /// The state in one word: `Connected`, or the reason of `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_status: Option<String>,

    /// Version of Proxmox VE when it answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// The Secrets that were read last, each with its `metadata.resourceVersion` then. One that has
    /// another now was changed since, and is about to be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_secrets: Vec<ObservedSecret>,

    /// The address that answered last. An addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_endpoint: Option<String>,

    /// Privileges that the credentials lack. An addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_privileges: Vec<MissingPrivilege>,
}

/// A Secret that was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedSecret {
    /// Its name.
    pub name: String,

    /// Its namespace.
    pub namespace: String,

    /// Its `metadata.resourceVersion` when it was read.
    pub resource_version: String,
}

/// A privilege that is needed and not held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MissingPrivilege {
    /// Path of Proxmox's access rules, for example `/storage/local`.
    pub path: String,

    /// The privilege, for example `VM.Clone`.
    pub privilege: String,

    /// What fails without it.
    pub needed_for: String,
}

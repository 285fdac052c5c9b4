//! Where a cluster's credentials stand. Computes only.

use std::fmt;

use kube::ResourceExt;

use crate::api::{CredentialsInUse, ProxmoxCluster};
use crate::hypervisor::ObjectKey;

/// Where credentials stand. Another kind of source is another variant here and another arm where
/// they are read.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// What the manager was started with, or the Secret that this came from.
    Manager,
    /// The Secret of `spec.credentialsRef`.
    Secret(ObjectKey),
    /// The ProxmoxConnection of `spec.connectionRef`.
    Connection(String),
}

impl Source {
    /// That of a cluster. The order is `spec.connectionRef`, `spec.credentialsRef`, the manager; a
    /// reference without a name counts as none.
    pub fn of(cluster: &ProxmoxCluster) -> Self {
        let filled = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
        let spec = &cluster.spec;
        let connection = spec.connection_ref.as_ref().map(|named| &named.name);
        if let Some(name) = filled(connection) {
            return Self::Connection(name);
        }
        let secret = spec.credentials_ref.as_ref();
        let Some((name, namespace)) =
            secret.and_then(|named| Some((filled(named.name.as_ref())?, &named.namespace)))
        else {
            return Self::Manager;
        };
        let namespace = filled(namespace.as_ref()).or_else(|| cluster.namespace());
        Self::Secret(ObjectKey { namespace: namespace.unwrap_or_default(), name })
    }

    /// As a cluster's status shows it.
    pub fn in_use(&self) -> CredentialsInUse {
        let (kind, namespace, name) = match self {
            Self::Manager => ("Manager", None, None),
            Self::Secret(key) => ("Secret", Some(key.namespace.clone()), Some(key.name.clone())),
            Self::Connection(name) => ("ProxmoxConnection", None, Some(name.clone())),
        };
        CredentialsInUse { kind: kind.to_owned(), namespace, name }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Manager => f.write_str("the manager's own credentials"),
            Self::Secret(key) => write!(f, "Secret {key}"),
            Self::Connection(name) => write!(f, "ProxmoxConnection {name}"),
        }
    }
}

/// An object that credentials are read from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Object {
    /// A Secret; its version is its resourceVersion.
    Secret(ObjectKey),
    /// A ProxmoxConnection; its version is its UID and generation, so that a change of its status is
    /// none.
    Connection(String),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(key) => write!(f, "Secret {key}"),
            Self::Connection(name) => write!(f, "ProxmoxConnection {name}"),
        }
    }
}

/// Who may use credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Everybody.
    #[default]
    All,
    /// ProxmoxClusters of these namespaces.
    Only(Vec<String>),
}

impl Allowed {
    pub(super) fn admits(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(namespaces) => namespaces.iter().any(|one| one == namespace),
        }
    }
}

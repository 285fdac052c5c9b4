//! Reads credentials where they stand. Chooses nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tracing::warn;

use super::credentials::{self, Credentials};
use super::of_connection::{self, Data};
use super::own::Own;
use super::pool::Versions;
use super::source::{Allowed, Object, Source};
use super::watched::{Watched, generation};
use crate::api::{ProxmoxConnection, reasons};
use crate::fault::{Class, Fault};
use crate::hypervisor::ObjectKey;

/// What was read of a source.
pub(super) struct Found {
    /// The objects, as far as they were read.
    pub(super) versions: Versions,
    /// Who may use it.
    pub(super) allowed: Allowed,
    pub(super) credentials: Result<Credentials, Fault>,
}

impl Found {
    fn new(versions: Versions, credentials: Result<Credentials, Fault>) -> Self {
        Self { versions, allowed: Allowed::All, credentials }
    }
}

/// Reads on behalf of somebody.
pub(super) struct Reader<'a> {
    pub(super) client: &'a Client,
    pub(super) own: &'a Own,
    pub(super) watched: &'a Watched,
    /// Kind and name of the object that wants the credentials.
    pub(super) asker: &'a str,
}

impl Reader<'_> {
    pub(super) async fn read(&self, source: &Source) -> Found {
        match source {
            Source::Manager => self.managers().await,
            Source::Secret(key) => {
                let missing = || no_secret(key, self.asker);
                let (version, data) = self.secret(key, missing).await;
                let credentials =
                    data.and_then(|data| credentials::of_secret(&key.to_string(), &data));
                Found::new(vec![version], credentials)
            }
            Source::Connection(name) => self.connection(name).await,
        }
    }

    /// Those of the Secret that the manager's came from; those that it was started with where there
    /// is none, or where it may not be read.
    async fn managers(&self) -> Found {
        let none = || no_credentials(self.asker);
        let started = || match &self.own.started {
            Ok(Some(own)) => Ok(own.clone()),
            Ok(None) => Err(none()),
            Err(fault) => Err(fault.clone()),
        };
        let Some(key) = &self.own.secret else { return Found::new(Vec::new(), started()) };
        let (version, data) = self.secret(key, || no_managers_secret(key)).await;
        let is_lost = matches!(&data, Err(fault) if fault.class != Class::Transient);
        let is_newly_lost = self.own.is_newly_lost(is_lost);
        let credentials = match data {
            Ok(data) => match self.own.of_secret(key, &data) {
                Ok(Some(credentials)) => Ok(credentials),
                Ok(None) => Err(none()),
                Err(fault) => Err(fault),
            },
            // Never there: nothing was taken away.
            Err(fault) if fault.class == Class::Blocked && self.own.is_nothing() => Err(none()),
            // What the manager was started with is not taken back by a Secret that is not there.
            Err(fault) if fault.class == Class::Denied || fault.class == Class::Blocked => {
                if is_newly_lost {
                    warn!(
                        %fault,
                        "the manager's credentials are those that it was started with; a rotation \
                         needs a restart"
                    );
                }
                started()
            }
            Err(fault) => Err(fault),
        };
        Found::new(vec![version], credentials)
    }

    async fn connection(&self, name: &str) -> Found {
        let object = Object::Connection(name.to_owned());
        self.watched.version(&object);
        let api: Api<ProxmoxConnection> = Api::all(self.client.clone());
        let connection = match api.get_opt(name).await {
            Ok(Some(connection)) => connection,
            Ok(None) => {
                let fault = Err(no_connection(name, self.asker));
                return Found::new(vec![(object, None)], fault);
            }
            Err(error) => {
                let fault = unreadable(&object, "proxmoxconnections", &error);
                return Found::new(vec![(object, None)], Err(fault));
            }
        };
        let mut versions = vec![(object, Some(generation(&connection.metadata)))];
        let allowed = of_connection::allowed(&connection.spec);
        let mut secrets: BTreeMap<ObjectKey, Data> = BTreeMap::new();
        let mut fault = None;
        for key in of_connection::secrets(&connection.spec) {
            let missing = || no_secret_of_connection(&key, name);
            let (version, data) = self.secret(&key, missing).await;
            versions.push(version);
            match data {
                Ok(data) => {
                    secrets.insert(key, data);
                }
                Err(one) => fault = fault.or(Some(one)),
            }
        }
        let credentials = match fault {
            Some(fault) => Err(fault),
            None => of_connection::credentials(name, &connection.spec, &secrets),
        };
        Found { versions, allowed, credentials }
    }

    /// A Secret's version and data. It is watched from before it is read, so that no change is
    /// missed.
    async fn secret(
        &self,
        key: &ObjectKey,
        missing: impl FnOnce() -> Fault,
    ) -> ((Object, Option<String>), Result<Data, Fault>) {
        let object = Object::Secret(key.clone());
        self.watched.version(&object);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        match secrets.get_opt(&key.name).await {
            Ok(Some(secret)) => {
                let version = secret.resource_version();
                let data = secret.data.unwrap_or_default().into_iter();
                ((object, version), Ok(data.map(|(key, value)| (key, value.0)).collect()))
            }
            Ok(None) => ((object, None), Err(missing())),
            Err(error) => {
                let fault = unreadable(&object, "secrets", &error);
                ((object, None), Err(fault))
            }
        }
    }
}

/// The first words are those of capmox, which people search for.
fn no_credentials(asker: &str) -> Fault {
    Fault::new(
        Class::Blocked,
        format!(
            "No credentials found, ProxmoxCluster missing credentialsRef: set \
             spec.credentialsRef.name of {asker} to a Secret with the keys url, token and secret, \
             or spec.connectionRef.name to a ProxmoxConnection, or start the manager with \
             PROXMOX_URL, PROXMOX_TOKEN and PROXMOX_SECRET"
        ),
    )
}

fn no_secret(key: &ObjectKey, asker: &str) -> Fault {
    Fault::new(
        Class::Blocked,
        format!(
            "credentials secret not found: Secret {} in namespace {} does not exist, which \
             spec.credentialsRef of {asker} names; create it with the keys url, token and secret",
            key.name, key.namespace,
        ),
    )
}

fn no_managers_secret(key: &ObjectKey) -> Fault {
    Fault::new(
        Class::Blocked,
        format!(
            "Secret {key} with the manager's own credentials does not exist: create it \
             with the keys url, token and secret, or set spec.connectionRef or spec.credentialsRef"
        ),
    )
}

fn no_secret_of_connection(key: &ObjectKey, name: &str) -> Fault {
    Fault::new(
        Class::Blocked,
        format!(
            "Secret {key}, which ProxmoxConnection {name} refers to, does not exist: create it, or \
             correct the reference"
        ),
    )
    .because(reasons::SECRET_NOT_FOUND)
}

fn no_connection(name: &str, asker: &str) -> Fault {
    Fault::new(
        Class::Blocked,
        format!(
            "ProxmoxConnection {name} does not exist, which spec.connectionRef of {asker} names: \
             create it, or correct the name"
        ),
    )
}

fn unreadable(object: &Object, resource: &str, error: &kube::Error) -> Fault {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            let place = match object {
                Object::Secret(key) => format!(" in namespace {}", key.namespace),
                Object::Connection(_) => String::new(),
            };
            Fault::new(
                Class::Denied,
                format!(
                    "the manager may not read {object}: {}; grant its service account get on \
                     {resource}{place}",
                    status.message
                ),
            )
            .because(reasons::SECRET_FORBIDDEN)
        }
        kube::Error::Api(status) if status.code == 400 || status.code == 422 => Fault::new(
            Class::Invalid,
            format!("{object} cannot be asked for: {}; correct the reference", status.message),
        ),
        error => Fault::new(Class::Transient, format!("{object} cannot be read: {error}")),
    }
}

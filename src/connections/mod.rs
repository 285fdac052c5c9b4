//! From credentials to the shared [`Endpoint`] that they open.
//!
//! A `Source` says where a cluster's credentials stand; reading it is all that differs between
//! sources. Equal credentials open one endpoint, whoever names them. Only this module and
//! [`crate::pve`] see secrets.

mod by_hand;
mod credentials;
mod own;
mod pool;
mod remedy;
mod watched;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::ProxmoxCluster;
use crate::fault::{Class, Fault};
use crate::hypervisor::{Endpoint, ObjectKey, Wakes};
use crate::pve::{self, ClientConfig, Limits, Observer, Tls};

pub use by_hand::client;
use credentials::Credentials;
pub use own::{Given, Own};
use pool::Pool;
pub use remedy::unreachable;
use watched::WatchedSecrets;

/// Where a cluster's credentials stand. Another kind of source is another variant here and another
/// arm in [`Connections::read`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Source {
    /// What the manager was started with.
    Manager,
    /// The Secret of `spec.credentialsRef`.
    Secret(ObjectKey),
}

impl Source {
    /// What a cluster names goes before what the manager has.
    fn of(cluster: &ProxmoxCluster) -> Self {
        let named = cluster.spec.credentials_ref.as_ref();
        let Some((name, namespace)) =
            named.and_then(|named| Some((filled(named.name.as_ref())?, &named.namespace)))
        else {
            return Self::Manager;
        };
        let namespace = filled(namespace.as_ref()).or_else(|| cluster.namespace());
        Self::Secret(ObjectKey { namespace: namespace.unwrap_or_default(), name })
    }
}

fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

/// What endpoints are made with.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Settings {
    /// The management cluster, in which Secrets are read.
    pub client: Client,
    /// The manager's own credentials.
    pub own: Own,
    /// Where endpoints send the objects that they wake.
    pub wakes: Wakes,
    /// Who is told of every Proxmox call.
    pub observer: Arc<dyn Observer>,
    /// Ends the background work of all endpoints.
    pub shutdown: CancellationToken,
}

/// The endpoints in use.
pub struct Connections {
    settings: Settings,
    pool: Arc<Mutex<Pool<Source>>>,
    secrets: WatchedSecrets,
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Connections {
    /// Reads nothing and connects to nothing.
    pub fn new(settings: Settings) -> Self {
        Self { settings, pool: Arc::default(), secrets: WatchedSecrets::default() }
    }

    /// The endpoint that a cluster uses: by `spec.credentialsRef` if it is set, else by the
    /// manager's own credentials. One endpoint for each set of credentials, shared by all clusters
    /// that use it. Proxmox is not asked.
    ///
    /// # Errors
    ///
    /// * [`Class::Blocked`]: there are no credentials, or the Secret or one of its keys is missing;
    /// * [`Class::Invalid`]: a value cannot be right, with the form that is wanted;
    /// * [`Class::Denied`]: the manager may not read the Secret;
    /// * [`Class::Transient`]: the API server does not answer.
    pub async fn of(&self, cluster: &ProxmoxCluster) -> Result<Arc<Endpoint>, Fault> {
        let source = Source::of(cluster);
        if let Source::Secret(key) = &source
            && let Some(version) = self.version(key)
            && let Some(endpoint) = lock(&self.pool).unchanged(&source, &version)
        {
            return Ok(endpoint);
        }
        match self.read(&source, cluster).await {
            Ok((credentials, version)) => self.open(source, credentials, version),
            Err(fault) => {
                // Credentials that were taken away are not used any longer; a server that does not
                // answer has taken nothing away.
                if fault.class != Class::Transient {
                    lock(&self.pool).forget(&source);
                }
                Err(fault)
            }
        }
    }

    /// The version of a Secret, as far as it is known without asking.
    fn version(&self, key: &ObjectKey) -> Option<String> {
        let Settings { client, shutdown, .. } = &self.settings;
        let (pool, source) = (Arc::clone(&self.pool), Source::Secret(key.clone()));
        self.secrets.version(client, key, shutdown, move || lock(&pool).forget(&source))
    }

    /// The credentials, and the version of the object that holds them if one does.
    async fn read(
        &self,
        source: &Source,
        cluster: &ProxmoxCluster,
    ) -> Result<(Credentials, Option<String>), Fault> {
        match source {
            Source::Manager => match &self.settings.own.0 {
                Ok(Some(own)) => Ok((own.clone(), None)),
                Ok(None) => Err(no_credentials(cluster)),
                Err(fault) => Err(fault.clone()),
            },
            Source::Secret(key) => {
                let secret = self.secret(key, cluster).await?;
                let version = secret.resource_version();
                let data = secret.data.unwrap_or_default();
                let data = data.into_iter().map(|(key, value)| (key, value.0)).collect();
                Ok((credentials::of_secret(&key.to_string(), &data)?, version))
            }
        }
    }

    async fn secret(&self, key: &ObjectKey, cluster: &ProxmoxCluster) -> Result<Secret, Fault> {
        let secrets: Api<Secret> = Api::namespaced(self.settings.client.clone(), &key.namespace);
        match secrets.get_opt(&key.name).await {
            Ok(Some(secret)) => Ok(secret),
            Ok(None) => Err(no_secret(key, cluster)),
            Err(error) => Err(unreadable(key, &error)),
        }
    }

    fn open(
        &self,
        source: Source,
        credentials: Credentials,
        version: Option<String>,
    ) -> Result<Arc<Endpoint>, Fault> {
        let Settings { wakes, observer, shutdown, .. } = &self.settings;
        let digest = credentials.digest();
        let mut pool = lock(&self.pool);
        let ledger = pool.ledger(&credentials.base_url.to_string());
        let name = describe(&source);
        pool.endpoint(source, (digest, version), || {
            let url = credentials.base_url.to_string();
            let (who, tls) = (credentials.auth.who().to_owned(), credentials.tls.clone());
            let Credentials { base_url, auth, tls: wanted } = credentials;
            let config = ClientConfig { base_url, auth, tls: wanted, limits: Limits::default() };
            let client = pve::Client::observed(config, Arc::clone(observer))
                .map_err(|error| Fault::new(Class::Invalid, format!("{name}: {error}")))?;
            info!(url, who, credentials = name, ?tls, "Proxmox endpoint opened");
            if tls == Tls::Insecure {
                warn_insecure(&url, &name);
            }
            Ok(Endpoint::start(client, ledger, wakes.clone(), shutdown.clone()))
        })
    }
}

/// Plain bookkeeping, which a panic elsewhere leaves good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn describe(source: &Source) -> String {
    match source {
        Source::Manager => "the manager's own credentials".to_owned(),
        Source::Secret(key) => format!("Secret {key}"),
    }
}

fn warn_insecure(url: &str, credentials: &str) {
    warn!(
        url,
        credentials,
        "the certificate of Proxmox is not checked, so anybody on the way can read the token. Three \
         ways to check it: (1) a certificate of a public authority on Proxmox, and insecure: \
         \"false\" in the Secret (or PROXMOX_INSECURE=false for the manager); (2) the same with \
         /etc/pve/pve-root-ca.pem of Proxmox as root_ca in the Secret (or with \
         --proxmox-root-cert-file); (3) the same with the certificate of the node itself \
         (/etc/pve/local/pve-ssl.pem) there"
    );
}

fn name_of(cluster: &ProxmoxCluster) -> String {
    format!("{}/{}", cluster.namespace().unwrap_or_default(), cluster.name_any())
}

/// The first words are those of capmox, which people search for.
fn no_credentials(cluster: &ProxmoxCluster) -> Fault {
    Fault::new(
        Class::Blocked,
        format!(
            "No credentials found, ProxmoxCluster missing credentialsRef: set \
             spec.credentialsRef.name of ProxmoxCluster {} to a Secret with the keys url, token and \
             secret, or start the manager with PROXMOX_URL, PROXMOX_TOKEN and PROXMOX_SECRET",
            name_of(cluster)
        ),
    )
}

fn no_secret(key: &ObjectKey, cluster: &ProxmoxCluster) -> Fault {
    Fault::new(
        Class::Blocked,
        format!(
            "credentials secret not found: Secret {} in namespace {} does not exist, which \
             spec.credentialsRef of ProxmoxCluster {} names; create it with the keys url, token and \
             secret",
            key.name,
            key.namespace,
            name_of(cluster)
        ),
    )
}

fn unreadable(key: &ObjectKey, error: &kube::Error) -> Fault {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => Fault::new(
            Class::Denied,
            format!(
                "the manager may not read Secret {key}: {}; grant its service account get on \
                 secrets in namespace {}",
                status.message, key.namespace
            ),
        ),
        kube::Error::Api(status) if status.code == 400 || status.code == 422 => Fault::new(
            Class::Invalid,
            format!("Secret {key} of spec.credentialsRef: {}", status.message),
        ),
        error => Fault::new(Class::Transient, format!("Secret {key} cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests;

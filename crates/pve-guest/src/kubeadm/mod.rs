//! kubeadm's part of the bootstrap data: what the machine is to become, in which cluster.
//!
//! Reads what kubeadm and the kubelet read; does not talk to anybody.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_yaml::Value;

use crate::fault::{Fault, Stage};
use crate::user_data::CloudConfig;

/// Port of an API server whose endpoint names none.
const DEFAULT_PORT: u16 = 6443;
/// Where kubeadm expects the certificate authorities.
const PKI: &str = "/etc/kubernetes/pki/";
/// Cluster API's join script, which replaces the plain command when retries are asked for.
const JOIN_SCRIPT: &str = "/usr/local/bin/kubeadm-bootstrap-script";

/// What kubeadm is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeadm {
    /// Init or join.
    pub role: Role,
    /// The control-plane endpoint as `host:port`.
    pub endpoint: String,
    /// Name of the Node, when the configuration gives one; else the host name.
    pub node_name: Option<String>,
    /// The kubelet's flags.
    pub kubelet_args: BTreeMap<String, String>,
    /// Taints; none means kubeadm's own default.
    pub taints: Option<Vec<Taint>>,
    /// Version of the control plane, known to an init alone.
    pub kubernetes_version: Option<String>,
    /// The certificate authorities.
    pub pki: Pki,
    /// File whose creation tells of success.
    pub sentinel: Option<String>,
}

/// The part of a machine in its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// First machine of a control plane.
    Init {
        /// Name of the cluster.
        cluster_name: String,
        /// The whole document, for the kubeadm-config ConfigMap.
        cluster_configuration: String,
        /// Further names of the API server's certificate.
        cert_sans: Vec<String>,
    },
    /// Another machine of a control plane.
    JoinControlPlane(Discovery),
    /// A worker.
    JoinWorker(Discovery),
}

/// How a machine trusts the cluster that it joins.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Discovery {
    /// A bootstrap token.
    pub token: String,
    /// Hashes of the cluster's certificate authority.
    #[serde(default, rename = "caCertHashes", skip_serializing_if = "Vec::is_empty")]
    pub ca_cert_hashes: Vec<String>,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("ca_cert_hashes", &self.ca_cert_hashes)
            .finish_non_exhaustive()
    }
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// PEM texts by their path below `/etc/kubernetes/pki`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pki(pub BTreeMap<String, String>);

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn fault(text: impl Into<String>) -> Fault {
    Fault::new(Stage::Kubeadm, text)
}

impl Kubeadm {
    /// Finds kubeadm's call and its configuration. None when nothing calls kubeadm.
    ///
    /// # Errors
    /// [`Fault`] when kubeadm would refuse its configuration.
    pub fn find(config: &CloudConfig) -> Result<Option<Self>, Fault> {
        let Some(command) = config.commands.iter().find(|command| calls_kubeadm(command)) else {
            return Ok(None);
        };
        let script;
        let call = if command.contains(JOIN_SCRIPT) {
            script = text(config, JOIN_SCRIPT)?;
            script.as_str()
        } else {
            command.as_str()
        };
        let init = call.contains("kubeadm init");
        let words = call.split_whitespace();
        let path = words.skip_while(|word| *word != "--config").nth(1);
        let path = path.map(|path| path.trim_matches(['"', '\'']));
        let path = path.ok_or_else(|| fault(format!("{command:?} names no --config")))?;
        let documents = documents(&text(config, path)?, path)?;
        let mut kubeadm =
            if init { Self::init(&documents, path) } else { Self::join(&documents, path) }?;
        kubeadm.pki = pki(config)?;
        kubeadm.sentinel = sentinel(command);
        Ok(Some(kubeadm))
    }

    fn init(documents: &[Value], path: &str) -> Result<Self, Fault> {
        let cluster = document(documents, "ClusterConfiguration")
            .ok_or_else(|| fault(format!("{path} has no ClusterConfiguration")))?;
        let read: ClusterConfiguration = typed(cluster, path)?;
        let registration = match document(documents, "InitConfiguration") {
            Some(init) => typed::<Registered>(init, path)?.node_registration,
            None => NodeRegistration::default(),
        };
        let endpoint = read.control_plane_endpoint.unwrap_or_default();
        let cluster_configuration =
            serde_yaml::to_string(cluster).map_err(|error| fault(error.to_string()))?;
        let role = Role::Init {
            cluster_name: read.cluster_name.unwrap_or_else(|| "kubernetes".into()),
            cluster_configuration,
            cert_sans: read.api_server.unwrap_or_default().cert_sans,
        };
        Ok(Self {
            kubernetes_version: read.kubernetes_version,
            ..Self::new(role, &endpoint, registration, path)?
        })
    }

    fn join(documents: &[Value], path: &str) -> Result<Self, Fault> {
        let join = document(documents, "JoinConfiguration")
            .ok_or_else(|| fault(format!("{path} has no JoinConfiguration")))?;
        let read: JoinConfiguration = typed(join, path)?;
        let token = read.discovery.bootstrap_token;
        let token =
            token.ok_or_else(|| fault(format!("{path} has no discovery.bootstrapToken")))?;
        if token.discovery.ca_cert_hashes.is_empty() && !token.unsafe_skip_ca_verification {
            return Err(fault(format!("{path} pins no CA and does not allow to skip that")));
        }
        let endpoint = token.api_server_endpoint.unwrap_or_default();
        let role = match read.control_plane {
            Some(_) => Role::JoinControlPlane(token.discovery),
            None => Role::JoinWorker(token.discovery),
        };
        Self::new(role, &endpoint, read.node_registration, path)
    }

    fn new(
        role: Role,
        endpoint: &str,
        registration: NodeRegistration,
        path: &str,
    ) -> Result<Self, Fault> {
        Ok(Self {
            role,
            endpoint: with_port(endpoint).ok_or_else(|| {
                fault(format!("{path}: {endpoint:?} is no control plane endpoint"))
            })?,
            node_name: registration.name.filter(|name| !name.is_empty()),
            kubelet_args: registration.kubelet_extra_args.unwrap_or_default().into_map(),
            taints: registration.taints,
            kubernetes_version: None,
            pki: Pki::default(),
            sentinel: None,
        })
    }

    /// A flag of the kubelet as it arrives there: kubeadm writes the flags to an environment file,
    /// and systemd takes the quotes out of them.
    pub fn kubelet_arg(&self, name: &str) -> Option<String> {
        let value = self.kubelet_args.get(name)?;
        Some(value.replace(['\'', '"'], "")).filter(|value| !value.is_empty())
    }
}

fn calls_kubeadm(command: &str) -> bool {
    ["kubeadm init", "kubeadm join", JOIN_SCRIPT].iter().any(|call| command.contains(call))
}

/// The file that the command writes when kubeadm has succeeded.
fn sentinel(command: &str) -> Option<String> {
    let (_, path) = command.rsplit_once("> ")?;
    Some(path.trim().to_owned()).filter(|path| path.starts_with('/'))
}

fn text(config: &CloudConfig, path: &str) -> Result<String, Fault> {
    let data = config.files.get(path);
    let data = data.ok_or_else(|| fault(format!("unable to read {path}: no such file")))?;
    String::from_utf8(data.clone()).map_err(|_| fault(format!("{path} is no UTF-8")))
}

fn documents(text: &str, path: &str) -> Result<Vec<Value>, Fault> {
    serde_yaml::Deserializer::from_str(text)
        .map(Value::deserialize)
        .filter(|document| !matches!(document, Ok(Value::Null)))
        .collect::<Result<_, _>>()
        .map_err(|error| fault(format!("{path} is no YAML: {error}")))
}

fn document<'a>(documents: &'a [Value], kind: &str) -> Option<&'a Value> {
    documents.iter().find(|document| {
        let version = document.get("apiVersion").and_then(Value::as_str);
        version.is_some_and(|version| version.starts_with("kubeadm.k8s.io/"))
            && document.get("kind").and_then(Value::as_str) == Some(kind)
    })
}

fn typed<T: for<'de> Deserialize<'de>>(document: &Value, path: &str) -> Result<T, Fault> {
    serde_yaml::from_value(document.clone()).map_err(|error| fault(format!("{path}: {error}")))
}

fn pki(config: &CloudConfig) -> Result<Pki, Fault> {
    let names = config.files.keys().filter_map(|path| Some((path, path.strip_prefix(PKI)?)));
    let texts = names.map(|(path, name)| Ok((name.to_owned(), text(config, path)?)));
    texts.collect::<Result<_, _>>().map(Pki)
}

/// `host:port`, with the default port where there is none.
fn with_port(endpoint: &str) -> Option<String> {
    let (host, port) = match endpoint.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok()?)
        }
        // An IPv6 address without brackets has no port.
        Some(_) if !endpoint.starts_with('[') => {
            return Some(format!("[{endpoint}]:{DEFAULT_PORT}"));
        }
        _ => (endpoint, DEFAULT_PORT),
    };
    (!host.is_empty() && port != 0).then(|| format!("{host}:{port}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterConfiguration {
    cluster_name: Option<String>,
    control_plane_endpoint: Option<String>,
    kubernetes_version: Option<String>,
    api_server: Option<ApiServer>,
}

#[derive(Default, Deserialize)]
struct ApiServer {
    #[serde(default, rename = "certSANs")]
    cert_sans: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Registered {
    #[serde(default)]
    node_registration: NodeRegistration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JoinConfiguration {
    discovery: DiscoveryChoice,
    #[serde(default)]
    node_registration: NodeRegistration,
    control_plane: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoveryChoice {
    bootstrap_token: Option<BootstrapToken>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BootstrapToken {
    api_server_endpoint: Option<String>,
    #[serde(default, rename = "unsafeSkipCAVerification")]
    unsafe_skip_ca_verification: bool,
    #[serde(flatten)]
    discovery: Discovery,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeRegistration {
    name: Option<String>,
    kubelet_extra_args: Option<ExtraArgs>,
    taints: Option<Vec<Taint>>,
}

/// A mapping up to v1beta3, a list from v1beta4 on.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExtraArgs {
    Map(BTreeMap<String, String>),
    List(Vec<Argument>),
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

impl Default for ExtraArgs {
    fn default() -> Self {
        Self::Map(BTreeMap::new())
    }
}

impl ExtraArgs {
    fn into_map(self) -> BTreeMap<String, String> {
        match self {
            Self::Map(map) => map,
            Self::List(list) => list.into_iter().map(|arg| (arg.name, arg.value)).collect(),
        }
    }
}

#[cfg(test)]
mod tests;

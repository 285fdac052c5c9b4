//! The client of the workload-cluster program, which plays the Kubernetes side of the guests.
//!
//! Carries messages; what is in them is decided elsewhere.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::{Client, Method, StatusCode, Url};
use rustls::crypto::{CryptoProvider, ring};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long one call may take. The program answers from memory.
const CALL: Duration = Duration::from_secs(10);
/// How long the program may take to say where it listens.
const START: Duration = Duration::from_secs(20);

/// The program, reached by HTTP. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Workload {
    http: Client,
    base: Url,
}

/// Why a call did not do what it was for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Another try may succeed: the cluster does not answer yet, or the token is not there yet.
    #[error("{0}")]
    NotYet(String),
    /// No other try will do better.
    #[error("{0}")]
    Refused(String),
}

/// What the program knows of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// The control-plane endpoint.
    pub endpoint: String,
    /// Whether an API server answers there.
    pub serving: bool,
    /// Its nodes and machines, by name.
    pub nodes: Vec<NodeView>,
    /// Nodes that are members of etcd.
    pub etcd_members: Vec<String>,
}

/// One node or machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// The node's name.
    pub name: String,
    /// Whether it is part of the control plane.
    pub control_plane: bool,
    /// `running`, `stopped`, or `none` when it was destroyed.
    pub machine: String,
    /// Whether there is a Node object.
    pub registered: bool,
    /// Whether that is Ready.
    pub ready: bool,
    /// `spec.providerID` of the Node.
    #[serde(default, rename = "providerID")]
    pub provider_id: String,
    /// Its internal addresses.
    #[serde(default)]
    pub addresses: Vec<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl Workload {
    /// Reaches a program that runs already.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        if CryptoProvider::get_default().is_none() {
            // Lost races are fine: then another one is in place.
            let _ = ring::default_provider().install_default();
        }
        let base = Url::parse(url).with_context(|| format!("{url:?} is no URL"))?;
        let http = Client::builder().no_proxy().timeout(CALL).build()?;
        Ok(Self { http, base })
    }

    /// The cluster at an endpoint; none when nothing was ever booted there.
    ///
    /// # Errors
    /// When the program does not answer, or not as it should.
    pub async fn cluster(&self, endpoint: &str) -> anyhow::Result<Option<ClusterView>> {
        let url = self.url(&[endpoint])?;
        let response = self.http.get(url).send().await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !response.status().is_success() {
            bail!("the cluster at {endpoint} cannot be shown: {}", response.text().await?);
        }
        Ok(Some(response.json().await?))
    }

    /// A node's kubelet dies while its machine runs on: it is no longer heard of.
    ///
    /// # Errors
    /// When there is no such node, or nobody to tell.
    pub async fn kill_kubelet(&self, endpoint: &str, node: &str) -> Result<(), CallError> {
        self.power(endpoint, node, Power::Off).await
    }

    /// Tells of a machine that ran kubeadm as a part of the control plane, or as a worker.
    pub(crate) async fn boot(
        &self,
        endpoint: &str,
        role: &str,
        machine: &impl Serialize,
    ) -> Result<(), CallError> {
        self.call(Method::POST, &[endpoint, role], Some(machine)).await
    }

    /// Tells that a machine lost its power, has it again, or is no more.
    pub(crate) async fn power(
        &self,
        endpoint: &str,
        node: &str,
        event: Power,
    ) -> Result<(), CallError> {
        let nobody = None::<&()>;
        match event {
            Power::On => self.call(Method::POST, &[endpoint, "nodes", node, "start"], nobody).await,
            Power::Off => self.call(Method::POST, &[endpoint, "nodes", node, "stop"], nobody).await,
            Power::Gone => self.call(Method::DELETE, &[endpoint, "nodes", node], nobody).await,
        }
    }

    fn url(&self, path: &[&str]) -> anyhow::Result<Url> {
        let mut url = self.base.clone();
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(["v1", "clusters"]).extend(path),
            Err(()) => bail!("{} cannot carry a path", self.base),
        };
        Ok(url)
    }

    async fn call(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&impl Serialize>,
    ) -> Result<(), CallError> {
        let url = self.url(path).map_err(|error| CallError::Refused(error.to_string()))?;
        let mut request = self.http.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await;
        let response = response.map_err(|error| CallError::NotYet(format!("{error:#}")))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let text = match response.json::<Refusal>().await {
            Ok(refusal) => refusal.error,
            Err(_) => format!("the workload cluster answered {status}"),
        };
        Err(match status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::UNAUTHORIZED => CallError::NotYet(text),
            _ => CallError::Refused(text),
        })
    }
}

/// What happens to a machine after it has booted for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    Off,
    Gone,
}

/// The program as a child process, ended with this value.
#[derive(Debug)]
pub struct WorkloadProcess {
    workload: Workload,
    // Its standard input ends with it, and the program with that, even if this process is killed.
    _child: Child,
}

impl WorkloadProcess {
    /// Starts the program and waits until it says where it listens.
    ///
    /// # Errors
    /// When it cannot be started or says nothing.
    pub async fn start(binary: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(binary)
            .arg("--exit-with-stdin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let out = child.stdout.take().context("the child has no output")?;
        let mut lines = BufReader::new(out).lines();
        let line = timeout(START, lines.next_line()).await;
        let line = line.with_context(|| format!("{} says nothing", binary.display()))??;
        let url = line.with_context(|| format!("{} ended at once", binary.display()))?;
        Ok(Self { workload: Workload::new(&url)?, _child: child })
    }

    /// The client.
    pub fn client(&self) -> Workload {
        self.workload.clone()
    }
}

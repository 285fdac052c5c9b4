//! The client: one method per endpoint, named after what it does.
//!
//! Methods that start a task give its id at once, if the server names one; whoever waits for the end
//! asks for its status, or looks at what was to change.

mod access;
mod agent;
mod cluster;
mod nodes;
mod storage;
mod vm;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::auth::Auth;
use super::error::{Error, ErrorKind};
use super::fence::Fence;
use super::limits::{Lane, Limits};
use super::observer::Observer;
use super::tls::{Tls, TlsError};
use super::transport::{Request, Transport, Verb};
use super::upid::Upid;
use super::url::BaseUrl;
use super::wire;

/// Where, as whom, and how.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Address of the API.
    pub base_url: BaseUrl,
    /// Credentials.
    pub auth: Auth,
    /// How the server's certificate is judged.
    pub tls: Tls,
    /// Bounds on calls and time.
    pub limits: Limits,
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The secret does not fit a header.
    #[error("the API token cannot be sent: its secret has a character that no token has")]
    Secret,
    /// The HTTP library refuses.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(String),
}

/// A client of one Proxmox API with one credential. Cheap to clone; clones share connections and
/// limits.
#[derive(Debug, Clone)]
pub struct Client(Arc<Transport>);

impl Client {
    /// Makes no call.
    pub fn new(config: ClientConfig) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(Transport::new(config, Vec::new(), None, Fence::default())?)))
    }

    /// The same, telling `observer` of every request.
    pub fn observed(
        config: ClientConfig,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, ConfigError> {
        Self::failing_over(config, Vec::new(), observer, Fence::default())
    }

    /// The same, with more addresses of the same Proxmox cluster: when no connection to one comes
    /// about, the next is asked, and stays the one to ask. Nothing else leads to another address:
    /// an answer, a certificate that is not trusted and a silence are final. What changes something is
    /// sent while the `fence` is open.
    pub fn failing_over(
        config: ClientConfig,
        others: Vec<BaseUrl>,
        observer: Arc<dyn Observer>,
        fence: Fence,
    ) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(Transport::new(config, others, Some(observer), fence)?)))
    }

    /// Where the API answers: the first of several addresses.
    pub fn base_url(&self) -> &BaseUrl {
        self.0.base()
    }

    /// As whom: `user@realm!name` of a token, or `user@realm`.
    pub fn who(&self) -> &str {
        self.0.who()
    }

    /// Whether the server's certificate is checked.
    pub fn is_verified(&self) -> bool {
        self.0.is_verified()
    }

    /// The address that is asked now.
    pub fn active_url(&self) -> &BaseUrl {
        self.0.active()
    }

    /// The time that the server named in its latest answer, as the header `Date` has it, and when
    /// that came.
    pub fn server_date(&self) -> Option<(String, Instant)> {
        self.0.server_date()
    }

    async fn run(&self, call: Exchange<'_>) -> Result<Reply, Error> {
        let data = self.0.call(&call.0).await?;
        Ok(Reply::to(&call.0, data))
    }
}

/// A request that is being put together.
#[derive(Debug)]
struct Exchange<'a>(Request<'a>);

impl<'a> Exchange<'a> {
    fn new(
        method: Verb,
        endpoint: &'static str,
        segments: impl IntoIterator<Item = &'a str>,
        lane: Lane<'a>,
    ) -> Self {
        let segments = segments.into_iter().collect();
        Self(Request { method, endpoint, segments, lane, parameters: Map::new() })
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.parameters.insert(key.to_owned(), value.into());
        self
    }

    /// Leaves the parameter out when there is no value.
    fn set_some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.set(key, value),
            None => self,
        }
    }

    /// Sends `key=1`, or nothing: what is off by default is not named.
    fn set_if(self, key: &str, on: bool) -> Self {
        if on { self.set(key, 1) } else { self }
    }
}

/// The `data` of an answer, with what is needed to complain about it.
#[derive(Debug)]
struct Reply {
    method: &'static str,
    path: String,
    data: Value,
}

impl Reply {
    fn to(request: &Request<'_>, data: Value) -> Self {
        let path = format!("/{}", request.segments.join("/"));
        Self { method: request.method.as_str(), path, data }
    }

    fn refuse(&self, why: &str) -> Error {
        let why = format!("the answer cannot be understood: {why}");
        Error::local(ErrorKind::Decode, self.method, self.path.clone(), &why, true)
    }

    /// One object.
    fn object<T: DeserializeOwned>(self) -> Result<T, Error> {
        let (method, path) = (self.method, self.path);
        serde_json::from_value(self.data).map_err(|error| {
            let why = format!("the answer cannot be understood: {error}");
            Error::local(ErrorKind::Decode, method, path, &why, true)
        })
    }

    /// A list; null is empty.
    fn list<T: DeserializeOwned>(mut self) -> Result<Vec<T>, Error> {
        wire::value_list(self.data.take()).map_err(|why| self.refuse(&why))
    }

    /// The value of the guest agent.
    fn result(mut self) -> Self {
        if let Some(result) = self.data.get_mut("result") {
            self.data = result.take();
        }
        self
    }

    /// The id of the task that was started; none when all is done already, or when the server names
    /// its task in a way that nobody could ask for. Then what was asked for shows at its object.
    fn upid_if_any(self) -> Option<Upid> {
        let text = self.data.as_str().map(str::trim).filter(|text| !text.is_empty());
        let upid = text.and_then(|text| text.parse().ok());
        if upid.is_none() {
            let (method, path) = (self.method, self.path);
            tracing::debug!(method, path, "the answer names no task to follow");
        }
        upid
    }
}

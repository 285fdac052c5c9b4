//! A call as the model sees it, and its answer. Nothing of HTTP but method and status code.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use crate::config::Release;

/// One call.
#[derive(Clone, Debug)]
pub struct Request {
    /// GET, POST, PUT, DELETE.
    pub method: Method,
    /// Percent-decoded path below `/api2/json`, with its leading slash.
    pub path: String,
    /// Query and body, merged.
    pub params: Params,
    /// Who says they are calling.
    pub credentials: Credentials,
    /// The file part of an upload.
    pub upload: Option<Upload>,
}

impl Request {
    /// A call without parameters.
    pub fn new(method: Method, path: &str, credentials: Credentials) -> Self {
        Self { method, path: path.to_owned(), params: Params::default(), credentials, upload: None }
    }

    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.params.push(key, value.to_owned());
        self
    }
}

/// What the caller sent to be let in. Has no `Debug` text of its secrets.
#[derive(Clone, Default)]
pub struct Credentials {
    /// `USER@REALM!NAME=SECRET` of an `Authorization: PVEAPIToken=` header.
    pub token: Option<String>,
    /// The `PVEAuthCookie`.
    pub ticket: Option<String>,
    /// The `CSRFPreventionToken` header.
    pub csrf: Option<String>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.token.as_deref().and_then(|token| token.split('=').next());
        f.debug_struct("Credentials")
            .field("token", &id)
            .field("ticket", &self.ticket.is_some())
            .finish_non_exhaustive()
    }
}

/// A file that came with a multipart body.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The file name as sent.
    pub file_name: String,
    /// The file.
    pub data: Bytes,
}

/// One parameter's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// A scalar.
    One(String),
    /// A repeated key or a JSON array.
    Many(Vec<String>),
    /// A JSON object or nested array: no parameter takes one.
    Nested,
}

/// Parameters by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(pub BTreeMap<String, Param>);

impl Params {
    /// Adds a value; a second one under the same name makes a list.
    pub fn push(&mut self, key: &str, value: String) {
        match self.0.remove(key) {
            None => self.0.insert(key.to_owned(), Param::One(value)),
            Some(Param::One(first)) => {
                self.0.insert(key.to_owned(), Param::Many(vec![first, value]))
            }
            Some(Param::Many(mut list)) => {
                list.push(value);
                self.0.insert(key.to_owned(), Param::Many(list))
            }
            Some(Param::Nested) => self.0.insert(key.to_owned(), Param::Nested),
        };
    }

    /// The scalar of that name.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.0.get(key) {
            Some(Param::One(value)) => Some(value),
            _ => None,
        }
    }

    /// A boolean: present and `1`.
    pub fn flag(&self, key: &str) -> bool {
        self.text(key) == Some("1")
    }

    /// A number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.text(key)?.parse().ok()
    }

    /// A list; a scalar is a list of one.
    pub fn list(&self, key: &str) -> Vec<&str> {
        match self.0.get(key) {
            Some(Param::One(value)) => vec![value],
            Some(Param::Many(list)) => list.iter().map(String::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// A comma, semicolon or blank separated scalar, as Proxmox's `…-list` formats are.
    pub fn words(&self, key: &str) -> Vec<String> {
        let split = |c: char| c == ',' || c == ';' || c.is_whitespace();
        self.list(key)
            .iter()
            .flat_map(|text| text.split(split))
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Whether anything of that name was sent.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

/// The answer to one call.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status code, among them Proxmox's own 595 and 596.
    pub status: u16,
    /// The text of the status line if it is not the code's usual one.
    pub reason: Option<String>,
    /// The whole JSON body; null for none (a 401).
    pub body: Value,
    /// To be waited before answering.
    pub delay: Duration,
    /// The pattern of the endpoint that answered, empty if none.
    pub endpoint: &'static str,
    /// What the call did, for the journal.
    pub effect: Option<String>,
    /// Refused for a lock that is waited for: to be tried again until [`Response::delay`] is over.
    pub blocked: bool,
}

impl Response {
    /// `data` of the body.
    pub fn data(&self) -> &Value {
        self.body.get("data").unwrap_or(&Value::Null)
    }
}

/// A good answer before it is wrapped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub data: Value,
    pub total: Option<usize>,
    pub effect: Option<String>,
}

impl Reply {
    pub(crate) fn data(data: Value) -> Self {
        Self { data, ..Self::default() }
    }

    pub(crate) fn null(effect: impl Into<String>) -> Self {
        Self { effect: Some(effect.into()), ..Self::default() }
    }

    pub(crate) fn task(upid: String) -> Self {
        Self { effect: Some(upid.clone()), data: Value::String(upid), total: None }
    }

    pub(crate) fn list(items: Vec<Value>) -> Self {
        Self::data(Value::Array(items))
    }

    pub(crate) fn into_response(self, endpoint: &'static str) -> Response {
        let mut body = Map::new();
        body.insert("data".to_owned(), self.data);
        if let Some(total) = self.total {
            body.insert("total".to_owned(), json!(total));
        }
        Response {
            status: 200,
            reason: None,
            body: Value::Object(body),
            delay: Duration::ZERO,
            endpoint,
            effect: self.effect,
            blocked: false,
        }
    }
}

/// A call refused before it had any effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: u16,
    pub text: String,
    pub errors: BTreeMap<String, String>,
    pub delay: Duration,
    pub blocked: bool,
}

impl Refusal {
    pub(crate) fn new(status: u16, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            errors: BTreeMap::new(),
            delay: Duration::ZERO,
            blocked: false,
        }
    }

    /// A plain `die`: 500 with the text.
    pub(crate) fn die(text: impl Into<String>) -> Self {
        Self::new(500, text)
    }

    /// One bad parameter.
    pub(crate) fn param(name: &str, text: impl Into<String>) -> Self {
        Self::params(BTreeMap::from([(name.to_owned(), text.into())]))
    }

    pub(crate) fn params(errors: BTreeMap<String, String>) -> Self {
        Self { errors, ..Self::new(400, "Parameter verification failed.") }
    }

    pub(crate) fn forbidden(what: &str) -> Self {
        Self::new(403, format!("Permission check failed ({what})"))
    }

    pub(crate) fn missing_config(node: &str, vmid: u32) -> Self {
        Self::die(format!(
            "Configuration file 'nodes/{node}/qemu-server/{vmid}.conf' does not exist"
        ))
    }

    pub(crate) fn missing_vm(node: &str, vmid: u32) -> Self {
        Self::die(format!("unable to find configuration file for VM {vmid} on node '{node}'"))
    }

    pub(crate) fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    pub(crate) fn into_response(self, endpoint: &'static str, release: Release) -> Response {
        let body = if self.status == 401 && endpoint != "/access/ticket" {
            Value::Null
        } else {
            let mut body = Map::new();
            body.insert("data".to_owned(), Value::Null);
            if !self.errors.is_empty() {
                body.insert("errors".to_owned(), json!(self.errors));
            }
            if release == Release::V9 {
                body.insert("message".to_owned(), json!(format!("{}\n", self.text)));
            }
            Value::Object(body)
        };
        Response {
            status: self.status,
            reason: self.text.lines().next().map(str::to_owned),
            body,
            delay: self.delay,
            endpoint,
            effect: None,
            blocked: self.blocked,
        }
    }
}

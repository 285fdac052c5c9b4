//! A stand-in for the network, for simulations: the same requests, answered by whoever plays
//! Proxmox, in time that need not pass.

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;

use super::answer::Answer;
use super::{File, Request, Transport, plain};
use crate::pve::error::{Error, ErrorKind};

/// A request as it would be sent.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: &'static str,
    /// Below `/api2/json`, with its leading slash.
    pub path: String,
    pub parameters: Vec<(String, String)>,
    /// Name and content of a file.
    pub file: Option<(String, Bytes)>,
}

/// What came of a request.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// An answer.
    Answer { status: u16, reason: Option<String>, body: Value },
    /// The connection broke, before the request was sent or after.
    Broken { sent: bool },
    /// Nothing came in time.
    Silence,
}

/// Who answers.
pub trait Line: std::fmt::Debug + Send + Sync {
    /// Answers a request. As at a real server, what has arrived takes its course even if nobody
    /// waits for the answer any more.
    fn ask(&self, asked: Asked) -> BoxFuture<'static, Outcome>;

    /// The next random number.
    fn chance(&self) -> u64;
}

impl Transport {
    pub(super) async fn ask(
        &self,
        line: &dyn Line,
        request: &Request<'_>,
        file: Option<&File>,
    ) -> Result<Value, Error> {
        let (method, path) = (request.method.as_str(), format!("/{}", request.segments.join("/")));
        let texts = |value: &Value| match value {
            Value::Array(many) => many.iter().map(plain).collect(),
            one => vec![plain(one)],
        };
        let parameters = request
            .parameters
            .iter()
            .flat_map(|(key, value)| texts(value).into_iter().map(|text| (key.clone(), text)));
        let asked = Asked {
            method,
            path: path.clone(),
            parameters: parameters.collect(),
            file: file.map(|file| (file.name.clone(), file.data.clone())),
        };
        match line.ask(asked).await {
            Outcome::Answer { status, mut body, .. } if (200..300).contains(&status) => {
                Ok(body.get_mut("data").map(Value::take).unwrap_or_default())
            }
            Outcome::Answer { status, reason, body } => {
                let body = serde_json::to_vec(&body).unwrap_or_default();
                Answer::new(status, reason, body).data(method, path, str::to_owned)
            }
            Outcome::Broken { sent } => {
                Err(Error::local(ErrorKind::Connect, method, path, "the connection broke", sent))
            }
            Outcome::Silence => {
                Err(Error::local(ErrorKind::Timeout, method, path, "no answer in time", true))
            }
        }
    }
}

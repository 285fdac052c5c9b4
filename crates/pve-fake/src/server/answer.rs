//! From the model's answer to bytes on the wire, with Proxmox's own status lines.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Response as HttpResponse, StatusCode, header};
use http_body_util::Full;
use hyper::ext::ReasonPhrase;
use serde_json::Value;

use crate::model::Response;

/// What becomes of a request.
pub(super) enum Answer {
    Reply(HttpResponse<Full<Bytes>>),
    /// The connection closes without a word.
    Drop,
}

/// The error that makes hyper close the connection.
#[derive(Debug)]
pub(super) struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection dropped on purpose")
    }
}

impl std::error::Error for Lost {}

pub(super) fn render(response: &Response) -> HttpResponse<Full<Bytes>> {
    let body = match &response.body {
        Value::Null => Bytes::new(),
        body => Bytes::from(body.to_string()),
    };
    let mut rendered = HttpResponse::new(Full::new(body));
    let status = StatusCode::from_u16(response.status);
    *rendered.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let json = HeaderValue::from_static("application/json;charset=UTF-8");
    rendered.headers_mut().insert(header::CONTENT_TYPE, json);
    let cache = HeaderValue::from_static("max-age=0");
    rendered.headers_mut().insert(header::CACHE_CONTROL, cache);
    let server = HeaderValue::from_static("pve-api-daemon/3.0");
    rendered.headers_mut().insert(header::SERVER, server);
    let reason = response.reason.as_deref().map(|text| text.as_bytes().to_vec());
    if let Some(reason) = reason.and_then(|reason| ReasonPhrase::try_from(reason).ok()) {
        rendered.extensions_mut().insert(reason);
    }
    rendered
}

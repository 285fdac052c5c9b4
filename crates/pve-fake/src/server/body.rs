//! Requests as pveproxy reads them, with its strictness.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::multipart;
use crate::config::Release;
use crate::model::{Credentials, Param, Params, Request, Upload};

/// A refusal before anything was looked at: status and text.
pub(super) type Refused = (u16, String);

/// The request below `/api2/json`.
pub(super) async fn read(
    parts: &Parts,
    body: Incoming,
    release: Release,
) -> Result<Request, Refused> {
    let path = decode(parts.uri.path());
    let Some(path) = path.strip_prefix("/api2/json").filter(|path| path.starts_with('/')) else {
        return Err((501, "no such uri".to_owned()));
    };
    let (mut params, upload) = read_body(parts, body, release).await?;
    let mut query = Params::default();
    parse_form(parts.uri.query().unwrap_or_default(), &mut query);
    params.0.extend(query.0);
    Ok(Request {
        method: parts.method.clone(),
        path: path.to_owned(),
        params,
        credentials: credentials(&parts.headers),
        upload,
    })
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn credentials(headers: &HeaderMap) -> Credentials {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let token = text(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("PVEAPIToken="));
    let mut cookies = text(COOKIE.as_str()).unwrap_or_default().split("; ");
    let ticket = cookies.find_map(|cookie| cookie.strip_prefix("PVEAuthCookie="));
    Credentials {
        token: token.map(str::to_owned),
        ticket: ticket.map(decode),
        csrf: text("CSRFPreventionToken").map(str::to_owned),
    }
}

async fn read_body(
    parts: &Parts,
    body: Incoming,
    release: Release,
) -> Result<(Params, Option<Upload>), Refused> {
    let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    if header(TRANSFER_ENCODING).is_some() {
        return Err((501, "chunked transfer encoding not supported".to_owned()));
    }
    let length = header(CONTENT_LENGTH).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    if length == 0 {
        return Ok((Params::default(), None));
    }
    if parts.method != Method::POST && parts.method != Method::PUT {
        return Err((501, format!("Unexpected content for method '{}'", parts.method)));
    }
    let kind = header(CONTENT_TYPE).unwrap_or("application/x-www-form-urlencoded");
    let boundary = kind.strip_prefix("multipart/form-data; boundary=");
    let limit: u64 = if release == Release::V7 { 64 << 10 } else { 512 << 10 };
    if boundary.is_none() && length > limit {
        return Err((501, "for data too large".to_owned()));
    }
    let collected = body.collect().await;
    let bytes = collected.map_err(|_| (400, "bad request".to_owned()))?.to_bytes();
    if let Some(boundary) = boundary {
        let boundary = boundary.trim_matches('"');
        return multipart::parse(boundary, &bytes).map_err(|text| (500, text));
    }
    let mut params = Params::default();
    match kind.split(';').next().unwrap_or_default().trim() {
        "application/x-www-form-urlencoded" => {
            parse_form(&String::from_utf8_lossy(&bytes), &mut params);
        }
        "application/json" => parse_json(&bytes, release, &mut params)?,
        other => return Err((506, format!("upload 'Content-Type '{other}' not implemented"))),
    }
    Ok((params, None))
}

/// `&` and `;` both end a pair: a raw `;` in a value cuts it.
fn parse_form(text: &str, params: &mut Params) {
    for pair in text.split(['&', ';']).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        params.push(&decode(&key.replace('+', " ")), decode(&value.replace('+', " ")));
    }
}

fn parse_json(bytes: &Bytes, release: Release, params: &mut Params) -> Result<(), Refused> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| (400, format!("malformed JSON string: {error}")))?;
    let Value::Object(map) = value else {
        return Err((400, "JSON body is no object".to_owned()));
    };
    for (key, value) in map {
        if let Some(param) = from_json(&value, release) {
            params.0.insert(key, param);
        }
    }
    Ok(())
}

fn from_json(value: &Value, release: Release) -> Option<Param> {
    match value {
        Value::Null => None,
        Value::Array(items) => {
            let items = items.iter().map(|item| scalar(item, release));
            Some(items.collect::<Option<Vec<_>>>().map_or(Param::Nested, Param::Many))
        }
        Value::Object(_) => Some(Param::Nested),
        value => scalar(value, release).map(Param::One),
    }
}

fn scalar(value: &Value, release: Release) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        // Before 8 a JSON boolean is no boolean.
        Value::Bool(value) if release == Release::V7 => Some(value.to_string()),
        Value::Bool(value) => Some(u8::from(*value).to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_raw_semicolon_cuts_a_form_value() {
        let mut params = Params::default();
        parse_form("tags=a;b&boot=order%3Dscsi0%3Bnet0&name=x+y", &mut params);
        assert_eq!(params.text("tags"), Some("a"));
        assert_eq!(params.text("b"), Some(""));
        assert_eq!(params.text("boot"), Some("order=scsi0;net0"));
        assert_eq!(params.text("name"), Some("x y"));
    }

    #[test]
    fn json_arrays_and_numbers_are_taken() {
        let mut params = Params::default();
        let body = Bytes::from_static(br#"{"full":1,"command":["a","b"],"x":true,"y":{}}"#);
        parse_json(&body, Release::V9, &mut params).unwrap();
        assert_eq!(params.text("full"), Some("1"));
        assert_eq!(params.list("command"), ["a", "b"]);
        assert_eq!(params.text("x"), Some("1"));
        assert_eq!(params.0.get("y"), Some(&Param::Nested));
    }
}

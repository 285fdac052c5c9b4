//! `/fake/…`: the simulator's own door, for those who run it as a process.
//!
//! `GET journal`, `GET violations`, `DELETE violations`, `GET vms`, `GET|POST|DELETE faults` (a
//! [`FaultRule`] or a list of them), `POST change` (a [`Change`]), `POST advance` (`{"millis": N}`).

use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Response as HttpResponse, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::shared::Shared;
use crate::fault::FaultRule;
use crate::model::Change;

pub(super) async fn answer(
    shared: &Shared,
    parts: &Parts,
    incoming: Incoming,
) -> HttpResponse<Full<Bytes>> {
    let bytes = incoming.collect().await.map(http_body_util::Collected::to_bytes);
    let body = bytes.ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let path = parts.uri.path().trim_start_matches("/fake/");
    let (status, value) = match act(shared, parts.method.as_str(), path, body) {
        Ok(Some(value)) => (StatusCode::OK, value),
        Ok(None) => (StatusCode::NOT_FOUND, json!({ "error": "no such thing" })),
        Err(error) => (StatusCode::BAD_REQUEST, json!({ "error": error.to_string() })),
    };
    let mut response = HttpResponse::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

fn act(
    shared: &Shared,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Result<Option<Value>, serde_json::Error> {
    let faults = || shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
    let body = body.unwrap_or_default();
    let value = match (method, path) {
        ("GET", "journal") => {
            let journal = shared.journal.lock().unwrap_or_else(PoisonError::into_inner);
            serde_json::to_value(&*journal)?
        }
        ("GET", "violations") => {
            let model = shared.present();
            let leaked = model.leaked_isos();
            json!({ "violations": model.violations(), "leaked_isos": leaked, "now": model.now().0 })
        }
        ("DELETE", "violations") => json!(shared.present().take_violations()),
        ("GET", "vms") => {
            let vms = shared.present().vms();
            let show = |vm: crate::model::VmView| {
                json!({
                    "vmid": vm.vmid, "node": vm.node, "name": vm.name, "running": vm.running,
                    "template": vm.template, "lock": vm.lock, "config": vm.config, "pool": vm.pool,
                })
            };
            Value::Array(vms.into_iter().map(show).collect())
        }
        ("GET", "faults") => json!(faults().rules()),
        ("DELETE", "faults") => {
            faults().clear();
            Value::Null
        }
        ("POST", "faults") => {
            let rules = if body.is_array() { body } else { json!([body]) };
            for rule in serde_json::from_value::<Vec<FaultRule>>(rules)? {
                faults().add(rule);
            }
            json!(faults().rules())
        }
        ("POST", "change") => {
            let change: Change = serde_json::from_value(body)?;
            shared.present().change(change);
            shared.wake.notify_one();
            Value::Null
        }
        ("POST", "advance") => {
            let millis = body.get("millis").and_then(Value::as_u64).unwrap_or(0);
            shared.clock.skip(Duration::from_millis(millis));
            shared.wake.notify_one();
            json!({ "now": shared.present().now().0 })
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

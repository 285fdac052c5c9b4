//! What the server said: status, reason phrase, and the envelope `{data, errors, message}`.

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::ext::ReasonPhrase;
use reqwest::header::RETRY_AFTER;
use serde_json::Value;

use crate::pve::error::{Error, ErrorKind};
use crate::pve::wire;

/// More than this is not read: the largest list of a large cluster has a few megabytes.
const LARGEST: usize = 64 << 20;

/// No server is left alone for longer, whatever it says.
const LONGEST_REST: Duration = Duration::from_mins(5);

/// An answer in full.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    reason: Option<String>,
    /// How long the server wants to be left alone, by `Retry-After` in seconds.
    pub(super) retry_after: Option<Duration>,
    body: Vec<u8>,
    truncated: bool,
}

/// How long a server that answers with this status wants to be left alone. A date in the place of
/// seconds, which nobody sends who limits rates, is not heeded.
fn rest(status: u16, retry_after: &str) -> Option<Duration> {
    let seconds = retry_after.trim().parse().ok().filter(|_| matches!(status, 429 | 503))?;
    Some(Duration::from_secs(seconds).min(LONGEST_REST))
}

impl Answer {
    #[cfg(test)]
    pub(super) fn new(status: u16, reason: Option<String>, body: Vec<u8>) -> Self {
        Self { status, reason, retry_after: None, body, truncated: false }
    }

    pub(super) async fn read(mut response: reqwest::Response) -> Result<Self, reqwest::Error> {
        let status = response.status();
        // Only a phrase other than the standard one is handed on; it is Proxmox's own text.
        let reason = response
            .extensions()
            .get::<ReasonPhrase>()
            .map(|phrase| String::from_utf8_lossy(phrase.as_bytes()).trim().to_owned())
            .filter(|phrase| {
                !phrase.is_empty() && Some(phrase.as_str()) != status.canonical_reason()
            });
        let header = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|text| rest(status.as_u16(), text));
        let mut body = Vec::new();
        let mut truncated = false;
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > LARGEST {
                truncated = true;
                break;
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Self { status: status.as_u16(), reason, retry_after, body, truncated })
    }

    /// The `data`, or the error that the answer is. `redact` keeps secrets out of texts that the
    /// server gives back.
    pub(super) fn data(
        self,
        method: &'static str,
        path: String,
        redact: impl Fn(&str) -> String,
    ) -> Result<Value, Error> {
        let unusable = |path, why: &str| {
            Error::local(ErrorKind::Decode, method, path, why, true).with_status(self.status)
        };
        if (200..300).contains(&self.status) {
            if self.truncated {
                return Err(unusable(path, "the answer is larger than 64 MiB"));
            }
            return match serde_json::from_slice(&self.body) {
                Ok(Value::Object(mut envelope)) => {
                    Ok(envelope.remove("data").unwrap_or(Value::Null))
                }
                // An empty answer is a null result.
                Err(_) if self.body.iter().all(u8::is_ascii_whitespace) => Ok(Value::Null),
                Ok(_) | Err(_) => Err(unusable(
                    path,
                    "the answer is not Proxmox's JSON; does the URL lead to a Proxmox API?",
                )),
            };
        }
        if (300..400).contains(&self.status) {
            return Err(unusable(
                path,
                "the server redirects elsewhere; give the URL that it redirects to (mostly https \
                 instead of http)",
            ));
        }
        let (text, errors) = self.texts();
        let errors = errors.into_iter().map(|(name, why)| (name, redact(&why))).collect();
        Err(Error::answer(method, path, self.status, &redact(&text), errors))
    }

    /// The server's text and its reasons by parameter. Old releases have the text in the reason
    /// phrase alone; servers that cannot set a phrase have it in `message` or as the whole body.
    fn texts(&self) -> (String, BTreeMap<String, String>) {
        let envelope: Value = serde_json::from_slice(&self.body).unwrap_or(Value::Null);
        let errors = match envelope.get("errors") {
            Some(Value::Object(errors)) => errors
                .iter()
                .filter_map(|(name, why)| Some((name.clone(), wire::text_of(why)?)))
                .collect(),
            Some(Value::String(text)) if !text.is_empty() => {
                BTreeMap::from([("error".to_owned(), text.clone())])
            }
            _ => BTreeMap::new(),
        };
        let message = envelope.get("message").and_then(wire::text_of);
        let message = message.filter(|text| !text.trim().is_empty());
        let text = self
            .reason
            .clone()
            .or(message)
            .or_else(|| self.plain_body())
            .unwrap_or_else(|| standard(self.status).to_owned());
        (text, errors)
    }

    /// The body when it is a short text and not a page.
    fn plain_body(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.body).ok()?.trim();
        let plain = !text.is_empty() && text.len() <= 1000 && !text.starts_with(['{', '[', '<']);
        plain.then(|| text.to_owned())
    }
}

fn standard(status: u16) -> &'static str {
    match status {
        595 => "the node cannot be reached",
        596 => "the node did not answer in time",
        597 | 599 => "the node's answer was lost",
        status => reqwest::StatusCode::from_u16(status)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or("no reason given"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn read(status: u16, body: Vec<u8>) -> Result<Value, Error> {
        Answer::new(status, None, body).data("GET", "/version".to_owned(), str::to_owned)
    }

    #[test]
    fn a_rest_is_read_in_seconds_from_two_answers_and_bounded() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (status, text, expected) in [
            (429, "7", seconds(7)),
            (503, " 30 ", seconds(30)),
            (503, "0", seconds(0)),
            (429, "86400", Some(LONGEST_REST)),
            (500, "7", None),
            (200, "7", None),
            (503, "-1", None),
            (503, "1.5", None),
            (503, "", None),
            (503, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        ] {
            assert_eq!(rest(status, text), expected, "{status} {text:?}");
        }
    }

    #[test]
    fn an_envelope_is_opened_and_an_empty_answer_is_null() {
        assert_eq!(read(200, br#"{"data":7}"#.to_vec()).ok(), Some(Value::from(7)));
        assert_eq!(read(200, b" \n".to_vec()).ok(), Some(Value::Null));
        assert!(read(200, b"<html>".to_vec()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_under_any_status_are_an_answer_or_an_error_of_one_line(
            status in 100_u16..700,
            body in prop_oneof![
                vec(any::<u8>(), 0..200),
                "[{\"]{0,3}(data|errors|message)?\"?:?.{0,40}[}]{0,3}".prop_map(String::into_bytes),
            ],
        ) {
            if let Err(error) = read(status, body) {
                prop_assert!(!error.to_string().contains('\n'));
                let _ = (error.class(), error.cause(), error.outcome_unknown());
            }
        }
    }
}

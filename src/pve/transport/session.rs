//! How requests are signed: an API token's header, or a ticket that is renewed in time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, COOKIE, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{Request, Transport, Verb};
use crate::pve::auth::Auth;
use crate::pve::client::ConfigError;
use crate::pve::error::{Error, ErrorKind};
use crate::pve::limits::Lane;

const CSRF: HeaderName = HeaderName::from_static("csrfpreventiontoken");

/// What a request is signed with.
#[derive(Clone)]
pub(super) enum Stamp {
    Token(HeaderValue),
    Ticket { cookie: HeaderValue, csrf: Option<HeaderValue>, fetched: Instant },
}

impl Stamp {
    /// Whether a refused request may be cured by a new ticket.
    pub(super) fn is_renewable(&self) -> bool {
        matches!(self, Self::Ticket { .. })
    }

    pub(super) fn apply(&self, builder: RequestBuilder, writes: bool) -> RequestBuilder {
        match self {
            Self::Token(header) => builder.header(AUTHORIZATION, header),
            Self::Ticket { cookie, csrf, .. } => {
                let builder = builder.header(COOKIE, cookie);
                match csrf {
                    Some(csrf) if writes => builder.header(CSRF, csrf),
                    _ => builder,
                }
            }
        }
    }
}

/// The credentials and the ticket in use.
pub(super) struct Session {
    auth: Auth,
    ticket_age: Duration,
    fixed: Option<Stamp>,
    /// Held while a ticket is fetched, so that one is fetched for all who wait.
    ticket: tokio::sync::Mutex<Held>,
    /// The latest ticket, to be kept out of messages.
    known: Mutex<Option<SecretString>>,
}

/// What came of fetching tickets.
#[derive(Default)]
struct Held {
    stamp: Option<Stamp>,
    /// Why the latest attempt failed, and when: who waited for it does not ask again, since a user
    /// may be locked out after a few wrong passwords.
    failure: Option<(Instant, Error)>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("auth", &self.auth).finish_non_exhaustive()
    }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl Session {
    pub(super) fn who(&self) -> &str {
        self.auth.who()
    }

    pub(super) fn new(auth: Auth, ticket_age: Duration) -> Result<Self, ConfigError> {
        let fixed = match &auth {
            Auth::Token { id, .. } => {
                let header = sensitive(&format!("PVEAPIToken={id}={}", auth.secret()));
                Some(Stamp::Token(header.ok_or(ConfigError::Secret)?))
            }
            Auth::Ticket { .. } => None,
        };
        let (ticket, known) = (tokio::sync::Mutex::default(), Mutex::default());
        Ok(Self { auth, ticket_age, fixed, ticket, known })
    }

    /// What to sign with, after fetching a ticket if there is none that is fresh.
    pub(super) async fn stamp(&self, transport: &Transport) -> Result<Stamp, Error> {
        if let Some(stamp) = &self.fixed {
            return Ok(stamp.clone());
        }
        let asked = Instant::now();
        let mut held = self.ticket.lock().await;
        if let Some(stamp @ Stamp::Ticket { fetched, .. }) = &held.stamp
            && fetched.elapsed() < self.ticket_age
        {
            return Ok(stamp.clone());
        }
        if let Some((when, error)) = &held.failure
            && *when > asked
        {
            return Err(error.clone());
        }
        match self.fetch(transport).await {
            Ok(stamp) => {
                *held = Held { stamp: Some(stamp.clone()), failure: None };
                Ok(stamp)
            }
            Err(error) => {
                held.failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Forgets a ticket that was refused, unless somebody has replaced it already.
    pub(super) async fn discard(&self, refused: &Stamp) {
        let mut held = self.ticket.lock().await;
        if let (
            Some(Stamp::Ticket { fetched: held_at, .. }),
            Stamp::Ticket { fetched: refused_at, .. },
        ) = (&held.stamp, refused)
            && held_at == refused_at
        {
            held.stamp = None;
        }
    }

    async fn fetch(&self, transport: &Transport) -> Result<Stamp, Error> {
        let mut parameters = Map::new();
        parameters.insert("username".to_owned(), json!(self.auth.who()));
        parameters.insert("password".to_owned(), json!(self.auth.secret()));
        let request = Request {
            method: Verb::Post,
            endpoint: "access/ticket",
            segments: vec!["access", "ticket"],
            lane: Lane::Endpoint,
            parameters,
        };
        let data = transport.reach(&request, None, None, 1).await?;
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        let ticket = text("ticket");
        let refuse = |why: &str| {
            let path = "/access/ticket".to_owned();
            Err(Error::local(ErrorKind::Unauthorized, "POST", path, why, true))
        };
        if data.get("NeedTFA").is_some() || ticket.starts_with("PVE:!tfa!") {
            return refuse("the user needs a second factor; give an API token instead");
        }
        let Some(cookie) = (!ticket.is_empty())
            .then(|| sensitive(&format!("PVEAuthCookie={}", encode_cookie(ticket))))
            .flatten()
        else {
            return refuse("the answer carries no ticket");
        };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(SecretString::from(ticket));
        let csrf = text("CSRFPreventionToken");
        let csrf = if csrf.is_empty() { None } else { sensitive(csrf) };
        Ok(Stamp::Ticket { cookie, csrf, fetched: Instant::now() })
    }

    /// `text` without the secret and the ticket, should a server give them back.
    pub(super) fn redact(&self, text: &str) -> String {
        // A shorter secret would tear words apart, and gives nothing away.
        let hide = |text: String, secret: &str| {
            if secret.len() >= 4 { text.replace(secret, "***") } else { text }
        };
        let text = hide(text.to_owned(), self.auth.secret());
        match &*self.known.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(ticket) => hide(text, ticket.expose_secret()),
            None => text,
        }
    }
}

/// The ticket as a cookie's value: base64 letters need nothing, the rest is encoded as browsers do
/// it, and Proxmox decodes it.
fn encode_cookie(ticket: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(ticket.len());
    for byte in ticket.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:@/+=!".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

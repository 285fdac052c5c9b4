//! One request and its answer: credentials, limits, time, repetition, the `{data}` envelope.
//!
//! Bodies are JSON with numbers for numbers, which every release and implementation takes that
//! serves capmox; parameters of GET and DELETE go in the query, because Proxmox refuses a body
//! there. Nothing is sent chunked.
//!
//! Only reads are repeated, at most twice, and only when no connection came about, when it broke
//! before an answer, or on 503 and 599 (a reused connection between nodes that was closed). An
//! answer that took long to fail (timeouts, 595, 596) is not asked for again: it holds a worker of
//! the node for half a minute each time. Writes are never repeated, except after a 401 that a new
//! ticket cures, since nothing was done then.
//!
//! A server that asks to be left alone (`Retry-After` of an answer 429 or 503) is: until then every
//! call fails at once and unsent.
//!
//! Of several addresses the one that worked last is asked. When no connection to it comes about,
//! the request was not sent, and so the next address is asked at once, whatever the request does.

mod answer;
#[cfg(test)]
mod line;
mod session;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_LENGTH, DATE, HeaderValue};
use reqwest::multipart::Form;
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Url};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::client::{ClientConfig, ConfigError};
use super::error::{Error, ErrorKind};
use super::fence::Fence;
use super::limits::{Lane, Slots};
use super::observer::{Call, Observer};
use super::tls::Tls;
use super::url::BaseUrl;
use answer::Answer;
#[cfg(test)]
pub use line::{Asked, Line, Outcome};
use session::{Session, Stamp};

/// Repetitions of a read.
const RETRIES: u32 = 2;

/// First pause before a repetition; the second is twice as long. Up to as much again is added by
/// chance, so that many clients do not come back together.
const PAUSE: Duration = Duration::from_millis(100);

/// Shorter than the five seconds after which Proxmox closes an idle connection.
const IDLE: Duration = Duration::from_secs(3);

/// What is asked for.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) method: Verb,
    /// With variables in braces, for metrics.
    pub(super) endpoint: &'static str,
    pub(super) segments: Vec<&'a str>,
    pub(super) lane: Lane<'a>,
    pub(super) parameters: Map<String, Value>,
}

/// The methods that Proxmox knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Put,
    Delete,
}

impl Verb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    const fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Delete => Method::DELETE,
        }
    }
}

/// A file to be uploaded; kept so that the request can be made again after a 401.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) data: bytes::Bytes,
}

/// Connections, credentials and limits of one endpoint.
#[derive(Debug)]
pub(super) struct Transport {
    primary: BaseUrl,
    others: Vec<BaseUrl>,
    /// Which of them is asked, counted on and on.
    active: AtomicUsize,
    date: Mutex<Option<(String, Instant)>>,
    http: reqwest::Client,
    session: Session,
    slots: Slots,
    /// Until when the server wants to be left alone.
    rests_until: Mutex<Option<Instant>>,
    observer: Option<Arc<dyn Observer>>,
    fence: Fence,
    verified: bool,
    #[cfg(test)]
    line: Option<Arc<dyn Line>>,
}

impl Transport {
    pub(super) fn new(
        config: ClientConfig,
        others: Vec<BaseUrl>,
        observer: Option<Arc<dyn Observer>>,
        fence: Fence,
    ) -> Result<Self, ConfigError> {
        let limits = config.limits;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(super::tls::config(&config.tls)?)
            .http1_only()
            .no_proxy()
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(limits.connect_timeout)
            .read_timeout(limits.read_timeout)
            .timeout(limits.total_timeout)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(limits.per_endpoint)
            .user_agent(concat!("capmox-rs/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ConfigError::Http(chain(&error)))?;
        let session = Session::new(config.auth, limits.ticket_age)?;
        Ok(Self {
            primary: config.base_url,
            others,
            active: AtomicUsize::new(0),
            date: Mutex::default(),
            http,
            session,
            slots: Slots::new(limits),
            rests_until: Mutex::default(),
            #[cfg(test)]
            line: observer.as_ref().and_then(|observer| observer.line()),
            observer,
            fence,
            verified: config.tls != Tls::Insecure,
        })
    }

    pub(super) fn base(&self) -> &BaseUrl {
        &self.primary
    }

    pub(super) fn active(&self) -> &BaseUrl {
        self.address(self.active.load(Ordering::Relaxed))
    }

    /// The addresses in turn.
    fn address(&self, number: usize) -> &BaseUrl {
        let number = number % (self.others.len() + 1);
        number.checked_sub(1).and_then(|index| self.others.get(index)).unwrap_or(&self.primary)
    }

    pub(super) fn server_date(&self) -> Option<(String, Instant)> {
        self.date.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note_date(&self, response: &reqwest::Response) {
        if let Some(date) = response.headers().get(DATE).and_then(|date| date.to_str().ok()) {
            let date = (date.to_owned(), Instant::now());
            *self.date.lock().unwrap_or_else(PoisonError::into_inner) = Some(date);
        }
    }

    pub(super) fn who(&self) -> &str {
        self.session.who()
    }

    pub(super) fn is_verified(&self) -> bool {
        self.verified
    }

    /// The `data` of the answer.
    pub(super) async fn call(&self, request: &Request<'_>) -> Result<Value, Error> {
        self.send(request, None).await
    }

    /// An upload.
    pub(super) async fn upload(&self, request: &Request<'_>, file: &File) -> Result<Value, Error> {
        self.send(request, Some(file)).await
    }

    async fn send(&self, request: &Request<'_>, file: Option<&File>) -> Result<Value, Error> {
        let mut retries = if request.method == Verb::Get { RETRIES } else { 0 };
        let mut renewals = 1;
        let mut attempt = 1;
        loop {
            // Neither for a ticket.
            self.check_rest(request)?;
            let stamp = self.session.stamp(self).await?;
            let error = match self.attempt(request, file, &stamp, attempt).await {
                Ok(data) => return Ok(data),
                Err(error) => error,
            };
            if error.kind() == &ErrorKind::Unauthorized && renewals > 0 && stamp.is_renewable() {
                renewals -= 1;
                self.session.discard(&stamp).await;
            } else if retries > 0 && is_worth_repeating(&error) && self.rest_left().is_none() {
                retries -= 1;
                let pause = PAUSE * 2_u32.pow(RETRIES - 1 - retries);
                tokio::time::sleep_until(Instant::now() + jittered(pause, self.chance())).await;
            } else {
                return Err(error);
            }
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        request: &Request<'_>,
        file: Option<&File>,
        stamp: &Stamp,
        attempt: u32,
    ) -> Result<Value, Error> {
        let _slot = self.slots.take(request.lane).await;
        // Whoever had the slot before may have been told to leave the server alone.
        self.check_rest(request)?;
        self.check_fence(request)?;
        #[cfg(test)]
        if let Some(line) = &self.line {
            return self.ask(line.as_ref(), request, file).await;
        }
        self.reach(request, file, Some(stamp), attempt).await
    }

    /// How long the server still wants to be left alone.
    fn rest_left(&self) -> Option<Duration> {
        let until = *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until?.checked_duration_since(Instant::now())?;
        (!left.is_zero()).then_some(left)
    }

    /// Fails at once while the server wants to be left alone: whoever asked is better off waiting
    /// elsewhere than in a queue here. For how long is not told: the text lands in conditions, which
    /// would be written anew each time that somebody asks.
    fn check_rest(&self, request: &Request<'_>) -> Result<(), Error> {
        if self.rest_left().is_none() {
            return Ok(());
        }
        let path = format!("/{}", request.segments.join("/"));
        let message = format!("{} asks to be left alone for a while (Retry-After)", self.active());
        Err(Error::local(ErrorKind::Timeout, request.method.as_str(), path, &message, false))
    }

    /// Changes nothing any more once that is another one's.
    fn check_fence(&self, request: &Request<'_>) -> Result<(), Error> {
        if request.method == Verb::Get || self.fence.is_open(Instant::now()) {
            return Ok(());
        }
        let path = format!("/{}", request.segments.join("/"));
        let message = "not sent: the lease was not renewed in time, and another process may lead";
        Err(Error::local(ErrorKind::Timeout, request.method.as_str(), path, message, false))
    }

    /// Sends a request to the address that works; without a stamp, for the ticket itself.
    async fn reach(
        &self,
        request: &Request<'_>,
        file: Option<&File>,
        stamp: Option<&Stamp>,
        attempt: u32,
    ) -> Result<Value, Error> {
        let first = self.active.load(Ordering::Relaxed);
        let last = first + self.others.len();
        let mut number = first;
        loop {
            let base = self.address(number);
            let mut builder = self.builder(base, request, file);
            if let Some(stamp) = stamp {
                builder = stamp.apply(builder, request.method != Verb::Get);
            }
            let result = self.exchange(base, request, builder, attempt).await;
            match &result {
                Err(error) if number < last && error.is_not_connected() => {
                    let next = self.address(number + 1);
                    tracing::warn!(from = %base, to = %next, %error, "next Proxmox address");
                    if stamp.is_some() {
                        self.check_fence(request)?;
                    }
                    number += 1;
                }
                Err(error) if error.is_not_connected() => return result,
                _ => {
                    if number != first {
                        // Whoever found another address meanwhile is as right.
                        let order = Ordering::Relaxed;
                        let _ = self.active.compare_exchange(first, number, order, order);
                    }
                    return result;
                }
            }
        }
    }

    async fn exchange(
        &self,
        base: &BaseUrl,
        request: &Request<'_>,
        builder: RequestBuilder,
        attempt: u32,
    ) -> Result<Value, Error> {
        let method = request.method.as_str();
        let path = format!("/{}", request.segments.join("/"));
        let began = Instant::now();
        let result = match builder.send().await {
            Ok(response) => {
                self.note_date(&response);
                Answer::read(response).await
            }
            Err(error) => Err(error),
        };
        let elapsed = began.elapsed();
        let status = result.as_ref().ok().map(|answer| answer.status);
        if let Some(observer) = &self.observer {
            let endpoint = request.endpoint;
            observer.called(&Call { method, endpoint, status, elapsed, attempt });
        }
        if let Some(rest) = result.as_ref().ok().and_then(|answer| answer.retry_after) {
            *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Instant::now() + rest);
        }
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(method, path, status, ms, attempt, "Proxmox call");
        match result {
            Ok(answer) => answer.data(method, path, |text| self.session.redact(text)),
            Err(error) => Err(self.failure(base, method, path, &error)),
        }
    }

    /// Some number.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "simulations throw their own dice"))]
    fn chance(&self) -> u64 {
        #[cfg(test)]
        if let Some(line) = &self.line {
            return line.chance();
        }
        RandomState::new().build_hasher().finish()
    }

    /// A request without credentials.
    fn builder(
        &self,
        base: &BaseUrl,
        request: &Request<'_>,
        file: Option<&File>,
    ) -> RequestBuilder {
        let mut url = base.endpoint(request.segments.iter().copied());
        let method = request.method;
        if matches!(method, Verb::Get | Verb::Delete) {
            add_query(&mut url, &request.parameters);
        }
        let builder = self.http.request(method.method(), url).header(ACCEPT, "application/json");
        match (method, file) {
            (Verb::Get | Verb::Delete, _) => builder,
            (_, Some(file)) => builder.multipart(form(file, &request.parameters)),
            (_, None) if request.parameters.is_empty() => {
                builder.header(CONTENT_LENGTH, HeaderValue::from_static("0"))
            }
            (_, None) => builder.json(&request.parameters),
        }
    }

    /// No usable answer came.
    fn failure(
        &self,
        base: &BaseUrl,
        method: &'static str,
        path: String,
        error: &reqwest::Error,
    ) -> Error {
        let text = self.session.redact(&chain(error));
        let sent = !error.is_connect() && !error.is_builder();
        let (kind, message) = if tls_of(error) {
            (ErrorKind::Tls, format!("{base} is not trusted: {text}"))
        } else if error.is_timeout() {
            let what =
                if sent { "did not answer in time" } else { "cannot be connected to in time" };
            (ErrorKind::Timeout, format!("{base} {what}"))
        } else if error.is_connect() {
            (ErrorKind::Connect, format!("no connection to {base}: {text}"))
        } else {
            (ErrorKind::Connect, format!("the connection to {base} broke: {text}"))
        };
        Error::local(kind, method, path, &message, sent)
    }
}

/// Booleans and numbers as Proxmox's forms want them.
fn plain(value: &Value) -> String {
    super::wire::text_of(value).unwrap_or_default()
}

fn add_query(url: &mut Url, parameters: &Map<String, Value>) {
    if !parameters.is_empty() {
        let mut query = url.query_pairs_mut();
        for (key, value) in parameters {
            query.append_pair(key, &plain(value));
        }
    }
}

/// Fields first and the file last, its disposition as the first header: the server's parser takes
/// no other order.
fn form(file: &File, parameters: &Map<String, Value>) -> Form {
    let mut form = Form::new();
    for (key, value) in parameters {
        form = form.text(key.clone(), plain(value));
    }
    let length = file.data.len() as u64;
    let part = reqwest::multipart::Part::stream_with_length(file.data.clone(), length);
    form.part("filename", part.file_name(file.name.clone()))
}

fn is_worth_repeating(error: &Error) -> bool {
    match (error.kind(), error.status()) {
        (_, Some(status)) => matches!(status, 503 | 599),
        (ErrorKind::Connect, None) => true,
        _ => false,
    }
}

/// `pause` and up to as much again.
fn jittered(pause: Duration, random: u64) -> Duration {
    let percent = u32::try_from(random % 100).unwrap_or(0);
    pause + pause * percent / 100
}

/// An error and what is behind it, on one line. URLs are left out: they say nothing new.
fn chain(error: &reqwest::Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        let text = source.to_string();
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        next = source.source();
    }
    if texts.is_empty() { "the request failed".to_owned() } else { texts.join(": ") }
}

/// Whether TLS is what went wrong. An I/O error does not name what it wraps as its source, and the
/// connector wraps it twice.
fn tls_of(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(source) = next {
        if source.is::<rustls::Error>() {
            return true;
        }
        next = match source.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => source.source(),
        };
    }
    false
}

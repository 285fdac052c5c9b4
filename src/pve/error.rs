//! What a call can fail with. Classified once, from status and wording.

use std::collections::BTreeMap;
use std::fmt;

use super::cause::Cause;
use crate::fault::Class;
use crate::ids::NodeName;

/// Longest message kept, in characters.
const LONGEST: usize = 600;

/// What kind of failure it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection, or it broke.
    Connect,
    /// No answer in time.
    Timeout,
    /// The server's certificate is not trusted, or TLS failed otherwise.
    Tls,
    /// 401: the credentials are refused.
    Unauthorized,
    /// 403: a privilege is missing.
    Forbidden,
    /// 400: the parameters are refused, with the reason by parameter.
    BadRequest {
        /// Reason by parameter.
        errors: BTreeMap<String, String>,
    },
    /// 501 or 404: this Proxmox has no such endpoint, or the URL leads elsewhere.
    NotImplemented,
    /// 595 to 599: the endpoint could not get an answer from the node.
    NodeUnreachable,
    /// The VM has no configuration on that node.
    VmMissing,
    /// The VMID is in use.
    VmIdTaken,
    /// Another operation holds the VM.
    VmLocked,
    /// The guest agent does not answer.
    AgentDown,
    /// The cluster has lost its quorum.
    NoQuorum,
    /// The configuration changed since its digest was read.
    DigestMismatch,
    /// Any other refusal; see [`Error::cause`].
    Server,
    /// The answer is not what this endpoint gives.
    Decode,
}

/// A call that did not give what it should. Prints as one line without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    cause: Option<Cause>,
    method: &'static str,
    path: String,
    status: Option<u16>,
    message: String,
    sent: bool,
}

impl Error {
    /// A failure without a status: connection, time, TLS, decoding. `sent` tells whether the
    /// request may have reached the server.
    pub(super) fn local(
        kind: ErrorKind,
        method: &'static str,
        path: String,
        message: &str,
        sent: bool,
    ) -> Self {
        Self { kind, cause: None, method, path, status: None, message: one_line(message), sent }
    }

    /// Nothing was asked, because others wait for the same answer already and for long.
    pub fn awaited(method: &'static str, path: &str) -> Self {
        let message = "the endpoint does not answer; others wait for it already";
        Self::local(ErrorKind::Timeout, method, path.to_owned(), message, false)
    }

    /// The same of what one node is asked, which may hang while the endpoint answers.
    pub fn awaited_of(node: &NodeName, path: &str) -> Self {
        let message = format!("node {node} does not answer; others wait for it already");
        Self::local(ErrorKind::NodeUnreachable, "GET", path.to_owned(), &message, false)
    }

    /// An answer with an error status. `text` is the server's own; `errors` its reasons by
    /// parameter.
    pub(super) fn answer(
        method: &'static str,
        path: String,
        status: u16,
        text: &str,
        errors: BTreeMap<String, String>,
    ) -> Self {
        let mut message = text.trim().to_owned();
        if !errors.is_empty() {
            let reasons: Vec<String> =
                errors.iter().map(|(name, why)| format!("{name}: {}", why.trim())).collect();
            message = format!("{} ({})", message.trim_end_matches('.'), reasons.join("; "));
        }
        let cause = Cause::of(&message).or_else(|| volume_cause(status, &path, &message));
        let mut kind = kind_of(status, cause, errors);
        if kind == ErrorKind::Server && cause == Some(Cause::NotRunning) && path.contains("/agent/")
        {
            kind = ErrorKind::AgentDown;
        }
        let message = one_line(&message);
        Self { kind, cause, method, path, status: Some(status), message, sent: true }
    }

    /// The answer came with this status and could not be used.
    pub(super) fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The cause that the server's wording names, if it is a known one.
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// HTTP status, if an answer came.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// HTTP method.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Path below `/api2/json`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The text alone: the server's, or what went wrong here. One line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// How the failure is handled.
    pub fn class(&self) -> Class {
        match (&self.kind, self.cause) {
            (ErrorKind::Unauthorized | ErrorKind::Forbidden, _) => Class::Denied,
            (
                ErrorKind::Connect
                | ErrorKind::Timeout
                | ErrorKind::Decode
                | ErrorKind::NodeUnreachable,
                _,
            ) => Class::Transient,
            (ErrorKind::Tls, _) => Class::Blocked,
            (ErrorKind::NotImplemented, _) => Class::Bug,
            (_, Some(cause)) => cause.class(),
            (ErrorKind::BadRequest { .. }, None) => Class::Invalid,
            (_, None) => Class::Transient,
        }
    }

    /// Whether it is not known if the request took effect: a write that was sent and whose answer
    /// was lost. Observe before repeating it.
    pub fn outcome_unknown(&self) -> bool {
        let lost = match (&self.kind, self.status) {
            // With 595 the endpoint did not even reach the node, so that is not among them.
            (ErrorKind::Decode, _)
            | (_, Some(502 | 504 | 596..=599))
            | (ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Tls, None) => true,
            _ => false,
        };
        self.method != "GET" && self.sent && lost
    }

    /// The VM has no configuration on that node; it may be on another.
    pub fn is_vm_missing(&self) -> bool {
        self.kind == ErrorKind::VmMissing
    }

    /// The VMID is in use.
    pub fn is_vmid_taken(&self) -> bool {
        self.kind == ErrorKind::VmIdTaken
    }

    /// The guest agent does not answer yet or any more, or the VM does not run.
    pub fn is_agent_down(&self) -> bool {
        self.kind == ErrorKind::AgentDown
    }

    /// Another operation holds the VM.
    pub fn is_vm_locked(&self) -> bool {
        self.kind == ErrorKind::VmLocked
    }

    /// The node does not know the task any more.
    pub fn is_task_unknown(&self) -> bool {
        self.cause == Some(Cause::TaskUnknown)
    }

    /// The endpoint itself is of no use: it concerns not one node or VM, but everything.
    pub fn is_endpoint_lost(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Tls | ErrorKind::Unauthorized
        )
    }

    /// No connection came about, so that nothing was sent.
    pub fn is_not_connected(&self) -> bool {
        !self.sent && matches!(self.kind, ErrorKind::Connect | ErrorKind::Timeout)
    }

    /// The volume is not there.
    pub fn is_volume_missing(&self) -> bool {
        self.cause == Some(Cause::VolumeMissing)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxmox {} {}: ", self.method, self.path)?;
        match self.status {
            Some(status) => write!(f, "{status} {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

fn kind_of(status: u16, cause: Option<Cause>, errors: BTreeMap<String, String>) -> ErrorKind {
    match (status, cause) {
        (401, _) => ErrorKind::Unauthorized,
        (403, _) => ErrorKind::Forbidden,
        (595..=599, _) => ErrorKind::NodeUnreachable,
        (_, Some(Cause::VmMissing)) => ErrorKind::VmMissing,
        (_, Some(Cause::VmIdTaken)) => ErrorKind::VmIdTaken,
        (_, Some(Cause::VmLocked)) => ErrorKind::VmLocked,
        (_, Some(Cause::AgentDown)) => ErrorKind::AgentDown,
        (_, Some(Cause::NoQuorum)) => ErrorKind::NoQuorum,
        (_, Some(Cause::DigestMismatch)) => ErrorKind::DigestMismatch,
        (400, _) => ErrorKind::BadRequest { errors },
        (404 | 405 | 501, _) => ErrorKind::NotImplemented,
        _ => ErrorKind::Server,
    }
}

/// A volume that is not there, in words of servers other than Proxmox's own. A bare "Not Found" may
/// be a proxy's, which knows nothing of volumes.
fn volume_cause(status: u16, path: &str, message: &str) -> Option<Cause> {
    let message = message.to_ascii_lowercase();
    let absent = ["does not exist", "no such", "not found"]
        .iter()
        .any(|words| message.contains(words) && message.len() > words.len());
    (matches!(status, 404 | 500) && path.contains("/content/") && absent)
        .then_some(Cause::VolumeMissing)
}

/// White space folded, control characters out, not too long.
fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(method: &'static str, status: u16, text: &str) -> Error {
        Error::answer(method, "/nodes/a/qemu/100/config".to_owned(), status, text, BTreeMap::new())
    }

    #[test]
    fn status_and_wording_give_kind_and_class() {
        let locked = "VM is locked (backup)";
        for (status, text, kind, class) in [
            (401, "Authentication failed!", ErrorKind::Unauthorized, Class::Denied),
            (403, "Permission check failed (/, Sys.Audit)", ErrorKind::Forbidden, Class::Denied),
            (501, "Method 'GET /x' not implemented", ErrorKind::NotImplemented, Class::Bug),
            (595, "No route to host", ErrorKind::NodeUnreachable, Class::Transient),
            (500, locked, ErrorKind::VmLocked, Class::Conflict),
            (500, "no space left on device", ErrorKind::Server, Class::Blocked),
            (500, "something new", ErrorKind::Server, Class::Transient),
            (500, "QEMU guest agent is not running", ErrorKind::AgentDown, Class::Transient),
            (502, "Bad Gateway", ErrorKind::Server, Class::Transient),
        ] {
            let error = answer("POST", status, text);
            assert_eq!(error.kind(), &kind, "{text}");
            assert_eq!(error.class(), class, "{text}");
        }
    }

    #[test]
    fn the_reasons_by_parameter_are_part_of_the_message_and_of_the_cause() {
        let errors = BTreeMap::from([("vmid".to_owned(), "VM 104 already exists\n".to_owned())]);
        let text = "Parameter verification failed.";
        let error = Error::answer("GET", "/cluster/nextid".to_owned(), 400, text, errors.clone());
        assert!(error.is_vmid_taken());
        assert_eq!(
            error.to_string(),
            "Proxmox GET /cluster/nextid: 400 Parameter verification failed (vmid: VM 104 already \
             exists)"
        );
        let errors = BTreeMap::from([("name".to_owned(), "invalid format".to_owned())]);
        let error = Error::answer("POST", "/x".to_owned(), 400, text, errors.clone());
        assert_eq!(error.kind(), &ErrorKind::BadRequest { errors });
        assert_eq!(error.class(), Class::Invalid);
    }

    #[test]
    fn only_a_write_that_was_sent_can_have_an_unknown_outcome() {
        assert!(answer("POST", 596, "Connection timed out").outcome_unknown());
        assert!(!answer("GET", 596, "Connection timed out").outcome_unknown());
        assert!(!answer("POST", 595, "Connection refused").outcome_unknown());
        assert!(!answer("POST", 500, "VM is locked").outcome_unknown());
        let local =
            |sent| Error::local(ErrorKind::Connect, "DELETE", "/x".to_owned(), "reset", sent);
        assert!(local(true).outcome_unknown());
        assert!(!local(false).outcome_unknown());
    }

    #[test]
    fn a_missing_volume_is_told_from_a_proxy_that_knows_no_such_page() {
        let at = |status, text| {
            let path = "/nodes/a/storage/l/content/l:iso/x.iso".to_owned();
            Error::answer("GET", path, status, text, BTreeMap::new()).is_volume_missing()
        };
        assert!(at(500, "volume_size_info on 'l:iso/x.iso' failed - no format"));
        assert!(at(500, "l:iso/x.iso: no such file"));
        assert!(at(404, "volume l:iso/x.iso not found"));
        assert!(!at(404, "Not Found"));
        assert!(!at(403, "x does not exist"));
    }

    #[test]
    fn a_message_is_one_bounded_line() {
        let error = answer("GET", 500, &format!("a\nb\tc\u{1b}[0m {}", "ü".repeat(1000)));
        assert!(error.message().starts_with("a b c [0m ü"));
        assert!(error.message().chars().count() <= LONGEST + 1);
        assert!(!error.to_string().contains('\n'));
    }
}

//! A refusal, in the form that the apiserver passes on to whoever wrote the object.

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, StatusSummary};

/// API group of all objects that are judged.
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Why an object is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denial {
    /// The object as a whole is not wanted; HTTP 403.
    Forbidden(String),
    /// The request makes no sense; HTTP 400.
    BadRequest(String),
    /// A field has a wrong value; HTTP 422.
    Invalid {
        /// Path of the field, as capmox v0.7 spells it.
        path: String,
        /// Its value, as JSON.
        value: String,
        /// What is wrong with it.
        message: String,
    },
    /// A field is missing; HTTP 422.
    Required {
        /// Path of the field.
        path: String,
        /// Why it is needed.
        message: String,
    },
}

impl Denial {
    /// A wrong value.
    pub(super) fn invalid(
        path: impl Into<String>,
        value: impl serde::Serialize,
        message: impl Into<String>,
    ) -> Self {
        // What was read from JSON can be written as JSON; null stands for the unthinkable.
        let value = serde_json::to_string(&value).unwrap_or_else(|_| "null".to_owned());
        Self::Invalid { path: path.into(), value, message: message.into() }
    }

    /// The same of a machine's spec that stands within another object, at this path.
    pub(super) fn below(mut self, spec: &str) -> Self {
        if let Self::Invalid { path, .. } | Self::Required { path, .. } = &mut self
            && let Some(field) = path.strip_prefix("spec.")
        {
            *path = format!("{spec}.{field}");
        }
        self
    }

    /// The answer for the object of this kind and name.
    pub(super) fn into_status(self, kind: &str, name: &str) -> Status {
        let (code, reason, message, cause) = match self {
            Self::Forbidden(message) => (403, "Forbidden", message, None),
            Self::BadRequest(message) => (400, "BadRequest", message, None),
            Self::Invalid { path, value, message } => {
                let message = format!("Invalid value: {value}: {message}");
                (422, "Invalid", text(kind, name, &path, &message), {
                    Some(cause("FieldValueInvalid", path, message))
                })
            }
            Self::Required { path, message } => {
                let message = format!("Required value: {message}");
                (422, "Invalid", text(kind, name, &path, &message), {
                    Some(cause("FieldValueRequired", path, message))
                })
            }
        };
        let details = cause.map(|cause| StatusDetails {
            name: name.to_owned(),
            group: GROUP.to_owned(),
            kind: kind.to_owned(),
            uid: String::new(),
            causes: vec![cause],
            retry_after_seconds: 0,
        });
        Status {
            status: Some(StatusSummary::Failure),
            code,
            message,
            metadata: None,
            reason: reason.to_owned(),
            details,
        }
    }
}

/// The sentence that the apiserver itself uses for invalid objects.
fn text(kind: &str, name: &str, path: &str, message: &str) -> String {
    format!("{kind}.{GROUP} {name:?} is invalid: {path}: {message}")
}

fn cause(reason: &str, field: String, message: String) -> StatusCause {
    StatusCause { reason: reason.to_owned(), message, field }
}

//! Admission: objects that could never work are refused when they are written.
//!
//! The rules are those of capmox v0.7, at the same paths and with the same texts, so that an
//! existing `ValidatingWebhookConfiguration` and whoever reads the refusals keep working. Templates,
//! which it does not judge, may not be changed. The rules are pure; the server in front of them decides nothing.

mod certs;
mod denial;
mod rules;
mod server;

pub use certs::CertError;
pub use server::{Config, ServeError, Server, serve};

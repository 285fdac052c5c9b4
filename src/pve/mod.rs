//! A typed client of the Proxmox VE API: one method per endpoint, lenient in what it reads.
//!
//! Knows nothing of Kubernetes, decides nothing and polls nothing: a call is one request and its
//! classified answer.

mod auth;
mod cause;
mod client;
mod error;
mod fence;
mod limits;
mod observer;
mod task;
mod tls;
mod transport;
mod types;
mod upid;
mod url;
mod wire;

pub use auth::{Auth, InvalidToken, TokenId, token};
pub use cause::Cause;
pub use client::{Client, ClientConfig, ConfigError};
pub use error::{Error, ErrorKind};
pub use fence::Fence;
pub use limits::Limits;
pub use observer::{Call, Observer};
pub use task::{TaskExit, TaskStatus};
pub use tls::{InvalidFingerprint, Tls, parse_fingerprint};
#[cfg(test)]
pub use transport::{Asked, Line, Outcome};
pub use types::*;
pub use upid::{InvalidUpid, Upid};
pub use url::{BaseUrl, InvalidUrl};
pub use wire::{BootOrder, Drive, NetDevice, OptionString, Tags, parse_size};

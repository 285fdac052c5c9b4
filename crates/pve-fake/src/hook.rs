//! A test's own code at an exact call: before its effect and after.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;

/// At which side of a call's effect a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The call has come in, nothing has happened.
    Before,
    /// It has happened, nothing has been answered.
    After,
}

/// The call a hook is called for.
#[derive(Clone, Debug)]
pub struct HookCall {
    /// At which side of the effect.
    pub when: When,
    /// Number of the call since the start, from 1.
    pub seq: u64,
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// Path below `/api2/json`.
    pub path: String,
    /// Parameters without secrets.
    pub params: BTreeMap<String, String>,
    /// Status to be answered; only after.
    pub status: Option<u16>,
    /// What happened; only after, and only if something did.
    pub effect: Option<String>,
}

/// Called and awaited twice for each call. The call goes on when it returns, even if the client has
/// gone meanwhile, as a call that reached Proxmox does.
pub type Hook = Arc<dyn Fn(HookCall) -> BoxFuture<'static, ()> + Send + Sync>;

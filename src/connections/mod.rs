//! From credentials to the shared [`Endpoint`] that they open.

use std::sync::Arc;

use crate::api::ProxmoxCluster;
use crate::fault::{Class, Fault};
use crate::hypervisor::Endpoint;

/// The endpoints in use.
#[derive(Debug)]
pub struct Connections;

impl Connections {
    /// The endpoint that a cluster uses.
    pub async fn of(&self, _cluster: &ProxmoxCluster) -> Result<Arc<Endpoint>, Fault> {
        Err(Fault::new(Class::Bug, "no endpoint"))
    }
}

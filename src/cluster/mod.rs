//! The controller of ProxmoxCluster.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::connections::Connections;

/// What the controller works with.
#[expect(missing_debug_implementations, reason = "the Kubernetes client has none")]
pub struct Context {
    /// The management cluster.
    pub client: kube::Client,
    /// The Proxmox endpoints.
    pub connections: Arc<Connections>,
    /// The only namespace to look at; all when none.
    pub namespace: Option<String>,
    /// Value of the watch label that objects must carry; any when none.
    pub watch_filter: Option<String>,
    /// Objects worked on at once.
    pub concurrency: u16,
}

/// Runs until `shutdown`.
pub async fn run(_context: Context, shutdown: CancellationToken) {
    shutdown.cancelled().await;
}

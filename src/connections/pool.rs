//! Endpoints by what opens them, and ledgers by address. Bookkeeping only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::credentials::Digest;
use crate::hypervisor::{Endpoint, Ledger};

/// What is shared. `S` names a source of credentials.
#[derive(Debug)]
pub(super) struct Pool<S> {
    /// Which credentials each source gave last, and the version of the source that gave them.
    sources: HashMap<S, (Digest, Option<String>)>,
    endpoints: HashMap<Digest, Arc<Endpoint>>,
    /// By address alone: two credentials of one Proxmox cluster must not promise one VMID twice.
    /// Never dropped, because a promise outlives the credentials that it was made with.
    ledgers: HashMap<String, Arc<Mutex<Ledger>>>,
}

impl<S> Default for Pool<S> {
    fn default() -> Self {
        Self { sources: HashMap::new(), endpoints: HashMap::new(), ledgers: HashMap::new() }
    }
}

impl<S: std::hash::Hash + Eq> Pool<S> {
    /// The endpoint of a source that is still the one that was read.
    pub(super) fn unchanged(&self, source: &S, version: &str) -> Option<Arc<Endpoint>> {
        let (digest, read) = self.sources.get(source)?;
        let endpoint = self.endpoints.get(digest)?;
        (read.as_deref() == Some(version)).then(|| Arc::clone(endpoint))
    }

    /// The endpoint that `digest` opens, from now on the one of `source`. The one that it had
    /// before is let go when no other source uses it: whoever still holds it ends what is under
    /// way.
    pub(super) fn endpoint<E>(
        &mut self,
        source: S,
        (digest, version): (Digest, Option<String>),
        start: impl FnOnce() -> Result<Arc<Endpoint>, E>,
    ) -> Result<Arc<Endpoint>, E> {
        let known = self.endpoints.get(&digest).map(Arc::clone);
        let endpoint = known.map_or_else(start, Ok)?;
        self.endpoints.insert(digest, Arc::clone(&endpoint));
        self.sources.insert(source, (digest, version));
        self.sweep();
        Ok(endpoint)
    }

    /// The source gives no credentials any more.
    pub(super) fn forget(&mut self, source: &S) {
        self.sources.remove(source);
        self.sweep();
    }

    /// The ledger of an address.
    pub(super) fn ledger(&mut self, address: &str) -> Arc<Mutex<Ledger>> {
        Arc::clone(self.ledgers.entry(address.to_owned()).or_default())
    }

    fn sweep(&mut self) {
        let sources = &self.sources;
        self.endpoints.retain(|digest, _| sources.values().any(|(used, _)| used == digest));
    }
}

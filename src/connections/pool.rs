//! Endpoints by what opens them, and ledgers by address. Bookkeeping only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::credentials::Digest;
use super::source::{Allowed, Object};
use crate::hypervisor::{Endpoint, Ledger, Watch};

/// Objects that were read, each with its version; none when it was not there.
pub(super) type Versions = Vec<(Object, Option<String>)>;

/// What a source gave when it was read last.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    /// What was read for it.
    pub(super) versions: Versions,
    /// Who may use it.
    pub(super) allowed: Allowed,
    /// Its credentials, if it has any that can be used.
    pub(super) digest: Option<Digest>,
    /// Whether they believe any certificate.
    pub(super) is_insecure: bool,
}

/// What is shared. `S` names a source of credentials.
#[derive(Debug)]
pub(super) struct Pool<S> {
    sources: HashMap<S, Reading>,
    endpoints: HashMap<Digest, Arc<Endpoint>>,
    /// By address alone: two credentials of one Proxmox cluster must not promise one VMID twice.
    /// Never dropped, because a promise outlives the credentials that it was made with.
    ledgers: HashMap<String, Arc<Mutex<Ledger>>>,
    /// What endpoints watched that were let go before another one of the same Proxmox was there.
    left: Vec<(Arc<Mutex<Ledger>>, Watch)>,
}

impl<S> Default for Pool<S> {
    fn default() -> Self {
        Self {
            sources: HashMap::new(),
            endpoints: HashMap::new(),
            ledgers: HashMap::new(),
            left: Vec::new(),
        }
    }
}

impl<S: std::hash::Hash + Eq + Clone> Pool<S> {
    /// The endpoint of a source as it was read last, with that reading.
    pub(super) fn known(&self, source: &S) -> Option<(Reading, Arc<Endpoint>)> {
        let reading = self.sources.get(source)?;
        let endpoint = self.endpoints.get(reading.digest.as_ref()?)?;
        Some((reading.clone(), Arc::clone(endpoint)))
    }

    /// What was read for a source.
    pub(super) fn reading(&self, source: &S) -> Option<&Reading> {
        self.sources.get(source)
    }

    /// The endpoint that `digest` opens.
    pub(super) fn endpoint(&self, digest: &Digest) -> Option<Arc<Endpoint>> {
        self.endpoints.get(digest).map(Arc::clone)
    }

    /// Keeps an endpoint for those whose credentials open it.
    pub(super) fn add(&mut self, digest: Digest, endpoint: &Arc<Endpoint>) {
        let is_same =
            |(ledger, _): &mut (Arc<Mutex<Ledger>>, Watch)| endpoint.is_same_proxmox(ledger);
        for (_, watch) in self.left.extract_if(.., is_same) {
            endpoint.take_over(watch);
        }
        self.endpoints.insert(digest, Arc::clone(endpoint));
    }

    /// From now on this is what the source gives. The endpoint that it had before is let go when no
    /// other source uses it: whoever still holds it ends what is under way. What it watched is
    /// watched at the new one, if this leads to the same Proxmox.
    pub(super) fn settle(&mut self, source: S, reading: Reading) {
        let before = self.known(&source).map(|(_, endpoint)| endpoint);
        let after = reading.digest.as_ref().and_then(|digest| self.endpoint(digest));
        if let (Some(before), Some(after)) = (before, after)
            && !Arc::ptr_eq(&before, &after)
            && after.is_same_proxmox(&before.shared_ledger())
        {
            after.take_over(before.watch_list());
        }
        self.sources.insert(source, reading);
        self.sweep();
    }

    /// The sources that were read from another version of an object.
    pub(super) fn outdated(&self, object: &Object, version: Option<&str>) -> Vec<S> {
        let differs = |reading: &Reading| {
            let mut of_object = reading.versions.iter().filter(|(read, _)| read == object);
            of_object.any(|(_, read)| read.as_deref() != version)
        };
        self.filtered(differs)
    }

    /// The sources whose credentials open an endpoint.
    pub(super) fn users(&self, digest: &Digest) -> Vec<S> {
        self.filtered(|reading| reading.digest.as_ref() == Some(digest))
    }

    fn filtered(&self, wanted: impl Fn(&Reading) -> bool) -> Vec<S> {
        let found = self.sources.iter().filter(|(_, reading)| wanted(reading));
        found.map(|(source, _)| source.clone()).collect()
    }

    /// Nobody asks any more for what is read from an object.
    pub(super) fn forget(&mut self, object: &Object) {
        self.sources.retain(|_, reading| reading.versions.iter().all(|(read, _)| read != object));
        self.sweep();
    }

    /// The ledger of a Proxmox cluster with these addresses: any of them leads to it.
    pub(super) fn ledger(&mut self, addresses: &[String]) -> Arc<Mutex<Ledger>> {
        let known = addresses.iter().find_map(|address| self.ledgers.get(address));
        let ledger = known.map(Arc::clone).unwrap_or_default();
        for address in addresses {
            self.ledgers.entry(address.clone()).or_insert_with(|| Arc::clone(&ledger));
        }
        ledger
    }

    /// Everything that is shared; a ledger for each of its addresses.
    pub(super) fn all(&self) -> (Vec<Arc<Endpoint>>, Vec<Arc<Mutex<Ledger>>>) {
        let endpoints = self.endpoints.values().map(Arc::clone);
        (endpoints.collect(), self.ledgers.values().map(Arc::clone).collect())
    }

    fn sweep(&mut self) {
        let sources = &self.sources;
        let is_unused = |digest: &Digest, _: &mut Arc<Endpoint>| {
            !sources.values().any(|used| used.digest.as_ref() == Some(digest))
        };
        let unused: Vec<Arc<Endpoint>> =
            self.endpoints.extract_if(is_unused).map(|(_, endpoint)| endpoint).collect();
        for endpoint in unused {
            let ledger = endpoint.shared_ledger();
            let heir = self.endpoints.values().find(|other| other.is_same_proxmox(&ledger));
            if let Some(heir) = heir {
                heir.take_over(endpoint.watch_list());
            } else {
                self.left.retain(|(other, _)| !Arc::ptr_eq(other, &ledger));
                self.left.push((ledger, endpoint.watch_list()));
            }
        }
    }
}

//! The manager's own credentials, for clusters that name none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use secrecy::{ExposeSecret, SecretString};

use super::credentials::{self, Credentials};
use crate::fault::{Class, Fault};
use crate::hypervisor::ObjectKey;
use crate::pve::Tls;

/// What the manager was started with.
#[derive(Debug, Default)]
pub struct Given {
    /// `PROXMOX_URL`.
    pub url: String,
    /// `PROXMOX_TOKEN`; people paste the secret along, so it is treated as one.
    pub token: SecretString,
    /// `PROXMOX_SECRET`.
    pub secret: SecretString,
    /// Whether any certificate is believed: `--proxmox-insecure`.
    pub insecure: bool,
    /// Content of `--proxmox-root-cert-file`, or why it cannot be read.
    pub root_ca: Option<Result<Vec<u8>, String>>,
}

/// The manager's own credentials. A mistake in them is no reason not to start: the clusters that
/// need them show it.
#[derive(Debug, Clone)]
pub struct Own {
    /// Those that it was started with.
    pub(super) started: Result<Option<Credentials>, Fault>,
    /// The Secret that those came from, which goes before them.
    pub(super) secret: Option<ObjectKey>,
    /// How certificates are judged where the Secret does not say.
    tls: Result<Tls, Fault>,
    /// Whether it was said that the Secret cannot be followed.
    is_told: Arc<AtomicBool>,
}

impl Own {
    /// None when all three texts are empty.
    pub fn new(given: Given) -> Self {
        let tls = tls(given.insecure, given.root_ca);
        let texts = [given.url.as_str(), given.token.expose_secret(), given.secret.expose_secret()];
        Self { started: read(texts, &tls), secret: None, tls, is_told: Arc::default() }
    }

    /// The same, kept up to date from the Secret that they came from: the keys `url`, `token` and
    /// `secret`, and `insecure` and `root_ca` where they are there.
    #[must_use]
    pub fn kept_in(self, secret: Option<ObjectKey>) -> Self {
        Self { secret, ..self }
    }

    /// No credentials.
    pub fn none() -> Self {
        let is_told = Arc::default();
        Self { started: Ok(None), secret: None, tls: Ok(Tls::System), is_told }
    }

    /// Notes whether the Secret can be followed; whether that is a loss that nobody was told of.
    pub(super) fn is_newly_lost(&self, is_lost: bool) -> bool {
        !self.is_told.swap(is_lost, Ordering::Relaxed) && is_lost
    }

    /// Whether the manager was started without any.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.started, Ok(None))
    }

    /// What is wrong with those that the manager was started with.
    pub fn fault(&self) -> Option<&Fault> {
        self.started.as_ref().err()
    }

    /// The address, when there is one.
    pub fn url(&self) -> Option<String> {
        self.started.as_ref().ok()?.as_ref().map(|own| own.base_url.to_string())
    }

    /// The credentials in the data of the Secret; none when its three keys are empty.
    pub(super) fn of_secret(
        &self,
        key: &ObjectKey,
        data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Option<Credentials>, Fault> {
        let is_blank = |key: &&str| data.get(*key).is_none_or(|text| text.trim_ascii().is_empty());
        if [credentials::URL, credentials::TOKEN, credentials::SECRET].iter().all(is_blank) {
            return Ok(None);
        }
        let mut found = credentials::of_secret(&key.to_string(), data)?;
        if !data.contains_key(credentials::INSECURE) {
            found.tls = match data.get(credentials::ROOT_CA) {
                Some(root_ca) if self.tls != Ok(Tls::Insecure) => {
                    credentials::tls(false, Some(root_ca.clone()))
                }
                _ => self.tls.clone()?,
            };
        }
        Ok(Some(found))
    }
}

fn tls(insecure: bool, root_ca: Option<Result<Vec<u8>, String>>) -> Result<Tls, Fault> {
    match root_ca.transpose() {
        Ok(root_ca) => Ok(credentials::tls(insecure, root_ca)),
        Err(_) if insecure => Ok(Tls::Insecure),
        Err(why) => Err(Fault::new(Class::Blocked, format!("--proxmox-root-cert-file: {why}"))),
    }
}

fn read(texts: [&str; 3], tls: &Result<Tls, Fault>) -> Result<Option<Credentials>, Fault> {
    let given = ["PROXMOX_URL", "PROXMOX_TOKEN", "PROXMOX_SECRET"].into_iter().zip(texts);
    let blank: Vec<&str> =
        given.filter(|(_, text)| text.trim().is_empty()).map(|(name, _)| name).collect();
    if blank.len() == texts.len() {
        return Ok(None);
    }
    Credentials::read(texts, tls.clone()?, |keys| {
        let names = keys.split(", ").map(|key| format!("PROXMOX_{}", key.to_uppercase()));
        let names: Vec<String> = names.collect();
        format!("{} of the manager", names.join(", "))
    })
    .map(Some)
    .map_err(|fault| match blank.as_slice() {
        [] => fault,
        blank => {
            Fault::new(fault.class, format!("{} (not set: {})", fault.message, blank.join(", ")))
        }
    })
}

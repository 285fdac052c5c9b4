//! The manager's own credentials, for clusters that name none.

use secrecy::{ExposeSecret, SecretString};

use super::credentials::{self, Credentials};
use crate::fault::{Class, Fault};

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
pub struct Own(pub(super) Result<Option<Credentials>, Fault>);

impl Own {
    /// None when all three texts are empty.
    pub fn new(given: Given) -> Self {
        Self(read(given))
    }

    /// No credentials.
    pub const fn none() -> Self {
        Self(Ok(None))
    }

    /// What is wrong with them.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.as_ref().err()
    }

    /// The address, when there is one.
    pub fn url(&self) -> Option<String> {
        self.0.as_ref().ok()?.as_ref().map(|own| own.base_url.to_string())
    }
}

fn read(given: Given) -> Result<Option<Credentials>, Fault> {
    let Given { url, token, secret, insecure, root_ca } = given;
    let (token, secret) = (token.expose_secret(), secret.expose_secret());
    let texts =
        [("PROXMOX_URL", url.as_str()), ("PROXMOX_TOKEN", token), ("PROXMOX_SECRET", secret)];
    let is_blank = |(_, text): &&(&str, &str)| text.trim().is_empty();
    let blank: Vec<&str> = texts.iter().filter(is_blank).map(|(name, _)| *name).collect();
    if blank.len() == texts.len() {
        return Ok(None);
    }
    let root_ca = match root_ca.transpose() {
        Ok(root_ca) => root_ca,
        Err(_) if insecure => None,
        Err(why) => {
            return Err(Fault::new(Class::Blocked, format!("--proxmox-root-cert-file: {why}")));
        }
    };
    let tls = credentials::tls(insecure, root_ca);
    Credentials::read([&url, token, secret], tls, |keys| {
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

//! A client for credentials that somebody gives on a command line.

use secrecy::ExposeSecret;

use super::credentials::{self, Credentials};
use super::own::Given;
use crate::fault::{Class, Fault};
use crate::pve::{self, ClientConfig, Limits};

/// A client of its own, for looking at a Proxmox: nothing is shared, watched or followed.
///
/// # Errors
///
/// [`Class::Blocked`] when something is missing, [`Class::Invalid`] when a value cannot be right,
/// with the form that is wanted. Secrets are not quoted.
pub fn client(given: Given) -> Result<pve::Client, Fault> {
    let Given { url, token, secret, insecure, root_ca } = given;
    let texts = [url.as_str(), token.expose_secret(), secret.expose_secret()];
    if texts.iter().all(|text| text.trim().is_empty()) {
        let message = "no Proxmox is named: give --url, --token and --secret (or PROXMOX_URL, \
                       PROXMOX_TOKEN and PROXMOX_SECRET), --cluster NAMESPACE/NAME or \
                       --connection NAME";
        return Err(Fault::new(Class::Blocked, message));
    }
    let root_ca =
        root_ca.transpose().map_err(|why| Fault::new(Class::Blocked, format!("--ca: {why}")))?;
    let tls = credentials::tls(insecure, root_ca);
    let named = |keys: &str| {
        let flags: Vec<String> = keys.split(", ").map(|key| format!("--{key}")).collect();
        let names: Vec<String> =
            keys.split(", ").map(|key| format!("PROXMOX_{}", key.to_uppercase())).collect();
        format!("{} ({})", flags.join(", "), names.join(", "))
    };
    let Credentials { base_url, others: _, auth, tls } = Credentials::read(texts, tls, named)?;
    let config = ClientConfig { base_url, auth, tls, limits: Limits::default() };
    pve::Client::new(config).map_err(|error| Fault::new(Class::Invalid, error.to_string()))
}

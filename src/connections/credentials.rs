//! Credentials as people write them, made into what opens an endpoint. Computes only.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};

use crate::fault::{Class, Fault};
use crate::pve::{self, Auth, BaseUrl, Tls};

/// Keys of a credentials Secret, the same as in capmox v0.7.
pub(super) const URL: &str = "url";
pub(super) const TOKEN: &str = "token";
pub(super) const SECRET: &str = "secret";
pub(super) const INSECURE: &str = "insecure";
pub(super) const ROOT_CA: &str = "root_ca";

/// Where, as whom, and whom to believe.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    pub(super) base_url: BaseUrl,
    /// More addresses of the same Proxmox cluster.
    pub(super) others: Vec<BaseUrl>,
    pub(super) auth: Auth,
    pub(super) tls: Tls,
}

/// Tells credentials apart without being them.
pub(super) type Digest = [u8; 32];

impl Credentials {
    /// From the three texts; `place` names where each of them stands, for messages.
    ///
    /// # Errors
    ///
    /// [`Class::Invalid`] with the form that is wanted. The texts are not quoted where they may be
    /// secrets.
    pub(super) fn read(
        [url, token, secret]: [&str; 3],
        tls: Tls,
        place: impl Fn(&str) -> String,
    ) -> Result<Self, Fault> {
        let invalid = |keys: &str, why: &dyn std::fmt::Display| {
            Fault::new(Class::Invalid, format!("{}: {why}", place(keys)))
        };
        let base_url = address(url).map_err(|why| invalid(URL, &why))?;
        let auth = pve::token(token, secret)
            .map_err(|error| invalid(&format!("{TOKEN}, {SECRET}"), &error))?;
        Ok(Self { base_url, others: Vec::new(), auth, tls })
    }

    /// Equal exactly for equal credentials.
    pub(super) fn digest(&self) -> Digest {
        let (kind, who, secret): (_, _, &SecretString) = match &self.auth {
            Auth::Token { id, secret } => ("token", id.as_str(), secret),
            Auth::Ticket { user, password } => ("ticket", user.as_str(), password),
        };
        let (tls, bytes): (_, &[u8]) = match &self.tls {
            Tls::System => ("system", &[]),
            Tls::Bundle(pem) => ("bundle", pem),
            Tls::Fingerprints(sums) => ("fingerprints", sums.as_flattened()),
            Tls::Insecure => ("insecure", &[]),
        };
        let urls = self.addresses().join(" ");
        let mut hash = Sha256::new();
        for part in [urls.as_bytes(), kind.as_bytes(), who.as_bytes()].into_iter().chain([
            secret.expose_secret().as_bytes(),
            tls.as_bytes(),
            bytes,
        ]) {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// All addresses, the first one first.
    pub(super) fn addresses(&self) -> Vec<String> {
        std::iter::once(&self.base_url).chain(&self.others).map(ToString::to_string).collect()
    }
}

/// The address in a text.
///
/// # Errors
///
/// What is wrong with it, and the form that is wanted. A URL is shown in messages, so what may be a
/// secret does not become one.
pub(super) fn address(text: &str) -> Result<BaseUrl, String> {
    if let Some(what) = secret_in_place_of_url(text) {
        return Err(format!(
            "holds {what} instead of the address of a Proxmox node such as \
             https://pve.example.com:8006"
        ));
    }
    text.parse().map_err(|error: pve::InvalidUrl| error.to_string())
}

fn secret_in_place_of_url(text: &str) -> Option<&'static str> {
    let text = text.trim().trim_matches(['"', '\'']).trim();
    if uuid::Uuid::try_parse(text).is_ok() {
        Some("the secret of an API token")
    } else if !text.contains("://") && text.contains('!') {
        Some("an API token")
    } else {
        None
    }
}

/// How a server's certificate is judged by capmox's two settings: not at all by default.
pub(super) fn tls(insecure: bool, root_ca: Option<Vec<u8>>) -> Tls {
    match root_ca {
        _ if insecure => Tls::Insecure,
        Some(pem) if !pem.trim_ascii().is_empty() => Tls::Bundle(pem),
        _ => Tls::System,
    }
}

/// Whether the text of `insecure` switches the check of certificates off, as capmox v0.7 reads it:
/// an absent one does.
pub(super) fn is_insecure(text: Option<&str>) -> bool {
    const YES: [&str; 5] = ["1", "on", "true", "yes", "y"];
    text.is_none_or(|text| YES.iter().any(|yes| yes.eq_ignore_ascii_case(text.trim())))
}

/// The credentials in the data of the Secret that `name` names, as `namespace/name`.
///
/// # Errors
///
/// [`Class::Blocked`] when keys are missing, [`Class::Invalid`] when a value cannot be right.
pub(super) fn of_secret(
    name: &str,
    data: &BTreeMap<String, Vec<u8>>,
) -> Result<Credentials, Fault> {
    let missing: Vec<&str> =
        [URL, TOKEN, SECRET].into_iter().filter(|key| !data.contains_key(*key)).collect();
    // `token` may carry the secret, and `secret` the token: all three keys are wanted all the same,
    // because capmox wants them.
    if !missing.is_empty() {
        return Err(Fault::new(Class::Blocked, lacks(name, data, &missing)));
    }
    let text = |key: &str| match data.get(key).map(|value| std::str::from_utf8(value)) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(Fault::new(
            Class::Invalid,
            format!("key {key} of Secret {name} is not text; write it in stringData"),
        )),
    };
    let needed = |key: &str| text(key).map(Option::unwrap_or_default);
    let tls = tls(is_insecure(text(INSECURE)?), data.get(ROOT_CA).cloned());
    Credentials::read([needed(URL)?, needed(TOKEN)?, needed(SECRET)?], tls, |keys| {
        let word = if keys.contains(',') { "keys" } else { "key" };
        format!("{word} {keys} of Secret {name}")
    })
}

fn lacks(name: &str, data: &BTreeMap<String, Vec<u8>>, missing: &[&str]) -> String {
    let word = if missing.len() == 1 { "key" } else { "keys" };
    let mut text = format!("Secret {name} lacks the {word} {}", missing.join(", "));
    if data.is_empty() {
        text.push_str(" (it has none)");
    } else {
        let there: Vec<&str> = data.keys().map(String::as_str).collect();
        let _ = write!(text, " (it has {})", there.join(", "));
    }
    let _ = write!(
        text,
        "; it needs {URL} (https://pve.example.com:8006), {TOKEN} (user@realm!name) and {SECRET} \
         (the token's UUID)"
    );
    text
}

#[cfg(test)]
mod tests;

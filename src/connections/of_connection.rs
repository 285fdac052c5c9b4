//! The credentials that a ProxmoxConnection describes. Computes only.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::credentials::{self, Credentials};
use super::source::Allowed;
use crate::api::{ProxmoxConnectionSpec, SecretKeyRef, reasons};
use crate::fault::{Class, Fault};
use crate::hypervisor::ObjectKey;
use crate::pve::{self, Auth, Tls, parse_fingerprint};

/// The data of a Secret.
pub(super) type Data = BTreeMap<String, Vec<u8>>;

/// The Secrets that a connection refers to, each once.
pub(super) fn secrets(spec: &ProxmoxConnectionSpec) -> Vec<ObjectKey> {
    let named = [&spec.password_from, &spec.secret_from, &spec.ca_bundle_from];
    let mut keys: Vec<ObjectKey> = named.into_iter().flatten().map(key).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn key(reference: &SecretKeyRef) -> ObjectKey {
    ObjectKey { namespace: reference.namespace.clone(), name: reference.name.clone() }
}

pub(super) fn allowed(spec: &ProxmoxConnectionSpec) -> Allowed {
    spec.allowed_namespaces.clone().map_or(Allowed::All, Allowed::Only)
}

/// The credentials of the connection `name`, with the Secrets that it refers to.
///
/// # Errors
///
/// [`Class::Blocked`] when a key is missing, [`Class::Invalid`] when a value cannot be right.
pub(super) fn credentials(
    name: &str,
    spec: &ProxmoxConnectionSpec,
    secrets: &BTreeMap<ObjectKey, Data>,
) -> Result<Credentials, Fault> {
    let invalid = |field: &str, why: &dyn std::fmt::Display| {
        Fault::new(Class::Invalid, format!("{field} of ProxmoxConnection {name}: {why}"))
            .because(reasons::INVALID_CONNECTION)
    };
    let texts = Texts { name, secrets };
    let tls = tls(spec, &texts, &invalid)?;
    let base_url =
        credentials::address(&spec.endpoint).map_err(|why| invalid("spec.endpoint", &why))?;
    let others = spec.additional_endpoints.iter().enumerate().map(|(index, other)| {
        credentials::address(&other.endpoint)
            .map_err(|why| invalid(&format!("spec.additionalEndpoints[{index}].endpoint"), &why))
    });
    let others = others.collect::<Result<_, _>>()?;
    let filled = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let auth = match (filled(&spec.username), filled(&spec.token_id)) {
        (Some(user), None) => {
            let given = spec.password.as_ref().map(|plain| plain.0.as_str());
            let from = spec.password_from.as_ref();
            let password = texts.one("spec.password", given, "spec.passwordFrom", from)?;
            user_of(&user, &password).map_err(|why| invalid("spec.username", &why))?
        }
        (None, Some(id)) => {
            let given = spec.secret.as_ref().map(|plain| plain.0.as_str());
            let secret =
                texts.one("spec.secret", given, "spec.secretFrom", spec.secret_from.as_ref())?;
            pve::token(&id, &secret).map_err(|why| invalid("spec.tokenID and its secret", &why))?
        }
        _ => {
            let why = "set exactly one of username and tokenID";
            return Err(invalid("spec.username and spec.tokenID", &why));
        }
    };
    Ok(Credentials { base_url, others, auth, tls })
}

fn user_of(user: &str, password: &str) -> Result<Auth, String> {
    let user = user.trim();
    if user.contains('!') {
        return Err("holds an API token: set tokenID and secret instead of username and \
                    password"
            .to_owned());
    }
    // The name is shown in messages, and a password that was pasted along is not to be.
    if user.contains([':', '/', '=']) || user.contains(char::is_whitespace) {
        return Err(
            "holds more than user@realm, such as root@pam: set the password in password or \
                    passwordFrom"
                .to_owned(),
        );
    }
    match user.rsplit_once('@') {
        Some((login, realm)) if !login.is_empty() && is_realm(realm) => {}
        _ => return Err("has no realm: write it as user@realm, such as root@pam".to_owned()),
    }
    // The end of the line belongs to the editor; anything else may be part of the password.
    let password = password.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err("has an empty password: set password or passwordFrom".to_owned());
    }
    Ok(Auth::Ticket { user: user.to_owned(), password: SecretString::from(password) })
}

fn is_realm(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !text.is_empty() && text.bytes().all(fits)
}

fn tls(
    spec: &ProxmoxConnectionSpec,
    texts: &Texts<'_>,
    invalid: &dyn Fn(&str, &dyn std::fmt::Display) -> Fault,
) -> Result<Tls, Fault> {
    if spec.insecure_skip_verify {
        return Ok(Tls::Insecure);
    }
    if let Some(fingerprint) = &spec.fingerprint {
        let own =
            parse_fingerprint(fingerprint).map_err(|why| invalid("spec.fingerprint", &why))?;
        let mut all = vec![own];
        for (index, other) in spec.additional_endpoints.iter().enumerate() {
            let Some(text) = &other.fingerprint else { continue };
            let field = format!("spec.additionalEndpoints[{index}].fingerprint");
            all.push(parse_fingerprint(text).map_err(|why| invalid(&field, &why))?);
        }
        return Ok(Tls::Fingerprints(all));
    }
    let pem = match (&spec.ca_bundle, &spec.ca_bundle_from) {
        (Some(pem), _) => pem.clone().into_bytes(),
        (None, Some(reference)) => texts.bytes("spec.caBundleFrom", reference)?.to_vec(),
        (None, None) => return Ok(Tls::System),
    };
    Ok(credentials::tls(false, Some(pem)))
}

/// The values that a connection gives or refers to.
struct Texts<'a> {
    name: &'a str,
    secrets: &'a BTreeMap<ObjectKey, Data>,
}

impl Texts<'_> {
    /// The text that stands in the object, or in a Secret.
    fn one(
        &self,
        field: &str,
        given: Option<&str>,
        from_field: &str,
        from: Option<&SecretKeyRef>,
    ) -> Result<String, Fault> {
        let name = self.name;
        match (given, from) {
            (Some(given), None) => Ok(given.to_owned()),
            (None, Some(reference)) => {
                let bytes = self.bytes(from_field, reference)?;
                let text = std::str::from_utf8(bytes).map_err(|_| {
                    let key = &reference.key;
                    let secret = self::key(reference);
                    Fault::new(
                        Class::Invalid,
                        format!(
                            "key {key} of Secret {secret}, which {from_field} of \
                             ProxmoxConnection {name} names, is not text; write it in stringData"
                        ),
                    )
                    .because(reasons::INVALID_CONNECTION)
                })?;
                Ok(text.to_owned())
            }
            _ => Err(Fault::new(
                Class::Invalid,
                format!("set exactly one of {field} and {from_field} of ProxmoxConnection {name}"),
            )
            .because(reasons::INVALID_CONNECTION)),
        }
    }

    fn bytes(&self, field: &str, reference: &SecretKeyRef) -> Result<&[u8], Fault> {
        let secret = key(reference);
        let data = self.secrets.get(&secret);
        if let Some(value) = data.and_then(|data| data.get(&reference.key)) {
            return Ok(value);
        }
        let there: Vec<&str> =
            data.into_iter().flat_map(BTreeMap::keys).map(String::as_str).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Err(Fault::new(
            Class::Blocked,
            format!(
                "Secret {secret} has no key {}, which {field} of ProxmoxConnection {} names (it has \
                 {there}): add it, or correct the reference",
                reference.key, self.name
            ),
        )
        .because(reasons::SECRET_NOT_FOUND))
    }
}

#[cfg(test)]
mod tests;

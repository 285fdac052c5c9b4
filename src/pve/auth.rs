//! Credentials as people paste them, and as they go onto the wire. Never printed.

use std::fmt;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};

/// What an API token id looks like, for people.
const FORM: &str = "the form user@realm!name, such as capmox@pve!capi";

/// Why a text is not an API token. Never quotes what may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Nothing was given.
    #[error("the API token id is empty; expected {FORM}")]
    Empty,
    /// There is no `!name`.
    #[error(
        "the API token id has no '!' and token name; expected {FORM} (a user name alone is not a \
         token)"
    )]
    NoName,
    /// There is no `@realm`.
    #[error("the API token id has no '@' and realm before its '!'; expected {FORM}")]
    NoRealm,
    /// It contains what no id contains.
    #[error("the API token id contains a character that no token id has; expected {FORM}")]
    Character,
    /// There is a UUID in it, as secrets are; ids are shown in messages.
    #[error("the API token id has a secret in it where a name belongs; expected {FORM}")]
    SecretInId,
    /// The secret is missing.
    #[error("the API token secret is empty; expected the UUID that Proxmox showed once")]
    NoSecret,
    /// The secret cannot be sent in a header.
    #[error("the API token secret contains a character that cannot be sent; expected a UUID")]
    SecretCharacter,
    /// The id carries a secret other than the one given beside it.
    #[error(
        "the API token id carries a secret that differs from the secret given beside it; give one"
    )]
    TwoSecrets,
}

/// `user@realm!name` of an API token.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(String);

impl TokenId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `user@realm`.
    pub fn user(&self) -> &str {
        self.0.split_once('!').map_or(self.0.as_str(), |(user, _)| user)
    }

    /// The name after the `!`.
    fn name(&self) -> &str {
        self.0.split_once('!').map_or("", |(_, name)| name)
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenId({})", self.0)
    }
}

impl FromStr for TokenId {
    type Err = InvalidToken;

    /// Takes the id alone; white space, quotes and the header's `PVEAPIToken=` are dropped. A text
    /// with a secret in it is refused here; whether a name that is a UUID is one, [`token`] tells.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = strip(text);
        if text.is_empty() {
            return Err(InvalidToken::Empty);
        }
        let (user, name) = text.split_once('!').ok_or(InvalidToken::NoName)?;
        let (login, realm) = user.rsplit_once('@').ok_or(InvalidToken::NoRealm)?;
        if login.is_empty() || realm.is_empty() {
            return Err(InvalidToken::NoRealm);
        }
        if name.is_empty() {
            return Err(InvalidToken::NoName);
        }
        if has_uuid(user) || (has_uuid(text) && !is_uuid(name)) {
            return Err(InvalidToken::SecretInId);
        }
        let plain = |text: &str| {
            text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        // Proxmox: a login is anything printable but ':', '/', '!' and white space.
        let login_fits =
            login.chars().all(|c| !c.is_whitespace() && !c.is_control() && !":/!=".contains(c));
        if login_fits && login.is_ascii() && plain(realm) && plain(name) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidToken::Character)
        }
    }
}

/// Whether the inner groups of a UUID are somewhere in a text.
fn has_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let inner = |group: &&str| group.len() == 4 && group.bytes().all(|b| b.is_ascii_hexdigit());
    groups.windows(5).any(|five| five.get(1..4).is_some_and(|three| three.iter().all(inner)))
}

/// Whether a text has the form of a secret of Proxmox, which a token may be named in too.
fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// Drops what sticks to a pasted value: white space, quotes, the header's name and scheme.
fn strip(text: &str) -> &str {
    let mut text = text.trim().trim_matches(['"', '\'']).trim();
    for prefix in ["Authorization:", "PVEAPIToken="] {
        let head = text.get(..prefix.len());
        if head.is_some_and(|head| head.eq_ignore_ascii_case(prefix)) {
            text = text.get(prefix.len()..).unwrap_or_default().trim_start();
        }
    }
    text
}

/// Id and secret of an API token from the two texts of a Secret or of the environment. The whole
/// header (`PVEAPIToken=id=secret`) or `id=secret` may stand in either of them.
pub fn token(id: &str, secret: &str) -> Result<Auth, InvalidToken> {
    let (id, inner) = match strip(id).split_once('=') {
        Some((id, inner)) => (id, strip(inner)),
        None => (strip(id), ""),
    };
    let secret = strip(secret);
    // Someone pasted `id=secret` into the secret.
    let (id, secret) = match secret.split_once('=') {
        Some((left, right)) if left.contains('!') => (if id.is_empty() { left } else { id }, right),
        _ => (id, secret),
    };
    let id: TokenId = id.parse()?;
    let secret = match (secret, inner) {
        ("", "") => return Err(InvalidToken::NoSecret),
        (secret, "") | ("", secret) => secret,
        (secret, inner) if secret == inner => secret,
        _ => return Err(InvalidToken::TwoSecrets),
    };
    if !secret.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(InvalidToken::SecretCharacter);
    }
    // A UUID is a name only beside the other one that is the secret.
    let is_secret = !is_uuid(secret) || id.name().eq_ignore_ascii_case(secret);
    if is_uuid(id.name()) && is_secret {
        return Err(InvalidToken::SecretInId);
    }
    Ok(Auth::Token { id, secret: SecretString::from(secret) })
}

/// How the client proves who it is.
#[derive(Clone)]
pub enum Auth {
    /// An API token: no session, nothing to renew.
    Token {
        /// `user@realm!name`.
        id: TokenId,
        /// The UUID that Proxmox showed once.
        secret: SecretString,
    },
    /// A user's password, exchanged for a ticket that lasts two hours.
    Ticket {
        /// `user@realm`.
        user: String,
        /// The password.
        password: SecretString,
    },
}

impl Auth {
    /// Who it is, for messages.
    pub fn who(&self) -> &str {
        match self {
            Self::Token { id, .. } => id.as_str(),
            Self::Ticket { user, .. } => user,
        }
    }

    /// The secret itself, to be sent and to be kept out of messages.
    pub(super) fn secret(&self) -> &str {
        match self {
            Self::Token { secret, .. } => secret.expose_secret(),
            Self::Ticket { password, .. } => password.expose_secret(),
        }
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Token { .. } => "Token",
            Self::Ticket { .. } => "Ticket",
        };
        f.debug_struct(kind).field("who", &self.who()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn every_pasted_form_of_a_token_is_understood() {
        let whole = format!("PVEAPIToken=capmox@pve!capi={SECRET}");
        let joined = format!("capmox@pve!capi={SECRET}");
        for (id, secret) in [
            ("capmox@pve!capi", SECRET),
            ("capmox@pve!capi\n", &format!("{SECRET}\n")),
            ("PVEAPIToken=capmox@pve!capi", SECRET),
            ("\"capmox@pve!capi\"", SECRET),
            (&whole, ""),
            (&whole, SECRET),
            (&joined, ""),
            ("", &joined),
            ("capmox@pve!capi", &whole),
            (&format!("Authorization: {whole}"), ""),
        ] {
            let auth = token(id, secret).unwrap_or_else(|e| panic!("{id:?}: {e}"));
            assert_eq!(auth.who(), "capmox@pve!capi", "{id:?}");
            assert_eq!(auth.secret(), SECRET, "{id:?}");
            assert!(!format!("{auth:?}").contains("0123"), "{auth:?}");
        }
    }

    #[test]
    fn a_token_may_be_named_by_a_uuid_that_is_not_its_secret() {
        const NAME: &str = "89abcdef-0123-4567-89ab-cdef01234567";
        let id = format!("capmox@pve!{NAME}");
        let joined = format!("{id}={SECRET}");
        for (text, secret) in [(&*id, SECRET), (&joined, ""), ("", &joined), (&id, &joined)] {
            let auth = token(text, secret).unwrap();
            assert_eq!((auth.who(), auth.secret()), (&*id, SECRET));
        }
        // The two of them may be swapped, or one be given twice.
        let upper = NAME.to_ascii_uppercase();
        for secret in ["capi", NAME, &upper, &format!("{id}={NAME}")] {
            assert_eq!(token(&id, secret).unwrap_err(), InvalidToken::SecretInId, "{secret}");
        }
        for id in [format!("{NAME}@pve!capi"), format!("capmox@pve!capi-{NAME}")] {
            assert_eq!(token(&id, SECRET).unwrap_err(), InvalidToken::SecretInId, "{id}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_form_that_is_wanted_and_without_the_secret() {
        for (id, secret, refusal) in [
            ("", SECRET, InvalidToken::Empty),
            ("capmox@pve", SECRET, InvalidToken::NoName),
            ("capmox@pve!", SECRET, InvalidToken::NoName),
            ("capmox!capi", SECRET, InvalidToken::NoRealm),
            ("@pve!capi", SECRET, InvalidToken::NoRealm),
            ("cap mox@pve!capi", SECRET, InvalidToken::Character),
            ("capmox@pve!ca/pi", SECRET, InvalidToken::Character),
            ("capmox@pve!capi", "", InvalidToken::NoSecret),
            ("capmox@pve!capi", "a b", InvalidToken::SecretCharacter),
            ("capmox@pve!capi=other", SECRET, InvalidToken::TwoSecrets),
            (SECRET, "capmox@pve!capi", InvalidToken::NoName),
            ("capmox@pve!01234567-89ab-cdef-0123-456789abcdef", SECRET, InvalidToken::SecretInId),
        ] {
            let error = token(id, secret).unwrap_err();
            assert_eq!(error, refusal, "{id:?}");
            assert!(!error.to_string().contains(SECRET), "{error}");
        }
    }
}

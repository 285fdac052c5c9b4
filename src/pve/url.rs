//! Where the API answers, from what people write in `PROXMOX_URL`.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

/// What is wanted, for people.
const FORM: &str = "the address of a Proxmox node such as https://pve.example.com:8006";

/// Where Proxmox listens.
const PORT: u16 = 8006;

/// Why a text is not the address of a Proxmox API. Never quotes credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// Nothing was given.
    #[error("the Proxmox URL is empty; expected {FORM}")]
    Empty,
    /// It is not a URL.
    #[error("{text:?} is not a URL ({why}); expected {FORM}")]
    Syntax {
        /// What was given.
        text: String,
        /// What the parser says.
        why: String,
    },
    /// A scheme other than http and https.
    #[error("the Proxmox URL has the scheme {0:?}; expected {FORM}")]
    Scheme(String),
    /// A quote within the host, where it can be no slip around the whole.
    #[error("the host of the Proxmox URL has a quote (') in it; remove it, expected {FORM}")]
    Quote,
    /// `user:password@` in the URL.
    #[error(
        "the Proxmox URL carries credentials; remove the part before '@' and give a token instead"
    )]
    Credentials,
    /// A query.
    #[error("the Proxmox URL has a query; remove '?' and what follows, expected {FORM}")]
    Query,
    /// A path that leads into the API.
    #[error("the Proxmox URL ends in the path {0:?}; leave out '/api2' and all after it")]
    Path(String),
}

/// Scheme, host, port and, behind a reverse proxy, a path: everything before `/api2/json`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// URL of an endpoint; the segments are encoded as needed, `:`, `@` and `!` stay as they are.
    pub(super) fn endpoint<'a>(&self, segments: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.0.clone();
        // Only URLs such as `mailto:` have no path, and those are refused when parsing.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(["api2", "json"]).extend(segments);
        }
        url
    }

    /// Whether another port than Proxmox's own is asked, as when it was forgotten.
    pub fn lacks_port(&self) -> bool {
        self.0.port().is_none()
    }

    /// The host, for messages.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }
}

impl FromStr for BaseUrl {
    type Err = InvalidUrl;

    /// Repairs a missing scheme, trailing slashes, `/api2/json` and the fragment that the address
    /// bar of the web interface shows. A name or address alone gets Proxmox's port; with a scheme
    /// or a path the port is left as given: 443 may be a reverse proxy.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim().trim_matches(['"', '\'']).trim();
        if text.is_empty() {
            return Err(InvalidUrl::Empty);
        }
        let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let mut url = Url::parse(&whole).map_err(|why| {
            // What stands before an '@' may be a password.
            let shown = text.rsplit_once('@').map_or(text, |(_, shown)| shown);
            InvalidUrl::Syntax { text: shown.to_owned(), why: why.to_string() }
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidUrl::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidUrl::Credentials);
        }
        if url.query().is_some_and(|query| !query.is_empty()) {
            return Err(InvalidUrl::Query);
        }
        if url.host_str().is_some_and(|host| host.contains('\'')) {
            return Err(InvalidUrl::Quote);
        }
        url.set_query(None);
        url.set_fragment(None);
        // A quote may have come before what was just taken off.
        let path = url.path().trim_end_matches(['/', '\'']);
        let prefix = path.strip_suffix("/api2/json").or_else(|| path.strip_suffix("/api2"));
        let prefix = prefix.unwrap_or(path).trim_end_matches(['/', '\'']).to_owned();
        if prefix.split('/').any(|segment| segment == "api2") {
            return Err(InvalidUrl::Path(prefix));
        }
        url.set_path(&prefix);
        if is_host_alone(text) {
            // Fails for URLs without a host only, and those were refused.
            let _ = url.set_port(Some(PORT));
        }
        Ok(Self(url))
    }
}

/// Whether a text has neither scheme nor port nor path.
fn is_host_alone(text: &str) -> bool {
    let host = text.trim_end_matches('/');
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
        !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    !text.contains("://") && !host.contains(['/', '#', '?']) && !has_port
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_repaired() {
        for (text, wanted) in [
            ("https://pve:8006", "https://pve:8006"),
            ("https://pve:8006/", "https://pve:8006"),
            ("https://pve:8006/api2/json", "https://pve:8006"),
            ("https://pve:8006/api2/json/\n", "https://pve:8006"),
            ("https://pve:8006//", "https://pve:8006"),
            ("https://pve:8006/'#v1", "https://pve:8006"),
            ("pve:8006", "https://pve:8006"),
            ("pve", "https://pve:8006"),
            ("10.0.0.1/\n", "https://10.0.0.1:8006"),
            ("[fd00::1]", "https://[fd00::1]:8006"),
            ("pve:443", "https://pve"),
            ("pve.example.com/api2/json", "https://pve.example.com"),
            ("10.0.0.1:8006/api2/json", "https://10.0.0.1:8006"),
            ("\"https://pve\"", "https://pve"),
            ("https://pve:8006/#v1:0:18:4:::::::", "https://pve:8006"),
            ("https://[fd00::1]:8006", "https://[fd00::1]:8006"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
            ("https://lb.example.com/pve/", "https://lb.example.com/pve"),
            ("https://lb.example.com/pve/api2/json", "https://lb.example.com/pve"),
        ] {
            let url: BaseUrl = text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"));
            assert_eq!(url.to_string(), wanted, "{text:?}");
            let endpoint = url.endpoint(["version"]);
            assert_eq!(endpoint.as_str(), format!("{wanted}/api2/json/version"), "{text:?}");
        }
    }

    #[test]
    fn nonsense_is_refused_without_a_password_in_the_text() {
        for (text, telling) in [
            ("", "empty"),
            (" \n", "empty"),
            ("https://", "not a URL"),
            ("https://pve:port", "not a URL"),
            ("https://root:hunter2@pve:port", "not a URL"),
            ("ftp://pve", "scheme \"ftp\""),
            ("https://root:hunter2@pve:8006", "credentials"),
            ("https://pve:8006/?x=1", "query"),
            ("https://pve'#v1", "quote"),
            ("https://'pve':8006", "quote"),
            ("https://pve:8006/api2/json/nodes", "/api2/json/nodes"),
            ("https://pve:8006/api2/extjs", "/api2"),
        ] {
            let error = text.parse::<BaseUrl>().unwrap_err().to_string();
            assert!(error.contains(telling), "{text:?}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn volumes_and_task_ids_go_raw_and_nothing_leaves_its_segment() {
        let url: BaseUrl = "https://pve".parse().unwrap();
        let at = |segments: &[&str]| url.endpoint(segments.iter().copied()).path().to_owned();
        assert_eq!(at(&["content", "local:iso", "a.iso"]), "/api2/json/content/local:iso/a.iso");
        assert_eq!(at(&["tasks", "UPID:n:1:u@pve!t:"]), "/api2/json/tasks/UPID:n:1:u@pve!t:");
        assert_eq!(at(&["a/b?c#d%41"]), "/api2/json/a%2Fb%3Fc%23d%2541");
    }
}

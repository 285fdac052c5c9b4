//! Addresses to listen on, as Go writes them.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use tokio::net::TcpListener;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bind {
    /// Nowhere.
    Off,
    /// On all addresses of the host: `:8081`.
    Any(u16),
    /// On one address or name: `127.0.0.1:8081`.
    One(String, u16),
}

impl Bind {
    /// Takes the port; none when off.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub async fn listen(&self) -> io::Result<Option<TcpListener>> {
        match self {
            Self::Off => Ok(None),
            Self::One(host, port) => TcpListener::bind((host.as_str(), *port)).await.map(Some),
            // The first serves IPv4 as well, unless the host has no IPv6 at all.
            Self::Any(port) => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await.map(Some)
                }
                bound => bound.map(Some),
            },
        }
    }
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if matches!(text, "" | "0") {
            return Ok(Self::Off);
        }
        let wanted = "expected :PORT, HOST:PORT or 0";
        let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
        let port = port.parse().map_err(|_| wanted)?;
        match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => Ok(Self::One(host.to_owned(), port)),
            None if host.is_empty() => Ok(Self::Any(port)),
            None if host.contains(':') => Err("put an IPv6 address into [brackets]".to_owned()),
            None => Ok(Self::One(host.to_owned(), port)),
        }
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::Any(port) => write!(f, ":{port}"),
            Self::One(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::One(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_go_reads_it() {
        for (text, wanted) in [
            (":8081", Bind::Any(8081)),
            ("0", Bind::Off),
            ("", Bind::Off),
            ("127.0.0.1:0", Bind::One("127.0.0.1".to_owned(), 0)),
            ("localhost:80", Bind::One("localhost".to_owned(), 80)),
            ("[::1]:80", Bind::One("::1".to_owned(), 80)),
        ] {
            let bind: Bind = text.parse().unwrap();
            assert_eq!(bind, wanted, "{text}");
            assert_eq!(bind.to_string().parse(), Ok(wanted));
        }
        for text in ["8081", "host", ":http", "::1:80", ":70000", "host:"] {
            assert!(text.parse::<Bind>().is_err(), "{text}");
        }
    }
}

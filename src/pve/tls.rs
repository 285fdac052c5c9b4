//! Whom the client believes to be the Proxmox endpoint.
//!
//! The crypto provider is given explicitly, so nothing depends on a process-wide default.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};

/// How the server's certificate is judged.
#[derive(Clone, PartialEq, Eq)]
pub enum Tls {
    /// The system's certificate authorities.
    System,
    /// PEM certificates beside the system's authorities: an authority such as Proxmox's own
    /// `pve-root-ca.pem`, or the server's certificate itself.
    Bundle(Vec<u8>),
    /// SHA-256 of the server's certificate in DER, any of these and nothing else: name and time do
    /// not count. Nodes of one cluster have a certificate each.
    Fingerprints(Vec<[u8; 32]>),
    /// Anybody is believed.
    Insecure,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("System"),
            Self::Bundle(pem) => write!(f, "Bundle({} bytes)", pem.len()),
            Self::Fingerprints(sums) => write!(f, "Fingerprints({})", listed(sums)),
            Self::Insecure => f.write_str("Insecure"),
        }
    }
}

/// Why a text is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a SHA-256 fingerprint: expected 64 hexadecimal digits, with or without colons, \
     as `pvenode cert info` prints them"
)]
pub struct InvalidFingerprint(String);

/// Reads `AA:BB:…` as Proxmox prints it; colons, letter case and white space around do not count.
pub fn parse_fingerprint(text: &str) -> Result<[u8; 32], InvalidFingerprint> {
    let invalid = || InvalidFingerprint(text.chars().take(120).collect());
    let digits: Vec<u8> = text
        .trim()
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()
        .ok_or_else(invalid)?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high * 16 + low).collect();
    if rest.is_empty() { bytes.try_into().map_err(|_| invalid()) } else { Err(invalid()) }
}

fn printed(sum: &[u8; 32]) -> String {
    sum.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

fn listed(sums: &[[u8; 32]]) -> String {
    sums.iter().map(printed).collect::<Vec<_>>().join(" or ")
}

/// Why no TLS configuration can be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The bundle does not parse.
    #[error("the CA bundle is not valid PEM: {0}")]
    Pem(String),
    /// The bundle has no certificate.
    #[error("the CA bundle holds no certificate; expected PEM with BEGIN CERTIFICATE blocks")]
    Empty,
    /// The bundle has a certificate that cannot be used.
    #[error("certificate {number} of the CA bundle cannot be used: {why}")]
    Certificate {
        /// Its place, from 1.
        number: usize,
        /// What is wrong.
        why: rustls::Error,
    },
    /// TLS itself refuses.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The configuration for `tls`.
pub(super) fn config(tls: &Tls) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls {
        Tls::System => {
            // An image without authorities is not an error here: every certificate is then refused.
            return Ok(builder.with_root_certificates(system_roots()).with_no_client_auth());
        }
        Tls::Bundle(pem) => Arc::new(Bundle::new(pem, &provider)?),
        Tls::Fingerprints(sums) => Arc::new(Pinned { sums: Some(sums.clone()), provider }),
        Tls::Insecure => Arc::new(Pinned { sums: None, provider }),
    };
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "a system certificate authority cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    roots
}

/// Accepts certain certificates, or any; the handshake still proves that the server has its key.
#[derive(Debug)]
struct Pinned {
    sums: Option<Vec<[u8; 32]>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen: [u8; 32] = Sha256::digest(end_entity).into();
        match &self.sums {
            Some(wanted) if !wanted.contains(&seen) => Err(rustls::Error::General(format!(
                "the server's certificate has the fingerprint {}, pinned is {}",
                printed(&seen),
                listed(wanted)
            ))),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// System authorities and a bundle. A certificate that is itself in the bundle is believed for the
/// names in it: a self-signed server certificate that calls itself an authority, as `openssl req
/// -x509` makes it, is refused by the web's rules but was put into the bundle on purpose.
#[derive(Debug)]
struct Bundle {
    web: Arc<WebPkiServerVerifier>,
    given: Vec<CertificateDer<'static>>,
}

impl Bundle {
    fn new(pem: &[u8], provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let given = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|why| TlsError::Pem(why.to_string()))?;
        if given.is_empty() {
            return Err(TlsError::Empty);
        }
        let mut roots = system_roots();
        for (index, certificate) in given.iter().enumerate() {
            roots
                .add(certificate.clone())
                .map_err(|why| TlsError::Certificate { number: index + 1, why })?;
        }
        let web = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider))
            .build()
            .map_err(|why| rustls::Error::General(why.to_string()))?;
        Ok(Self { web, given })
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict =
            self.web.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verdict {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Other(_) | CertificateError::UnknownIssuer,
            )) if self.given.iter().any(|given| given == end_entity) => {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&parsed, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.web.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.web.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.web.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_proxmox_prints_it() {
        let sum: [u8; 32] = Sha256::digest(b"x").into();
        let text = printed(&sum);
        assert_eq!(parse_fingerprint(&text), Ok(sum));
        assert_eq!(parse_fingerprint(&text.replace(':', "").to_lowercase()), Ok(sum));
        assert_eq!(parse_fingerprint(&format!(" {text}\n")), Ok(sum));
        for bad in ["", "AA:BB", &text[1..], &format!("{text}:AA"), &text.replace(':', ";")] {
            assert!(parse_fingerprint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bundle_without_a_certificate_is_refused() {
        let refused = |pem: &[u8]| config(&Tls::Bundle(pem.to_vec())).err().map(|e| e.to_string());
        assert!(refused(b"").is_some_and(|text| text.contains("no certificate")));
        assert!(refused(b"not pem").is_some_and(|text| text.contains("no certificate")));
        let broken = b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        assert!(refused(broken).is_some());
        assert!(config(&Tls::System).is_ok());
    }
}

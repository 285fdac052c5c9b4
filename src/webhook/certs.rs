//! The serving certificate: read from a directory, read again when its files change.
//!
//! In a cluster the directory is a mounted Secret that cert-manager renews, so the certificate of
//! a long-lived process must follow the files. A renewal that cannot be used keeps the old one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// File names of a Secret of type `kubernetes.io/tls`.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Why the files of a directory cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A file is not PEM, or holds nothing of what it should.
    #[error("{} holds no usable {what} in PEM form: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// The reason.
        source: rustls_pki_types::pem::Error,
    },
    /// Certificate and key do not belong together, or the key is of an unknown kind.
    #[error("{CERTIFICATE} and {KEY} in {} cannot serve: {source}", directory.display())]
    Pair {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        source: rustls::Error,
    },
}

/// The files as read last, to see whether they changed.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Certificate and key of a directory, shared between the watcher and the TLS acceptor.
pub(super) struct Certificates {
    directory: PathBuf,
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

impl std::fmt::Debug for Certificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificates").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// Reads the directory again and again; remembers what it saw last.
pub(super) struct Reader {
    certificates: Arc<Certificates>,
    provider: Arc<CryptoProvider>,
    seen: Option<Files>,
}

/// What a look at the files brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The files are those of the last look.
    Same,
    /// A new pair serves from now on.
    Loaded,
}

impl Certificates {
    pub(super) fn new(directory: PathBuf) -> Arc<Self> {
        Arc::new(Self { directory, current: RwLock::new(None) })
    }

    fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl Reader {
    pub(super) fn new(certificates: Arc<Certificates>, provider: Arc<CryptoProvider>) -> Self {
        Self { certificates, provider, seen: None }
    }

    /// Reads the files and takes a new pair into service.
    ///
    /// A pair that cannot be used is reported at every look until the files change to a good one.
    pub(super) async fn look(&mut self) -> Result<Look, CertError> {
        let directory = &self.certificates.directory;
        let files = Files {
            certificate: read(directory, CERTIFICATE).await?,
            key: read(directory, KEY).await?,
        };
        if self.seen.as_ref() == Some(&files) {
            return Ok(Look::Same);
        }
        let pair = self.parse(&files)?;
        *self.certificates.current.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::new(pair));
        self.seen = Some(files);
        Ok(Look::Loaded)
    }

    fn parse(&self, files: &Files) -> Result<CertifiedKey, CertError> {
        let directory = &self.certificates.directory;
        let pem =
            |name: &str, what, source| CertError::Pem { path: directory.join(name), what, source };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&files.certificate)
                .collect::<Result<_, _>>()
                .map_err(|source| pem(CERTIFICATE, "certificate", source))?;
        if chain.is_empty() {
            let source = rustls_pki_types::pem::Error::NoItemsFound;
            return Err(pem(CERTIFICATE, "certificate", source));
        }
        let key = PrivateKeyDer::from_pem_slice(&files.key)
            .map_err(|source| pem(KEY, "private key", source))?;
        CertifiedKey::from_der(chain, key, &self.provider)
            .map_err(|source| CertError::Pair { directory: directory.clone(), source })
    }
}

async fn read(directory: &Path, name: &str) -> Result<Vec<u8>, CertError> {
    let path = directory.join(name);
    tokio::fs::read(&path).await.map_err(|source| CertError::Read { path, source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn reader(directory: &Path) -> Reader {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Reader::new(Certificates::new(directory.to_owned()), provider)
    }

    fn write_pair(directory: &Path) -> Vec<u8> {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(directory.join(CERTIFICATE), pair.cert.pem()).unwrap();
        std::fs::write(directory.join(KEY), pair.signing_key.serialize_pem()).unwrap();
        pair.cert.der().to_vec()
    }

    fn serving(reader: &Reader) -> Option<Vec<u8>> {
        reader.certificates.current().map(|pair| pair.cert[0].to_vec())
    }

    #[tokio::test]
    async fn a_renewed_certificate_serves_without_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = reader(directory.path());
        assert!(matches!(reader.look().await, Err(CertError::Read { .. })));

        let first = write_pair(directory.path());
        assert_eq!(reader.look().await.unwrap(), Look::Loaded);
        assert_eq!(serving(&reader), Some(first));
        assert_eq!(reader.look().await.unwrap(), Look::Same);

        let second = write_pair(directory.path());
        assert_eq!(reader.look().await.unwrap(), Look::Loaded);
        assert_eq!(serving(&reader), Some(second));
    }

    #[tokio::test]
    async fn a_renewal_that_cannot_serve_keeps_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = reader(directory.path());
        let first = write_pair(directory.path());
        reader.look().await.unwrap();

        let other = rcgen::KeyPair::generate().unwrap();
        std::fs::write(directory.path().join(KEY), other.serialize_pem()).unwrap();
        for (file, content) in [(KEY, other.serialize_pem()), (CERTIFICATE, "junk".to_owned())] {
            std::fs::write(directory.path().join(file), content).unwrap();
            let error = reader.look().await.unwrap_err().to_string();
            assert!(error.contains(CERTIFICATE), "{error}");
            assert_eq!(serving(&reader), Some(first.clone()));
        }
    }
}

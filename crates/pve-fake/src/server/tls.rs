//! A certificate of one's own, as every Proxmox node has.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

pub(super) struct Certificate {
    der: CertificateDer<'static>,
    key: Vec<u8>,
    pem: String,
}

impl Certificate {
    pub(super) fn new() -> anyhow::Result<Self> {
        let names = ["localhost", "127.0.0.1", "::1", "pve1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names)?;
        Ok(Self {
            der: made.cert.der().clone(),
            key: made.signing_key.serialize_der(),
            pem: made.cert.pem(),
        })
    }

    pub(super) fn acceptor(&self) -> anyhow::Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    pub(super) fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(&self.der).into()
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }
}

//! The certificates of one world: a CA, the API server's and webhooks' certificate, and the
//! administrator's.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Where the files lie.
#[derive(Clone, Debug)]
pub(crate) struct Pki {
    /// The CA's certificate.
    pub(crate) ca: PathBuf,
    /// `tls.crt` and `tls.key` for 127.0.0.1 and localhost: what servers of this world show.
    pub(crate) serving: PathBuf,
    /// Key that signs service account tokens, and its public half.
    pub(crate) account_key: PathBuf,
    pub(crate) account_public: PathBuf,
    /// The CA's certificate and the administrator's certificate and key, as PEM.
    pub(crate) ca_pem: String,
    pub(crate) admin_cert: String,
    pub(crate) admin_key: String,
}

impl Pki {
    /// Makes everything in `dir`.
    pub(crate) fn create(dir: &Path) -> Result<Self> {
        let ca_key = KeyPair::generate().context("cannot make a key")?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "testbed");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca_cert = ca.self_signed(&ca_key).context("cannot make a CA")?;
        let issuer = Issuer::new(ca, ca_key);

        let names = ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "10.0.0.1"];
        let names: Vec<String> = names.map(str::to_owned).into();
        let mut server = CertificateParams::new(names).context("cannot name a server")?;
        server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (server_cert, server_key) = sign(&server, &issuer)?;

        let mut admin = CertificateParams::default();
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        admin.distinguished_name.push(DnType::CommonName, "testbed-admin");
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (admin_cert, admin_key) = sign(&admin, &issuer)?;

        let account = KeyPair::generate().context("cannot make a key")?;
        let serving = dir.join("serving");
        std::fs::create_dir_all(&serving).context("cannot make the folder for certificates")?;
        let pki = Self {
            ca: dir.join("ca.crt"),
            serving,
            account_key: dir.join("service-account.key"),
            account_public: dir.join("service-account.pub"),
            ca_pem: ca_cert.pem(),
            admin_cert,
            admin_key,
        };
        write(&pki.ca, &pki.ca_pem)?;
        write(&pki.serving.join("tls.crt"), &server_cert)?;
        write(&pki.serving.join("tls.key"), &server_key)?;
        write(&pki.account_key, &account.serialize_pem())?;
        write(&pki.account_public, &account.public_key_pem())?;
        Ok(pki)
    }
}

fn sign(params: &CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Result<(String, String)> {
    let key = KeyPair::generate().context("cannot make a key")?;
    let cert = params.signed_by(&key, issuer).context("cannot sign a certificate")?;
    Ok((cert.pem(), key.serialize_pem()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

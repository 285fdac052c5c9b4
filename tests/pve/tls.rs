//! Whom the client believes.

use capmox::fault::Class;
use capmox::pve::{Client, ErrorKind, Limits, Tls, token};
use pve_fake::{Config, Fake};
use sha2::Digest as _;

use crate::peer::client;

async fn start() -> Fake {
    Fake::start(Config::default().with_tls()).await.unwrap()
}

fn believing(fake: &Fake, url: &str, tls: Tls) -> Client {
    let auth = token(&fake.token().id, &fake.token().secret).unwrap();
    client(url, auth, tls, Limits::default())
}

#[tokio::test]
async fn a_certificate_is_believed_for_a_reason() {
    let fake = start().await;
    let pem = fake.certificate_pem().unwrap().as_bytes().to_vec();
    let sum = fake.fingerprint().unwrap();
    for tls in [Tls::Bundle(pem), Tls::Fingerprints(vec![sum]), Tls::Insecure] {
        let client = believing(&fake, &fake.url(), tls.clone());
        let version = client.version().await.unwrap_or_else(|error| panic!("{tls:?}: {error}"));
        assert_eq!(version.major(), Some(9));
    }
}

#[tokio::test]
async fn others_are_refused_before_the_token_is_sent() {
    let fake = start().await;
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let mut sum = fake.fingerprint().unwrap();
    sum[0] ^= 1;
    for tls in [Tls::System, Tls::Bundle(other.cert.pem().into()), Tls::Fingerprints(vec![sum])] {
        let error = believing(&fake, &fake.url(), tls.clone()).version().await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Tls, "{tls:?}: {error}");
        assert_eq!(error.class(), Class::Blocked);
        assert!(error.to_string().contains("is not trusted"), "{error}");
    }
    assert_eq!(fake.journal().total(), 0);
}

#[tokio::test]
async fn the_name_counts_unless_the_certificate_is_pinned() {
    let made = rcgen::generate_simple_self_signed(["pve.example.com".to_owned()]).unwrap();
    let sum: [u8; 32] = sha2::Sha256::digest(made.cert.der()).into();
    let url = serve(made.cert.der().clone(), made.signing_key.serialize_der()).await;
    let with = |tls| {
        let auth = token("a@pve!t", "0123-secret").unwrap();
        client(&url, auth, tls, Limits::default())
    };
    let error = with(Tls::Bundle(made.cert.pem().into())).version().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Tls);
    assert!(error.to_string().contains("pve.example.com"), "{error}");
    assert!(with(Tls::Fingerprints(vec![sum])).version().await.is_ok());
}

#[tokio::test]
async fn a_self_signed_authority_in_the_bundle_is_believed_as_a_server_of_its_name() {
    for (name, believed) in [("127.0.0.1", true), ("pve.example.com", false)] {
        let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let url = serve(certificate.der().clone(), key.serialize_der()).await;
        let auth = token("a@pve!t", "0123-secret").unwrap();
        let tls = Tls::Bundle(certificate.pem().into());
        let result = client(&url, auth, tls, Limits::default()).version().await;
        assert_eq!(result.is_ok(), believed, "{name}: {result:?}");
        if let Err(error) = result {
            assert_eq!(error.kind(), &ErrorKind::Tls);
        }
    }
}

/// An HTTPS server that answers everything with a version.
async fn serve(der: rustls_pki_types::CertificateDer<'static>, key: Vec<u8>) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(key).into();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![der], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes).await;
            let body = r#"{"data":{"version":"9.1.4"}}"#;
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.flush().await;
        }
    });
    url
}

//! Privileges that are missing.

use capmox::fault::Class;
use capmox::pve::{ErrorKind, Limits, Tls, token};
use pve_fake::{Change, Config, Fake};

use crate::peer::{client, node};

#[tokio::test]
async fn a_missing_privilege_is_denied_and_named() {
    let fake = Fake::start(Config::default()).await.unwrap();
    let auth = token(&fake.token().id, &fake.token().secret).unwrap();
    let client = client(&fake.url(), auth, Tls::System, Limits::default());
    let rights = |privileges: &[&str]| Change::Rights {
        path: "/".to_owned(),
        who: "capmox@pve".to_owned(),
        privileges: privileges.iter().map(|&name| name.to_owned()).collect(),
    };
    fake.change(rights(&["VM.Audit"]));
    let error = client.node_status(&node("pve1")).await.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::Forbidden, Class::Denied));
    assert!(error.message().contains("Sys.Audit"), "{error}");
    fake.change(rights(&["VM.Audit", "Sys.Audit"]));
    assert!(client.node_status(&node("pve1")).await.is_ok());
    fake.change(Change::TokenRevoked { token: fake.token().id.clone() });
    let error = client.nodes().await.unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Unauthorized);
    assert_eq!(fake.journal().count("GET", "nodes"), 1, "a refused token is not tried again");
}

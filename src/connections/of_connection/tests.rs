use serde_json::{Value, json};

use super::*;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn read(spec: &Value) -> Result<Credentials, Fault> {
    let spec: ProxmoxConnectionSpec = serde_json::from_value(spec.clone()).unwrap();
    let data: Data = [
        ("token".to_owned(), format!("{UUID}\n").into_bytes()),
        ("password".to_owned(), b"pass word\n".to_vec()),
        ("binary".to_owned(), vec![0xff]),
    ]
    .into();
    let key = ObjectKey { namespace: "ns".into(), name: "s".into() };
    credentials("c", &spec, &[(key, data)].into())
}

fn from(key: &str) -> Value {
    json!({"namespace": "ns", "name": "s", "key": key})
}

#[test]
fn every_way_to_authenticate_and_to_trust_is_understood() {
    let print = "AB".repeat(32);
    for (spec, who, tls) in [
        (
            json!({"endpoint": "pve", "tokenID": "root@pam!k", "secret": UUID}),
            "root@pam!k",
            Tls::System,
        ),
        (
            json!({"endpoint": "https://pve:8006/api2/json", "tokenID": "root@pam!k",
                "secretFrom": from("token"), "insecureSkipVerify": true}),
            "root@pam!k",
            Tls::Insecure,
        ),
        (
            json!({"endpoint": "pve", "username": "root@pam", "passwordFrom": from("password"),
                "fingerprint": print}),
            "root@pam",
            Tls::Fingerprints(vec![[0xab; 32]]),
        ),
        (
            json!({"endpoint": "pve", "username": "root@pam", "password": "p", "caBundle": "pem"}),
            "root@pam",
            Tls::Bundle(b"pem".to_vec()),
        ),
        (
            json!({"endpoint": "pve:8006", "username": "root@pam", "password": "p",
                "caBundleFrom": from("token")}),
            "root@pam",
            Tls::Bundle(format!("{UUID}\n").into_bytes()),
        ),
    ] {
        let found = read(&spec).unwrap_or_else(|fault| panic!("{spec}: {fault}"));
        assert_eq!(found.base_url.to_string(), "https://pve:8006", "{spec}");
        assert_eq!(found.auth.who(), who, "{spec}");
        assert_eq!(found.tls, tls, "{spec}");
    }
}

#[test]
fn what_people_paste_into_a_connection_is_repaired() {
    let plain =
        read(&json!({"endpoint": "pve", "tokenID": "a@pve!b", "secret": UUID})).unwrap().digest();
    let joined = format!("a@pve!b={UUID}");
    for (endpoint, id, secret) in [
        (" https://pve:8006/\n", "a@pve!b", UUID),
        ("https://pve:8006/api2/json", "a@pve!b\n", UUID),
        ("https://pve:8006/#v1:0", "PVEAPIToken=a@pve!b", UUID),
        ("\"pve\"", joined.as_str(), joined.as_str()),
        ("pve:8006", "a@pve!b", joined.as_str()),
        ("pve", joined.as_str(), UUID),
        ("pve", "a@pve!b", &format!("PVEAPIToken={joined}\n")),
        ("pve", "a@pve!b", &format!("'{UUID}'\r\n")),
    ] {
        let spec = json!({"endpoint": endpoint, "tokenID": id, "secret": secret});
        let found = read(&spec).unwrap_or_else(|fault| panic!("{spec}: {fault}"));
        assert_eq!(found.digest(), plain, "{spec}");
    }
}

#[test]
fn where_a_secret_stands_makes_no_other_credentials() {
    let plain = json!({"endpoint": "pve", "tokenID": "a@pve!b", "secret": UUID});
    let referred = json!({"endpoint": "https://pve:8006", "tokenID": "a@pve!b",
        "secretFrom": from("token")});
    assert_eq!(read(&plain).unwrap().digest(), read(&referred).unwrap().digest());
}

#[test]
fn more_addresses_and_their_fingerprints_are_taken() {
    let found = read(&json!({
        "endpoint": "a", "fingerprint": "00".repeat(32), "tokenID": "a@pve!b", "secret": UUID,
        "additionalEndpoints": [
            {"endpoint": "b", "fingerprint": "11".repeat(32)}, {"endpoint": "c:443"}],
    }))
    .unwrap();
    assert_eq!(found.addresses(), ["https://a:8006", "https://b:8006", "https://c"]);
    assert_eq!(found.tls, Tls::Fingerprints(vec![[0; 32], [0x11; 32]]));
}

#[test]
fn what_cannot_be_right_is_refused_with_field_and_object_and_without_the_secret() {
    for (change, words) in [
        (json!({"endpoint": "ftp://x"}), &["spec.endpoint of ProxmoxConnection c", "scheme"][..]),
        (json!({"endpoint": UUID}), &["spec.endpoint", "the secret of an API token"]),
        (json!({"tokenID": "root@pam"}), &["spec.tokenID", "user@realm!name"]),
        (json!({"secret": null, "secretFrom": from("x")}), &["no key x", "password, token"]),
        (json!({"secret": null, "secretFrom": from("binary")}), &["key binary", "not text"]),
        (json!({"secret": null}), &["exactly one of spec.secret and spec.secretFrom"]),
        (json!({"username": "root@pam"}), &["username and tokenID"]),
        (
            json!({"tokenID": null, "secret": null, "username": "root", "password": "p"}),
            &["spec.username", "user@realm"],
        ),
        (
            json!({"tokenID": null, "secret": null, "username": "root@pam!k", "password": UUID}),
            &["API token", "tokenID"],
        ),
        (
            json!({"tokenID": null, "secret": null, "username": format!("root@pam:{UUID}"),
                "password": "p"}),
            &["spec.username", "more than user@realm"],
        ),
        (
            json!({"tokenID": null, "secret": null, "username": "root@pam", "password": "\r\n"}),
            &["empty password"],
        ),
        (json!({"secret": " \n"}), &["secret is empty"]),
        (json!({"tokenID": format!("root@pam!k={UUID}"), "secret": "x"}), &["give one"]),
        (json!({"endpoint": "https://root:p@pve:8006"}), &["carries credentials"]),
        (json!({"endpoint": "https://pve:8006/api2/json/nodes"}), &["leave out"]),
        (json!({"endpoint": "root@pam!k"}), &["an API token instead"]),
        (
            json!({"additionalEndpoints": [{"endpoint": ""}]}),
            &["spec.additionalEndpoints[0].endpoint"],
        ),
    ] {
        let mut spec = json!({"endpoint": "pve", "tokenID": "root@pam!k", "secret": UUID});
        for (key, value) in change.as_object().unwrap() {
            spec[key.as_str()] = value.clone();
        }
        let fault = read(&spec).unwrap_err();
        assert!(words.iter().all(|word| fault.message.contains(word)), "{change}: {fault}");
        assert!(fault.message.contains("ProxmoxConnection c"), "{fault}");
        assert!(!fault.message.contains(UUID), "{fault}");
        assert!(fault.reason.is_some(), "{fault}");
    }
}

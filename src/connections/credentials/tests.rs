use super::*;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";

fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect()
}

fn read(pairs: &[(&str, &str)]) -> Result<Credentials, Fault> {
    of_secret("ns/creds", &data(pairs))
}

#[test]
fn what_people_paste_is_repaired() {
    let header = format!("PVEAPIToken=capmox@pve!capi={UUID}");
    let joined = format!("capmox@pve!capi={UUID}");
    let with_newline = format!("{UUID}\n");
    for (url, token, secret) in [
        ("https://pve:8006", "capmox@pve!capi", UUID),
        ("https://pve:8006/", "capmox@pve!capi\n", &with_newline),
        ("https://pve:8006/api2/json", " capmox@pve!capi ", UUID),
        ("https://pve:8006/api2/json/\n", "PVEAPIToken=capmox@pve!capi", UUID),
        ("pve:8006", &header, UUID),
        ("\"https://pve:8006\"", &joined, ""),
        ("https://PVE:8006", "capmox@pve!capi", &header),
        ("https://pve:8006", "", &joined),
    ] {
        let found = read(&[("url", url), ("token", token), ("secret", secret)])
            .unwrap_or_else(|fault| panic!("{url:?} {token:?}: {fault}"));
        assert_eq!(found.base_url.to_string(), "https://pve:8006", "{url:?}");
        assert_eq!(found.auth.who(), "capmox@pve!capi", "{token:?}");
        let plain =
            read(&[("url", "https://pve:8006"), ("token", "capmox@pve!capi"), ("secret", UUID)]);
        assert_eq!(found.digest(), plain.unwrap().digest(), "one endpoint for {url:?} {token:?}");
        assert!(!format!("{found:?}").contains("0123"), "{found:?}");
    }
}

#[test]
fn what_cannot_be_right_is_refused_with_its_place_and_the_form_that_is_wanted() {
    let good = ("https://pve:8006", "capmox@pve!capi", UUID);
    for (url, token, secret, telling) in [
        ("", good.1, good.2, &["key url of Secret ns/creds", "https://pve.example.com:8006"][..]),
        ("ftp://pve", good.1, good.2, &["key url", "scheme"]),
        ("https://pve/api2/json/nodes", good.1, good.2, &["key url", "/api2"]),
        // What is shown in messages must not be a secret.
        (UUID, good.1, good.2, &["key url", "the secret of an API token"]),
        ("capmox@pve!capi", good.1, good.2, &["key url", "an API token instead"]),
        ("https://root:hunter2@pve:8006", good.1, good.2, &["key url", "credentials"]),
        (good.0, "capmox", UUID, &["keys token, secret of Secret ns/creds", "user@realm!name"]),
        (good.0, "capmox@pve", UUID, &["user@realm!name"]),
        (good.0, "capmox!capi", UUID, &["realm"]),
        (good.0, good.1, "", &["secret is empty"]),
        (good.0, "capmox@pve!capi=other", UUID, &["differs"]),
    ] {
        let fault = read(&[("url", url), ("token", token), ("secret", secret)]).unwrap_err();
        assert_eq!(fault.class, Class::Invalid, "{fault}");
        for word in telling {
            assert!(fault.message.contains(word), "{url:?} {token:?}: {fault}");
        }
        assert!(!fault.message.contains(UUID) && !fault.message.contains("hunter2"), "{fault}");
    }
}

#[test]
fn missing_keys_are_named_beside_those_that_are_there() {
    let fault = read(&[("url", "https://pve:8006"), ("tokenID", "x")]).unwrap_err();
    assert_eq!(fault.class, Class::Blocked);
    assert_eq!(
        fault.message,
        "Secret ns/creds lacks the keys token, secret (it has tokenID, url); it needs url \
         (https://pve.example.com:8006), token (user@realm!name) and secret (the token's UUID)"
    );
    let fault = read(&[]).unwrap_err();
    assert!(fault.message.contains("lacks the keys url, token, secret (it has none)"), "{fault}");
    let mut binary = data(&[("url", "https://pve"), ("token", "a@pve!b")]);
    binary.insert("secret".to_owned(), vec![0xff, 0xfe]);
    let fault = of_secret("ns/creds", &binary).unwrap_err();
    assert_eq!(fault.message, "key secret of Secret ns/creds is not text; write it in stringData");
}

#[test]
fn certificates_are_judged_as_capmox_judges_them() {
    for (insecure, root_ca, wanted) in [
        (None, None, Tls::Insecure),
        (None, Some(PEM), Tls::Insecure),
        (Some("true"), Some(PEM), Tls::Insecure),
        (Some("YES\n"), None, Tls::Insecure),
        (Some("1"), None, Tls::Insecure),
        (Some("on"), None, Tls::Insecure),
        (Some("y"), None, Tls::Insecure),
        (Some("false"), None, Tls::System),
        (Some("no"), None, Tls::System),
        (Some(""), None, Tls::System),
        (Some("false"), Some(" \n"), Tls::System),
        (Some("false"), Some(PEM), Tls::Bundle(PEM.into())),
    ] {
        let mut pairs = vec![("url", "https://pve"), ("token", "a@pve!b"), ("secret", UUID)];
        pairs.extend(insecure.map(|text| ("insecure", text)));
        pairs.extend(root_ca.map(|text| ("root_ca", text)));
        assert_eq!(read(&pairs).unwrap().tls, wanted, "{insecure:?} {root_ca:?}");
    }
}

#[test]
fn every_part_of_credentials_tells_them_apart() {
    let base = [("url", "https://pve"), ("token", "a@pve!b"), ("secret", UUID)];
    let digest = |extra: &[(&str, &str)]| {
        let mut pairs: BTreeMap<&str, &str> = base.into();
        pairs.extend(extra.iter().copied());
        read(&pairs.into_iter().collect::<Vec<_>>()).unwrap().digest()
    };
    let digests = [
        digest(&[]),
        digest(&[("url", "https://other")]),
        digest(&[("url", "https://pve:8006")]),
        digest(&[("token", "a@pve!c")]),
        digest(&[("secret", "11234567-89ab-cdef-0123-456789abcdef")]),
        digest(&[("insecure", "false")]),
        digest(&[("insecure", "false"), ("root_ca", PEM)]),
    ];
    for (at, one) in digests.iter().enumerate() {
        for other in &digests[at + 1..] {
            assert_ne!(one, other);
        }
    }
}

proptest::proptest! {
    #[test]
    fn any_secret_is_taken_or_refused_without_showing_what_is_in_it(
        url in "(https://)?[a-z0-9.:/@!-]{0,30}", token in "[a-z0-9@!=-]{0,40}",
        secret in proptest::collection::vec(proptest::num::u8::ANY, 0..40), insecure in ".{0,6}",
    ) {
        let sentinel = b"5ec2e75e-c2e7-4ec2-8ec2-000000000001";
        let data = BTreeMap::from([
            (URL.to_owned(), url.into_bytes()),
            (TOKEN.to_owned(), token.into_bytes()),
            (SECRET.to_owned(), [sentinel.as_slice(), &secret].concat()),
            (INSECURE.to_owned(), insecure.into_bytes()),
            (ROOT_CA.to_owned(), secret),
        ]);
        let shown = match of_secret("lab/creds", &data) {
            Ok(credentials) => format!("{credentials:?}"),
            Err(fault) => fault.to_string(),
        };
        proptest::prop_assert!(!shown.contains("5ec2e75e-c2e7"), "{}", shown);
    }
}

//! What is wrong is found, with a remedy and the right exit code.

use std::time::Duration;

use pve_fake::{Change, Config, Fake, NodeSeed, Seed, StorageSeed, VmSeed};

use crate::command::{check, check_fake};

async fn fake(seed: Seed) -> Fake {
    Fake::start(Config::default().with_seed(seed)).await.unwrap()
}

#[tokio::test]
async fn a_template_that_cannot_be_used_is_told_with_its_cure() {
    let seed = Seed::three_nodes()
        .with_vm(VmSeed::new(9002, "pve1", "no-template", "shared"))
        .with_vm(VmSeed::new(9003, "pve1", "no-agent", "shared").without("agent").template());
    let fake = fake(seed).await;
    for (vmid, words) in [
        ("9002", ["no template", "qm template 9002"]),
        ("9003", ["guest agent", "qm set 9003 --agent"]),
        ("9009", ["no VM 9009", "/vms/9009"]),
    ] {
        check_fake(&fake, &["--template", vmid]).await.only(1, &words);
    }
    let elsewhere = ["--template", "9001", "--nodes", "pve2"];
    check_fake(&fake, &elsewhere).await.only(1, &["local-lvm", "not shared", "pve1"]);
}

#[tokio::test]
async fn storages_bridges_and_nodes_are_looked_at_where_machines_may_go() {
    let mut bare = NodeSeed::new("pve3");
    bare.bridges = vec!["vmbr9".to_owned()];
    let seed = Seed::three_nodes()
        .with_node(bare)
        .with_storage(StorageSeed::new("local", "dir", false, "iso,backup").on(&["pve1", "pve3"]));
    let fake = fake(seed).await;
    let answer = check_fake(&fake, &["--template", "9000", "--storage", "shared"]).await;
    let bad = answer.bad();
    assert_eq!((bad.len(), answer.code), (2, 1), "{bad:#?}");
    assert!(bad[0].contains("storage ISO on pve2"), "{bad:#?}");
    assert!(bad[1].contains("bridge vmbr0: pve3 has no bridge vmbr0"), "{bad:#?}");
    let answer = check_fake(&fake, &["--template", "9000", "--nodes", "pve1"]).await;
    assert_eq!((answer.bad(), answer.code), (vec![], 0));
    let answer = check_fake(&fake, &["--nodes", "pve1,pve9"]).await;
    answer.only(1, &["node pve9", "no such node", "pve1, pve2, pve3"]);
}

#[tokio::test]
async fn pools_and_vmids_are_looked_at() {
    let seed = Seed::three_nodes()
        .with_pool("lab", &[])
        .with_vm(VmSeed::new(200, "pve1", "taken", "shared").foreign());
    let fake = fake(seed).await;
    let answer = check_fake(&fake, &["--pool", "lab", "--vmid-range", "200-201"]).await;
    assert_eq!((answer.bad(), answer.code), (vec![], 0));
    assert!(answer.text.contains("201 is free; 1 of 2 seen taken"), "{}", answer.text);
    check_fake(&fake, &["--vmid-range", "200-200"]).await.only(1, &["vmid 200-200"]);
    check_fake(&fake, &["--pool", "dev"]).await.only(1, &["pool dev", "pveum pool add dev"]);
}

#[tokio::test]
async fn what_does_not_answer_is_not_known_and_has_an_exit_code_of_its_own() {
    let fake = Fake::start(Config::default().with_time_scale(0.01)).await.unwrap();
    fake.change(Change::NodeOffline { node: "pve3".to_owned() });
    let answer = check_fake(&fake, &["--template", "9000"]).await;
    let bad = answer.bad();
    assert_eq!(answer.code, 2, "{bad:#?}");
    assert!(bad.iter().all(|line| line.starts_with("unknown")), "{bad:#?}");
    assert!(bad.iter().any(|line| line.contains("node pve3: offline")), "{bad:#?}");
    fake.change(Change::NodeOnline { node: "pve3".to_owned() });
    fake.change(Change::NodeSilent { node: "pve2".to_owned(), millis: None });
    fake.advance(Duration::from_secs(1));
    let answer = check_fake(&fake, &["--template", "9000"]).await;
    let bad = answer.bad();
    assert_eq!(answer.code, 2, "{bad:#?}");
    assert!(bad.iter().any(|line| line.contains("all of pve2")), "{bad:#?}");
}

#[tokio::test]
async fn credentials_in_a_wrong_form_are_told_with_the_right_one() {
    let fake = fake(Seed::three_nodes()).await;
    let (url, token) = (fake.url(), fake.token());
    let (id, secret) = (token.id.as_str(), token.secret.as_str());
    for (given, words) in [
        ([&url, "capmox@pve", secret], "user@realm!name"),
        ([&url, "capmox!capi", secret], "realm"),
        ([&url, id, ""], "secret is empty"),
        (["", id, secret], "--url (PROXMOX_URL)"),
        ([secret, id, ""], "--url"),
        ([&format!("{url}/api2/json/nodes"), id, secret], "api2"),
    ] {
        let [url, id, secret] = given;
        let environment = [("PROXMOX_URL", url), ("PROXMOX_TOKEN", id), ("PROXMOX_SECRET", secret)];
        let answer = check(&environment, &["-o", "json"]).await;
        answer.only(1, &["failed credentials", words]);
        assert!(!answer.text.contains(&token.secret), "{}", answer.text);
    }
    check(&[], &["-o", "json"]).await.only(1, &["--url, --token and --secret", "PROXMOX_URL"]);
    // What can be understood is.
    let header = format!("PVEAPIToken={id}={secret}\n");
    let url = format!("{url}/api2/json/");
    let answer = check(&[], &["--url", &url, "--token", &header, "--nodes", "pve1"]).await;
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(!answer.text.contains(secret), "{}", answer.text);
}

#[tokio::test]
async fn an_endpoint_that_refuses_says_why_and_nothing_else_is_guessed() {
    let fake = Fake::start(Config::default().with_tls().with_time_scale(0.01)).await.unwrap();
    let untrusted = check_fake(&fake, &[]).await;
    assert_eq!(untrusted.code, 1);
    assert!(untrusted.bad()[0].contains("--ca FILE"), "{untrusted:?}");
    assert!(untrusted.bad()[1].starts_with("unknown all else"), "{untrusted:?}");
    let answer = check_fake(&fake, &["--insecure"]).await;
    assert_eq!(answer.code, 0);
    assert!(answer.text.contains("not checked"), "{}", answer.text);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, fake.certificate_pem().unwrap()).unwrap();
    let answer = check_fake(&fake, &["--ca", file.to_str().unwrap()]).await;
    assert_eq!((answer.bad(), answer.code), (vec![], 0));
    let answer = check_fake(&fake, &["--ca", "/nowhere.pem"]).await;
    answer.only(1, &["--ca", "/nowhere.pem"]);
    fake.change(Change::TokenRevoked { token: fake.token().id.clone() });
    let answer = check_fake(&fake, &["--insecure"]).await;
    assert_eq!(answer.code, 1);
    assert!(answer.bad()[0].contains("pveum user token list capmox@pve"), "{answer:?}");
    let nobody = ["--url", "http://127.0.0.1:1", "--token", "a@pve!b", "--secret", "c"];
    let answer = check(&[], &[&nobody[..], &["-o", "json"]].concat()).await;
    assert_eq!(answer.code, 1);
    assert!(answer.bad()[0].contains("pveproxy"), "{answer:?}");
}

#[tokio::test]
async fn a_command_line_that_is_not_understood_names_what_is_wanted() {
    for (arguments, telling) in [
        (&["--cluster", "only"][..], "NAMESPACE/NAME"),
        (&["--cluster", "a/b", "--url", "x"], "cannot be used with"),
        (&["--bridge", "vmbr0:9999"], "1 to 4094"),
        (&["--vmid-range", "9"], "2000-2999"),
        (&["-o", "yaml"], "json"),
    ] {
        let answer = check(&[], arguments).await;
        assert_eq!(answer.code, 2, "{arguments:?}");
        assert!(answer.errors.contains(telling), "{arguments:?}: {}", answer.errors);
    }
}

//! The roles of docs/permissions.md are enough for `check`, and none of their privileges is idle.

use std::collections::BTreeMap;

use pve_fake::{Config, Fake, Release, Seed};

use crate::command::check_fake;

const USER: &str = "capmox@pve";

/// Roles by name, from the commands for a release.
fn roles(release: Release) -> BTreeMap<String, Vec<String>> {
    let text = include_str!("../../docs/permissions.md").replace("\\\n", "");
    let number = match release {
        Release::V7 => 7,
        Release::V8 => 8,
        Release::V9 => 9,
    };
    let own = text.split(&format!("## Proxmox VE {number}\n")).nth(1).unwrap();
    let lines = own.split("\n## ").next().unwrap().lines();
    lines
        .filter_map(|line| {
            let (name, privileges) =
                line.strip_prefix("pveum role add ")?.split_once(" --privs ")?;
            let privileges = privileges.trim().trim_matches('"').split_whitespace();
            Some((name.to_owned(), privileges.map(str::to_owned).collect()))
        })
        .collect()
}

/// Whose roles stand where, by the `acl` commands.
fn seed(release: Release) -> Seed {
    let roles = roles(release);
    let mut seed = Seed::three_nodes();
    seed.acl.clear();
    for (path, role) in [
        ("/vms", "Capmox"),
        ("/storage/shared", "CapmoxDisks"),
        ("/storage/local", "CapmoxImages"),
        ("/nodes", "CapmoxNodes"),
        ("/sdn/zones", "CapmoxBridges"),
    ] {
        // Release 7 knows no privilege for bridges.
        let Some(privileges) = roles.get(role) else { continue };
        let privileges: Vec<&str> = privileges.iter().map(String::as_str).collect();
        seed = seed.with_acl(path, USER, &privileges);
    }
    seed
}

#[tokio::test]
async fn the_documented_roles_are_enough_on_every_release() {
    for release in [Release::V7, Release::V8, Release::V9] {
        let config = Config::default().with_release(release).with_seed(seed(release));
        let fake = Fake::start(config).await.unwrap();
        let arguments = ["--template", "9000", "--bridge", "vmbr0:7", "--vmid-range", "200-299"];
        let answer = check_fake(&fake, &arguments).await;
        assert_eq!((answer.bad(), answer.code), (vec![], 0), "{release:?}");
        assert!(fake.journal().writes().is_empty(), "a check changes nothing");
    }
}

#[tokio::test]
async fn what_the_token_lacks_is_named_by_path_and_privilege() {
    let mut seed = seed(Release::V9);
    let images = seed.acl.iter_mut().find(|entry| entry.path == "/storage/local").unwrap();
    images.privileges.retain(|name| name != "Datastore.Allocate");
    let fake = Fake::start(Config::default().with_seed(seed)).await.unwrap();
    let answer = check_fake(&fake, &["--template", "9000"]).await;
    answer.only(1, &["failed privilege /storage/local", "Datastore.Allocate", "delete the boot"]);
}

#[tokio::test]
async fn a_token_of_its_own_rights_has_none_until_they_are_given() {
    let secret = "1f1d2a5e-5a3c-4a56-9d0c-3f3f3c1e7b22";
    let seed = Seed::three_nodes().with_token("capmox@pve!narrow", secret, true);
    let fake = Fake::start(Config::default().with_seed(seed)).await.unwrap();
    let url = fake.url();
    let arguments =
        ["--url", &url, "--token", "capmox@pve!narrow", "--secret", secret, "-o", "json"];
    let answer = crate::command::check(&[], &arguments).await;
    assert_eq!(answer.code, 1);
    let bad = answer.bad();
    let lacks = |name: &str| bad.iter().any(|line| line.contains(&format!("{name} is missing")));
    assert!(lacks("VM.Clone") && lacks("Sys.Audit") && lacks("SDN.Use"), "{bad:#?}");
}

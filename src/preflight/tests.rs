#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn held(answer: Value) -> Permissions {
    serde_json::from_value(answer).unwrap()
}

fn all_of(release: u32) -> Vec<&'static str> {
    let mut all = vec![
        "VM.Allocate",
        "VM.Audit",
        "VM.Clone",
        "VM.Config.CDROM",
        "VM.Config.CPU",
        "VM.Config.Cloudinit",
        "VM.Config.Disk",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.Options",
        "VM.PowerMgmt",
    ];
    if release < 9 {
        all.push("VM.Monitor");
    } else {
        all.extend(["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"]);
    }
    all
}

/// What docs/permissions.md gives.
fn documented(release: u32) -> Value {
    let flags = |names: &[&str]| -> Value {
        names
            .iter()
            .map(|name| ((*name).to_owned(), json!(1)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    json!({
        "/vms": flags(&all_of(release)),
        "/storage/local-lvm": flags(&["Datastore.AllocateSpace", "Datastore.Audit"]),
        "/storage/local": flags(&[
            "Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate",
            "Datastore.Audit",
        ]),
        "/nodes": flags(&["Sys.Audit"]),
        "/sdn/zones": flags(&["SDN.Use"]),
    })
}

fn scope() -> Scope {
    Scope {
        templates: ["9000".parse().unwrap()].into(),
        pools: [].into(),
        no_pool: true,
        disk_storages: ["local-lvm".parse().unwrap()].into(),
        iso_storages: ["local".parse().unwrap()].into(),
        nodes: ["pve1".parse().unwrap(), "pve2".parse().unwrap()].into(),
        bridges: [Bridge { zone: None, name: "vmbr0".to_owned(), vlan: Some(7) }].into(),
        no_agent: false,
    }
}

fn texts(lacks: &[Lack]) -> Vec<String> {
    lacks.iter().map(|lack| format!("{} {}", lack.path, lack.privilege)).collect()
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[test]
fn what_the_documentation_gives_is_enough_on_every_release() {
    for release in [7, 8, 9] {
        for scope in [Scope::default(), scope()] {
            let lacks = missing(&held(documented(release)), &needs(release, &scope));
            assert!(lacks.is_empty(), "{release}: {}", texts(&lacks).join(", "));
        }
    }
}

#[test]
fn each_privilege_that_is_taken_away_is_named_with_its_path() {
    for release in [7, 8, 9] {
        let whole = documented(release);
        for (path, privileges) in whole.as_object().unwrap() {
            for privilege in privileges.as_object().unwrap().keys() {
                let needs = needs(release, &scope());
                // These can be had by another privilege beside them too.
                let either =
                    [("/storage/local", "Datastore.Audit"), ("/vms", "VM.GuestAgent.Audit")];
                let is_needed = !either.contains(&(path.as_str(), privilege.as_str()))
                    && needs
                        .iter()
                        .any(|need| need.privilege == privilege && is_within(need.path(), path));
                let mut less = whole.clone();
                less[path].as_object_mut().unwrap().remove(privilege);
                let lacks = missing(&held(less), &needs);
                if !is_needed {
                    assert!(lacks.is_empty(), "{release} {path} {privilege}: {lacks:?}");
                    continue;
                }
                assert!(!lacks.is_empty(), "{release} {path} {privilege}");
                for lack in &lacks {
                    assert_eq!(lack.privilege, *privilege);
                    assert!(is_within(&lack.path, path), "{lack}");
                    assert!(!lack.needed_for.is_empty());
                }
            }
        }
    }
}

#[test]
fn the_agent_has_privileges_of_its_own_from_release_9_on() {
    let needed = |release, privilege: &str| {
        needs(release, &Scope::default()).iter().any(|need| need.privilege == privilege)
    };
    for (release, monitor, agent, bridges) in
        [(7, true, false, false), (8, true, false, true), (9, false, true, true)]
    {
        assert_eq!(needed(release, "VM.Monitor"), monitor, "{release}");
        assert_eq!(needed(release, "VM.GuestAgent.Audit"), agent, "{release}");
        assert_eq!(needed(release, "VM.GuestAgent.Unrestricted"), agent, "{release}");
        assert_eq!(needed(release, "SDN.Use"), bridges, "{release}");
    }
    let quiet = Scope { no_agent: true, ..Scope::default() };
    assert!(!needs(9, &quiet).iter().any(|need| need.privilege.starts_with("VM.GuestAgent")));
    assert!(!needs(8, &quiet).iter().any(|need| need.privilege == "VM.Monitor"));
}

#[test]
fn the_whole_answer_and_its_absence_are_told_apart() {
    let everything = json!({"/": needs(9, &scope()).iter().map(|need| (need.privilege.to_owned(), json!(1))).collect::<serde_json::Map<_, _>>()});
    assert_eq!(missing(&held(everything), &needs(9, &scope())), []);
    let needs = needs(9, &scope());
    assert_eq!(missing(&Permissions::default(), &needs).len(), needs.len());
}

#[test]
fn a_privilege_that_nothing_below_inherits_is_of_no_use_for_vms_to_come() {
    let mut answer = documented(9);
    answer["/vms"]["VM.Allocate"] = json!(0);
    let lacks = missing(&held(answer), &needs(9, &scope()));
    assert_eq!(texts(&lacks), ["/vms VM.Allocate"]);
}

#[test]
fn a_pool_will_do_where_vms_are_put_into_it() {
    let mut answer = documented(9);
    let role = answer["/vms"].take();
    answer.as_object_mut().unwrap().remove("/vms");
    answer["/pool/lab"] = role.clone();
    // Proxmox lists what is in a pool.
    answer["/vms/9000"] = role;
    let answer = held(answer);
    let pool = Scope { pools: ["lab".to_owned()].into(), no_pool: false, ..scope() };
    assert_eq!(missing(&answer, &needs(9, &pool)), []);
    assert_eq!(missing(&answer, &needs(9, &Scope::default())), []);

    let other = Scope { pools: ["dev".to_owned()].into(), no_pool: false, ..scope() };
    let lacks = missing(&answer, &needs(9, &other));
    assert!(lacks.iter().all(|lack| lack.path == "/pool/dev"), "{lacks:?}");
    assert_eq!(lacks.len(), all_of(9).len() - 1, "all but VM.Clone");
    let both = Scope { no_pool: true, ..pool };
    let none = missing(&answer, &needs(9, &both));
    assert!(!none.is_empty() && none.iter().all(|lack| lack.path == "/vms"), "{none:?}");
    let none = missing(&answer, &needs(9, &scope()));
    assert!(!none.is_empty() && none.iter().all(|lack| lack.path == "/vms"), "{none:?}");
}

#[test]
fn a_bridge_in_a_zone_has_its_path_there() {
    for (zone, vlan, path) in [
        (None, None, "/sdn/zones/localnetwork/vmbr0"),
        (None, Some(7), "/sdn/zones/localnetwork/vmbr0/7"),
        (Some("lab"), None, "/sdn/zones/lab/vmbr0"),
    ] {
        let bridge = Bridge { zone: zone.map(str::to_owned), name: "vmbr0".to_owned(), vlan };
        assert_eq!(bridge.path(), path);
    }
}

//! Who may do what, and how it is said.

use http::Method;
use pve_fake::model::{Credentials, Request};
use pve_fake::{Change, Release, Seed};

use crate::world::{ROOT, Sent, TOKEN, World, refusal, world};

#[test]
fn unknown_callers_are_told_so_late() {
    let detailed = [
        ("capmox@pve!capi=wrong", "invalid token value!"),
        ("capmox@pve!other=x", "no such token 'other' for user 'capmox@pve'"),
        ("nobody@pve!x=x", "no such user ('nobody@pve')"),
    ];
    for (token, text) in detailed {
        for (release, text) in [(Release::V8, text), (Release::V9, "Authentication failed!")] {
            let mut world = World::of(Seed::three_nodes(), release);
            token.clone_into(&mut world.token);
            let response = world.get("/version");
            assert_eq!(refusal(&response), (401, text));
            assert!(response.body.is_null());
            assert_eq!(response.delay.as_secs(), 3);
        }
    }
    let mut world = world();
    let request = Request::new(Method::GET, "/version", Credentials::default());
    let response = world.model.handle(&request, world.now);
    assert_eq!(refusal(&response), (401, "No ticket"));
}

#[test]
fn a_ticket_is_good_for_two_hours_and_writes_with_its_csrf_token() {
    let mut world = world();
    let params = [("username", "capmox@pve"), ("password", "wrong")];
    let refused = world.post("/access/ticket", &params);
    assert_eq!(refusal(&refused), (401, "authentication failure"));
    let made = world.post("/access/ticket", &[("username", "capmox@pve"), ("password", "secret")]);
    let ticket = made.data()["ticket"].as_str().map(str::to_owned);
    let csrf = made.data()["CSRFPreventionToken"].as_str().map(str::to_owned);
    let send = |world: &mut World, method: Method, csrf: Option<String>| {
        let credentials = Credentials { ticket: ticket.clone(), csrf, token: None };
        let path = if method == Method::GET { "/version" } else { "/pools" };
        let request = Request::new(method, path, credentials).with("poolid", "p1");
        let response = world.model.handle(&request, world.now);
        (response.status, response.reason.unwrap_or_default())
    };
    let bad = send(&mut world, Method::POST, None);
    assert_eq!(bad, (401, "Permission denied - invalid csrf token".to_owned()));
    assert_eq!(send(&mut world, Method::POST, csrf).0, 200);
    world.pass(7201);
    assert_eq!(send(&mut world, Method::GET, None).0, 401);
}

#[test]
fn a_missing_right_is_named_before_parameters_are_looked_at() {
    let rights = ["VM.Audit", "VM.Clone", "Sys.Audit", "VM.Config.CPU"];
    let seed = Seed::three_nodes().with_acl("/", "capmox@pve", &rights);
    let mut world = World::of(seed, Release::V9);
    let table: &[(Method, &str, Sent, &str)] = &[
        (Method::POST, "/nodes/pve1/qemu/9000/status/start", &[], "/vms/9000, VM.PowerMgmt"),
        (Method::DELETE, "/nodes/pve1/qemu/9000", &[("x", "1")], "/vms/9000, VM.Allocate"),
        (
            Method::POST,
            "/nodes/pve1/qemu/9000/config",
            &[("memory", "1")],
            "/vms/9000, VM.Config.Memory",
        ),
        (
            Method::POST,
            "/nodes/pve1/storage/local/upload",
            &[],
            "/storage/local, Datastore.AllocateTemplate",
        ),
        (
            Method::GET,
            "/nodes/pve1/storage/local/content",
            &[],
            "/storage/local, Datastore.Audit|Datastore.AllocateSpace",
        ),
        (
            Method::POST,
            "/nodes/pve1/qemu/9000/agent/ping",
            &[],
            "/vms/9000, VM.GuestAgent.Audit|VM.GuestAgent.Unrestricted",
        ),
        (
            Method::DELETE,
            "/nodes/pve1/storage/local/content/local:iso/x.iso",
            &[],
            "/storage/local, Datastore.Allocate",
        ),
    ];
    for (method, path, params, what) in table {
        let response = world.send(method.clone(), path, params);
        let text = format!("Permission check failed ({what})");
        assert_eq!(refusal(&response), (403, text.as_str()), "{method} {path}");
    }
    let clone = world.post("/nodes/pve1/qemu/9000/clone", &[("newid", "101")]);
    assert_eq!(refusal(&clone), (403, "Permission check failed"));
}

#[test]
fn the_agents_privilege_is_vm_monitor_before_9() {
    for (release, privilege, status) in [
        (Release::V8, "VM.Monitor", 500),
        (Release::V8, "VM.GuestAgent.Audit", 403),
        (Release::V9, "VM.Monitor", 403),
        (Release::V9, "VM.GuestAgent.Audit", 500),
    ] {
        let seed = Seed::three_nodes().with_acl("/", "capmox@pve", &[privilege]);
        let mut world = World::of(seed, release);
        let response = world.post("/nodes/pve1/qemu/9000/agent/ping", &[]);
        assert_eq!(response.status, status, "{release:?} {privilege} {:?}", response.reason);
    }
}

#[test]
fn vms_without_a_right_are_missing_from_lists() {
    let seed = Seed::three_nodes().with_acl("/", "capmox@pve", &["Sys.Audit"]);
    let mut world = World::of(seed, Release::V9);
    let list = world.data("/cluster/resources");
    assert!(list.as_array().unwrap().iter().all(|entry| entry["type"] != "qemu"));
    assert_eq!(world.data("/nodes/pve1/qemu"), serde_json::json!([]));
    assert_eq!(world.data("/nodes").as_array().unwrap().len(), 3);
}

#[test]
fn a_right_on_a_pool_holds_for_its_vms_and_for_clones_into_it() {
    let rights = ["VM.Allocate", "VM.Audit", "VM.Clone", "VM.PowerMgmt"];
    let seed = Seed::three_nodes()
        .with_pool("capi", &[9000])
        .with_acl("/", "capmox@pve", &["Sys.Audit"])
        .with_acl("/pool/capi", "capmox@pve", &rights)
        .with_acl("/storage", "capmox@pve", &["Datastore.AllocateSpace"])
        .with_acl("/sdn", "capmox@pve", &["SDN.Use"]);
    let mut world = World::of(seed, Release::V9);
    let path = "/nodes/pve1/qemu/9000/clone";
    assert_eq!(world.post(path, &[("newid", "101")]).status, 403);
    let done = world.post(path, &[("newid", "101"), ("pool", "capi")]);
    assert_eq!(world.exit(&done), "OK");
    let done = world.post("/nodes/pve1/qemu/101/status/start", &[]);
    assert_eq!(world.exit(&done), "OK");
}

#[test]
fn a_separated_token_has_only_what_both_have() {
    let seed = Seed::three_nodes().with_token("capmox@pve!few", "s", true).with_acl(
        "/",
        "capmox@pve!few",
        &["Sys.Audit", "Sys.Modify"],
    );
    let mut world = World::of(seed, Release::V9);
    world.token = "capmox@pve!few=s".to_owned();
    assert_eq!(world.get("/nodes/pve1/status").status, 200);
    assert_eq!(world.get("/nodes/pve1/qemu/9000/config").status, 403);
    let rights = world.data("/access/permissions");
    assert_eq!(rights, serde_json::json!({ "/": { "Sys.Audit": 1 } }));
}

#[test]
fn a_revoked_token_is_refused_until_it_is_restored() {
    let mut world = world();
    let token = TOKEN.split('=').next().unwrap().to_owned();
    world.model.change(Change::TokenRevoked { token: token.clone() });
    assert_eq!(world.get("/version").status, 401);
    world.model.change(Change::TokenRestored { token });
    assert_eq!(world.get("/version").status, 200);
}

#[test]
fn roots_token_is_not_root() {
    let mut world = world();
    ROOT.clone_into(&mut world.token);
    assert_eq!(world.get("/nodes/pve1/qemu/9000/config").status, 200);
    let response = world.post("/nodes/pve1/qemu/9000/config", &[("args", "-x")]);
    assert_eq!(refusal(&response), (500, "only root can set 'args' config"));
}

#[test]
fn registered_tags_need_sys_modify() {
    let mut seed = Seed::three_nodes();
    seed.registered_tags = vec!["gold".to_owned()];
    let mut world = World::of(seed, Release::V9);
    let response = world.put("/nodes/pve1/qemu/9000/config", &[("tags", "gold;a")]);
    let text = "Permission check failed (/, Sys.Modify for modifying tag 'gold')";
    assert_eq!(refusal(&response), (403, text));
    assert_eq!(world.put("/nodes/pve1/qemu/9000/config", &[("tags", "a")]).status, 200);
}

//! The seed's files as Debian's cloud-init and netplan read them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use capmox::bootstrap::network::{Ethernet, NetworkPlan};
use capmox::bootstrap::network_config;
use tempfile::TempDir;

use crate::plans::{self, Stack};
use crate::tools::{CLOUD_INIT, NETPLAN, arg};

/// Renders `plan` as a guest with `renderer` would, into the folder that is returned.
fn converted(name: &str, plan: &NetworkPlan, renderer: &str) -> TempDir {
    let folder = TempDir::new().expect("a temporary folder");
    let source = folder.path().join("network-config");
    fs::write(&source, network_config(plan).expect(name)).expect("written");
    let out = folder.path().join("out");
    let mut args = vec!["devel", "net-convert", "--network-data", arg(&source), "--kind", "yaml"];
    args.extend(["-d", arg(&out), "-D", "debian", "-O", renderer]);
    let macs: Vec<String> =
        plan.ethernets.iter().map(|one| format!("{},{}", one.name, one.mac)).collect();
    for mac in &macs {
        args.extend(["-m", mac]);
    }
    let output = CLOUD_INIT.run(&args);
    // The exit code is 0 even after a traceback: what counts is what was written.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("Traceback") && out.is_dir(), "{name}: {said}");
    folder
}

/// The networkd files that netplan makes of `plan`, by name.
fn netplan(name: &str, plan: &NetworkPlan) -> impl Fn(&str) -> String + use<> {
    let folder = converted(name, plan, "netplan");
    let root = folder.path().join("out");
    let source = root.join("etc/netplan/50-cloud-init.yaml");
    fs::set_permissions(&source, fs::Permissions::from_mode(0o600)).expect(name);
    NETPLAN.stdout(&["generate", "--root-dir", arg(&root)]);
    move |file: &str| {
        let _ = &folder;
        read(&root.join("run/systemd/network").join(format!("10-netplan-{file}")))
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The settings of one section of a networkd file, once for each time the section stands there.
fn sections(file: &str, wanted: &str) -> Vec<BTreeSet<String>> {
    let mut found = Vec::new();
    for block in file.split("\n[").map(|block| block.trim_start_matches('[')) {
        if let Some(settings) = block.strip_prefix(&format!("{wanted}]\n")) {
            found.push(settings.lines().filter(|line| !line.is_empty()).map(Into::into).collect());
        }
    }
    found
}

fn settings<const N: usize>(settings: [&str; N]) -> BTreeSet<String> {
    settings.into_iter().map(Into::into).collect()
}

/// Asserts that the networkd file says what `ethernet` asks for.
fn assert_unit(name: &str, ethernet: &Ethernet, unit: &str) {
    let context = format!("{name}: {}:\n{unit}", ethernet.name);
    assert_eq!(
        sections(unit, "Match"),
        [settings([&format!("PermanentMACAddress={}", ethernet.mac)])],
        "{context}"
    );
    let network = &sections(unit, "Network")[0];
    for server in &ethernet.dns_servers {
        assert!(network.contains(&format!("DNS={server}")), "{context}");
    }
    let routes = sections(unit, "Route");
    let families = [(&ethernet.ipv4, "0.0.0.0/0"), (&ethernet.ipv6, "::/0")];
    for (fixed, destination) in families {
        let Some(fixed) = fixed else { continue };
        assert!(network.contains(&format!("Address={}", fixed.address)), "{context}");
        let Some(gateway) = &fixed.gateway else { continue };
        let mut route =
            settings([&format!("Destination={destination}"), &format!("Gateway={gateway}")]);
        route.extend(fixed.metric.map(|metric| format!("Metric={metric}")));
        assert!(routes.contains(&route), "{context}");
    }
    if let Some(mtu) = ethernet.mtu {
        assert!(
            sections(unit, "Link").contains(&settings([&format!("MTUBytes={mtu}")])),
            "{context}"
        );
    }
    let rules = sections(unit, "RoutingPolicyRule");
    assert_eq!(rules.len(), ethernet.routing_policy.len(), "{context}");
    for rule in &ethernet.routing_policy {
        let from = rule.from.as_deref().expect("given");
        let rule = settings([&format!("From={from}"), "Table=200", "Priority=99"]);
        assert!(rules.contains(&rule), "{context}");
    }
}

#[test]
fn netplan_brings_up_every_combination_as_asked() {
    for (name, plan) in plans::without_vrf() {
        let unit = netplan(&name, &plan);
        for ethernet in &plan.ethernets {
            assert_unit(&name, ethernet, &unit(&format!("{}.network", ethernet.name)));
        }
    }
}

#[test]
fn netplan_puts_devices_into_their_vrfs() {
    let plan = plans::with_vrfs();
    let unit = netplan("vrfs", &plan);
    for ethernet in &plan.ethernets {
        assert_unit("vrfs", ethernet, &unit(&format!("{}.network", ethernet.name)));
    }
    assert!(sections(&unit("eth1.network"), "Network")[0].contains("VRF=vrf-1"));
    assert!(sections(&unit("eth2.network"), "Network")[0].contains("VRF=vrf-2"));
    assert_eq!(sections(&unit("vrf-2.netdev"), "VRF"), [settings(["Table=502"])]);
    let vrf = unit("vrf-2.network");
    let route = settings(["Destination=0.0.0.0/0", "Gateway=10.2.0.1", "Table=502"]);
    assert_eq!(sections(&vrf, "Route"), [route]);
    assert_eq!(sections(&vrf, "RoutingPolicyRule"), [settings(["From=10.98.2.0/24", "Table=502"])]);
}

/// cloud-init 22.4 knows fewer keys here: addresses, DNS, MTU and gateways arrive; metrics, tables
/// and rules do not, and `::/0` is mangled. See the table in `capmox::bootstrap::network`.
#[test]
fn networkd_without_netplan_gets_addresses_dns_and_gateways() {
    let full = |(name, _): &(String, NetworkPlan)| name.ends_with("full");
    for (name, plan) in plans::without_vrf().into_iter().filter(full) {
        let folder = converted(&name, &plan, "networkd");
        for ethernet in &plan.ethernets {
            let path = format!("out/etc/systemd/network/10-cloud-init-{}.network", ethernet.name);
            let unit = read(&folder.path().join(path));
            let lines: Vec<&str> = unit.lines().collect();
            let has =
                |line: String| assert!(lines.contains(&line.as_str()), "{name}: {line}: {unit}");
            has(format!("MACAddress={}", ethernet.mac));
            for fixed in [&ethernet.ipv4, &ethernet.ipv6].into_iter().flatten() {
                has(format!("Address={}", fixed.address));
                fixed.gateway.iter().for_each(|gateway| has(format!("Gateway={gateway}")));
            }
            // It collects the servers of all devices on one line.
            for server in &ethernet.dns_servers {
                assert!(unit.contains(server.as_str()), "{name}: {server}: {unit}");
            }
            ethernet.mtu.iter().for_each(|mtu| has(format!("MTUBytes={mtu}")));
        }
    }
}

#[test]
fn the_document_is_the_same_every_time() {
    let plan = plans::with_vrfs();
    assert_eq!(network_config(&plan), network_config(&plan.clone()));
}

/// What this crate refuses, netplan refuses too: a guest would have come up without a network.
#[test]
fn netplan_refuses_what_is_refused_here() {
    type Change = fn(&mut Ethernet);
    let changes: [(&str, Change); 4] = [
        ("dns", |one| one.dns_servers = vec!["dns.lab".into()]),
        ("route family", |one| one.routes[0].via = Some("2001:db8::1".into())),
        ("rule without a side", |one| one.routing_policy[0].from = None),
        ("address", |one| one.ipv4.as_mut().expect("given").address = "10.0.0.300/24".into()),
    ];
    for (name, change) in changes {
        let good = plans::ethernet(0, Stack::V4, true);
        let mut bad = good.clone();
        change(&mut bad);
        let plan = |one: &Ethernet| NetworkPlan { ethernets: vec![one.clone()], vrfs: Vec::new() };
        network_config(&plan(&bad)).expect_err(name);

        // The same text with the bad value written past the check.
        let text = network_config(&plan(&good)).expect(name);
        let text = match name {
            "dns" => text.replace("192.0.2.0", "dns.lab"),
            "route family" => text.replace("10.0.0.9", "2001:db8::1"),
            "rule without a side" => text.replace("from: \"10.99.0.0/16\", ", ""),
            _ => text.replace("10.0.0.5/24", "10.0.0.300/24"),
        };
        let root = TempDir::new().expect("a temporary folder");
        let source = root.path().join("etc/netplan/a.yaml");
        fs::create_dir_all(source.parent().expect("has one")).expect("made");
        fs::write(&source, text).expect("written");
        let output = NETPLAN.run(&["generate", "--root-dir", arg(root.path())]);
        assert!(!output.status.success(), "{name}");
    }
}

#[test]
fn cloud_init_takes_a_kubeadm_payload_and_refuses_a_broken_one() {
    let folder = TempDir::new().expect("a temporary folder");
    let checked = |payload: &str| {
        let path = folder.path().join("user-data");
        fs::write(&path, payload).expect("written");
        CLOUD_INIT.run(&["schema", "--config-file", arg(&path)]).status.success()
    };
    let payload = "#cloud-config\n\
        write_files:\n\
        - {path: /run/kubeadm/kubeadm.yaml, owner: 'root:root', permissions: '0640', content: x}\n\
        runcmd:\n\
        - kubeadm init --config /run/kubeadm/kubeadm.yaml\n";
    assert!(checked(payload));
    assert!(!checked("#cloud-config\nwrite_files: 7\n"));
}

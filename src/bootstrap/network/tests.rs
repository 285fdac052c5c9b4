use super::*;

fn fixed(address: &str, gateway: &str, metric: u32) -> Static {
    Static { address: address.into(), gateway: Some(gateway.into()), metric: Some(metric) }
}

fn dual_stack(index: usize) -> Ethernet {
    let n = index + 1;
    let metric = 100 * u32::try_from(n).unwrap();
    Ethernet {
        ipv4: Some(fixed(&format!("10.{n}.0.5/24"), &format!("10.{n}.0.1"), metric)),
        ipv6: Some(fixed(&format!("2001:db8:{n}::5/64"), &format!("2001:db8:{n}::1"), metric)),
        dns_servers: vec!["192.0.2.53".into()],
        ..Ethernet::new(index, format!("net{index}"), format!("BC:24:11:00:00:0{n}"))
    }
}

fn plan(ethernets: impl Into<Vec<Ethernet>>) -> NetworkPlan {
    NetworkPlan { ethernets: ethernets.into(), vrfs: Vec::new() }
}

fn value(plan: &NetworkPlan) -> serde_json::Value {
    serde_yaml::from_str(&network_config(plan).expect("renders")).expect("is YAML")
}

fn refusal(plan: &NetworkPlan) -> String {
    network_config(plan).unwrap_err().to_string()
}

fn route(to: &str, via: &str) -> Route {
    Route { to: Some(to.into()), via: Some(via.into()), ..Route::default() }
}

#[test]
fn a_dual_stack_device_is_written_like_this() {
    assert_eq!(
        network_config(&plan([dual_stack(0)])).expect("renders"),
        r#"network:
  version: 2
  renderer: networkd
  ethernets:
    "eth0":
      match:
        macaddress: "bc:24:11:00:00:01"
      dhcp4: false
      dhcp6: false
      addresses:
        - "10.1.0.5/24"
        - "2001:db8:1::5/64"
      routes:
        - {to: "0.0.0.0/0", via: "10.1.0.1", metric: 100}
        - {to: "::/0", via: "2001:db8:1::1", metric: 100}
      nameservers:
        addresses:
          - "192.0.2.53"
"#
    );
}

#[test]
fn a_device_with_only_ipv6_is_configured_with_its_metric() {
    let second = Ethernet { ipv4: None, ..dual_stack(1) };
    let eth1 = &value(&plan([dual_stack(0), second]))["network"]["ethernets"]["eth1"];
    assert_eq!(eth1["match"]["macaddress"], "bc:24:11:00:00:02");
    assert_eq!(eth1["addresses"], serde_json::json!(["2001:db8:2::5/64"]));
    assert_eq!(eth1["routes"][0]["metric"], 200);
}

#[test]
fn each_device_keeps_its_own_dns_servers() {
    let second = Ethernet { dns_servers: vec!["198.51.100.53".into()], ..dual_stack(1) };
    let ethernets = &value(&plan([dual_stack(0), second]))["network"]["ethernets"];
    let servers = |name: &str| ethernets[name]["nameservers"]["addresses"][0].clone();
    assert_eq!([servers("eth0"), servers("eth1")], ["192.0.2.53", "198.51.100.53"]);
}

#[test]
fn custom_routes_and_rules_leave_out_what_is_not_set() {
    let ethernet = Ethernet {
        routes: vec![
            Route { metric: Some(0), table: Some(200), ..route("172.16.0.0/12", "10.1.0.9") },
            route("default", "10.1.0.9"),
            route("default", "2001:db8:1::9"),
            route("198.51.100.7", "10.1.0.9"),
            Route { to: Some("203.0.113.0/24".into()), ..Route::default() },
        ],
        routing_policy: vec![Rule {
            from: Some("10.1.0.0/24".into()),
            table: Some(200),
            ..Rule::default()
        }],
        ..dual_stack(0)
    };
    let eth0 = &value(&plan([ethernet]))["network"]["ethernets"]["eth0"];
    assert_eq!(
        eth0["routes"].as_array().expect("a list")[2..],
        [
            serde_json::json!({"to": "172.16.0.0/12", "via": "10.1.0.9", "table": 200}),
            serde_json::json!({"to": "0.0.0.0/0", "via": "10.1.0.9"}),
            serde_json::json!({"to": "::/0", "via": "2001:db8:1::9"}),
            serde_json::json!({"to": "198.51.100.7/32", "via": "10.1.0.9"}),
            serde_json::json!({"to": "203.0.113.0/24"}),
        ]
    );
    assert_eq!(eth0["routing-policy"], serde_json::json!([{"from": "10.1.0.0/24", "table": 200}]));
}

#[test]
fn a_vrf_takes_its_members_by_either_name() {
    let vrf = Vrf {
        name: "vrf-ext".into(),
        table: 500,
        interfaces: vec!["net1".into(), "eth2".into()],
        routes: vec![route("default", "10.2.0.1")],
        routing_policy: vec![Rule { to: Some("10.2.0.0/24".into()), ..Rule::default() }],
    };
    let plan =
        NetworkPlan { vrfs: vec![vrf], ..plan([dual_stack(0), dual_stack(1), dual_stack(2)]) };
    assert_eq!(
        value(&plan)["network"]["vrfs"],
        serde_json::json!({"vrf-ext": {
            "table": 500,
            "interfaces": ["eth1", "eth2"],
            "routes": [{"to": "0.0.0.0/0", "via": "10.2.0.1"}],
            "routing-policy": [{"to": "10.2.0.0/24"}],
        }})
    );
}

#[test]
fn only_a_real_mtu_reaches_the_guest() {
    for (mtu, written) in [(1, None), (575, None), (576, Some(576)), (9000, Some(9000))] {
        let ethernet = Ethernet { mtu: Some(mtu), ..dual_stack(0) };
        let value = value(&plan([ethernet]));
        assert_eq!(value["network"]["ethernets"]["eth0"]["mtu"].as_u64(), written);
    }
}

#[test]
fn a_device_with_dhcp_needs_no_address() {
    let ethernet = Ethernet { dhcp4: true, ..Ethernet::new(0, "net0", "bc:24:11:00:00:01") };
    let eth0 = &value(&plan([ethernet]))["network"]["ethernets"]["eth0"];
    assert_eq!(eth0["dhcp4"], true);
    assert!(eth0.get("addresses").is_none() && eth0.get("routes").is_none());
}

/// Every refusal names the device and the field.
#[test]
fn what_a_guest_could_not_apply_is_refused_by_name() {
    let with = |change: fn(&mut Ethernet)| {
        let mut ethernet = dual_stack(0);
        change(&mut ethernet);
        refusal(&plan([ethernet]))
    };
    let cases = [
        (with(|e| e.mac.clear()), "macAddress: is missing"),
        (with(|e| e.mac = "bc:24:11".into()), "macAddress: \"bc:24:11\""),
        (with(|e| (e.ipv4, e.ipv6) = (None, None)), "addresses: none given"),
        (with(|e| e.ipv4.as_mut().unwrap().address = "10.0.0.5".into()), "ipv4.address:"),
        (with(|e| e.ipv4 = e.ipv6.clone()), "ipv4.address:"),
        (
            with(|e| e.ipv6.as_mut().unwrap().gateway = Some(String::new())),
            "ipv6.gateway: is missing",
        ),
        (with(|e| e.ipv4.as_mut().unwrap().gateway = Some("gw".into())), "ipv4.gateway: \"gw\""),
        (with(|e| e.ipv6.as_mut().unwrap().gateway = Some("10.0.0.1".into())), "ipv6.gateway:"),
        (with(|e| e.dns_servers = vec!["dns.lab".into()]), "dnsServers[0]: \"dns.lab\""),
        (with(|e| e.routes = vec![Route::default()]), "routes[0].to: is missing"),
        (with(|e| e.routes = vec![route("default", "")]), "routes[0].via: is missing"),
        (with(|e| e.routes = vec![route("10.0.0.0/40", "10.1.0.1")]), "routes[0].to:"),
        (with(|e| e.routes = vec![route("::/0", "10.1.0.1")]), "routes[0].via:"),
        (with(|e| e.routing_policy = vec![Rule::default()]), "routingPolicy[0].to:"),
        (
            with(|e| {
                e.routing_policy = vec![Rule { to: Some("10.0.0.1".into()), ..Rule::default() }];
            }),
            "routingPolicy[0].table: is missing",
        ),
    ];
    for (refusal, expected) in cases {
        let expected = format!("network device net0 (eth0): {expected}");
        assert!(refusal.starts_with(&expected), "{refusal:?} does not start with {expected:?}");
    }
    assert!(refusal(&plan([])).contains("no network device"));
}

#[test]
fn devices_must_differ_in_mac_address_and_metric() {
    let same_mac = Ethernet { mac: "bc:24:11:00:00:01".into(), ..dual_stack(1) };
    let text = refusal(&plan([dual_stack(0), same_mac]));
    assert!(text.contains("net1 (eth1): macAddress:") && text.contains("net0 (eth0)"), "{text}");

    let nameless = |index| Ethernet { mac: String::new(), ..dual_stack(index) };
    let text = refusal(&plan([nameless(0), nameless(1)]));
    assert!(text.contains("net0 (eth0): macAddress: is missing"), "{text}");

    let mut same_metric = dual_stack(1);
    same_metric.ipv4.as_mut().unwrap().metric = Some(100);
    let text = refusal(&plan([dual_stack(0), same_metric.clone()]));
    assert!(text.contains("net1 (eth1): ipv4.metric: 100"), "{text}");

    // Without a gateway there is no default route whose metric could clash.
    same_metric.ipv4.as_mut().unwrap().gateway = None;
    assert!(network_config(&plan([dual_stack(0), same_metric])).is_ok());
}

/// A second device on the cluster's own IPv6 pool is one that capmox brings up.
#[test]
fn an_ipv6_metric_that_an_earlier_device_has_is_left_out() {
    let with = |metric: u32| {
        let mut ethernet = Ethernet { ipv4: None, ..dual_stack(1) };
        ethernet.ipv6.as_mut().unwrap().metric = Some(metric);
        let third = Ethernet { ipv4: None, ..dual_stack(2) };
        let written = value(&plan([dual_stack(0), ethernet, third]));
        let metric = |name: &str, route: usize| {
            written["network"]["ethernets"][name]["routes"][route]["metric"].as_u64()
        };
        [metric("eth0", 1), metric("eth1", 0), metric("eth2", 0)]
    };
    assert_eq!(with(100), [Some(100), None, Some(300)]);
    assert_eq!(with(200), [Some(100), Some(200), Some(300)]);
    assert_eq!(with(300), [Some(100), Some(300), None]);
}

#[test]
fn a_vrf_must_fit_its_machine() {
    let vrf = || Vrf { name: "vrf-ext".into(), table: 500, ..Vrf::default() };
    let with = |vrfs: Vec<Vrf>| refusal(&NetworkPlan { vrfs, ..plan([dual_stack(0)]) });
    let member = |name: &str| Vrf { interfaces: vec![name.into()], ..vrf() };

    assert!(with(vec![member("net7")]).contains("vrf-ext: interfaces[0]: \"net7\""));
    let second = Vrf { name: "vrf-two".into(), ..member("eth0") };
    assert!(with(vec![member("net0"), second]).contains("vrf-two: interfaces[0]"));
    let other_table = Route { table: Some(7), ..route("default", "10.1.0.1") };
    let text = with(vec![Vrf { routes: vec![other_table], ..vrf() }]);
    assert!(text.contains("vrf-ext: routes[0].table: 7"), "{text}");
    assert!(with(vec![vrf(), vrf()]).contains("vrf-ext: name: is used by two devices"));
    let long = Vrf { name: "a-much-too-long-name".into(), ..vrf() };
    assert!(with(vec![long]).contains("name: \"a-much-too-long-name\""));
}

//! `network-config` by the rules of Talos' NoCloud reader, restated from its behaviour: the outer
//! key `network` or none, version 2, MAC addresses as one text, every address and every route's
//! `to` a prefix, every `via` and DNS server an address. Keys it does not know it passes over.

use std::net::IpAddr;

use capmox::bootstrap::network::{NetworkPlan, Route};
use capmox::bootstrap::network_config;
use ipnet::IpNet;
use serde_json::Value;

use crate::plans::{self, Stack};

/// Why Talos would refuse the document.
fn refusal(text: &str) -> Option<String> {
    let document: Value = serde_yaml::from_str(text).expect("is YAML");
    let network = document.get("network").unwrap_or(&document);
    if network["version"] != 2 {
        return Some(format!("version {} is not supported", network["version"]));
    }
    let texts = |value: &Value| -> Vec<String> {
        let list = value.as_array().cloned().unwrap_or_default();
        list.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    };
    for (name, ethernet) in network["ethernets"].as_object().expect("a map") {
        if !ethernet["match"]["macaddress"].is_string() {
            return Some(format!("{name}: MAC address is not a text"));
        }
        for address in texts(&ethernet["addresses"]) {
            if address.parse::<IpNet>().is_err() {
                return Some(format!("{name}: address {address}"));
            }
        }
        for server in texts(&ethernet["nameservers"]["addresses"]) {
            if server.parse::<IpAddr>().is_err() {
                return Some(format!("{name}: DNS server {server}"));
            }
        }
        for route in ethernet["routes"].as_array().into_iter().flatten() {
            let via = route["via"].as_str().unwrap_or_default();
            let to = route["to"].as_str().unwrap_or_default();
            if via.parse::<IpAddr>().is_err() || to.parse::<IpNet>().is_err() {
                return Some(format!("{name}: route {route}"));
            }
        }
    }
    None
}

#[test]
fn talos_takes_every_combination() {
    for (name, plan) in plans::without_vrf() {
        assert_eq!(refusal(&network_config(&plan).expect(&name)), None, "{name}");
    }
    let vrfs = network_config(&plans::with_vrfs()).expect("renders");
    assert_eq!(refusal(&vrfs), None);
}

#[test]
fn routes_to_default_and_to_a_host_are_written_as_prefixes() {
    let mut ethernet = plans::ethernet(0, Stack::V4, false);
    for to in ["default", "198.51.100.7"] {
        let (to, via) = (Some(to.into()), Some("10.0.0.9".into()));
        ethernet.routes.push(Route { to, via, metric: Some(5), table: None });
    }
    let text = network_config(&NetworkPlan { ethernets: vec![ethernet], vrfs: Vec::new() })
        .expect("renders");
    assert_eq!(refusal(&text), None);
    assert!(refusal(&text.replace("\"198.51.100.7/32\"", "\"198.51.100.7\"")).is_some());
    assert!(refusal(&text.replace("\"0.0.0.0/0\"", "default")).is_some());
}

//! Writes a checked document as YAML, always in the same order.

use super::check::{Document, Hop, Link, Policy, VrfLink};
use crate::bootstrap::yaml::quoted;

pub(super) fn render(document: &Document) -> String {
    let mut out = Lines::default();
    out.line(0, "network:");
    out.line(1, "version: 2");
    out.line(1, "renderer: networkd");
    out.line(1, "ethernets:");
    for link in &document.ethernets {
        ethernet(&mut out, link);
    }
    if !document.vrfs.is_empty() {
        out.line(1, "vrfs:");
    }
    for link in &document.vrfs {
        vrf(&mut out, link);
    }
    out.text
}

/// Text with two spaces a level.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn line(&mut self, level: usize, line: impl AsRef<str>) {
        self.text.extend(std::iter::repeat_n("  ", level));
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// A key with a list of quoted texts; nothing for an empty list.
    fn list(&mut self, level: usize, key: &str, values: &[String]) {
        if values.is_empty() {
            return;
        }
        self.line(level, format!("{key}:"));
        for value in values {
            self.line(level + 1, format!("- {}", quoted(value)));
        }
    }

    /// A key with a list of flow maps; nothing for an empty list.
    fn maps<const N: usize>(&mut self, level: usize, key: &str, maps: &[[Entry; N]]) {
        if maps.is_empty() {
            return;
        }
        self.line(level, format!("{key}:"));
        for map in maps {
            let entries = map
                .iter()
                .filter_map(|(key, value)| value.as_ref().map(|value| format!("{key}: {value}")));
            self.line(level + 1, format!("- {{{}}}", entries.collect::<Vec<_>>().join(", ")));
        }
    }
}

/// A key with its value in YAML; none is left out.
type Entry = (&'static str, Option<String>);

fn ethernet(out: &mut Lines, link: &Link) {
    out.line(2, format!("{}:", quoted(&link.name)));
    out.line(3, "match:");
    out.line(4, format!("macaddress: {}", quoted(&link.mac)));
    out.line(3, format!("dhcp4: {}", link.dhcp4));
    out.line(3, format!("dhcp6: {}", link.dhcp6));
    out.list(3, "addresses", &link.addresses);
    routing(out, &link.routes, &link.rules);
    if !link.dns_servers.is_empty() {
        out.line(3, "nameservers:");
        out.list(4, "addresses", &link.dns_servers);
    }
    if let Some(mtu) = link.mtu {
        out.line(3, format!("mtu: {mtu}"));
    }
}

fn vrf(out: &mut Lines, link: &VrfLink) {
    out.line(2, format!("{}:", quoted(&link.name)));
    out.line(3, format!("table: {}", link.table));
    routing(out, &link.routes, &link.rules);
    out.list(3, "interfaces", &link.interfaces);
}

fn routing(out: &mut Lines, routes: &[Hop], rules: &[Policy]) {
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let text = |text: &Option<String>| text.as_deref().map(quoted);
    let route = |hop: &Hop| {
        [
            ("to", Some(quoted(&hop.to))),
            ("via", text(&hop.via)),
            ("metric", number(hop.metric)),
            ("table", number(hop.table)),
        ]
    };
    let rule = |policy: &Policy| {
        [
            ("to", text(&policy.to)),
            ("from", text(&policy.from)),
            ("priority", number(policy.priority)),
            ("table", number(policy.table)),
        ]
    };
    out.maps(3, "routes", &routes.iter().map(route).collect::<Vec<_>>());
    out.maps(3, "routing-policy", &rules.iter().map(rule).collect::<Vec<_>>());
}

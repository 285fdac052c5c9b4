//! Network plans of every shape that a machine can ask for.

use capmox::bootstrap::network::{Ethernet, NetworkPlan, Route, Rule, Static, Vrf};

/// Which families a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    V4,
    V6,
    Dual,
}

pub(crate) const STACKS: [Stack; 3] = [Stack::V4, Stack::V6, Stack::Dual];

/// Device `index` with one address in each family of `stack`, and everything else that an
/// ethernet can have when `full`.
pub(crate) fn ethernet(index: usize, stack: Stack, full: bool) -> Ethernet {
    let metric = full.then(|| u32::try_from(100 + index).expect("few devices"));
    let ipv4 = Static {
        address: format!("10.{index}.0.5/24"),
        gateway: Some(format!("10.{index}.0.1")),
        metric,
    };
    let ipv6 = Static {
        address: format!("2001:db8:{index}::5/64"),
        gateway: Some(format!("2001:db8:{index}::1")),
        metric,
    };
    let mut ethernet = Ethernet {
        ipv4: (stack != Stack::V6).then_some(ipv4),
        ipv6: (stack != Stack::V4).then_some(ipv6),
        dns_servers: vec![format!("192.0.2.{index}"), format!("2001:db8:ffff::{index}")],
        // Digits only: a number to YAML 1.1 unless it is quoted.
        ..Ethernet::new(index, format!("net{index}"), format!("12:34:56:01:02:0{index}"))
    };
    if full {
        ethernet.mtu = Some(1400);
        let (to, via) = match stack {
            Stack::V6 => ("2001:db8:aaaa::/48".into(), format!("2001:db8:{index}::9")),
            Stack::V4 | Stack::Dual => ("172.16.0.0/12".into(), format!("10.{index}.0.9")),
        };
        let (to, via) = (Some(to), Some(via));
        ethernet.routes = vec![Route { to, via: via.clone(), metric: Some(7), table: Some(200) }];
        ethernet.routes.push(Route {
            to: Some("default".into()),
            via,
            metric: Some(900),
            table: None,
        });
        let from = if stack == Stack::V6 { "2001:db8:bbbb::/48" } else { "10.99.0.0/16" };
        ethernet.routing_policy = vec![Rule {
            from: Some(from.into()),
            table: Some(200),
            priority: Some(99),
            ..Rule::default()
        }];
    }
    ethernet
}

/// Every pair of stacks on one or two devices, plain and full, each with a name.
pub(crate) fn without_vrf() -> Vec<(String, NetworkPlan)> {
    let mut plans = Vec::new();
    for full in [false, true] {
        for first in STACKS {
            let one = ethernet(0, first, full);
            let name = |rest: &str| format!("{first:?}{rest}{}", if full { " full" } else { "" });
            plans.push((name(""), plan([one.clone()])));
            for second in STACKS {
                let mut two = ethernet(1, second, full);
                if !full {
                    // Without a metric only the first device can have the default route.
                    for fixed in [&mut two.ipv4, &mut two.ipv6].into_iter().flatten() {
                        fixed.gateway = None;
                    }
                }
                plans.push((name(&format!("+{second:?}")), plan([one.clone(), two])));
            }
        }
    }
    plans
}

/// Three devices, two of them in two VRFs.
pub(crate) fn with_vrfs() -> NetworkPlan {
    let vrf = |index: usize| Vrf {
        name: format!("vrf-{index}"),
        table: 500 + u32::try_from(index).expect("few devices"),
        interfaces: vec![format!("net{index}")],
        routes: vec![Route {
            to: Some("default".into()),
            via: Some(format!("10.{index}.0.1")),
            ..Route::default()
        }],
        // Debian's netplan 0.106 crashes on a VRF that has routes and no rules (LP #2016427).
        routing_policy: vec![Rule { from: Some(format!("10.98.{index}.0/24")), ..Rule::default() }],
    };
    NetworkPlan {
        vrfs: vec![vrf(1), vrf(2)],
        ..plan([
            ethernet(0, Stack::Dual, true),
            ethernet(1, Stack::V4, true),
            ethernet(2, Stack::Dual, true),
        ])
    }
}

fn plan(ethernets: impl Into<Vec<Ethernet>>) -> NetworkPlan {
    NetworkPlan { ethernets: ethernets.into(), vrfs: Vec::new() }
}

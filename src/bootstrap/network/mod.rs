//! `network-config`: the guest's network devices, as netplan version 2.
//!
//! The document's keys and values are those of the peer, so that a template's guests come up alike
//! under both. Who reads it, and what follows from that:
//!
//! | reader | grammar |
//! |---|---|
//! | cloud-init with netplan (Ubuntu, images with netplan) | everything here, passed on unchanged |
//! | cloud-init with networkd, eni, sysconfig, NetworkManager | no `vrfs` (cloud-init 22.4 stops with "No handler found for command 'vrfs'"), no `routing-policy` before 25.3 (left out without a word), no route `table` before 25.3 |
//! | cloud-init 22.4 with networkd | writes `::/0` as `::/64` and drops a route's metric |
//! | netplan below 0.103 | no `to: default` |
//! | netplan 0.106 (Debian 12) | crashes on a VRF that has routes but no `routing-policy` (LP #2016427); give such a VRF a rule |
//! | Talos' NoCloud | the outer `network:` key only in newer releases (1.5 said "version=0 is not supported"); a route needs both `via` as an address and `to` as a prefix, so neither `default` nor a bare address; `vrfs` and `renderer` ignored, `routing-policy` not applied |
//!
//! Hence: the outer `network:` key stays, because every cloud-init wants or accepts it and Talos
//! has come round; default routes are `0.0.0.0/0` and `::/0`; a custom route to `default` or to a
//! bare address is written as a prefix, which means the same to everyone; MAC addresses are
//! lower-case and quoted, because YAML 1.1 takes some of them for numbers.
//!
//! Where the peer's output is at fault, ours differs: DNS servers are each device's own, a device
//! with only IPv6 is configured, and the metric of an IPv6 gateway is kept on every device, unless an
//! earlier one has the same.

pub mod asked;
mod check;
mod networkd;
mod render;
#[cfg(test)]
mod tests;

use crate::bootstrap::problem::Problem;

/// The document for a guest that Ignition configures: it tells cloud-init's readers to leave the
/// network alone.
pub const EMPTY: &str = "version: 1\nconfig: []\n";

/// All network devices of one guest. Texts are as users and pools gave them; rendering checks them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkPlan {
    /// In the order of the VM's devices; the first carries the node's address and gateway.
    pub ethernets: Vec<Ethernet>,
    /// VRF devices over those ethernets.
    pub vrfs: Vec<Vrf>,
}

/// One ethernet device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// Proxmox' name, such as `net0`.
    pub device: String,
    /// The guest's name, such as `eth0`.
    pub name: String,
    /// MAC address from the VM's configuration, in any case.
    pub mac: String,
    /// Static IPv4 address.
    pub ipv4: Option<Static>,
    /// Static IPv6 address.
    pub ipv6: Option<Static>,
    /// Whether the guest asks for an IPv4 address.
    pub dhcp4: bool,
    /// Whether the guest asks for an IPv6 address.
    pub dhcp6: bool,
    /// IP addresses of DNS servers: the device's own, else the cluster's.
    pub dns_servers: Vec<String>,
    /// Routes besides the default ones.
    pub routes: Vec<Route>,
    /// Policy rules; each needs a table.
    pub routing_policy: Vec<Rule>,
    /// MTU inside the guest in bytes. Below 576 it is not written: Proxmox' 1 means "as the
    /// bridge", and the guest learns that from the device.
    pub mtu: Option<u16>,
}

impl Ethernet {
    /// The device at place `index` of the VM's devices, which the guest calls `eth<index>`.
    pub fn new(index: usize, device: impl Into<String>, mac: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            name: format!("eth{index}"),
            mac: mac.into(),
            ..Self::default()
        }
    }

    fn label(&self) -> String {
        format!("{} ({})", self.device, self.name)
    }
}

/// A static address with the way out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Static {
    /// Address and prefix length, such as `10.0.0.5/24`.
    pub address: String,
    /// Address of the gateway; an empty text counts as none.
    pub gateway: Option<String>,
    /// Metric of the default route through the gateway, from the pool's annotation `metric`.
    pub metric: Option<u32>,
}

/// A static route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Route {
    /// `default`, an address or a prefix. Required.
    pub to: Option<String>,
    /// Address of the next hop. Without one the destination is taken to be on the link; a route
    /// to `default` needs one.
    pub via: Option<String>,
    /// Metric; zero counts as none.
    pub metric: Option<u32>,
    /// Routing table; zero counts as none. In a VRF it must be the VRF's own.
    pub table: Option<u32>,
}

/// A routing policy rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Address or prefix of the destination. This or `from` is required.
    pub to: Option<String>,
    /// Address or prefix of the source.
    pub from: Option<String>,
    /// Priority; zero counts as none.
    pub priority: Option<u32>,
    /// Routing table. Required on an ethernet; in a VRF it must be the VRF's own.
    pub table: Option<u32>,
}

/// A virtual routing and forwarding device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vrf {
    /// Name in the guest, 1 to 15 bytes.
    pub name: String,
    /// Its routing table.
    pub table: u32,
    /// Devices in it, by Proxmox' name or the guest's.
    pub interfaces: Vec<String>,
    /// Routes in its table.
    pub routes: Vec<Route>,
    /// Policy rules for its table.
    pub routing_policy: Vec<Rule>,
}

/// A systemd-networkd unit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// File name, such as `00-eth0.network`.
    pub name: String,
    /// Its text.
    pub contents: String,
}

/// Checks the plan and renders it as systemd-networkd units.
///
/// # Errors
/// As [`network_config`].
pub fn networkd_units(plan: &NetworkPlan) -> Result<Vec<Unit>, Problem> {
    networkd::units(plan)
}

/// Checks the plan and renders `network-config`.
///
/// # Errors
/// [`Problem::NoDevices`] and [`Problem::Network`] for a plan that no guest could apply.
pub fn network_config(plan: &NetworkPlan) -> Result<String, Problem> {
    Ok(render::render(&check::check(plan, check::Reader::Netplan)?))
}

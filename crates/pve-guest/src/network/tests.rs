use super::*;

fn nics(macs: &[&str]) -> Vec<BootNic> {
    let nic = |(index, mac): (usize, &&str)| BootNic {
        device: format!("net{index}"),
        mac: (*mac).to_owned(),
        bridge: "vmbr0".into(),
        model: "virtio".into(),
    };
    macs.iter().enumerate().map(nic).collect()
}

fn applied(config: &str) -> Result<Network, Fault> {
    let nics = nics(&["BC:24:11:00:00:01", "BC:24:11:00:00:02"]);
    apply(Some(config), &nics, 100, "192.168.240.0/20".parse().unwrap())
}

fn eth0(body: &str) -> String {
    format!(
        "network:\n  version: 2\n  ethernets:\n    eth0:\n      match: {{macaddress: 'bc:24:11:00:00:01'}}\n{body}"
    )
}

#[test]
fn two_devices_two_families() {
    let text = eth0(
        "      addresses: [10.1.0.5/24, '2001:db8::5/64']\n      routes: [{to: 0.0.0.0/0, via: 10.1.0.1}, {to: default, via: 'fe80::1'}]\n    eth1:\n      match: {macaddress: 'bc:24:11:00:00:02'}\n      set-name: storage\n      addresses: [10.2.0.5/24]\n",
    );
    let network = applied(&text).unwrap();
    let names: Vec<_> = network.interfaces.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["eth0", "storage"]);
    assert_eq!(network.interfaces[0].addresses[0], ("10.1.0.5".parse().unwrap(), 24));
    let own: Vec<_> = network.node_addresses.iter().map(ToString::to_string).collect();
    assert_eq!(own, ["10.1.0.5", "2001:db8::5"]);
}

#[test]
fn the_file_may_be_bare() {
    let bare = "version: 2\nethernets:\n  eth0:\n    match: {macaddress: 'bc:24:11:00:00:01'}\n    dhcp4: true\n";
    let network = applied(bare).unwrap();
    assert_eq!(network.node_addresses, ["192.168.240.101".parse::<IpAddr>().unwrap()]);
}

#[test]
fn without_a_file_the_first_nic_gets_a_lease() {
    let nics = nics(&["BC:24:11:00:00:01", "BC:24:11:00:00:02"]);
    let network = apply(None, &nics, 7, "192.168.240.0/20".parse().unwrap()).unwrap();
    assert_eq!(network.interfaces.len(), 1);
    assert_eq!(network.interfaces[0].mac, "bc:24:11:00:00:01");
    assert_eq!(network.node_addresses.len(), 1);
}

#[test]
fn leases_stay_within_their_network() {
    let net: Ipv4Net = "192.0.2.0/29".parse().unwrap();
    for vmid in 0..40 {
        let lease = lease(vmid, net).addr();
        assert!(IpNet::from(net).contains(&lease) && lease != IpAddr::from(net.network()));
        assert_ne!(lease, IpAddr::from(net.broadcast()));
    }
}

#[test]
fn a_vrf_takes_its_members_routes_out_of_the_hosts() {
    let text = eth0(
        "      addresses: [10.1.0.5/24]\n      routes: [{to: default, via: 10.1.0.1}]\n  vrfs:\n    ext: {table: 500, interfaces: [eth0], routes: [{to: default, via: 10.1.0.1}]}\n",
    );
    assert!(applied(&text).unwrap().node_addresses.is_empty());
    let text =
        eth0("      addresses: [10.1.0.5/24]\n  vrfs: {ext: {table: 500, interfaces: [eth7]}}\n");
    assert!(applied(&text).unwrap_err().text.contains("vrfs.ext: no device eth7"));
}

#[test]
fn what_a_guest_could_not_apply_is_named() {
    for (body, said) in [
        ("      addresses: [10.1.0.5]\n", "has no prefix length"),
        ("      addresses: [10.1.0.256/24]\n", "is no address"),
        ("      addresses: [10.1.0.0/24]\n", "is the network itself"),
        ("      addresses: [10.1.0.255/24]\n", "is the broadcast address"),
        ("      addresses: [10.1.0.5/24, 10.1.0.5/24]\n", "is given twice"),
        (
            "      addresses: [10.1.0.5/24]\n      routes: [{to: default, via: 10.9.0.1}]\n",
            "no address of the device reaches",
        ),
        ("      addresses: [10.1.0.5/24]\n      gateway4: 10.1.0.5\n", "own address"),
        (
            "      addresses: [10.1.0.5/24]\n      routes: [{to: '::/0', via: 10.1.0.1}]\n",
            "other family",
        ),
        (
            "      addresses: [10.1.0.5/24]\n      routes: [{to: default, via: gateway}]\n",
            "is no IP address",
        ),
        ("      nameservers: {addresses: [dns]}\n", "nameservers: \"dns\" is no IP address"),
        (
            "    eth1:\n      match: {macaddress: 'bc:24:11:00:00:09'}\n",
            "not all expected physical devices present: bc:24:11:00:00:09",
        ),
        ("    eth1:\n      dhcp4: true\n", "matches no MAC address"),
        (
            "    eth1:\n      match: {macaddress: 'BC:24:11:00:00:01'}\n",
            "another device has MAC address",
        ),
    ] {
        let fault = applied(&eth0(body)).unwrap_err();
        assert!(fault.text.contains(said), "{body} gave {fault}");
    }
    assert!(applied("network: {version: 1, config: []}").unwrap_err().text.contains("version 1"));
    assert!(applied("hello").is_err());
    assert!(applied("ethernets: {}").unwrap_err().text.contains("has no network"));
}

#[test]
fn on_link_gateways_need_no_prefix() {
    let text = eth0(
        "      addresses: [10.1.0.5/32]\n      routes: [{to: 0.0.0.0/0, via: 10.9.0.1, on-link: true}]\n",
    );
    assert_eq!(applied(&text).unwrap().node_addresses.len(), 1);
}

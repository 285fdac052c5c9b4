//! Where the variables' values come to stand.

use serde_json::{Value, json};
use testbed::apply;

use super::stage::{CHOSEN, clusterctl, render, with};

/// A value: the kind and name of its object, the path within, and what stands there.
type Place = (&'static str, &'static str, String, Value);

fn at(kind: &'static str, name: &'static str, path: impl Into<String>, value: Value) -> Place {
    (kind, name, path.into(), value)
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |value: &&Value| value["kind"] == kind && value["metadata"]["name"] == name;
    objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn check(objects: &[Value], flavour: &str, places: &[Place]) {
    for (kind, name, path, expected) in places {
        let found = find(objects, kind, name).pointer(path).cloned().unwrap_or_default();
        assert_eq!(found, *expected, "flavour {flavour:?}: {kind} {name} {path}");
    }
}

fn everywhere() -> Vec<Place> {
    let mut places = vec![
        at("Cluster", "lab", "/spec/infrastructureRef/name", json!("lab")),
        at("Cluster", "lab", "/spec/controlPlaneRef/name", json!("lab-control-plane")),
        at("ProxmoxCluster", "lab", "/spec/controlPlaneEndpoint/host", json!("10.10.10.9")),
        at("ProxmoxCluster", "lab", "/spec/controlPlaneEndpoint/port", json!(6443)),
        at(
            "ProxmoxCluster",
            "lab",
            "/spec/ipv4Config",
            json!({"addresses": ["10.10.10.10-10.10.10.50"], "prefix": 24, "gateway": "10.10.10.1"}),
        ),
        at("ProxmoxCluster", "lab", "/spec/dnsServers", json!(["10.10.10.1"])),
        at("ProxmoxCluster", "lab", "/spec/allowedNodes", json!(["pve1", "pve2"])),
        at("KubeadmControlPlane", "lab-control-plane", "/spec/replicas", json!(3)),
        at("KubeadmControlPlane", "lab-control-plane", "/spec/version", json!("v1.33.4")),
        at("MachineDeployment", "lab-workers", "/spec/replicas", json!(2)),
        at("MachineDeployment", "lab-workers", "/spec/template/spec/version", json!("v1.33.4")),
        at(
            "MachineDeployment",
            "lab-workers",
            "/spec/template/metadata/labels/node-role.kubernetes.io~1node",
            json!(""),
        ),
    ];
    let keys = json!(["ssh-ed25519 AAAAone one@example.com", "ssh-rsa AAAAtwo two@example.com"]);
    let users = "/users/0/sshAuthorizedKeys";
    places.push(at(
        "KubeadmControlPlane",
        "lab-control-plane",
        format!("/spec/kubeadmConfigSpec{users}"),
        keys.clone(),
    ));
    let template = format!("/spec/template/spec{users}");
    places.push(at("KubeadmConfigTemplate", "lab-worker", template, keys));
    for name in ["lab-control-plane", "lab-worker"] {
        let kind = "ProxmoxMachineTemplate";
        places.push(at(kind, name, "/spec/template/spec/format", json!("qcow2")));
        places.push(at(kind, name, "/spec/template/spec/full", json!(true)));
        let device = json!({"bridge": "vmbr0", "model": "virtio"});
        places.push(at(kind, name, "/spec/template/spec/network/default", device));
    }
    places
}

/// What the machines of a flavour are made of.
fn machines(flavour: &str) -> Vec<Place> {
    let mut fields = vec![
        ("numSockets", json!(1)),
        ("numCores", json!(8)),
        ("memoryMiB", json!(4096)),
        ("disks", json!({"bootVolume": {"disk": "virtio0", "sizeGb": 40}})),
    ];
    if flavour == "cilium" {
        for (_, value) in &mut fields {
            *value = Value::Null;
        }
    }
    if flavour == "auto-image" {
        fields.push(("templateSelector", json!({"matchTags": ["ubuntu", "v1.33.4"]})));
        fields.push(("sourceNode", Value::Null));
        fields.push(("templateID", Value::Null));
    } else {
        fields.push(("sourceNode", json!("pve1")));
        fields.push(("templateID", json!(9000)));
    }
    let skip = json!({"skipCloudInitStatus": true});
    fields.push(("checks", if flavour == "flatcar" { skip } else { Value::Null }));
    let pool = |name: &str| json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "GlobalInClusterIPPool", "name": name});
    let device = |pool: Value| json!([{"name": "net1", "bridge": "vmbr1", "model": "virtio", "dnsServers": ["10.10.10.1"], "ipv4PoolRef": pool}]);
    let additional = match flavour {
        "multiple-vlans" => device(pool("shared-inclusterippool")),
        "cilium-load-balancer" => device(pool("shared-int-service-v4-inclusterippool")),
        _ => Value::Null,
    };
    fields.push(("network/additionalDevices", additional));
    let places = |(field, value): (&str, Value)| {
        let path = format!("/spec/template/spec/{field}");
        ["lab-control-plane", "lab-worker"]
            .map(|name| at("ProxmoxMachineTemplate", name, path.clone(), value.clone()))
    };
    fields.into_iter().flat_map(places).collect()
}

/// What only one flavour has.
#[expect(clippy::too_many_lines, reason = "a table of places, one a line")]
fn special(flavour: &str) -> Vec<Place> {
    let ipv6 = |prefix: u8| {
        let addresses = ["2001:db8::10-2001:db8::ff"];
        json!({"addresses": addresses, "prefix": prefix, "gateway": "2001:db8::1"})
    };
    let labels = "/metadata/labels/cluster.x-k8s.io~1cluster-name";
    let config_map = |name: &str| json!([{"kind": "ConfigMap", "name": name}]);
    match flavour {
        "dual-stack" => vec![
            at("ProxmoxCluster", "lab", "/spec/ipv6Config", ipv6(80)),
            at("Cluster", "lab", "/spec/clusterNetwork/pods/cidrBlocks/0", json!("172.16.0.0/16")),
            at(
                "Cluster",
                "lab",
                "/spec/clusterNetwork/services/cidrBlocks",
                json!(["192.168.128.0/17", "fd00:feed:a1f:ca75::/108"]),
            ),
        ],
        "calico" | "cilium" => vec![
            at("Cluster", "lab", labels, json!("lab")),
            at("ClusterResourceSet", "lab-crs-0", "/metadata/namespace", json!("ns")),
            at("ClusterResourceSet", "lab-crs-0", "/spec/resources", config_map(flavour)),
        ],
        "external-creds" => vec![
            at(
                "ProxmoxCluster",
                "lab",
                "/spec/credentialsRef/name",
                json!("lab-proxmox-credentials"),
            ),
            at(
                "Secret",
                "lab-proxmox-credentials",
                "/stringData",
                json!({
                    "url": "https://pve.example.com:8006",
                    "token": "capmox@pve!capi",
                    "secret": "9a8b7c6d-0000-4000-8000-000000000001",
                }),
            ),
        ],
        "multiple-vlans" => vec![at(
            "GlobalInClusterIPPool",
            "shared-inclusterippool",
            "/spec",
            json!({"addresses": ["10.20.0.10-10.20.0.50"], "prefix": 24, "gateway": "10.20.0.1"}),
        )],
        "proxmox-labels" => vec![at(
            "KubeadmConfigTemplate",
            "lab-worker",
            "/spec/template/spec/joinConfiguration/nodeRegistration/kubeletExtraArgs/node-labels",
            json!(
                "node.kubernetes.io/proxmox-node={{ ds.meta_data.proxmox_node }},topology.kubernetes.io/zone={{ ds.meta_data.zone }}"
            ),
        )],
        "cilium-load-balancer" => {
            let template = "ProxmoxMachineTemplate";
            let of = "lab-load-balancer";
            vec![
                at("ProxmoxCluster", "lab", "/spec/ipv6Config", ipv6(80)),
                at("MachineDeployment", "lab-load-balancers", "/spec/replicas", json!(2)),
                at(template, of, "/spec/template/spec/numSockets", json!(2)),
                at(template, of, "/spec/template/spec/numCores", json!(2)),
                at(template, of, "/spec/template/spec/memoryMiB", json!(4096)),
                at(
                    template,
                    of,
                    "/spec/template/spec/network/additionalDevices/1/bridge",
                    json!("vmbr2"),
                ),
                at(
                    template,
                    of,
                    "/spec/template/spec/network/vrfs",
                    json!([{"name": "vrf-ext", "table": 500, "interfaces": ["net2"], "routingPolicy": [{"from": "192.0.2.0/24"}, {"from": "2001:db8:4::/64"}]}]),
                ),
                at(
                    "GlobalInClusterIPPool",
                    "shared-ext-service-v6-inclusterippool",
                    "/spec",
                    json!({"addresses": ["2001:db8:3::10-2001:db8:3::20"], "prefix": 64}),
                ),
            ]
        }
        _ => vec![],
    }
}

#[test]
fn values_stand_where_capmox_puts_them() {
    let (clusterctl, _folder) = clusterctl();
    for flavour in super::stage::FLAVOURS {
        let objects = render(&clusterctl, flavour, "ns", &with(CHOSEN));
        check(&objects, flavour, &everywhere());
        check(&objects, flavour, &machines(flavour));
        check(&objects, flavour, &special(flavour));
        let files = find(&objects, "KubeadmControlPlane", "lab-control-plane");
        let pod = files.pointer("/spec/kubeadmConfigSpec/files/0/content").unwrap();
        let pod = &apply::documents(pod.as_str().unwrap()).unwrap()[0];
        let env = pod.pointer("/spec/containers/0/env").and_then(Value::as_array).unwrap();
        let value = |name: &str| env.iter().find(|pair| pair["name"] == name).unwrap();
        assert_eq!(value("address")["value"], "10.10.10.9", "{flavour}");
        assert_eq!(value("vip_interface")["value"], "eth0", "{flavour}");
    }
}

#[test]
fn routers_of_the_load_balancers_are_told_in_a_secret() {
    let (clusterctl, _folder) = clusterctl();
    let objects = render(&clusterctl, "cilium-load-balancer", "ns", &with(CHOSEN));
    let secret = find(&objects, "Secret", "metallb-lab");
    assert_eq!(secret["type"], "addons.cluster.x-k8s.io/resource-set");
    let told = apply::documents(secret["stringData"]["metallb-config"].as_str().unwrap()).unwrap();
    let spec = |kind: &str, name: &str| find(&told, kind, name)["spec"].clone();
    let peer = |asn: u32, address: &str, password: &str| json!({"myASN": 65001, "peerASN": asn, "peerAddress": address, "peerPort": 179, "password": password, "vrf": "vrf-ext"});
    assert_eq!(spec("BGPPeer", "ext-switch1"), peer(65010, "10.30.0.1", "four"));
    assert_eq!(spec("BGPPeer", "ext-switch2"), peer(65020, "10.30.0.2", "four"));
    assert_eq!(spec("BGPPeer", "ext-switch1-v6"), peer(65010, "2001:db8:3::1", "six"));
    assert_eq!(spec("BGPPeer", "ext-switch2-v6"), peer(65020, "2001:db8:3::2", "six"));
    let pool = spec("IPAddressPool", "ext-service-v6-pool");
    assert_eq!(pool["addresses"], json!(["2001:db8:4::/64"]));
    let routers = &spec("FRRConfiguration", "frr-route-import")["bgp"]["routers"];
    assert_eq!(routers[0]["neighbors"][1]["asn"], 65020);
    assert_eq!(routers[1]["neighbors"][1]["address"], "2001:db8:3::2");
}

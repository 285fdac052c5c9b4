//! Instructions of what is computed for each reading of a list, for each machine that is placed and
//! for each seed, at the size of a large Proxmox cluster: 32 nodes, 2000 guests.
#![allow(
    clippy::unwrap_used,
    clippy::exit,
    missing_docs,
    reason = "benches, and what their macros make"
)]

use std::collections::BTreeSet;
use std::hint::black_box;

use capmox::bootstrap::network::{Ethernet, Static};
use capmox::bootstrap::{Format, Metadata, NetworkPlan, SeedFiles, cloud_init, network_config};
use capmox::hypervisor::View;
use capmox::ids::VmId;
use capmox::placement::{
    Candidate, NodeFacts, NodeState, Request, VmIdRequest, choose_node, choose_template,
    choose_vmid,
};
use capmox::pve::{NetDevice, Resource, Upid};
use gungraun::{library_benchmark, library_benchmark_group, main};
use serde_json::json;
use tokio::time::Instant;

const NODES: usize = 32;
const GUESTS: usize = 2000;

fn node(index: usize) -> String {
    format!("pve{}", index % NODES)
}

/// The answer to `GET /cluster/resources`.
fn answer() -> String {
    let nodes = (0..NODES).map(|index| {
        json!({"type": "node", "id": format!("node/{}", node(index)), "node": node(index),
               "status": "online", "maxmem": 1_u64 << 38, "mem": 1_u64 << 36, "cpu": 0.1,
               "maxcpu": 64})
    });
    let guests = (0..GUESTS).map(|index| {
        json!({"type": "qemu", "id": format!("qemu/{}", 100 + index), "vmid": 100 + index,
               "node": node(index), "status": "running", "name": format!("worker-{index}"),
               "maxmem": 1_u64 << 32, "mem": 1_u64 << 31, "cpu": 0.02, "maxcpu": 4,
               "template": 0, "tags": "capmox;ip_net0_10.0.0.5"})
    });
    serde_json::to_string(&nodes.chain(guests).collect::<Vec<_>>()).unwrap()
}

fn resources() -> Vec<Resource> {
    serde_json::from_str(&answer()).unwrap()
}

fn view() -> View {
    View::new(Instant::now(), resources())
}

fn two_views() -> (View, View) {
    let before = view();
    let mut after = view();
    after.guests.pop_last();
    (before, after)
}

fn nodes() -> Vec<NodeFacts> {
    let facts = |index: usize| NodeFacts {
        name: node(index).parse().unwrap(),
        state: NodeState::Online,
        memory_total: Some(1 << 38),
        memory_committed: (1 << 32) * u64::try_from(index).unwrap(),
        role_count: index % 5,
    };
    (0..NODES).map(facts).collect()
}

fn vmid(index: usize) -> VmId {
    VmId::try_from(i64::try_from(100 + index).unwrap()).unwrap()
}

fn candidates() -> Vec<Candidate> {
    let candidate = |index: usize| Candidate {
        node: node(index).parse().unwrap(),
        vmid: vmid(index),
        is_template: index == GUESTS / 2,
        tags: vec!["ubuntu".to_owned(), "v1.34.4".to_owned()],
    };
    (0..GUESTS).map(candidate).collect()
}

fn taken() -> VmIdRequest {
    let taken: BTreeSet<VmId> = (0..GUESTS).map(vmid).collect();
    VmIdRequest { range: Some((vmid(0), vmid(GUESTS))), hint: None, taken }
}

fn plan() -> NetworkPlan {
    let ethernet = |index: usize| {
        let mac = format!("BC:24:11:00:00:0{index}");
        let mut ethernet = Ethernet::new(index, format!("net{index}"), mac);
        ethernet.ipv4 = Some(Static {
            address: format!("10.0.{index}.5/24"),
            gateway: Some(format!("10.0.{index}.1")),
            metric: Some(100 + u32::try_from(index).unwrap()),
        });
        ethernet.dns_servers = vec!["10.0.0.2".to_owned(), "10.0.0.3".to_owned()];
        ethernet
    };
    NetworkPlan { ethernets: (0..2).map(ethernet).collect(), vrfs: Vec::new() }
}

/// User-data of the size that kubeadm's bootstrap provider makes for a control plane.
fn seed() -> (Vec<u8>, Metadata, NetworkPlan) {
    let payload = format!("#cloud-config\nwrite_files:\n{}", "# a line of a file\n".repeat(1000));
    let identity = Metadata {
        instance_id: "8f1d2a5e-5a3c-4a56-9d0c-3f3f3c1e7b11".to_owned(),
        hostname: "worker-1".to_owned(),
        provider_id: None,
        kubernetes_version: Some("v1.34.4".to_owned()),
        place: None,
    };
    (payload.into_bytes(), identity, plan())
}

#[library_benchmark(setup = answer)]
fn read_resources(answer: String) -> Vec<Resource> {
    serde_json::from_str(black_box(&answer)).unwrap()
}

#[library_benchmark(setup = resources)]
fn make_view(resources: Vec<Resource>) -> View {
    View::new(Instant::now(), black_box(resources))
}

#[library_benchmark(setup = two_views)]
fn what_changed((before, after): (View, View)) -> BTreeSet<VmId> {
    black_box(after).changed_since(black_box(&before))
}

#[library_benchmark(setup = nodes)]
fn place(nodes: Vec<NodeFacts>) -> String {
    let request = Request { memory: 1 << 32, adjustment_percent: None };
    choose_node(black_box(&request), black_box(&nodes)).unwrap().to_string()
}

#[library_benchmark(setup = candidates)]
fn find_template(candidates: Vec<Candidate>) -> VmId {
    choose_template(["v1.34.4", "ubuntu"], black_box(&candidates)).unwrap().vmid
}

#[library_benchmark(setup = taken)]
fn take_number(request: VmIdRequest) -> VmId {
    choose_vmid(black_box(&request)).unwrap()
}

#[library_benchmark(setup = plan)]
fn write_network_config(plan: NetworkPlan) -> String {
    network_config(black_box(&plan)).unwrap()
}

#[library_benchmark(setup = seed)]
fn make_seed((payload, identity, plan): (Vec<u8>, Metadata, NetworkPlan)) -> Vec<u8> {
    let files = SeedFiles::render(Format::CloudConfig, &payload, &identity, &plan).unwrap();
    black_box(files).image().unwrap()
}

#[library_benchmark]
#[bench::usual("virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,mtu=1450,tag=30")]
fn read_device(text: &str) -> Option<u16> {
    let device = NetDevice::parse(black_box(text));
    device.mac().and(device.bridge()).and(device.vlan())
}

#[library_benchmark]
#[bench::usual("UPID:pve1:0003D2A1:01F2B3C4:68A1B2C3:qmclone:9000:capmox@pve!capi:")]
fn read_upid(text: &str) -> Upid {
    black_box(text).parse().unwrap()
}

#[library_benchmark]
fn judge_cloud_init() -> bool {
    let answer = cloud_init::Answer {
        exit_code: Some(0),
        signal: None,
        output: "status: running",
        errors: "",
    };
    matches!(cloud_init::judge(black_box(&answer)), cloud_init::Progress::Running)
}

library_benchmark_group!(name = lists, benchmarks = [read_resources, make_view, what_changed]);
library_benchmark_group!(name = placing, benchmarks = [place, find_template, take_number]);
library_benchmark_group!(
    name = machine,
    benchmarks = [write_network_config, make_seed, read_device, read_upid, judge_cloud_init]
);
main!(library_benchmark_groups = lists, placing, machine);

//! What is computed for each reading of a list, for each machine that is placed and for each seed, at
//! the size of a large Proxmox cluster: 32 nodes, 2000 guests.
//!
//! `make bench-hot` runs one case after the other in Valgrind, which counts the instructions of
//! [`instructions_of`]. Unlike times, these are the same on a busy machine.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool whose output is a list")]

use std::collections::BTreeSet;
use std::env::args;
use std::hint::black_box;
use std::process::ExitCode;

use capmox::bootstrap::network::{Ethernet, Static};
use capmox::bootstrap::{Format, Metadata, NetworkPlan, SeedFiles, cloud_init, network_config};
use capmox::hypervisor::View;
use capmox::ids::VmId;
use capmox::placement::{
    Candidate, NodeFacts, NodeState, Request, VmIdRequest, choose_node, choose_template,
    choose_vmid,
};
use capmox::pve::{NetDevice, Resource, Upid};
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

/// By its name Valgrind knows what to count.
#[inline(never)]
fn instructions_of<T>(work: impl FnOnce() -> T) {
    black_box(work());
}

type Case = (&'static str, fn());

const CASES: &[Case] = &[
    ("read the answer of cluster/resources", || {
        let answer = answer();
        instructions_of(|| serde_json::from_str::<Vec<Resource>>(&answer).unwrap());
    }),
    ("make a view of it", || {
        let resources = resources();
        instructions_of(|| View::new(Instant::now(), resources));
    }),
    ("find what changed between two views", || {
        let (before, after) = two_views();
        instructions_of(|| after.changed_since(&before));
    }),
    ("choose among 32 nodes", || {
        let (request, nodes) = (Request { memory: 1 << 32, adjustment_percent: None }, nodes());
        instructions_of(|| choose_node(&request, &nodes).unwrap());
    }),
    ("find a template among 2000 guests", || {
        let candidates = candidates();
        instructions_of(|| choose_template(["v1.34.4", "ubuntu"], &candidates).unwrap());
    }),
    ("take a VMID after 2000 others", || {
        let request = taken();
        instructions_of(|| choose_vmid(&request).unwrap());
    }),
    ("write a network-config of two devices", || {
        let plan = plan();
        instructions_of(|| network_config(&plan).unwrap());
    }),
    ("make a seed image of 20 KiB", || {
        let (payload, identity, plan) = seed();
        instructions_of(|| {
            let files = SeedFiles::render(Format::CloudConfig, &payload, &identity, &plan);
            files.unwrap().image().unwrap()
        });
    }),
    ("read a network device", || {
        let text = "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,mtu=1450,tag=30";
        instructions_of(|| {
            let device = NetDevice::parse(black_box(text));
            device.mac().and(device.bridge()).and(device.vlan())
        });
    }),
    ("read a UPID", || {
        let text = "UPID:pve1:0003D2A1:01F2B3C4:68A1B2C3:qmclone:9000:capmox@pve!capi:";
        instructions_of(|| black_box(text).parse::<Upid>().unwrap());
    }),
    ("judge what cloud-init says", || {
        let output = "status: running";
        let answer = cloud_init::Answer { exit_code: Some(0), signal: None, output, errors: "" };
        instructions_of(|| cloud_init::judge(black_box(&answer)));
    }),
];

/// Runs the case of the number that is given; without one, prints the names of all.
fn main() -> ExitCode {
    let Some(number) = args().nth(1) else {
        for (name, _) in CASES {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    };
    let case = number.parse().ok().and_then(|number: usize| CASES.get(number));
    case.map_or(ExitCode::FAILURE, |(_, run)| {
        run();
        ExitCode::SUCCESS
    })
}

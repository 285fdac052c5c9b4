//! Facts of a machine at the stages of its life, for tests.
#![allow(clippy::unwrap_used)]

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::facts::{Address, AddressFact, BootstrapData, ClaimFact, Facts, Past, VmFact, VmSeen};
use crate::api::MACHINE_FINALIZER;
use crate::hypervisor::{Ended, Exit, Operation, TaskState};
use crate::ids::VmId;
use crate::ipam::wanted_slots;
use crate::pve::VmConfig;
use crate::seen::Seen;

pub(super) const UUID: &str = "9a8b7c6d-0000-4000-8000-000000000001";
pub(super) const UPID: &str = "UPID:pve1:000ACD12:00BC614E:679A423B:qmclone:9000:capmox@pve!capi:";

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

pub(super) fn vmid() -> VmId {
    "105".parse().unwrap()
}

/// A machine that Cluster API waits for; nothing was done yet.
pub(super) fn fresh() -> Facts {
    let machine = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxMachine",
        "metadata": {"name": "w-1", "namespace": "lab", "uid": "m-uid",
            "labels": {"cluster.x-k8s.io/cluster-name": "one"}},
        "spec": {"sourceNode": "pve1", "templateID": 9000, "numSockets": 2, "numCores": 4,
            "memoryMiB": 4096,
            "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
            "network": {"default": {"bridge": "vmbr0", "model": "virtio"}}},
    });
    let owner = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Machine",
        "metadata": {"name": "w-1", "namespace": "lab", "uid": "o-uid",
            "labels": {"cluster.x-k8s.io/cluster-name": "one"}},
        "spec": {"clusterName": "one", "version": "v1.34.4",
            "bootstrap": {"dataSecretName": "w-1-data"}},
    });
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
        "metadata": {"name": "one", "namespace": "lab"},
        "spec": {"infrastructureRef": {"kind": "ProxmoxCluster", "name": "one"}},
        "status": {"infrastructureReady": true},
    });
    let infra = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxCluster",
        "metadata": {"name": "one", "namespace": "lab"},
        "spec": {"dnsServers": ["10.0.0.1"],
            "ipv4Config": {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24,
                "gateway": "10.0.0.1"}},
    });
    let mut facts = Facts {
        machine: serde_json::from_value(machine).unwrap(),
        owner: Some(serde_json::from_value(owner).unwrap()),
        cluster: Some(serde_json::from_value(cluster).unwrap()),
        infra: Some(serde_json::from_value(infra).unwrap()),
        connection: Some(Ok(())),
        addresses: Vec::new(),
        claims: Vec::new(),
        ipam_trouble: None,
        task: None,
        listed: Seen::Unknown("not read".to_owned()),
        vm: None,
        absence_confirmed: false,
        vmid_shared: false,
        others_ids: Vec::new(),
        double: None,
        guest_looks: 0,
        guest_wait: None,
        power: None,
        placement: None,
        bootstrap: None,
        iso_storages: None,
        stray: None,
        guest: None,
        grown: None,
        template: None,
        seed_shared: None,
        seed_deleted: false,
        records_lost: false,
        clone_refused: false,
        vmid_foreign: false,
        stored: None,
        in_ha: false,
        past: Past::default(),
    };
    wish(&mut facts);
    facts
}

/// Recomputes the wanted addresses; none is claimed.
pub(super) fn wish(facts: &mut Facts) {
    let infra = facts.infra.as_ref().unwrap();
    facts.addresses = wanted_slots("one", &infra.spec, &facts.machine.spec)
        .into_iter()
        .map(|slot| AddressFact {
            slot,
            claim: None,
            address: None,
            wrong: None,
            pool_trouble: None,
        })
        .collect();
}

/// With finalizer, claims and a recorded choice.
pub(super) fn reserved() -> Facts {
    let mut facts = fresh();
    facts.machine.metadata.finalizers = Some(vec![MACHINE_FINALIZER.to_owned()]);
    for fact in &mut facts.addresses {
        fact.claim = Some(ClaimFact { ours: true, message: None });
    }
    facts.claims = vec!["w-1-net0-inet".to_owned()];
    facts.machine.spec.virtual_machine_id = Some(105);
    set_status(
        &mut facts,
        &json!({
            "ready": false, "proxmoxNode": "pve2", "templateRef": {"node": "pve1", "vmid": 9000},
        }),
    );
    facts
}

/// With the VM there, its provider id recorded and its addresses given.
pub(super) fn cloned() -> Facts {
    let mut facts = reserved();
    facts.machine.spec.provider_id = Some(format!("proxmox://{UUID}"));
    facts.vm = Some(VmSeen::Present(VmFact { node: "pve2".parse().unwrap(), config: config() }));
    for (index, fact) in facts.addresses.iter_mut().enumerate() {
        let address = format!("10.0.{index}.10").parse().unwrap();
        let gateway = Some(format!("10.0.{index}.1").parse().unwrap());
        fact.address = Some(Address { ip: address, prefix: 24, gateway, metric: None });
    }
    facts
}

/// Up and running since long.
pub(super) fn ready() -> Facts {
    let mut facts = cloned();
    facts.vm = None;
    set_status(
        &mut facts,
        &json!({
            "ready": true, "proxmoxNode": "pve2", "bootstrapDataProvided": true,
            "templateRef": {"node": "pve1", "vmid": 9000},
        }),
    );
    facts
}

/// A VM configured as the machine asks, but for what the seed brings.
pub(super) fn config() -> VmConfig {
    [
        ("name", "w-1"),
        ("smbios1", &format!("uuid={UUID}")),
        ("sockets", "2"),
        ("cores", "4"),
        ("memory", "4096"),
        ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1"),
        ("scsi0", "local-lvm:vm-105-disk-0,size=20G"),
        ("boot", "order=scsi0;net0"),
        ("tags", "ip_net0_10.0.0.10"),
        ("digest", "abc"),
    ]
    .into_iter()
    .collect()
}

/// The same with options changed; an empty value takes an option away.
pub(super) fn config_with(changes: &[(&str, &str)]) -> VmConfig {
    let mut options = config().options().clone();
    for (key, value) in changes {
        if value.is_empty() {
            options.remove(*key);
        } else {
            options.insert((*key).to_owned(), (*value).to_owned());
        }
    }
    options.into_iter().collect()
}

pub(super) fn set_config(facts: &mut Facts, config: VmConfig) {
    facts.vm = Some(VmSeen::Present(VmFact { node: "pve2".parse().unwrap(), config }));
}

pub(super) fn set_status(facts: &mut Facts, status: &Value) {
    facts.machine.status = Some(serde_json::from_value(status.clone()).unwrap());
}

pub(super) fn bootstrap() -> Seen<BootstrapData> {
    Seen::Present(BootstrapData {
        format: None,
        value: b"#cloud-config
"
        .to_vec()
        .into(),
    })
}

pub(super) fn running(operation: Operation) -> TaskState {
    TaskState::Running { upid: UPID.parse().unwrap(), operation, trouble: None }
}

pub(super) fn ended(operation: Operation, exit: Exit) -> TaskState {
    let noticed = Instant::now();
    TaskState::Ended(Ended { upid: UPID.parse().unwrap(), operation, exit, noticed })
}

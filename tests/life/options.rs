//! What a spec says of the clone and of the checks reaches Proxmox, each to the letter.

use anyhow::{Context as _, Result, ensure};
use capmox::api::ProxmoxMachine;
use kube::ResourceExt as _;
use pve_fake::{Config, Seed, StorageSeed, VmSeed};
use serde_json::{Value, json};

use crate::core::until;
use crate::lane::{Lane, quick, spec};
use crate::site::play;

/// A file server beside the block storages, with a template on it, and a pool.
fn config() -> Config {
    let template = VmSeed::new(9002, "pve2", "kube-template-nas", "nas").template();
    let mut seed = Seed::three_nodes().with_vm(template);
    seed.storages.push(StorageSeed::new("nas", "nfs", true, "images"));
    seed.pools.insert("kubernetes".to_owned(), Vec::new());
    quick().with_seed(seed)
}

/// A machine `w-1` with these options beside the usual ones.
async fn machine(options: Value) -> Result<Lane> {
    let lane = Lane::open("options", config()).await?;
    let mut spec = spec();
    for (key, value) in options.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    lane.site.make_machine("w-1", spec).await?;
    Ok(lane)
}

#[test]
fn options_of_the_clone_reach_proxmox() {
    play(async {
        let lane = machine(json!({
            "sourceNode": "pve2",
            "templateID": 9002,
            "target": "pve3",
            "full": true,
            "storage": "nas",
            "format": "qcow2",
            "pool": "kubernetes",
            "vmIDRange": {"start": 4100, "end": 4101},
        }))
        .await?;
        lane.site.ready("w-1").await?;
        {
            let journal = lane.fake.journal();
            let clone = journal.calls("POST", "/nodes/pve2/qemu/9002/clone").next();
            let sent = &clone.context("nobody cloned template 9002 of pve2")?.params;
            for (key, wanted) in [
                ("newid", "4100"),
                ("name", "w-1"),
                ("target", "pve3"),
                ("full", "1"),
                ("storage", "nas"),
                ("format", "qcow2"),
                ("pool", "kubernetes"),
            ] {
                let sent = sent.get(key).map(String::as_str);
                ensure!(sent == Some(wanted), "{key} is {sent:?}, not {wanted}");
            }
        }
        let vm = lane.vm("w-1")?;
        ensure!(vm.node == "pve3", "the VM is on {}", vm.node);
        lane.site.delete_machine("w-1").await?;
        lane.check_gone("w-1").await
    });
}

#[test]
fn a_snapshot_that_the_template_lacks_is_named() {
    play(async {
        let lane = machine(json!({"snapName": "golden"})).await?;
        let told = |found: Option<&ProxmoxMachine>| {
            let conditions = found.and_then(|one| one.status.as_ref()).map(|one| &one.conditions);
            conditions.into_iter().flatten().any(|condition| {
                let says = |word| condition.message.iter().any(|text| text.contains(word));
                says("golden") && says("spec.snapName")
            })
        };
        let machines = lane.site.machines();
        lane.site.within("a word on the snapshot", "w-1", until(&machines, "w-1", told)).await?;
        {
            let journal = lane.fake.journal();
            let clone = journal.calls("POST", "/nodes/*/qemu/*/clone").next();
            let sent = clone.context("nobody cloned")?.params.get("snapname").cloned();
            ensure!(sent.as_deref() == Some("golden"), "snapname is {sent:?}");
        }
        lane.site.delete_machine("w-1").await?;
        lane.site.addresses_given_back("w-1").await?;
        ensure!(lane.vm("w-1").is_err(), "a VM was made of a snapshot that is not there");
        Ok(())
    });
}

#[test]
fn without_the_check_of_cloud_init_only_the_agent_is_asked() {
    play(async {
        let lane = machine(json!({"checks": {"skipCloudInitStatus": true}})).await?;
        let machine = lane.site.ready("w-1").await?;
        {
            let journal = lane.fake.journal();
            let pings = journal.count("GET", "/nodes/*/qemu/*/agent/get-osinfo");
            let commands = journal.count("POST", "/nodes/*/qemu/*/agent/exec");
            ensure!(pings > 0, "{} is ready and its agent was not asked", machine.name_any());
            ensure!(commands == 0, "{commands} commands were run in the guest");
        }
        let status = machine.status.context("no status")?;
        let network = status.network;
        let vm = lane.vm("w-1")?;
        let device = vm.config.get("net0").cloned().unwrap_or_default();
        let first = network.first().with_context(|| format!("no network in status: {device}"))?;
        ensure!(first.connected == Some(true), "{first:?}");
        ensure!(first.network_name.as_deref() == Some("vmbr1"), "{first:?}");
        let given = status.ip_addresses.get("net0").and_then(|device| device.ipv4.clone());
        ensure!(given.is_some() && first.ip_addrs == given.into_iter().collect::<Vec<_>>());
        ensure!(device.contains(&first.mac_addr.to_uppercase()), "{first:?} is not {device}");
        lane.site.delete_machine("w-1").await?;
        lane.check_gone("w-1").await
    });
}

//! What a spec says of the clone and of the checks reaches Proxmox, each to the letter.

use anyhow::{Context as _, ensure};
use kube::ResourceExt as _;
use pve_fake::{Config, Seed, StorageSeed, VmSeed};
use serde_json::json;

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

#[test]
fn options_of_the_clone_reach_proxmox() {
    play(async {
        let lane = Lane::open("options", config()).await?;
        let mut spec = spec();
        spec["sourceNode"] = json!("pve2");
        spec["templateID"] = json!(9002);
        spec["target"] = json!("pve3");
        spec["full"] = json!(true);
        spec["storage"] = json!("nas");
        spec["format"] = json!("qcow2");
        spec["pool"] = json!("kubernetes");
        spec["description"] = json!("one of many");
        spec["vmIDRange"] = json!({"start": 4100, "end": 4101});
        lane.site.make_machine("w-1", spec).await?;
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
        let lane = Lane::open("options", config()).await?;
        let mut spec = spec();
        spec["snapName"] = json!("golden");
        lane.site.make_machine("w-1", spec).await?;
        let told = |found: Option<&capmox::api::ProxmoxMachine>| {
            found.is_some_and(|machine| {
                let conditions = machine.status.iter().flat_map(|status| &status.conditions);
                conditions
                    .filter_map(|condition| condition.message.as_deref())
                    .any(|message| message.contains("golden"))
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
        let lane = Lane::open("options", quick()).await?;
        let mut spec = spec();
        spec["checks"] = json!({"skipCloudInitStatus": true});
        lane.site.make_machine("w-1", spec).await?;
        let machine = lane.site.ready("w-1").await?;
        {
            let journal = lane.fake.journal();
            let pings = journal.count("GET", "/nodes/*/qemu/*/agent/get-osinfo");
            let commands = journal.count("POST", "/nodes/*/qemu/*/agent/exec");
            ensure!(pings > 0, "{} is ready and its agent was not asked", machine.name_any());
            ensure!(commands == 0, "{commands} commands were run in the guest");
        }
        let network = machine.status.map(|status| status.network).unwrap_or_default();
        let vm = lane.vm("w-1")?;
        let device = vm.config.get("net0").cloned().unwrap_or_default();
        let first = network.first().with_context(|| format!("no network in status: {device}"))?;
        ensure!(first.connected == Some(true), "{first:?}");
        ensure!(first.network_name.as_deref() == Some("vmbr1"), "{first:?}");
        ensure!(device.contains(&first.mac_addr.to_uppercase()), "{first:?} is not {device}");
        lane.site.delete_machine("w-1").await?;
        lane.check_gone("w-1").await
    });
}

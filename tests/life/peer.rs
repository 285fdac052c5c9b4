//! The same life at `fakepve`, a simulator that shares no code with this repository.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use capmox::pve::{Client, ClientConfig, GuestResource, Limits, Resource, Tls, token};
use pve_fake::Seed;
use pve_fake::peer::Fakepve;

use crate::gate::Gate;
use crate::lane::spec;
use crate::site::{Proxmox, Site, play};

#[test]
fn a_machine_lives_at_another_simulator_too() {
    play(async {
        let seed = Seed::three_nodes();
        let start = {
            let seed = seed.clone();
            move || Fakepve::start(&seed, 0.02)
        };
        let peer = tokio::task::spawn_blocking(start).await??;
        let client = client(&peer, &seed)?;
        let token = &seed.tokens[0];
        let proxmox = Proxmox {
            url: peer.url().to_owned(),
            token: token.id.clone(),
            secret: token.secret.clone(),
            authority: Some(peer.certificate_pem().to_owned()),
        };
        let site = Site::open("peer", proxmox, Arc::new(Gate::default())).await?;
        site.make_machine("w-1", spec()).await?;
        let machine = site.ready("w-1").await?;
        check_running(&client, machine.spec.virtual_machine_id).await?;
        site.join("w-1").await?;
        site.unseeded("w-1").await?;
        ensure!(seeds(&client).await?.is_empty(), "seeds are left: {:?}", seeds(&client).await?);
        site.delete_machine("w-1").await?;
        site.addresses_given_back("w-1").await?;
        let left = vms(&client).await?;
        ensure!(left.is_empty(), "VMs are left: {left:?}");
        Ok(())
    });
}

fn client(peer: &Fakepve, seed: &Seed) -> Result<Client> {
    let auth = token(&seed.tokens[0].id, &seed.tokens[0].secret)?;
    let tls = Tls::Bundle(peer.certificate_pem().into());
    let config =
        ClientConfig { base_url: peer.url().parse()?, auth, tls, limits: Limits::default() };
    Ok(Client::new(config)?)
}

/// What is there besides templates.
async fn vms(client: &Client) -> Result<Vec<GuestResource>> {
    let listed = client.cluster_resources().await?;
    let vms = listed.into_iter().filter_map(|resource| match resource {
        Resource::Vm(vm) if !vm.template => Some(vm),
        _ => None,
    });
    Ok(vms.collect())
}

/// Volume ids of seeds. The simulator shows a storage's files on every node.
async fn seeds(client: &Client) -> Result<BTreeSet<String>> {
    let mut seeds = BTreeSet::new();
    for node in ["pve1", "pve2", "pve3"] {
        let listed = client.storage_content(&node.parse()?, &"local".parse()?, Some("iso")).await?;
        seeds.extend(listed.into_iter().map(|volume| volume.volid));
    }
    Ok(seeds)
}

async fn check_running(client: &Client, vmid: Option<i64>) -> Result<()> {
    let vms = vms(client).await?;
    let [vm] = &vms[..] else { anyhow::bail!("not one VM but {vms:?}") };
    ensure!(Some(i64::from(vm.vmid)) == vmid, "{vmid:?} is recorded and there is {vm:?}");
    let config = client.vm_config(&vm.node, vm.vmid).await?;
    ensure!(config.name() == Some("w-1"), "{:?}", config.name());
    for (key, wanted) in [("sockets", 2), ("cores", 4), ("memory", 4096)] {
        ensure!(config.number(key) == Some(wanted), "{key} is {:?}", config.number(key));
    }
    let device = config.net("net0").context("no net0")?;
    ensure!(device.mac().is_some() && device.bridge() == Some("vmbr1"), "{device}");
    let drive = config.drive("ide0").context("no ide0")?;
    ensure!(drive.volume().is_some_and(|volume| volume.contains("user-data-")), "{drive:?}");
    ensure!(seeds(client).await?.len() == 1, "{:?}", seeds(client).await?);
    ensure!(client.vm_status(&vm.node, vm.vmid).await?.is_running());
    Ok(())
}

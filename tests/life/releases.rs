//! What a machine's life leaves behind at each of its stages, on each release of Proxmox VE, for
//! copies and for linked clones.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::{Context as _, Result, ensure};
use capmox::api::{MachineAddressType, ProxmoxMachine};
use futures::FutureExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use pve_fake::{Config, HookCall, Release, Seed, VmSeed, VmView, When};
use pve_guest::iso9660::Image;
use serde_json::json;

use crate::core::user_data;
use crate::lane::{Lane, spec};
use crate::site::play;

const GOLDEN: &str = "golden image, rebuilt weekly";

/// The machine and its seed at the moments that nobody can look at later.
#[derive(Default)]
struct Seen {
    cloned: Option<VmView>,
    started: Option<(VmView, Vec<(String, bytes::Bytes)>)>,
}

#[test]
fn a_machine_is_as_it_was_asked_for_on_every_release() {
    play(async {
        let releases = [Release::V7, Release::V8, Release::V9];
        let kinds = releases.into_iter().flat_map(|release| [(release, true), (release, false)]);
        try_join_all(kinds.map(|(release, full)| async move {
            let lived = lives(release, full).await;
            lived
                .with_context(|| format!("{release:?}, {}", if full { "copied" } else { "linked" }))
        }))
        .await?;
        Ok(())
    });
}

async fn lives(release: Release, full: bool) -> Result<()> {
    let template = VmSeed::new(9000, "pve1", "kube-template", "shared")
        .with("description", GOLDEN)
        .with("tags", "golden")
        .template();
    let seed = Seed::three_nodes().with_vm(template);
    let config = Config::default().with_seed(seed).with_release(release);
    let lane = Arc::new(Lane::open("life", config).await?);
    let moments = watch(&lane, "w-1");
    let mut spec = spec();
    spec["full"] = json!(full);
    if full {
        spec["description"] = json!("made to measure: 50% & more; näh");
        spec["storage"] = json!("shared");
    }
    let site = &lane.site;
    site.make_machine("w-1", spec.clone()).await?;
    let machine = site.ready("w-1").await?;
    let vm = lane.vm("w-1")?;
    check_config(&vm, &machine, spec["description"].as_str().unwrap_or(GOLDEN))?;
    check_status(&vm, &machine)?;
    {
        let moments = moments.lock().unwrap_or_else(PoisonError::into_inner);
        check_first_start(&moments, &vm, &machine)?;
    }
    check_clone(&lane, full)?;

    site.join("w-1").await?;
    let machine = site.unseeded("w-1").await?;
    lane.check_unseeded("w-1")?;
    let status = machine.status.context("no status")?;
    ensure!(status.ready && status.bootstrap_data_provided == Some(true), "{status:?}");
    site.delete_machine("w-1").await?;
    lane.check_gone("w-1").await?;
    check_events(&lane).await
}

/// Looks at the VM when it has just been cloned, and when it is about to be started.
fn watch(lane: &Arc<Lane>, name: &'static str) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let looked: (Weak<Lane>, _) = (Arc::downgrade(lane), Arc::clone(&seen));
    lane.fake.set_hook(Some(Arc::new(move |call: HookCall| {
        let of_interest = call.when == When::Before && call.method != "GET";
        if let Some(lane) = looked.0.upgrade().filter(|_| of_interest)
            && let Ok(vm) = lane.vm(name)
        {
            let mut seen = looked.1.lock().unwrap_or_else(PoisonError::into_inner);
            seen.cloned.get_or_insert_with(|| vm.clone());
            if call.path.ends_with("/status/start") {
                seen.started.get_or_insert_with(|| (vm, lane.seeds()));
            }
        }
        std::future::ready(()).boxed()
    })));
    seen
}

fn mac(vm: &VmView) -> Result<String> {
    let device = vm.config.get("net0").context("no net0")?;
    let mac = device.split(',').find_map(|part| part.strip_prefix("virtio="));
    Ok(mac.with_context(|| format!("no MAC in {device}"))?.to_owned())
}

fn check_config(vm: &VmView, machine: &ProxmoxMachine, description: &str) -> Result<()> {
    let uuid = machine.spec.provider_id.as_deref().and_then(|id| id.strip_prefix("proxmox://"));
    let uuid = uuid.context("the provider id has no uuid")?;
    let has = |key: &str| vm.config.get(key).map(String::as_str).unwrap_or_default();
    for (key, wanted) in [("name", "w-1"), ("sockets", "2"), ("cores", "4"), ("memory", "4096")] {
        ensure!(has(key) == wanted, "{key} is {:?}", has(key));
    }
    ensure!(has("net0").ends_with(",bridge=vmbr1,tag=7"), "net0 is {}", has("net0"));
    ensure!(has("scsi0").contains("size=20G"), "scsi0 is {}", has("scsi0"));
    ensure!(has("description").trim_end() == description, "description {:?}", has("description"));
    ensure!(has("smbios1").contains(uuid), "{} is not {uuid}", has("smbios1"));
    let address = address(machine)?;
    let tags: BTreeSet<String> = has("tags").split(';').map(str::to_owned).collect();
    let wanted = ["golden", "rack7", "go-proxmox+cloud-init", &format!("ip_net0_{address}")];
    ensure!(tags == wanted.map(str::to_owned).into(), "tags are {tags:?}");
    ensure!(has("boot") == "order=scsi0;net0;ide0", "boot is {}", has("boot"));
    ensure!(vm.running && vm.lock.is_none() && !vm.template);
    Ok(())
}

fn address(machine: &ProxmoxMachine) -> Result<String> {
    let status = machine.status.as_ref().context("no status")?;
    let net0 = status.ip_addresses.get("net0").and_then(|device| device.ipv4.clone());
    net0.context("no address of net0")
}

fn check_status(vm: &VmView, machine: &ProxmoxMachine) -> Result<()> {
    let status = machine.status.as_ref().context("no status")?;
    ensure!(machine.spec.virtual_machine_id == Some(i64::from(vm.vmid)));
    ensure!(status.vm_status.as_deref() == Some("ready"), "{:?}", status.vm_status);
    ensure!(status.proxmox_node.as_deref() == Some(vm.node.as_str()), "{:?}", status.proxmox_node);
    ensure!(status.bootstrap_data_provided == Some(true));
    ensure!(status.task_ref.is_none() && status.retry_after.is_none(), "{status:?}");
    ensure!(status.clone_attempts.unwrap_or(0) == 0, "{:?}", status.clone_attempts);
    ensure!(status.failure_reason.is_none() && status.failure_message.is_none());
    let template = status.template_ref.as_ref().context("no template")?;
    ensure!((template.node.as_str(), template.vmid) == ("pve1", 9000), "{template:?}");
    let seed = format!("local:iso/user-data-{}.iso", vm.vmid);
    ensure!(status.bootstrap_iso.as_ref() == Some(&seed), "{:?}", status.bootstrap_iso);
    let addresses: Vec<_> = status.addresses.iter().map(|a| (a.type_, a.address.clone())).collect();
    let wanted = [
        (MachineAddressType::Hostname, "w-1".to_owned()),
        (MachineAddressType::InternalIP, address(machine)?),
    ];
    ensure!(addresses == wanted, "{addresses:?}");
    for type_ in ["Ready", "VMProvisioned"] {
        let condition = status.conditions.iter().find(|one| one.type_ == type_);
        ensure!(condition.is_some_and(|one| one.status == "True"), "{type_}: {condition:?}");
        let condition = status.v1beta2_conditions().iter().find(|one| one.type_ == type_);
        ensure!(
            condition.is_some_and(|one| one.status == "True"),
            "v1beta2 {type_}: {condition:?}"
        );
    }
    Ok(())
}

/// Everything that a VM boots with is there before it boots, and stays.
fn check_first_start(seen: &Seen, vm: &VmView, machine: &ProxmoxMachine) -> Result<()> {
    let cloned = seen.cloned.as_ref().context("the clone was not seen")?;
    ensure!(mac(cloned)? == mac(vm)?, "the MAC was {} and is {}", mac(cloned)?, mac(vm)?);
    let marked = cloned.config.get("description").cloned().unwrap_or_default();
    let uid = machine.metadata.uid.clone().unwrap_or_default();
    ensure!(marked.contains(&uid), "the clone's description is {marked:?}");
    let (started, seeds) = seen.started.as_ref().context("the start was not seen")?;
    ensure!(started.config == vm.config, "changed since its start: {:?}", started.config);
    let [(volume, data)] = &seeds[..] else { anyhow::bail!("{} seeds", seeds.len()) };
    ensure!(*volume == format!("local:iso/user-data-{}.iso", vm.vmid), "{volume}");
    let drive = vm.config.get("ide0").map(String::as_str).unwrap_or_default();
    ensure!(drive.starts_with(&format!("{volume},media=cdrom")), "ide0 is {drive}");
    check_seed(data, vm, machine)
}

fn check_seed(data: &[u8], vm: &VmView, machine: &ProxmoxMachine) -> Result<()> {
    let image = Image::read(data)?;
    ensure!(image.label == "cidata", "{}", image.label);
    let file = |name: &str| -> Result<String> {
        let data = image.files.get(name).with_context(|| format!("no {name}"))?;
        Ok(String::from_utf8(data.clone())?)
    };
    ensure!(image.files.len() == 3, "{:?}", image.files.keys());
    ensure!(file("user-data")? == user_data("w-1"), "{}", file("user-data")?);
    let uuid = machine.spec.provider_id.as_deref().unwrap_or_default().replace("proxmox://", "");
    let meta_data = file("meta-data")?;
    for wanted in [uuid.as_str(), "w-1", "v1.33.4"] {
        ensure!(meta_data.contains(wanted), "no {wanted} in meta-data:\n{meta_data}");
    }
    ensure!(!meta_data.contains("proxmox://"), "not asked for:\n{meta_data}");
    let network = file("network-config")?;
    let mac = mac(vm)?.to_lowercase();
    let address = format!("{}/24", address(machine)?);
    for wanted in [mac.as_str(), &address, "10.10.10.1", "metric: 100"] {
        ensure!(network.contains(wanted), "no {wanted} in network-config:\n{network}");
    }
    Ok(())
}

fn check_clone(lane: &Lane, full: bool) -> Result<()> {
    let journal = lane.fake.journal();
    let clones: Vec<_> = journal.calls("POST", "/nodes/*/qemu/*/clone").collect();
    ensure!(clones.len() == 1, "{clones:?}");
    let copied = clones[0].params.get("full").is_some_and(|text| text == "1");
    ensure!(copied == full, "{:?}", clones[0].params);
    Ok(())
}

/// People see the stages go by, without a word of trouble.
async fn check_events(lane: &Lane) -> Result<()> {
    let api: Api<Event> = Api::namespaced(lane.site.client.clone(), &lane.site.namespace);
    let found = api.list(&ListParams::default()).await?.items;
    let told = found.iter().filter(|event| {
        event.regarding.as_ref().is_some_and(|object| {
            object.kind.as_deref() == Some("ProxmoxMachine")
                && object.name.as_deref() == Some("w-1")
        })
    });
    let told: Vec<(&str, &str)> = told
        .map(|event| {
            let (type_, reason) = (event.type_.as_deref(), event.reason.as_deref());
            (type_.unwrap_or_default(), reason.unwrap_or_default())
        })
        .collect();
    ensure!(told.iter().all(|(type_, _)| *type_ == "Normal"), "{told:?}");
    for reason in ["Cloning", "VMProvisioned", "Deleting"] {
        let count = told.iter().filter(|(_, told)| *told == reason).count();
        ensure!(count == 1, "{reason} is told {count} times: {told:?}");
    }
    // The condition says so for as long as it takes.
    ensure!(told.iter().all(|(_, told)| *told != "PoweringOn"), "{told:?}");
    Ok(())
}

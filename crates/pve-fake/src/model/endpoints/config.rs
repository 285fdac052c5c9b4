//! `POST …/config` (a task) and `PUT …/config` (done when answered).

use std::collections::BTreeMap;

use crate::model::Model;
use crate::model::option::{Drive, is_drive, is_nic};
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Field, Kind, Schema, may, vm_option};
use crate::model::work::{ConfigWork, Work, lock_timeout};
use crate::model::{option::Nic, task::Lock};

const ANY_CONFIG: Need = Need::Any(
    "/vms/{vmid}",
    &[
        "VM.Config.Disk",
        "VM.Config.CDROM",
        "VM.Config.CPU",
        "VM.Config.Memory",
        "VM.Config.Network",
        "VM.Config.HWType",
        "VM.Config.Options",
        "VM.Config.Cloudinit",
    ],
);
const EXTRA: &[Field] = &[
    may("delete", Kind::Text),
    may("revert", Kind::Text),
    may("digest", Kind::Short(40)),
    may("force", Kind::Flag),
    may("skiplock", Kind::Flag),
    may("background_delay", Kind::Int(1, 30)),
];

pub(super) const ROUTES: &[Route] = &[
    Route {
        method: "POST",
        pattern: "/nodes/{node}/qemu/{vmid}/config",
        need: ANY_CONFIG,
        schema: Schema::VmConfig(EXTRA),
        run: post,
    },
    Route {
        method: "PUT",
        pattern: "/nodes/{node}/qemu/{vmid}/config",
        need: ANY_CONFIG,
        schema: Schema::VmConfig(EXTRA),
        run: put,
    },
];

fn post(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let work = prepare(model, call)?;
    let id = work.vmid.to_string();
    let upid = model.submit(call.node(), "qmconfig", &id, &call.caller, Work::Config(work));
    Ok(Reply::task(upid))
}

fn put(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let work = prepare(model, call)?;
    if model.locks.contains_key(&Lock::Vm(work.vmid)) {
        let refusal = Refusal::die(lock_timeout(work.vmid)).after(model.timings.lock_wait);
        return Err(Refusal { blocked: true, ..refusal });
    }
    work.apply(model)?;
    Ok(Reply::null(format!("configured {}", work.vmid)))
}

fn prepare(model: &mut Model, call: &Call) -> Result<ConfigWork, Refusal> {
    let control = |key: &str| EXTRA.iter().any(|field| field.name == key);
    let set: BTreeMap<String, String> = call
        .params
        .0
        .keys()
        .filter(|key| !control(key))
        .filter_map(|key| Some((key.clone(), call.params.text(key)?.to_owned())))
        .collect();
    let delete = call.params.words("delete");
    if call.params.flag("skiplock") && call.caller.id != crate::model::access::ROOT {
        return Err(Refusal::param("skiplock", "Only root may use this option."));
    }
    for key in &delete {
        if vm_option(key).is_none() {
            return Err(Refusal::param("delete", format!("unknown option '{key}'")));
        }
        if set.contains_key(key) {
            let text = format!("you can't use '-{key}' and -delete {key}' at the same time");
            return Err(Refusal::param("delete", text));
        }
    }
    let work = ConfigWork {
        node: call.node().to_owned(),
        vmid: call.vmid(),
        set,
        delete,
        revert: call.params.words("revert"),
        digest: call.params.text("digest").map(str::to_owned),
        force: call.params.flag("force"),
    };
    if work.set.is_empty() && work.delete.is_empty() && work.revert.is_empty() {
        return Err(Refusal::die("no options specified"));
    }
    permit_keys(model, call, &work)?;
    work.check(model)?;
    model.check_config_keys(work.vmid, work.set.iter());
    Ok(work)
}

/// Every option has its privilege.
fn permit_keys(model: &Model, call: &Call, work: &ConfigWork) -> Result<(), Refusal> {
    let path = format!("/vms/{}", work.vmid);
    let old = model.vms.get(&work.vmid);
    let deleted =
        work.delete.iter().map(|key| (key, old.and_then(|vm| vm.get(key)).unwrap_or_default()));
    for (key, value) in work.set.iter().map(|(key, value)| (key, value.as_str())).chain(deleted) {
        let Some(privilege) = privilege_of(key, value) else {
            if call.caller.id == crate::model::access::ROOT {
                continue;
            }
            return Err(Refusal::die(format!("only root can set '{key}' config")));
        };
        model.require(&call.caller, &path, privilege)?;
        if is_nic(key) {
            model.require_bridge(call, value)?;
        }
        if key == "tags" {
            require_tags(model, call, value, old.and_then(|vm| vm.get("tags")))?;
        }
    }
    Ok(())
}

fn require_tags(model: &Model, call: &Call, value: &str, old: Option<&str>) -> Result<(), Refusal> {
    let value = crate::model::option::normal_tags(value).unwrap_or_default();
    let old: Vec<&str> = old.unwrap_or_default().split(';').collect();
    let new: Vec<&str> = value.split(';').collect();
    for tag in &model.registered_tags {
        let changed = old.contains(&tag.as_str()) != new.contains(&tag.as_str());
        if changed && !model.allows(&call.caller, "/", "Sys.Modify") {
            let text = format!("/, Sys.Modify for modifying tag '{tag}'");
            return Err(Refusal::forbidden(&text));
        }
    }
    Ok(())
}

impl Model {
    /// SDN.Use on the bridge of a NIC, from 8 on.
    pub(crate) fn require_bridge(&self, call: &Call, nic: &str) -> Result<(), Refusal> {
        let Some(nic) = Nic::parse(nic) else { return Ok(()) };
        let Some(bridge) = nic.rest.get("bridge") else { return Ok(()) };
        if self.release == crate::config::Release::V7 {
            return Ok(());
        }
        let path = match nic.rest.get("tag") {
            Some(tag) => format!("/sdn/zones/localnetwork/{bridge}/{tag}"),
            None => format!("/sdn/zones/localnetwork/{bridge}"),
        };
        self.require(&call.caller, &path, &["SDN.Use"])
    }
}

/// One of these privileges lets the option be set; none: root itself only.
fn privilege_of(key: &str, value: &str) -> Option<&'static [&'static str]> {
    let names: &[&str] = match key {
        key if is_drive(key) && Drive::parse(value).is_some_and(|drive| drive.is_cdrom()) => {
            &["VM.Config.CDROM"]
        }
        key if is_drive(key) || key.starts_with("unused") => &["VM.Config.Disk"],
        "boot" | "bootdisk" | "vmstatestorage" => &["VM.Config.Disk"],
        "cores" | "cpu" | "cpulimit" | "cpuunits" | "numa" | "sockets" | "vcpus" => {
            &["VM.Config.CPU"]
        }
        "memory" | "balloon" | "shares" => &["VM.Config.Memory"],
        key if is_nic(key) => &["VM.Config.Network"],
        "ciuser" | "cipassword" | "citype" | "ciupgrade" | "cicustom" | "nameserver"
        | "searchdomain" | "sshkeys" => &["VM.Config.Cloudinit", "VM.Config.Network"],
        key if key.starts_with("ipconfig") => &["VM.Config.Cloudinit", "VM.Config.Network"],
        "acpi" | "hotplug" | "kvm" | "machine" | "scsihw" | "smbios1" | "tablet" | "vga"
        | "watchdog" | "audio0" | "rng0" => &["VM.Config.HWType"],
        key if key.starts_with("serial") || key.starts_with("usb") || key.starts_with("numa") => {
            &["VM.Config.HWType"]
        }
        "agent" | "autostart" | "bios" | "description" | "keyboard" | "localtime"
        | "migrate_downtime" | "migrate_speed" | "name" | "onboot" | "ostype" | "protection"
        | "reboot" | "startdate" | "startup" | "tdf" | "template" | "tags" => {
            &["VM.Config.Options"]
        }
        "freeze" => &["VM.PowerMgmt"],
        _ => return None,
    };
    Some(names)
}

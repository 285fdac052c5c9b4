//! `POST …/clone`: the rules of linked and full clones, of targets and of taken ids.

use std::collections::BTreeMap;

use super::post;
use crate::model::Model;
use crate::model::option::{Drive, Nic, is_drive, is_nic, print_size};
use crate::model::request::{Refusal, Reply};
use crate::model::route::{Call, Need, Route};
use crate::model::schema::{Kind, may, must};
use crate::model::state::{Storage, Vm};
use crate::model::work::{CloneWork, NewVolume, Work};

pub(super) const ROUTES: &[Route] = &[post(
    "/nodes/{node}/qemu/{vmid}/clone",
    Need::Own(permit),
    &[
        must("newid", Kind::Vmid),
        may("name", Kind::DnsName),
        may("description", Kind::Text),
        may("pool", Kind::PoolId),
        may("snapname", Kind::ConfigId),
        may("storage", Kind::StorageId),
        may("format", Kind::OneOf(&["raw", "qcow2", "vmdk"])),
        may("full", Kind::Flag),
        may("target", Kind::Node),
        may("bwlimit", Kind::Int(0, i64::MAX)),
    ],
    clone,
)];

fn permit(model: &Model, call: &Call) -> Result<(), Refusal> {
    model.require(&call.caller, &format!("/vms/{}", call.vmid()), &["VM.Clone"])?;
    let newid = call.params.text("newid").unwrap_or_default();
    if model.allows(&call.caller, &format!("/vms/{newid}"), "VM.Allocate") {
        return Ok(());
    }
    let Some(pool) = call.params.text("pool") else {
        return Err(Refusal::new(403, "Permission check failed"));
    };
    if model.allows(&call.caller, &format!("/pool/{pool}"), "VM.Allocate") {
        return Ok(());
    }
    Err(Refusal::new(403, "Permission check failed"))
}

fn clone(model: &mut Model, call: &Call) -> Result<Reply, Refusal> {
    let (node, vmid) = (call.node().to_owned(), call.vmid());
    let newid = u32::try_from(call.params.number("newid").unwrap_or(0)).unwrap_or(0);
    model.need_quorum()?;
    if let Some(pool) = call.params.text("pool")
        && !model.pools.contains_key(pool)
    {
        return Err(Refusal::forbidden(&format!("pool '{pool}' does not exist")));
    }
    let source = model.vms.get(&vmid).filter(|vm| vm.node == node);
    let source = source.ok_or_else(|| Refusal::missing_vm(&node, vmid))?.clone();
    let target = call.params.text("target").unwrap_or(&node).to_owned();
    if !model.nodes.contains_key(&target) {
        return Err(Refusal::die(format!("no such cluster node '{target}'")));
    }
    if let Some(lock) = source.lock() {
        return Err(Refusal::die(format!("VM is locked ({lock})")));
    }
    let config = match call.params.text("snapname") {
        None => source.config.clone(),
        Some(name) => {
            let missing = || Refusal::die(format!("snapshot '{name}' does not exist"));
            source.snapshots.get(name).ok_or_else(missing)?.config.clone()
        }
    };
    let full = match call.params.text("full") {
        Some(full) => full == "1",
        None => !source.is_template(),
    };
    check_storage(model, call, &node, &target, full)?;
    if model.vms.get(&newid).is_some_and(|vm| vm.node == node) {
        let text = format!("unable to create VM {newid}: config file already exists");
        return Err(Refusal::die(text));
    }
    let source = Vm { config, ..source };
    let plan = Plan { call, full, newid, target: &target, node: &node };
    let work = plan.work(model, vmid, &source)?;
    if let Some(name) = work.config.get("name").cloned() {
        model.check_clone_name(&name, newid);
    }
    let id = vmid.to_string();
    let work = Work::Clone(Box::new(work));
    Ok(Reply::task(model.submit(&node, "qmclone", &id, &call.caller, work)))
}

fn check_storage(
    model: &Model,
    call: &Call,
    node: &str,
    target: &str,
    full: bool,
) -> Result<(), Refusal> {
    for option in ["storage", "format"] {
        if !full && call.params.has(option) {
            let text = format!("parameter '{option}' not allowed for linked clones");
            return Err(Refusal::die(text));
        }
    }
    let Some(name) = call.params.text("storage") else { return Ok(()) };
    let storage = model.storages.get(name);
    let storage =
        storage.ok_or_else(|| Refusal::die(format!("storage '{name}' does not exist")))?;
    if storage.disabled {
        return Err(Refusal::die(format!("storage '{name}' is disabled")));
    }
    for node in [node, target] {
        if !storage.is_on(node) {
            let text = format!("storage '{name}' is not available on node '{node}'");
            return Err(Refusal::die(text));
        }
    }
    if !storage.takes("images") {
        let text = format!("storage '{name}' does not support vm images");
        return Err(Refusal::param("storage", text));
    }
    if target != node && !storage.shared {
        return Err(Refusal::die(format!("can't clone to non-shared storage '{name}'")));
    }
    Ok(())
}

struct Plan<'a> {
    call: &'a Call,
    full: bool,
    newid: u32,
    target: &'a str,
    node: &'a str,
}

impl Plan<'_> {
    fn work(&self, model: &mut Model, vmid: u32, source: &Vm) -> Result<CloneWork, Refusal> {
        let mut config = BTreeMap::new();
        let mut volumes = Vec::new();
        for (key, value) in &source.config {
            let value = match key.as_str() {
                "template" | "lock" | "vmgenid" => continue,
                key if key.starts_with("unused") => continue,
                "smbios1" => continue,
                key if is_drive(key) => self.drive(model, source, key, value, &mut volumes)?,
                key if is_nic(key) => {
                    model.require_bridge(self.call, value)?;
                    with_new_mac(model, value)
                }
                _ => value.clone(),
            };
            config.insert(key.clone(), value);
        }
        if source.config.contains_key("vmgenid") {
            config.insert("vmgenid".to_owned(), model.new_uuid());
        }
        config.insert("smbios1".to_owned(), new_smbios(model, source));
        let given = |key| self.call.params.text(key).map(str::to_owned);
        let name = given("name").unwrap_or_else(|| match source.get("name") {
            Some(name) => format!("Copy-of-{name}"),
            None => format!("Copy-of-VM-{vmid}"),
        });
        config.insert("name".to_owned(), name);
        if let Some(description) = given("description") {
            config.insert("description".to_owned(), description);
        }
        Ok(CloneWork {
            source: vmid,
            node: self.node.to_owned(),
            newid: self.newid,
            target: self.target.to_owned(),
            full: self.full,
            pool: given("pool"),
            config,
            volumes,
        })
    }

    /// The clone's value of a drive; a volume of its own unless it is an ISO.
    fn drive(
        &self,
        model: &Model,
        source: &Vm,
        key: &str,
        value: &str,
        volumes: &mut Vec<NewVolume>,
    ) -> Result<String, Refusal> {
        let Some(mut drive) = Drive::parse(value) else { return Ok(value.to_owned()) };
        let Some(from) = drive.storage().map(str::to_owned) else { return Ok(value.to_owned()) };
        let shared = model.storages.get(&from).is_some_and(|storage| storage.shared);
        if self.target != self.node && !shared {
            return Err(Refusal::die(format!(
                "can't clone VM to node '{}' (VM uses local storage)",
                self.target
            )));
        }
        let cloudinit = drive.file.contains("cloudinit");
        if drive.is_cdrom() && !cloudinit {
            return Ok(value.to_owned());
        }
        let linked = !self.full && !cloudinit && key != "tpmstate0";
        let can_link = model.storages.get(&from).is_some_and(Storage::can_link);
        if linked && !(can_link && source.is_template()) {
            return Err(Refusal::die(format!(
                "Linked clone feature is not supported for '{}' ({key})",
                drive.file
            )));
        }
        let to = match self.call.params.text("storage") {
            Some(name) if !linked => name.to_owned(),
            _ => from,
        };
        let path = format!("/storage/{to}");
        model.require(&self.call.caller, &path, &["Datastore.AllocateSpace"])?;
        let found = model.find_volume(self.node, &drive.file);
        let size = found.map(|volume| volume.size).or_else(|| drive.size()).unwrap_or(1 << 30);
        let parent = linked.then(|| drive.file.clone());
        let what = if cloudinit { "cloudinit" } else { "disk" };
        let volid = self.volid(model, &to, what, volumes, parent.as_deref());
        volumes.push(NewVolume { storage: to, volid: volid.clone(), size, parent });
        drive.file = volid;
        drive.rest.insert("size".to_owned(), print_size(size));
        Ok(drive.print())
    }

    fn volid(
        &self,
        model: &Model,
        storage: &str,
        what: &str,
        made: &[NewVolume],
        parent: Option<&str>,
    ) -> String {
        let files = model.storages.get(storage).is_some_and(Storage::has_files);
        let rbd = model
            .storages
            .get(storage)
            .is_some_and(|s| matches!(s.kind.as_str(), "rbd" | "zfspool"));
        let number = made.iter().filter(|volume| volume.storage == storage).count();
        let stem = match what {
            "cloudinit" => format!("vm-{}-cloudinit", self.newid),
            _ => format!("vm-{}-disk-{number}", self.newid),
        };
        let base = parent.and_then(|parent| parent.split_once(':')).map(|(_, base)| base);
        let format = self.call.params.text("format").unwrap_or("qcow2");
        match (base, files) {
            (Some(base), true) => format!("{storage}:{base}/{}/{stem}.qcow2", self.newid),
            (None, true) => format!("{storage}:{}/{stem}.{format}", self.newid),
            (Some(base), false) if rbd => format!("{storage}:{base}/{stem}"),
            (_, false) => format!("{storage}:{stem}"),
        }
    }
}

fn with_new_mac(model: &mut Model, value: &str) -> String {
    match Nic::parse(value) {
        Some(nic) => Nic { mac: Some(model.new_mac()), ..nic }.print(),
        None => value.to_owned(),
    }
}

fn new_smbios(model: &mut Model, source: &Vm) -> String {
    let uuid = format!("uuid={}", model.new_uuid());
    let old = source.get("smbios1").unwrap_or_default();
    let kept = old.split(',').filter(|part| !part.is_empty() && !part.starts_with("uuid="));
    kept.fold(uuid, |text, part| format!("{text},{part}"))
}

impl Model {
    /// A free volume name on a storage.
    pub(crate) fn new_volid(&self, storage: &str, vmid: u32, what: &str) -> String {
        let files = self.storages.get(storage).is_some_and(Storage::has_files);
        let name = |stem: String| {
            let directory = if files { format!("{vmid}/") } else { String::new() };
            let extension = if files { ".qcow2" } else { "" };
            format!("{storage}:{directory}{stem}{extension}")
        };
        if what == "cloudinit" {
            return name(format!("vm-{vmid}-cloudinit"));
        }
        let taken = |volid: &String| self.volumes.keys().any(|(_, known)| known == volid);
        let names = (0..1000).map(|number| name(format!("vm-{vmid}-disk-{number}")));
        names.into_iter().find(|volid| !taken(volid)).unwrap_or_default()
    }
}

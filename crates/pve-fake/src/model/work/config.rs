//! `qmconfig`, and the synchronous call of the same effect: options set and deleted, key by key.

use std::collections::BTreeMap;

use super::Outcome;
use crate::model::Model;
use crate::model::option::{Drive, Nic, index_of, is_drive, is_nic, normal_tags, print_size};
use crate::model::request::Refusal;
use crate::model::state::{Run, Vm};

#[derive(Clone, Debug)]
pub(crate) struct ConfigWork {
    pub node: String,
    pub vmid: u32,
    pub set: BTreeMap<String, String>,
    pub delete: Vec<String>,
    pub revert: Vec<String>,
    pub digest: Option<String>,
    pub force: bool,
}

/// Options that a running VM takes at once.
const HOT: &[&str] = &[
    "agent",
    "balloon",
    "cpulimit",
    "cpuunits",
    "description",
    "hookscript",
    "lock",
    "name",
    "onboot",
    "protection",
    "shares",
    "startup",
    "tags",
    "template",
    "vmstatestorage",
    "ciuser",
    "cipassword",
    "citype",
    "ciupgrade",
    "cicustom",
    "nameserver",
    "searchdomain",
    "sshkeys",
];

impl ConfigWork {
    /// The checks that are made before and again inside the task.
    pub(crate) fn check(&self, model: &Model) -> Result<(), Refusal> {
        let vm = model.unlocked_vm(&self.node, self.vmid)?;
        model.need_writable(&self.node, self.vmid)?;
        if self.digest.as_ref().is_some_and(|digest| *digest != vm.digest()) {
            return Err(Refusal::die("checksum mismatch (file change by other user?)"));
        }
        let protected = vm.get("protection") == Some("1");
        for key in self.delete.iter().filter(|key| is_drive(key)) {
            if protected && vm.config.contains_key(key) {
                return Err(Refusal::die(format!(
                    "can't remove drive '{key}' - protection mode enabled"
                )));
            }
        }
        for (key, text) in self.set.iter().filter(|(key, _)| is_drive(key)) {
            self.check_drive(model, key, text)?;
        }
        Ok(())
    }

    fn check_drive(&self, model: &Model, key: &str, text: &str) -> Result<(), Refusal> {
        let Some(drive) = Drive::parse(text) else { return Ok(()) };
        let Some(storage) = drive.storage() else { return Ok(()) };
        let known = model.storages.get(storage);
        let known =
            known.ok_or_else(|| Refusal::die(format!("storage '{storage}' does not exist")))?;
        if !known.is_on(&self.node) {
            return Err(Refusal::die(format!(
                "storage '{storage}' is not available on node '{}'",
                self.node
            )));
        }
        let rest = drive.file.split_once(':').map_or("", |(_, rest)| rest);
        let allocates = rest == "cloudinit" || rest.parse::<f64>().is_ok();
        if allocates && !known.takes("images") {
            return Err(Refusal::param(
                key,
                format!("storage '{storage}' does not support vm images"),
            ));
        }
        if !allocates && model.find_volume(&self.node, &drive.file).is_none() {
            return Err(Refusal::die(format!("volume '{}' does not exist", drive.file)));
        }
        Ok(())
    }

    pub(crate) fn finish(&self, model: &mut Model, upid: &str) -> Outcome {
        if let Some(task) = model.tasks.get_mut(upid) {
            for (key, value) in &self.set {
                task.log(format!("update VM {}: -{key} {value}", self.vmid));
            }
        }
        self.apply(model).map_err(|refusal| refusal.text)
    }

    /// Applies every key in its turn; a failure midway leaves the earlier ones written.
    pub(crate) fn apply(&self, model: &mut Model) -> Result<(), Refusal> {
        for key in &self.revert {
            model.vm_mut(&self.node, self.vmid)?.pending.remove(key);
        }
        for key in &self.delete {
            self.delete_key(model, key)?;
        }
        // Devices before the boot order that may name them.
        let (boot, others): (Vec<_>, Vec<_>) = self.set.iter().partition(|(key, _)| *key == "boot");
        for (key, value) in others.into_iter().chain(boot) {
            let value = self.normal_value(model, key, value)?;
            self.set_key(model, key, value)?;
        }
        model.check_after_config(self.vmid);
        Ok(())
    }

    fn delete_key(&self, model: &mut Model, key: &str) -> Result<(), Refusal> {
        let force = self.force;
        let vm = model.vm_mut(&self.node, self.vmid)?;
        vm.pending.remove(key);
        let hot = vm.run == Run::Stopped || is_hot(vm, key, None);
        if !hot {
            vm.pending.insert(key.to_owned(), None);
            return Ok(());
        }
        let Some(old) = vm.config.remove(key) else { return Ok(()) };
        if is_drive(key) || index_of(key, "unused").is_some() {
            self.drop_drive(model, key, &old, force);
        }
        Ok(())
    }

    /// A disk that is no longer attached becomes `unusedN`, or goes with `force`.
    fn drop_drive(&self, model: &mut Model, key: &str, old: &str, force: bool) {
        let Some(drive) = Drive::parse(old) else { return };
        let owned = model
            .find_volume(&self.node, &drive.file)
            .is_some_and(|volume| volume.owner == Some(self.vmid));
        if drive.is_cdrom() && !drive.file.contains("cloudinit") || !owned {
            return;
        }
        if force || key.starts_with("unused") || drive.file.contains("cloudinit") {
            let place = model.place(&self.node, &drive.file);
            model.volumes.remove(&place);
        } else if let Ok(vm) = model.vm_mut(&self.node, self.vmid) {
            let free = (0..256).map(|n| format!("unused{n}"));
            if let Some(slot) = free.into_iter().find(|slot| !vm.config.contains_key(slot)) {
                vm.config.insert(slot, drive.file);
            }
        }
    }

    fn set_key(&self, model: &mut Model, key: &str, value: String) -> Result<(), Refusal> {
        let vm = model.vm_mut(&self.node, self.vmid)?;
        if vm.run != Run::Stopped && !is_hot(vm, key, Some(&value)) {
            if vm.config.get(key) == Some(&value) {
                vm.pending.remove(key);
            } else {
                vm.pending.insert(key.to_owned(), Some(value));
            }
            return Ok(());
        }
        vm.pending.remove(key);
        if value.is_empty() && key == "tags" {
            vm.config.remove(key);
            return Ok(());
        }
        let file = Drive::parse(&value).map(|drive| drive.file);
        let old = vm.config.insert(key.to_owned(), value);
        if let Some(old) = old.filter(|old| Drive::parse(old).map(|drive| drive.file) != file)
            && is_drive(key)
        {
            self.drop_drive(model, key, &old, false);
        }
        Ok(())
    }

    /// The value as Proxmox stores it.
    fn normal_value(&self, model: &mut Model, key: &str, value: &str) -> Result<String, Refusal> {
        if key == "tags" {
            return Ok(normal_tags(value).unwrap_or_default());
        }
        if is_nic(key) {
            let Some(mut nic) = Nic::parse(value) else { return Ok(value.to_owned()) };
            if nic.mac.is_none() {
                nic.mac = Some(model.new_mac());
            }
            return Ok(nic.print());
        }
        if is_drive(key) {
            return self.normal_drive(model, value);
        }
        if key == "boot" {
            let vm = model.vm(&self.node, self.vmid)?;
            let order = value.strip_prefix("order=").unwrap_or_default();
            let missing = order.split(';').find(|device| {
                !device.is_empty()
                    && !vm.config.contains_key(*device)
                    && !vm.pending.contains_key(*device)
            });
            if let Some(device) = missing {
                return Err(Refusal::die(format!(
                    "invalid bootorder: device '{device}' does not exist'"
                )));
            }
        }
        if key == "smbios1" && !value.contains("uuid=") {
            return Ok(format!("{value},uuid={}", model.new_uuid()));
        }
        Ok(value.to_owned())
    }

    fn normal_drive(&self, model: &mut Model, value: &str) -> Result<String, Refusal> {
        let Some(mut drive) = Drive::parse(value) else { return Ok(value.to_owned()) };
        let Some((storage, rest)) = drive.file.clone().split_once(':').map(own) else {
            return Ok(drive.print());
        };
        if rest == "cloudinit" {
            let volid = model.new_volid(&storage, self.vmid, "cloudinit");
            model.insert_volume(&self.node, &volid, "images", 4 << 20, Some(self.vmid));
            drive.file = volid;
            drive.rest.insert("media".to_owned(), "cdrom".to_owned());
        } else if let Ok(gib) = rest.parse::<u64>() {
            let room = model.storages.get(&storage).map_or(0, |storage| storage.size);
            if model.used(&storage, &self.node) + (gib << 30) > room {
                let text = format!("unable to create image: No space left on device ({storage})");
                return Err(Refusal::die(text));
            }
            let volid = model.new_volid(&storage, self.vmid, "disk");
            model.insert_volume(&self.node, &volid, "images", gib << 30, Some(self.vmid));
            drive.file = volid;
            drive.rest.insert("size".to_owned(), format!("{gib}G"));
        } else if let Some(volume) = model.find_volume(&self.node, &drive.file) {
            drive.rest.insert("size".to_owned(), print_size(volume.size));
        }
        Ok(drive.print())
    }
}

fn own((storage, rest): (&str, &str)) -> (String, String) {
    (storage.to_owned(), rest.to_owned())
}

/// Whether a running VM takes the option at once; the rest waits for its next start.
fn is_hot(vm: &Vm, key: &str, value: Option<&str>) -> bool {
    let is_cdrom = |text: &str| Drive::parse(text).is_some_and(|drive| drive.is_cdrom());
    let media_change = vm.get(key).is_some_and(is_cdrom) && value.is_some_and(is_cdrom);
    let disk = index_of(key, "scsi").is_some() || index_of(key, "virtio").is_some();
    HOT.contains(&key)
        || is_nic(key)
        || index_of(key, "ipconfig").is_some()
        || index_of(key, "unused").is_some()
        || media_change
        || disk && !value.or(vm.get(key)).is_some_and(is_cdrom)
}

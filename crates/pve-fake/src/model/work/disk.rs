//! `resize`.

use super::Outcome;
use crate::model::Model;
use crate::model::option::{Drive, parse_size, print_size};

#[derive(Clone, Debug)]
pub(crate) struct ResizeWork {
    pub node: String,
    pub vmid: u32,
    pub disk: String,
    pub size: String,
    pub digest: Option<String>,
}

impl ResizeWork {
    pub(crate) fn check(&self, model: &Model) -> Outcome {
        self.wanted(model).map(|_| ())
    }

    /// The drive and its size to be.
    fn wanted(&self, model: &Model) -> Result<(Drive, u64), String> {
        let vm = model.unlocked_vm(&self.node, self.vmid).map_err(|refusal| refusal.text)?;
        if self.digest.as_ref().is_some_and(|digest| *digest != vm.digest()) {
            return Err("checksum mismatch (file change by other user?)".to_owned());
        }
        let text = vm.get(&self.disk);
        let text = text.ok_or_else(|| format!("disk '{}' does not exist", self.disk))?;
        let drive = Drive::parse(text).ok_or_else(|| "format error".to_owned())?;
        if drive.is_cdrom() {
            return Err("you can't resize a cdrom".to_owned());
        }
        let old = drive.size().unwrap_or(0);
        let number = self.size.strip_prefix('+').unwrap_or(&self.size);
        let given = parse_size(number).unwrap_or(0);
        let wanted = if number.len() < self.size.len() { old + given } else { given };
        if wanted < old {
            return Err("shrinking disks is not supported".to_owned());
        }
        let storage = drive.storage().unwrap_or_default().to_owned();
        let room = model.storages.get(&storage).map_or(u64::MAX, |storage| storage.size);
        if model.used(&storage, &self.node) + (wanted - old) > room {
            return Err(format!("unable to resize '{}': No space left on device", drive.file));
        }
        Ok((drive, wanted))
    }

    pub(crate) fn finish(&self, model: &mut Model) -> Outcome {
        let (mut drive, size) = self.wanted(model)?;
        let place = model.place(&self.node, &drive.file);
        if let Some(volume) = model.volumes.get_mut(&place) {
            volume.size = size;
        }
        drive.rest.insert("size".to_owned(), print_size(size));
        let vm = model.vm_mut(&self.node, self.vmid).map_err(|refusal| refusal.text)?;
        vm.config.insert(self.disk.clone(), drive.print());
        Ok(())
    }
}

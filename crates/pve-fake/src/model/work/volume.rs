//! `imgcopy` (what follows an upload) and `imgdel`.

use bytes::Bytes;

use super::Outcome;
use crate::model::Model;

#[derive(Clone, Debug)]
pub(crate) struct UploadWork {
    pub node: String,
    pub storage: String,
    pub content: &'static str,
    pub volid: String,
    pub data: Bytes,
}

impl UploadWork {
    pub(crate) fn finish(&self, model: &mut Model) -> Outcome {
        let size = u64::try_from(self.data.len()).unwrap_or(u64::MAX);
        let room = model.storages.get(&self.storage).map_or(0, |storage| storage.size);
        if model.used(&self.storage, &self.node) + size > room {
            return Err("import failed: No space left on device".to_owned());
        }
        model.insert_volume(&self.node, &self.volid, self.content, size, None);
        let place = model.place(&self.node, &self.volid);
        if let Some(volume) = model.volumes.get_mut(&place) {
            volume.data = self.data.clone();
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct UnlinkWork {
    pub node: String,
    pub volid: String,
}

impl UnlinkWork {
    /// A missing file is a line in the log, no failure.
    pub(crate) fn begin(&self, model: &mut Model, upid: &str) -> Outcome {
        if model.find_volume(&self.node, &self.volid).is_none()
            && let Some(task) = model.tasks.get_mut(upid)
        {
            task.log(format!("disk image '{}' does not exist", self.volid));
        }
        Ok(())
    }

    pub(crate) fn finish(&self, model: &mut Model) -> Outcome {
        let place = model.place(&self.node, &self.volid);
        model.volumes.remove(&place);
        Ok(())
    }
}

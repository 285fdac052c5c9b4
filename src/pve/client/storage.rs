//! `/nodes/{node}/storage`: storages and volumes.

use bytes::Bytes;

use super::{Client, Exchange, Reply};
use crate::ids::{NodeName, StorageName};
use crate::pve::error::Error;
use crate::pve::limits::Lane;
use crate::pve::transport::{File, Verb};
use crate::pve::types::{StorageStatus, Volume, VolumeInfo};
use crate::pve::upid::Upid;

const VOLUME: &str = "nodes/{node}/storage/{storage}/content/{volume}";

/// `nodes/{node}/storage/{storage}/content/{volume}`. A volume id has slashes, and its parts are
/// segments of their own: servers take it raw.
fn volume_segments<'a>(
    node: &'a NodeName,
    storage: &'a StorageName,
    volid: &'a str,
) -> impl Iterator<Item = &'a str> {
    ["nodes", node.as_str(), "storage", storage.as_str(), "content"]
        .into_iter()
        .chain(volid.split('/'))
}

impl Client {
    /// Storages as a node sees them: `GET nodes/{node}/storage`.
    pub async fn storages(&self, node: &NodeName) -> Result<Vec<StorageStatus>, Error> {
        let segments = ["nodes", node.as_str(), "storage"];
        let call = Exchange::new(Verb::Get, "nodes/{node}/storage", segments, Lane::Node(node));
        self.run(call).await?.list()
    }

    /// Volumes, of one kind such as `iso` or of all: `GET nodes/{node}/storage/{storage}/content`.
    pub async fn storage_content(
        &self,
        node: &NodeName,
        storage: &StorageName,
        content: Option<&str>,
    ) -> Result<Vec<Volume>, Error> {
        let segments = ["nodes", node.as_str(), "storage", storage.as_str(), "content"];
        let endpoint = "nodes/{node}/storage/{storage}/content";
        let call = Exchange::new(Verb::Get, endpoint, segments, Lane::Node(node));
        self.run(call.set_some("content", content)).await?.list()
    }

    /// One volume: `GET …/content/{volume}`. A missing one is [`Error::is_volume_missing`].
    pub async fn volume(
        &self,
        node: &NodeName,
        storage: &StorageName,
        volid: &str,
    ) -> Result<VolumeInfo, Error> {
        let segments = volume_segments(node, storage, volid);
        let call = Exchange::new(Verb::Get, VOLUME, segments, Lane::Node(node));
        self.run(call).await?.object()
    }

    /// Stores an ISO image under `file_name`, in place of one of that name:
    /// `POST nodes/{node}/storage/{storage}/upload`. The task runs on the node of the endpoint.
    pub async fn upload_iso(
        &self,
        node: &NodeName,
        storage: &StorageName,
        file_name: &str,
        data: Bytes,
    ) -> Result<Option<Upid>, Error> {
        let segments = ["nodes", node.as_str(), "storage", storage.as_str(), "upload"];
        let endpoint = "nodes/{node}/storage/{storage}/upload";
        let call = Exchange::new(Verb::Post, endpoint, segments, Lane::Node(node));
        let call = call.set("content", "iso");
        let file = File { name: file_name.to_owned(), data };
        let data = self.0.upload(&call.0, &file).await?;
        Ok(Reply::to(&call.0, data).upid_if_any())
    }

    /// Deletes a volume: `DELETE …/content/{volume}`. Nobody checks whether a VM still uses it. A
    /// missing ISO is deleted with success, and some servers refuse it as missing.
    pub async fn delete_volume(
        &self,
        node: &NodeName,
        storage: &StorageName,
        volid: &str,
    ) -> Result<Option<Upid>, Error> {
        let segments = volume_segments(node, storage, volid);
        let call = Exchange::new(Verb::Delete, VOLUME, segments, Lane::Node(node));
        Ok(self.run(call).await?.upid_if_any())
    }
}

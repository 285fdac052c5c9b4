//! `/nodes/{node}/qemu/{vmid}`: one VM's life.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Client, Exchange, Reply};
use crate::ids::{NodeName, StorageName, VmId};
use crate::pve::error::Error;
use crate::pve::limits::Lane;
use crate::pve::transport::Verb;
use crate::pve::types::{CloneOptions, ConfigUpdate, DestroyOptions, VmConfig, VmStatus};
use crate::pve::upid::Upid;

/// Options that are numbers in the API: they are sent as such, for servers that do not take texts.
const NUMBERS: &[&str] =
    &["sockets", "cores", "memory", "vcpus", "balloon", "cpuunits", "onboot", "protection"];

fn option_value(key: &str, text: &str) -> Value {
    match text.parse::<i64>() {
        Ok(number) if NUMBERS.contains(&key) && number.to_string() == text => json!(number),
        _ => json!(text),
    }
}

impl Client {
    async fn vm(
        &self,
        method: Verb,
        endpoint: &'static str,
        (node, vmid): (&NodeName, VmId),
        rest: &[&str],
        parameters: &[(&str, Value)],
    ) -> Result<Reply, Error> {
        let id = vmid.to_string();
        let segments = ["nodes", node.as_str(), "qemu", &id];
        let segments = segments.into_iter().chain(rest.iter().copied());
        let mut call = Exchange::new(method, endpoint, segments, Lane::Node(node));
        for (key, value) in parameters {
            call = call.set(key, value.clone());
        }
        self.run(call).await
    }

    /// Copies a VM or template that is on `node`: `POST …/clone`. Without `full`, a copy of a
    /// template shares its data.
    pub async fn clone_vm(
        &self,
        node: &NodeName,
        source: VmId,
        options: &CloneOptions,
    ) -> Result<Option<Upid>, Error> {
        let id = source.to_string();
        let segments = ["nodes", node.as_str(), "qemu", &id, "clone"];
        let endpoint = "nodes/{node}/qemu/{vmid}/clone";
        let call = Exchange::new(Verb::Post, endpoint, segments, Lane::Node(node))
            .set("newid", options.newid.get())
            .set_some("name", options.name.as_deref())
            .set_some("description", options.description.as_deref())
            .set_if("full", options.full)
            .set_some("pool", options.pool.as_deref())
            .set_some("snapname", options.snapname.as_deref())
            .set_some("storage", options.storage.as_ref().map(StorageName::as_str))
            .set_some("format", options.format.as_deref())
            .set_some("target", options.target.as_ref().map(NodeName::as_str));
        Ok(self.run(call).await?.upid_if_any())
    }

    /// The configuration, with changes that wait for a restart merged in: `GET …/config`.
    pub async fn vm_config(&self, node: &NodeName, vmid: VmId) -> Result<VmConfig, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/config";
        self.vm(Verb::Get, endpoint, (node, vmid), &["config"], &[]).await?.object()
    }

    /// Changes the configuration: `POST …/config`. Every option is a step of its own on the server,
    /// so a task that fails may have written some.
    pub async fn update_vm_config(
        &self,
        node: &NodeName,
        vmid: VmId,
        update: &ConfigUpdate,
    ) -> Result<Option<Upid>, Error> {
        let mut parameters: Vec<(&str, Value)> =
            update.set.iter().map(|(key, text)| (key.as_str(), option_value(key, text))).collect();
        if !update.delete.is_empty() {
            parameters.push(("delete", json!(update.delete.join(","))));
        }
        if let Some(digest) = &update.digest {
            parameters.push(("digest", json!(digest)));
        }
        let endpoint = "nodes/{node}/qemu/{vmid}/config";
        let reply = self.vm(Verb::Post, endpoint, (node, vmid), &["config"], &parameters).await?;
        Ok(reply.upid_if_any())
    }

    /// Power state: `GET …/status/current`.
    pub async fn vm_status(&self, node: &NodeName, vmid: VmId) -> Result<VmStatus, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/status/current";
        self.vm(Verb::Get, endpoint, (node, vmid), &["status", "current"], &[]).await?.object()
    }

    /// Grows a disk: `PUT …/resize`. `size` is such as `20G`, or `+5G` to add. Release 7 gives no
    /// task.
    pub async fn resize_disk(
        &self,
        node: &NodeName,
        vmid: VmId,
        disk: &str,
        size: &str,
    ) -> Result<Option<Upid>, Error> {
        let parameters = [("disk", json!(disk)), ("size", json!(size))];
        let endpoint = "nodes/{node}/qemu/{vmid}/resize";
        let reply = self.vm(Verb::Put, endpoint, (node, vmid), &["resize"], &parameters).await?;
        Ok(reply.upid_if_any())
    }

    /// Starts a VM: `POST …/status/start`. Nearly every refusal comes with the task's end.
    pub async fn start_vm(&self, node: &NodeName, vmid: VmId) -> Result<Option<Upid>, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/status/start";
        Ok(self
            .vm(Verb::Post, endpoint, (node, vmid), &["status", "start"], &[])
            .await?
            .upid_if_any())
    }

    /// Pulls the plug: `POST …/status/stop`. Stopping a stopped VM is a success.
    pub async fn stop_vm(&self, node: &NodeName, vmid: VmId) -> Result<Option<Upid>, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/status/stop";
        Ok(self
            .vm(Verb::Post, endpoint, (node, vmid), &["status", "stop"], &[])
            .await?
            .upid_if_any())
    }

    /// Asks the guest to shut down, and pulls the plug when it has not after `timeout` (whole
    /// seconds): `POST …/status/shutdown`.
    pub async fn shutdown_vm(
        &self,
        node: &NodeName,
        vmid: VmId,
        timeout: Duration,
    ) -> Result<Option<Upid>, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/status/shutdown";
        let parameters = [("timeout", json!(timeout.as_secs())), ("forceStop", json!(1))];
        let rest = ["status", "shutdown"];
        Ok(self.vm(Verb::Post, endpoint, (node, vmid), &rest, &parameters).await?.upid_if_any())
    }

    /// Lets a paused VM go on: `POST …/status/resume`.
    pub async fn resume_vm(&self, node: &NodeName, vmid: VmId) -> Result<Option<Upid>, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/status/resume";
        Ok(self
            .vm(Verb::Post, endpoint, (node, vmid), &["status", "resume"], &[])
            .await?
            .upid_if_any())
    }

    /// Destroys a stopped VM and its disks: `DELETE …`. An ISO in its drive stays.
    pub async fn destroy_vm(
        &self,
        node: &NodeName,
        vmid: VmId,
        options: DestroyOptions,
    ) -> Result<Option<Upid>, Error> {
        let id = vmid.to_string();
        let segments = ["nodes", node.as_str(), "qemu", &id];
        let endpoint = "nodes/{node}/qemu/{vmid}";
        let call = Exchange::new(Verb::Delete, endpoint, segments, Lane::Node(node))
            .set_if("purge", options.purge)
            .set_if("destroy-unreferenced-disks", options.destroy_unreferenced_disks);
        Ok(self.run(call).await?.upid_if_any())
    }
}

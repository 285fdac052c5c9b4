//! `/nodes/{node}/qemu/{vmid}/agent`: what the guest's agent is asked.
//!
//! Every call holds one of the node's few workers for three seconds when the agent does not answer,
//! so these have a narrow limit of their own.

use serde_json::{Value, json};

use super::{Client, Exchange, Reply};
use crate::ids::{NodeName, VmId};
use crate::pve::error::{Error, ErrorKind};
use crate::pve::limits::Lane;
use crate::pve::transport::Verb;
use crate::pve::types::{AgentExecStatus, AgentInterface, AgentOsInfo};
use crate::pve::wire;

fn is_refused(error: &Error, parameter: &str) -> bool {
    matches!(error.kind(), ErrorKind::BadRequest { errors } if errors.contains_key(parameter))
}

/// Whether release 7 leaves `text` in one piece.
fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == ',' || c == ';')
}

impl Client {
    async fn agent(
        &self,
        method: Verb,
        endpoint: &'static str,
        (node, vmid): (&NodeName, VmId),
        command: &str,
        parameters: &[(&str, Value)],
    ) -> Result<Reply, Error> {
        let id = vmid.to_string();
        let segments = ["nodes", node.as_str(), "qemu", &id, "agent", command];
        let mut call = Exchange::new(method, endpoint, segments, Lane::Agent(node));
        for (key, value) in parameters {
            call = call.set(key, value.clone());
        }
        Ok(self.run(call).await?.result())
    }

    /// The guest's operating system: `GET …/agent/get-osinfo`. An answer proves that the agent is
    /// up.
    pub async fn agent_osinfo(&self, node: &NodeName, vmid: VmId) -> Result<AgentOsInfo, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/agent/get-osinfo";
        let reply = self.agent(Verb::Get, endpoint, (node, vmid), "get-osinfo", &[]).await?;
        if reply.data.is_null() { Ok(AgentOsInfo::default()) } else { reply.object() }
    }

    /// Runs a command in the guest and gives its process id there: `POST …/agent/exec`.
    pub async fn agent_exec(
        &self,
        node: &NodeName,
        vmid: VmId,
        command: &[&str],
    ) -> Result<i64, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/agent/exec";
        let run = async |command: Value| {
            let parameters = [("command", command), ("input-data", json!(""))];
            self.agent(Verb::Post, endpoint, (node, vmid), "exec", &parameters).await
        };
        let reply = match run(json!(command)).await {
            // Release 7 takes a text with spaces between the words and no list; a refused parameter
            // means that nothing ran.
            Err(error) if is_refused(&error, "command") && command.iter().all(|w| is_word(w)) => {
                run(json!(command.join(" "))).await?
            }
            result => result?,
        };
        let pid = reply.data.get("pid").unwrap_or(&reply.data);
        let pid = wire::text_of(pid).and_then(|pid| pid.trim().parse().ok());
        pid.ok_or_else(|| reply.refuse("the field pid is missing or no number"))
    }

    /// How that process stands: `GET …/agent/exec-status`. The result of a process that ended is
    /// given once.
    pub async fn agent_exec_status(
        &self,
        node: &NodeName,
        vmid: VmId,
        pid: i64,
    ) -> Result<AgentExecStatus, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/agent/exec-status";
        let parameters = [("pid", json!(pid))];
        self.agent(Verb::Get, endpoint, (node, vmid), "exec-status", &parameters).await?.object()
    }

    /// Interfaces and addresses as the guest sees them: `GET …/agent/network-get-interfaces`.
    pub async fn agent_interfaces(
        &self,
        node: &NodeName,
        vmid: VmId,
    ) -> Result<Vec<AgentInterface>, Error> {
        let endpoint = "nodes/{node}/qemu/{vmid}/agent/network-get-interfaces";
        let command = "network-get-interfaces";
        self.agent(Verb::Get, endpoint, (node, vmid), command, &[]).await?.list()
    }
}

//! The machines of the cluster at one moment.

use anyhow::Result;
use capmox::api::ProxmoxMachine;
use capmox::api::capi::{Machine, is_control_plane};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ControlPlane,
    Worker,
}

#[derive(Debug)]
pub(crate) struct OneMachine {
    pub(crate) name: String,
    kind: Kind,
    phase: String,
    pub(crate) is_deleting: bool,
    /// Name of its Node, if it has one.
    pub(crate) node: String,
    /// The ProxmoxMachine's spec.
    pub(crate) spec: Value,
    /// 0 while there is no VM.
    pub(crate) vmid: u32,
}

impl OneMachine {
    pub(crate) fn is_running(&self) -> bool {
        self.phase == "Running"
    }
}

#[derive(Debug)]
pub(crate) struct Machines(Vec<OneMachine>);

impl Machines {
    pub(crate) async fn read(client: &Client, namespace: &str) -> Result<Self> {
        let all = ListParams::default();
        let machines = Api::<Machine>::namespaced(client.clone(), namespace).list(&all).await?;
        let infra = Api::<ProxmoxMachine>::namespaced(client.clone(), namespace).list(&all).await?;
        let one = |machine: &Machine| {
            let wanted = machine.spec.infrastructure_ref.as_ref().and_then(|r| r.name.clone());
            let infra = infra.iter().find(|infra| Some(infra.name_any()) == wanted);
            let status = serde_json::to_value(&machine.status).unwrap_or_default();
            let text = |path: &str| {
                let found = status.pointer(path).and_then(Value::as_str);
                found.unwrap_or_default().to_owned()
            };
            let vmid = infra.and_then(|infra| infra.spec.virtual_machine_id);
            OneMachine {
                name: machine.name_any(),
                kind: if is_control_plane(&machine.metadata) {
                    Kind::ControlPlane
                } else {
                    Kind::Worker
                },
                phase: text("/phase"),
                is_deleting: machine.metadata.deletion_timestamp.is_some(),
                node: text("/nodeRef/name"),
                spec: infra
                    .and_then(|infra| serde_json::to_value(&infra.spec).ok())
                    .unwrap_or_default(),
                vmid: vmid.and_then(|vmid| u32::try_from(vmid).ok()).unwrap_or_default(),
            }
        };
        Ok(Self(machines.iter().map(one).collect()))
    }

    pub(crate) fn all(&self) -> &[OneMachine] {
        &self.0
    }

    pub(crate) fn of(&self, kind: Kind) -> Vec<&OneMachine> {
        self.0.iter().filter(|machine| machine.kind == kind).collect()
    }

    pub(crate) fn names(&self, kind: Kind) -> Vec<&str> {
        self.of(kind).into_iter().map(|machine| machine.name.as_str()).collect()
    }

    /// Whether there are exactly so many, and all are Running.
    pub(crate) fn are_settled(&self, control_plane: usize, workers: usize) -> bool {
        self.of(Kind::ControlPlane).len() == control_plane
            && self.of(Kind::Worker).len() == workers
            && self.0.iter().all(OneMachine::is_running)
    }
}

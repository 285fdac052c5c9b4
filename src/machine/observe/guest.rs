//! The guest as its agent and cloud-init show it.

use std::time::Duration;

use tokio::time::{Instant, interval, timeout};

use super::super::facts::GuestFact;
use super::super::pass::Pass;
use crate::bootstrap::cloud_init::{self, Progress};
use crate::hypervisor::{Ended, Endpoint, Exit, Kind, Operation, TaskState};
use crate::ids::{NodeName, VmId};
use crate::pve::{self, AgentExecStatus, Cause};

/// How long cloud-init may take to tell of its errors, and the pause between two looks.
const DETAILS_WAIT: Duration = Duration::from_secs(5);
const DETAILS_LOOK: Duration = Duration::from_millis(250);

impl Pass<'_> {
    /// Takes note of a start, and of how long the guest is to be left alone.
    pub(super) fn note_boot(&mut self, endpoint: &Endpoint) {
        let now = Instant::now();
        if let Some(TaskState::Ended(Ended {
            operation: Operation::Start,
            exit: Exit::Success,
            noticed,
            ..
        })) = &self.facts.task
            && let Some(kind) = self.kind()
        {
            endpoint.boots().started(&self.key, kind, *noticed);
        }
        // An answer that is being made is fetched soon.
        if endpoint.agent_pid(&self.key).is_none() {
            self.facts.guest_wait = endpoint.boots().wait(&self.key, now);
        }
    }

    /// Takes note of what a guest said.
    pub(super) fn note_guest(&mut self, fact: &GuestFact) {
        let Some(endpoint) = self.endpoint.clone() else { return };
        if matches!(fact, GuestFact::AgentUp | GuestFact::CloudInitDone(_)) {
            let waiting = endpoint.boots().up(&self.key);
            for key in waiting {
                endpoint.wake(key);
            }
        }
        let now = Instant::now();
        self.facts.guest_wait = match fact {
            GuestFact::Asked => Some(endpoint.boots().answer_wait(&self.key, now)),
            _ => endpoint.boots().wait(&self.key, now),
        };
    }

    /// What guests of this kind are made of.
    fn kind(&self) -> Option<Kind> {
        let template = self.facts.recorded_template();
        match template {
            Some(template) => Some((template.node, template.vmid)),
            None => self.vm_node().zip(self.facts.vmid()),
        }
    }

    fn note_question(&self, endpoint: &Endpoint) {
        let now = Instant::now();
        let mut boots = endpoint.boots();
        if let Some(kind) = self.kind().filter(|_| boots.age(&self.key, now).is_none()) {
            boots.started(&self.key, kind, now);
        }
        boots.asked(&self.key, now);
    }

    pub(super) async fn ask_guest(&self) -> GuestFact {
        let (Some(endpoint), Some(vmid), Some(node)) =
            (&self.endpoint, self.facts.vmid(), self.vm_node())
        else {
            return GuestFact::Unknown("no Proxmox endpoint was looked up".to_owned());
        };
        let checks = self.facts.machine.spec.checks.as_ref();
        if checks.and_then(|checks| checks.skip_cloud_init_status) == Some(true) {
            self.note_question(endpoint);
            return match endpoint.client().agent_osinfo(&node, vmid).await {
                Ok(_) => GuestFact::AgentUp,
                Err(error) => self.no_answer(&error),
            };
        }
        self.ask_cloud_init(endpoint, &node, vmid).await
    }

    /// Runs `cloud-init status`, and reads the answer now or in a later pass.
    async fn ask_cloud_init(&self, endpoint: &Endpoint, node: &NodeName, vmid: VmId) -> GuestFact {
        let Some(pid) = endpoint.agent_pid(&self.key) else {
            self.note_question(endpoint);
            let command = ["cloud-init", "status"];
            return match endpoint.client().agent_exec(node, vmid, &command).await {
                Ok(pid) => {
                    endpoint.set_agent_pid(&self.key, Some(pid));
                    GuestFact::Asked
                }
                Err(error) if error.cause() == Some(Cause::AgentRefused) => {
                    GuestFact::Unknown(format!(
                        "{}: the template needs cloud-init and an agent that may execute it \
                         (guest-exec), or set spec.checks.skipCloudInitStatus",
                        self.unanswered(&error)
                    ))
                }
                Err(error) => self.no_answer(&error),
            };
        };
        match endpoint.client().agent_exec_status(node, vmid, pid).await {
            Ok(answer) if !answer.has_ended() => GuestFact::Asked,
            Ok(answer) => {
                endpoint.set_agent_pid(&self.key, None);
                match judge(&answer) {
                    GuestFact::CloudInitFailed(said) => {
                        let more = details(endpoint, node, vmid).await;
                        GuestFact::CloudInitFailed(with(said, more))
                    }
                    GuestFact::CloudInitDone(Some(said)) => {
                        let more = details(endpoint, node, vmid).await;
                        GuestFact::CloudInitDone(Some(with(said, more)))
                    }
                    fact => fact,
                }
            }
            Err(error) => {
                // The answer is given once, and a guest that rebooted has forgotten the process.
                endpoint.set_agent_pid(&self.key, None);
                self.no_answer(&error)
            }
        }
    }

    fn no_answer(&self, error: &pve::Error) -> GuestFact {
        if error.is_agent_down() {
            GuestFact::AgentDown(error.message().to_owned())
        } else {
            GuestFact::Unknown(self.unanswered(error))
        }
    }
}

/// What cloud-init says of its errors. Asked for once, when it is done, and not insisted on.
async fn details(endpoint: &Endpoint, node: &NodeName, vmid: VmId) -> Option<String> {
    let client = endpoint.client();
    let ask = async {
        let command = ["cloud-init", "status", "--long"];
        let pid = client.agent_exec(node, vmid, &command).await.ok()?;
        let mut ticks = interval(DETAILS_LOOK);
        loop {
            ticks.tick().await;
            let answer = client.agent_exec_status(node, vmid, pid).await.ok()?;
            if answer.has_ended() {
                return answer.out_data;
            }
        }
    };
    timeout(DETAILS_WAIT, ask).await.ok().flatten().and_then(|text| cloud_init::errors_of(&text))
}

fn with(said: String, more: Option<String>) -> String {
    match more {
        Some(more) => format!("{said}; {more}"),
        None => said,
    }
}

/// What the end of `cloud-init status` means.
fn judge(answer: &AgentExecStatus) -> GuestFact {
    let progress = cloud_init::judge(&cloud_init::Answer {
        exit_code: answer.exit_code,
        signal: answer.signal,
        output: answer.out_data.as_deref().unwrap_or_default(),
        errors: answer.err_data.as_deref().unwrap_or_default(),
    });
    match progress {
        Progress::Running => GuestFact::CloudInitRunning,
        Progress::Done(attention) => GuestFact::CloudInitDone(attention),
        Progress::Failed(said) => GuestFact::CloudInitFailed(said),
        Progress::Unknown(why) => GuestFact::Unknown(why),
    }
}

//! The guest as its agent and cloud-init show it.

use std::time::Duration;

use tokio::time::{interval, timeout};

use super::super::facts::GuestFact;
use super::super::pass::Pass;
use crate::hypervisor::Endpoint;
use crate::ids::{NodeName, VmId};
use crate::pve::{self, AgentExecStatus};

/// Exit code of `cloud-init status` for "done, with recoverable errors", since cloud-init 23.4.
const DEGRADED: i64 = 2;

/// Exit code of `cloud-init status` for an unrecoverable error.
const ERROR: i64 = 1;

/// Characters of the guest's output that go into a message.
const EXCERPT: usize = 500;

/// How long cloud-init may take to tell of its errors, and the pause between two looks.
const DETAILS_WAIT: Duration = Duration::from_secs(5);
const DETAILS_LOOK: Duration = Duration::from_millis(250);

impl Pass<'_> {
    pub(super) async fn ask_guest(&self) -> GuestFact {
        let (Some(endpoint), Some(vmid), Some(node)) =
            (&self.endpoint, self.facts.vmid(), self.vm_node())
        else {
            return GuestFact::Unknown("no Proxmox endpoint was looked up".to_owned());
        };
        let checks = self.facts.machine.spec.checks.as_ref();
        if checks.and_then(|checks| checks.skip_cloud_init_status) == Some(true) {
            return match endpoint.client().agent_osinfo(&node, vmid).await {
                Ok(_) => GuestFact::AgentUp,
                Err(error) => self.no_answer(&error),
            };
        }
        self.ask_cloud_init(endpoint, &node, vmid).await
    }

    /// Runs `cloud-init status`, and reads the answer now or in a later pass.
    async fn ask_cloud_init(&self, endpoint: &Endpoint, node: &NodeName, vmid: VmId) -> GuestFact {
        let pid = match endpoint.agent_pid(&self.key) {
            Some(pid) => pid,
            None => match endpoint.client().agent_exec(node, vmid, &["cloud-init", "status"]).await
            {
                Ok(pid) => {
                    endpoint.set_agent_pid(&self.key, Some(pid));
                    pid
                }
                Err(error) => return self.no_answer(&error),
            },
        };
        match endpoint.client().agent_exec_status(node, vmid, pid).await {
            Ok(answer) if !answer.has_ended() => GuestFact::CloudInitRunning,
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
    timeout(DETAILS_WAIT, ask).await.ok().flatten().and_then(|text| errors_of(&text))
}

/// The part of `cloud-init status --long` that tells of errors.
fn errors_of(text: &str) -> Option<String> {
    let known = ["status:", "extended_status:", "boot_status_code:", "last_update:"];
    let telling = text
        .lines()
        .filter(|line| !known.iter().any(|key| line.starts_with(key)))
        .filter(|line| !line.trim_end().ends_with("[]") && !line.trim_end().ends_with("{}"));
    let words = excerpt(&telling.collect::<Vec<_>>().join("\n"));
    (!words.is_empty()).then_some(words)
}

fn with(said: String, more: Option<String>) -> String {
    match more {
        Some(more) => format!("{said}; {more}"),
        None => said,
    }
}

/// What the end of `cloud-init status` means.
fn judge(answer: &AgentExecStatus) -> GuestFact {
    let output = answer.out_data.as_deref().unwrap_or_default();
    let words = excerpt(&[output, answer.err_data.as_deref().unwrap_or_default()].join("\n"));
    if let Some(signal) = answer.signal {
        return GuestFact::Unknown(format!("`cloud-init status` was ended by signal {signal}"));
    }
    let says = |word: &str| output.to_ascii_lowercase().contains(word);
    match answer.exit_code.unwrap_or(0) {
        0 | DEGRADED if says("running") || says("not started") || says("not run") => {
            GuestFact::CloudInitRunning
        }
        0 => GuestFact::CloudInitDone(None),
        DEGRADED => GuestFact::CloudInitDone(Some(words)),
        code if code == ERROR || says("error") => {
            GuestFact::CloudInitFailed(format!("`cloud-init status` exited with {code}: {words}"))
        }
        // The command itself could not run: that says nothing about cloud-init.
        code => GuestFact::Unknown(format!(
            "`cloud-init status` could not be run in the guest (exit code {code}: {words}): the \
             template needs cloud-init and an agent that may execute it, or set \
             spec.checks.skipCloudInitStatus"
        )),
    }
}

/// One line of at most [`EXCERPT`] characters.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(EXCERPT).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i64, out: &str) -> GuestFact {
        judge(&AgentExecStatus {
            exited: true,
            exit_code: Some(code),
            out_data: Some(out.to_owned()),
            ..AgentExecStatus::default()
        })
    }

    #[test]
    fn cloud_init_is_judged_by_exit_code_and_status_line() {
        assert_eq!(ended(0, "status: running\n"), GuestFact::CloudInitRunning);
        assert_eq!(ended(0, "status: not started"), GuestFact::CloudInitRunning);
        assert_eq!(ended(2, "status: running\n"), GuestFact::CloudInitRunning);
        assert_eq!(ended(0, "status: done\n"), GuestFact::CloudInitDone(None));
        assert_eq!(
            ended(2, "status: done\nextended_status: degraded done"),
            GuestFact::CloudInitDone(Some(
                "status: done extended_status: degraded done".to_owned()
            ))
        );
        let failed = ended(1, "status: error\n");
        assert!(matches!(failed, GuestFact::CloudInitFailed(why) if why.contains("status: error")));
        let missing = ended(127, "sh: cloud-init: not found");
        assert!(matches!(missing, GuestFact::Unknown(why) if why.contains("not found")));
    }

    #[test]
    fn of_all_that_cloud_init_says_its_errors_are_told() {
        let long = "status: error\nextended_status: error - done\nboot_status_code: enabled\n\
                    last_update: Thu\ndetail: DataSourceNoCloud\nerrors:\n\t- ('scripts_user', \
                    RuntimeError('1 failures'))\nrecoverable_errors: {}\n";
        let wanted = "detail: DataSourceNoCloud errors: - ('scripts_user', RuntimeError('1 \
                      failures'))";
        assert_eq!(errors_of(long).as_deref(), Some(wanted));
        assert_eq!(errors_of("status: done\nerrors: []\n"), None);
    }

    #[test]
    fn a_killed_command_says_nothing_about_cloud_init() {
        let killed =
            AgentExecStatus { exited: true, signal: Some(9), ..AgentExecStatus::default() };
        assert!(matches!(judge(&killed), GuestFact::Unknown(_)));
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_guest_says_is_judged_in_few_words(
            code in proptest::option::of(proptest::num::i64::ANY), out in ".{0,80}",
            word in "(status: (done|running|error|disabled))?",
        ) {
            let said = format!("{word}\n{}", out.repeat(20));
            let _ = errors_of(&said);
            let status = AgentExecStatus {
                exited: true, exit_code: code, out_data: Some(said), ..AgentExecStatus::default()
            };
            if let GuestFact::CloudInitFailed(text) | GuestFact::Unknown(text) = judge(&status) {
                proptest::prop_assert!(text.chars().count() < EXCERPT + 300 && !text.contains('\n'));
            }
        }
    }
}

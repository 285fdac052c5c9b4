//! The guest agent's own protocol on its socket: JSON, one object a line.
//!
//! Its answers are handed on as Proxmox' API hands them on, so that the provider's own types read
//! them: output decoded from base64, booleans as 0 and 1 (`PVE::QemuServer::Agent`,
//! `qemu_exec_status` in `PVE/API2/Qemu/Agent.pm`; seen in qemu-server 8.3).

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use capmox::pve::AgentExecStatus;
use serde_json::{Value, json};

/// Between two looks at a process in the guest.
const LOOK: Duration = Duration::from_millis(500);

/// How long the agent may take for one answer, on an emulated processor.
const ANSWER: Duration = Duration::from_mins(1);

/// How long a command in the guest may take.
const COMMAND: Duration = Duration::from_mins(5);

/// The agent of one guest.
#[derive(Debug)]
pub(crate) struct Agent {
    stream: UnixStream,
    read: Vec<u8>,
}

impl Agent {
    /// Greets the agent until it answers; `None` when it does not within the time.
    pub(crate) fn connect(socket: &Path, within: Duration) -> Result<Option<Self>> {
        let stream = UnixStream::connect(socket).context("cannot reach the agent's socket")?;
        let mut agent = Self { stream, read: Vec::new() };
        let start = Instant::now();
        let mut greeting = 0;
        while start.elapsed() < within {
            greeting += 1;
            agent.send(&json!({"execute": "guest-sync", "arguments": {"id": greeting}}))?;
            // Answers to earlier greetings, and complaints about half a line, are skipped.
            while let Some(answer) = agent.receive(Duration::from_secs(3))? {
                if answer.get("return").and_then(Value::as_i64) == Some(greeting) {
                    return Ok(Some(agent));
                }
            }
        }
        Ok(None)
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        self.stream
            .write_all(format!("{message}\n").as_bytes())
            .context("cannot write to the agent")
    }

    /// The next object, or none when the time is up.
    fn receive(&mut self, within: Duration) -> Result<Option<Value>> {
        let start = Instant::now();
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line).context("no JSON of the agent")?));
            }
            let Some(left) = within.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
            else {
                return Ok(None);
            };
            self.stream.set_read_timeout(Some(left)).context("cannot set a deadline")?;
            let mut buffer = [0; 8192];
            match self.stream.read(&mut buffer) {
                Ok(0) => bail!("the guest has ended"),
                Ok(count) => self.read.extend(buffer.iter().take(count)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error).context("cannot read from the agent"),
            }
        }
    }

    /// Runs one command of the protocol and gives what it returns.
    pub(crate) fn call(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let mut message = json!({ "execute": command });
        if let (Some(message), false) = (message.as_object_mut(), arguments.is_null()) {
            message.insert("arguments".to_owned(), arguments);
        }
        self.send(&message)?;
        let answer = self.receive(ANSWER)?.with_context(|| format!("no answer to {command}"))?;
        answer.get("return").cloned().ok_or_else(|| anyhow!("{command}: {answer}"))
    }

    /// Runs a program to its end and gives its result as Proxmox does.
    pub(crate) fn run(&mut self, command: &[&str]) -> Result<Value> {
        let (program, words) = command.split_first().context("no command")?;
        let arguments = json!({"path": program, "arg": words, "capture-output": true});
        let pid = self.call("guest-exec", arguments)?;
        let start = Instant::now();
        loop {
            let status = as_proxmox(self.call("guest-exec-status", pid.clone())?);
            if status.get("exited") == Some(&json!(1)) {
                return Ok(status);
            }
            if start.elapsed() > COMMAND {
                bail!("{command:?} does not end in the guest");
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Standard output of a program that must succeed.
    pub(crate) fn output(&mut self, command: &[&str]) -> Result<String> {
        let status: AgentExecStatus = serde_json::from_value(self.run(command)?)?;
        if status.exit_code != Some(0) {
            bail!("{command:?}: {status:?}");
        }
        Ok(status.out_data.unwrap_or_default())
    }

    /// Standard output of a program that prints JSON.
    pub(crate) fn json(&mut self, command: &[&str]) -> Result<Value> {
        let text = self.output(command)?;
        serde_json::from_str(&text).with_context(|| format!("{command:?} printed no JSON: {text}"))
    }
}

/// An answer of `guest-exec-status` as Proxmox hands it on.
pub(crate) fn as_proxmox(mut status: Value) -> Value {
    for (key, value) in status.as_object_mut().into_iter().flatten() {
        if let Value::Bool(flag) = *value {
            *value = json!(i32::from(flag));
        } else if let ("out-data" | "err-data", Some(text)) = (key.as_str(), value.as_str()) {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            *value = json!(String::from_utf8_lossy(&bytes.unwrap_or_default()));
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_handed_on_as_proxmox_does() {
        let raw = json!({"exited": true, "exitcode": 0, "out-data": "c3RhdHVzOiBkb25lCg=="});
        let wanted = json!({"exited": 1, "exitcode": 0, "out-data": "status: done\n"});
        assert_eq!(as_proxmox(raw), wanted);
    }
}

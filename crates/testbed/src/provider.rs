//! The provider under test as a child process.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::ports;
use crate::process::Process;

/// A running manager; dereferences to its [`Process`] (`kill_hard`, `stop`, `freeze`, `log_tail`).
#[derive(Debug)]
pub struct ManagerProcess {
    process: Process,
    /// Port of `/healthz` and `/readyz`.
    pub health_port: u16,
    /// Port of `/metrics`.
    pub diagnostics_port: u16,
}

impl ManagerProcess {
    /// Starts the program with `--kubeconfig` and free ports, unless `args` say otherwise.
    pub(crate) fn start(
        name: &str,
        program: &Path,
        kubeconfig: &Path,
        env: &[(&str, &str)],
        args: &[&str],
        logs: &Path,
    ) -> Result<Self> {
        let health_port = ports::free()?;
        let diagnostics_port = ports::free()?;
        let defaults = [
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--health-probe-bind-address", format!("127.0.0.1:{health_port}")),
            ("--diagnostics-address", format!("127.0.0.1:{diagnostics_port}")),
            ("--insecure-diagnostics", "true".to_owned()),
            ("--enable-webhooks", "false".to_owned()),
        ];
        let is_given = |flag: &str| {
            args.iter().any(|arg| arg.split_once('=').map_or(*arg, |(name, _)| name) == flag)
        };
        let mut all: Vec<String> = defaults
            .iter()
            .filter(|(flag, _)| !is_given(flag))
            .map(|(flag, value)| format!("{flag}={value}"))
            .collect();
        all.extend(args.iter().map(|&arg| arg.to_owned()));
        let env: Vec<(String, String)> =
            env.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let process = Process::start(name, program, all, &env, logs)?;
        Ok(Self { process, health_port, diagnostics_port })
    }

    /// Waits until `/readyz` says 200.
    ///
    /// # Errors
    /// If it ends before or the time is up; the message carries the end of its log.
    pub async fn wait_ready(&mut self, within: Duration) -> Result<()> {
        let port = self.health_port;
        self.process.wait_ready(within, async || is_ok(port, "/readyz").await).await
    }

    /// The text of `/metrics`.
    ///
    /// # Errors
    /// If the manager does not answer 200.
    pub async fn metrics(&self) -> Result<String> {
        let (status, body) = get(self.diagnostics_port, "/metrics").await?;
        anyhow::ensure!(status == 200, "/metrics answered {status}: {body}");
        Ok(body)
    }
}

impl Deref for ManagerProcess {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for ManagerProcess {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Whether a plain GET on the port of 127.0.0.1 gives 200.
pub(crate) async fn is_ok(port: u16, path: &str) -> bool {
    get(port, path).await.is_ok_and(|(status, _)| status == 200)
}

/// A plain HTTP/1.0 GET on a port of 127.0.0.1: status and body.
async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    let status = head.split(' ').nth(1).context("no HTTP status")?;
    Ok((status.parse().context("no HTTP status")?, body.to_owned()))
}

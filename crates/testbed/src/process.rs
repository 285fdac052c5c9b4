//! One child process: a log file, a way to stop it softly or hard, and its end on drop.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::watchdog;

/// Between two looks at something that is waited for.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// How long a child may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// A child process in a process group of its own. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `program`; its output goes to `<log_dir>/<name>.log`, appended.
    ///
    /// # Errors
    /// If the program or its log cannot be opened.
    pub fn start<A: AsRef<OsStr>>(
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
        env: &[(String, String)],
        log_dir: &Path,
    ) -> Result<Self> {
        let log = log_dir.join(format!("{name}.log"));
        let open = || File::options().create(true).append(true).open(&log);
        let out = open().with_context(|| format!("cannot write {}", log.display()))?;
        let err = out.try_clone().context("cannot share a log file")?;
        let child = Command::new(program)
            .args(args)
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", program.display()))?;
        let process = Self { name: name.to_owned(), child, log, ended: None };
        watchdog::watch(process.id())?;
        Ok(process)
    }

    /// What it was started as.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    /// How it ended, if it did.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            // An error here means that somebody else reaped it, which nobody does.
            self.ended = self.child.try_wait().ok().flatten();
            if self.ended.is_some() {
                watchdog::forget(self.id());
            }
        }
        self.ended
    }

    /// Looks with `ready` until it says yes.
    ///
    /// # Errors
    /// If the process ends or the time is up; the message carries the end of the log.
    pub async fn wait_ready<F>(&mut self, within: Duration, mut ready: F) -> Result<()>
    where
        F: AsyncFnMut() -> bool,
    {
        let start = Instant::now();
        loop {
            if let Some(status) = self.exit_status() {
                bail!("{} ended with {status}; its last words:\n{}", self.name, self.log_tail(25));
            }
            if ready().await {
                return Ok(());
            }
            if start.elapsed() > within {
                let within = within.as_secs();
                let tail = self.log_tail(25);
                bail!("{} is not ready after {within} s; its last words:\n{tail}", self.name);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// SIGTERM, and SIGKILL if that is not heeded within ten seconds. Gives how it ended.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < GRACE {
            if let Some(status) = self.exit_status() {
                return Ok(status);
            }
            tokio::time::sleep(LOOK).await;
        }
        self.kill_hard()
    }

    /// SIGKILL, now. Gives how it ended.
    ///
    /// # Errors
    /// If the process cannot be waited for.
    pub fn kill_hard(&mut self) -> Result<ExitStatus> {
        if self.exit_status().is_none() {
            self.signal(Signal::KILL);
            let status = self.child.wait();
            self.ended =
                Some(status.with_context(|| format!("cannot wait for the end of {}", self.name))?);
            watchdog::forget(self.id());
        }
        self.ended.ok_or_else(|| anyhow!("{} has no end", self.name))
    }

    /// Stops the process where it stands (SIGSTOP), as a stalled host would.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen process go on.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        if self.exit_status().is_some() {
            return;
        }
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It fails only for a process that is gone, and that is what is wanted.
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill_hard();
    }
}

/// The last lines of a file; empty if it cannot be read.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all.get(from..).unwrap_or_default().join("\n")
}

//! Third parties for tests: a Python environment of pinned packages below the workspace's ignored
//! cache, and `fakepve` as a process, which shares no code with this simulator.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::seed::Seed;

/// Where the Python files of this crate are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

fn cache() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache")
}

/// The environment's Python, made at the first call; other processes wait meanwhile.
///
/// # Errors
/// If there is no `python3` with `venv`, or the packages cannot be installed.
pub fn python() -> anyhow::Result<PathBuf> {
    let folder = cache().join("venv");
    let python = folder.join("bin/python");
    std::fs::create_dir_all(cache())?;
    let lock = std::fs::File::create(cache().join("venv.lock"))?;
    lock.lock().context("cannot lock the Python environment")?;
    let requirements = self::folder().join("requirements.txt");
    let wanted = std::fs::read_to_string(&requirements)?;
    let stamp = folder.join("installed.txt");
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    run(install.arg(&requirements))?;
    std::fs::write(&stamp, wanted)?;
    Ok(python)
}

/// A program that drives a cluster through go-proxmox, the client of the original provider; built
/// at the first call.
///
/// # Errors
/// If there is no Go, or its modules cannot be had.
pub fn go_proxmox() -> anyhow::Result<PathBuf> {
    let program = cache().join("go-proxmox-peer");
    std::fs::create_dir_all(cache())?;
    let lock = std::fs::File::create(cache().join("go.lock"))?;
    lock.lock().context("cannot lock the Go build")?;
    let mut build = Command::new("go");
    build.current_dir(folder().join("go")).env("CGO_ENABLED", "0");
    run(build.args(["build", "-o"]).arg(std::path::absolute(&program)?).arg("."))?;
    Ok(program)
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {text}");
    Ok(())
}

/// A running `fakepve`; it ends with this value.
#[derive(Debug)]
pub struct Fakepve {
    child: Child,
    place: Place,
}

#[derive(Debug, Deserialize)]
struct Place {
    url: String,
    certificate: String,
}

impl Fakepve {
    /// Starts one with the nodes, storages, VMs, users, tokens, pools and rights of a seed.
    /// `time_scale` is how long a second takes; at 0 tasks end before their call is answered.
    ///
    /// # Errors
    /// If it cannot be installed or does not come up.
    pub fn start(seed: &Seed, time_scale: f64) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let python = python()?;
        let file = cache().join(format!("fakepve-{}-{number}.json", std::process::id()));
        std::fs::write(&file, serde_json::to_vec(seed)?)?;
        let mut child = Command::new(python)
            .arg(folder().join("start_fakepve.py"))
            .args([file.as_os_str(), time_scale.to_string().as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start fakepve")?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("fakepve has no output")?;
        let read = BufReader::new(stdout).read_line(&mut line);
        // The file is read by then; what is left behind would only be in the way.
        let _ = std::fs::remove_file(file);
        read?;
        let place = serde_json::from_str(&line).context("fakepve did not come up")?;
        Ok(Self { child, place })
    }

    /// `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.place.url
    }

    /// Its certificate, to be trusted.
    pub fn certificate_pem(&self) -> &str {
        &self.place.certificate
    }
}

impl Drop for Fakepve {
    fn drop(&mut self) {
        // It ends with its standard input; by force if it hangs. Either may have happened already.
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

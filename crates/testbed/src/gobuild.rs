//! Builds programs from pinned Go modules, one at a time, with progress, and only if needed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::binaries::Recipe;
use crate::say::{self, say};

/// Between two signs of life of a build.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// The program of the recipe, built if the cached one is not of this recipe.
pub(crate) fn ensure(root: &Path, recipe: &Recipe) -> Result<PathBuf> {
    let dir = root.join(".cache/bin");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let output = dir.join(&recipe.name);
    let stamp_file = dir.join(format!(".{}.stamp", recipe.name));
    let stamp = stamp(root, recipe)?;
    let is_fresh =
        || output.is_file() && fs::read_to_string(&stamp_file).is_ok_and(|found| found == stamp);
    if is_fresh() {
        return Ok(output);
    }
    // Other test processes wait here, then find it built. Two builds at once would be slower.
    let lock = File::create(dir.join(".lock")).context("cannot make the build lock")?;
    lock.lock().context("cannot take the build lock")?;
    if is_fresh() {
        return Ok(output);
    }
    build(root, recipe, &output)?;
    fs::write(&stamp_file, &stamp).context("cannot write a build stamp")?;
    Ok(output)
}

fn build(root: &Path, recipe: &Recipe, output: &Path) -> Result<()> {
    say(format!("building {} (go build {})", recipe.name, recipe.package));
    let start = Instant::now();
    let (done, waiting) = mpsc::channel::<()>();
    let name = recipe.name.clone();
    let ticker = std::thread::spawn(move || {
        while waiting.recv_timeout(SIGN_OF_LIFE) == Err(mpsc::RecvTimeoutError::Timeout) {
            say(format!("  … still building {name}, {}", say::duration(start.elapsed())));
        }
    });
    let partial = output.with_extension("partial");
    let result = Command::new("go")
        .arg("build")
        .arg("-trimpath")
        .arg(format!("-ldflags={}", recipe.ldflags))
        .arg("-o")
        .arg(&partial)
        .arg(&recipe.package)
        .current_dir(root.join(&recipe.module))
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .stdin(Stdio::null())
        .output();
    drop(done);
    let _ = ticker.join();
    let result = result.context("cannot run go; install Go 1.26 or put it on the PATH")?;
    if !result.status.success() {
        let text = String::from_utf8_lossy(&result.stderr);
        bail!("go build of {} failed ({}):\n{text}", recipe.name, result.status);
    }
    fs::rename(&partial, output).context("cannot move a program into place")?;
    say(format!("built {} in {}", recipe.name, say::duration(start.elapsed())));
    Ok(())
}

/// What the program is made from: the pins, the flags, and our own sources in the module.
fn stamp(root: &Path, recipe: &Recipe) -> Result<String> {
    let module = root.join(&recipe.module);
    let mut files: Vec<PathBuf> = fs::read_dir(&module)
        .with_context(|| format!("cannot read {}", module.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.extension().is_some_and(|ext| ["mod", "sum", "go"].iter().any(|e| ext == *e))
        })
        .collect();
    files.sort();
    let mut hash = Sha256::new();
    hash.update(&recipe.package);
    hash.update([0]);
    hash.update(&recipe.ldflags);
    for file in files {
        hash.update([0]);
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update([0]);
        hash.update(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

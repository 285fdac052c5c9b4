//! `cargo xtask vendor`: the package for the Cluster API operator, made of capmox's own release.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use release::vendored::Release;
use testbed::say::say;

/// What it is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The record of version, addresses and sums [default: config/package/vendored.yaml]
    #[arg(long)]
    record: Option<PathBuf>,
    /// Where to [default: dist/vendored]
    #[arg(long)]
    output: Option<PathBuf>,
}

/// Fetches, compares, packages.
pub(crate) fn write(arguments: &Arguments) -> Result<()> {
    let root = testbed::root();
    let record = arguments.record.clone();
    let record = record.unwrap_or_else(|| root.join("config/package/vendored.yaml"));
    let text = fs::read_to_string(&record);
    let text = text.with_context(|| format!("cannot read {}", record.display()))?;
    let release = Release::read(&text).with_context(|| record.display().to_string())?;
    let files = release.package(&root, fetch)?;
    let folder = arguments.output.clone().unwrap_or_else(|| root.join("dist/vendored"));
    files.replace(&folder)?;
    say(format!("capmox {} is packaged in {}", release.version, folder.display()));
    Ok(())
}

/// What is behind an address.
fn fetch(url: &str) -> Result<Vec<u8>> {
    let output = Command::new("curl")
        .args(["--fail", "--location", "--silent", "--show-error", "--max-time", "120"])
        .args(["--proto", "=https,http", url])
        .stdin(Stdio::null())
        .output()
        .context("cannot run curl; install the package curl")?;
    if !output.status.success() {
        bail!("cannot fetch {url}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

//! Programs from crates.io that a task needs and the tests do not: built once, into `.cache`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use testbed::say::say;

/// A program whose package has its name, with the dependencies that its own lock file pins.
pub(crate) struct Program {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    /// For `cargo install`.
    pub(crate) options: &'static [&'static str],
}

impl Program {
    /// Where it is, once it is built.
    pub(crate) fn path(&self, root: &Path) -> Result<PathBuf> {
        let Self { package, version, options } = self;
        let folder = root.join(".cache").join(format!("{package}-{version}"));
        let program = folder.join("bin").join(package);
        if !program.is_file() {
            say(format!("building {package} {version} into {}", folder.display()));
            let mut cargo = Command::new(env!("CARGO"));
            cargo
                .args(["install", package, "--version", version, "--locked"])
                .args(*options)
                .arg("--root")
                .arg(&folder)
                .arg("--target-dir")
                .arg(root.join("target").join(package))
                .current_dir(root);
            run(&mut cargo).with_context(|| format!("{package} cannot be built"))?;
        }
        Ok(program)
    }
}

/// Runs a command to its end, with its output shown.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

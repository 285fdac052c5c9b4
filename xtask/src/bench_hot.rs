//! `make bench-hot`: the instructions of `crates/hot-paths`, counted by Valgrind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};
use testbed::say::say;

use crate::installed::run;
use crate::packages;

/// The function of `crates/hot-paths` whose instructions are counted.
const COUNTED: &str = "*instructions_of*";

/// Counts and prints.
pub(crate) fn measure(root: &Path) -> Result<()> {
    packages::install_for_bench()?;
    let program = build(root)?;
    let listed = ended(Command::new(&program).output(), "hot-paths")?;
    for (number, name) in String::from_utf8(listed.stdout)?.lines().enumerate() {
        let count = count(&program, number).with_context(|| name.to_owned())?;
        say(format!("{count:>12}  {name}"));
    }
    Ok(())
}

/// The cases as they are in a release, but for the names of functions.
fn build(root: &Path) -> Result<PathBuf> {
    let target = root.join("target/hot-paths");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--profile", "bench", "--package", "hot-paths", "--target-dir"]);
    run(cargo.arg(&target).current_dir(root)).context("hot-paths cannot be built")?;
    Ok(target.join("release/hot-paths"))
}

fn count(program: &Path, number: usize) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(format!("--toggle-collect={COUNTED}")).arg(program).arg(number.to_string());
    let said = ended(valgrind.output(), "valgrind")?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    let total = said.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    match total {
        Some(0) | None => bail!("valgrind counted nothing: {said}"),
        Some(total) => Ok(total),
    }
}

fn ended(output: std::io::Result<Output>, program: &str) -> Result<Output> {
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} ended with {}: {said}", output.status);
    Ok(output)
}

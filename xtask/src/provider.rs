//! The provider as a program, for tasks that run it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use testbed::say::say;

use crate::installed::run;

/// Builds it in the same profile as this program, whose dependencies are there.
pub(crate) fn build() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    say("building the provider");
    let mut cargo = Command::new(env!("CARGO"));
    // Both packages, so that the dependencies have the features that they were built with.
    cargo.args(["build", "--package", "xtask", "--package", "capmox", "--bin", "capmox"]);
    if !cfg!(debug_assertions) {
        cargo.args(["--profile", "bench"]);
    }
    run(cargo.current_dir(testbed::root())).context("the provider cannot be built")?;
    Ok(own.with_file_name("capmox"))
}

//! `make bench-hot`: the instructions of `crates/hot-paths`, counted by Valgrind. They are compared
//! with those of the last run, and are the same on a busy machine.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::installed::{Program, run};
use crate::packages;

/// Of the version of the library, exactly: the two speak a protocol of their own.
const RUNNER: Program = Program { package: "gungraun-runner", version: "0.20.0", options: &[] };

/// Counts and prints.
pub(crate) fn measure(root: &Path) -> Result<()> {
    packages::install_for_bench()?;
    let runner = RUNNER.path(root)?;
    run(Command::new(env!("CARGO"))
        .args(["bench", "--package", "hot-paths"])
        .env("GUNGRAUN_RUNNER", runner)
        .current_dir(root))
}

//! What is run, in which order: the cheap before the dear, so that a slip shows early.

use anyhow::Result;
use testbed::Binaries;
use testbed::say::say;

use crate::packages;
use crate::steps::{Step, cargo, command, inside};

/// What needs nothing but the toolchain.
pub(crate) fn lint() -> Vec<Step> {
    vec![
        cargo("format", &["fmt", "--all", "--check"]),
        cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        cargo("documentation", &["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
        cargo("generated files", &["xtask", "verify"]),
    ]
}

/// Everything that CI runs.
pub(crate) fn test() -> Vec<Step> {
    let mut steps = lint();
    steps.extend([
        cargo("unit tests", &["test", "--workspace", "--no-fail-fast", "--lib", "--bins"]),
        cargo("examples in the documentation", &["test", "--workspace", "--doc"]),
        inside("Debian packages and Python", packages::install),
        inside("the control plane's programs", || tools(&[])),
        command("workload clusters", "go", &["test", "./..."])
            .at("tools/workload-cluster")
            .env("CGO_ENABLED", "0"),
        cargo("tests with servers", &["test", "--workspace", "--no-fail-fast", "--test", "*"]),
    ]);
    steps
}

/// Builds the programs of the table, or those named.
pub(crate) fn tools(names: &[String]) -> Result<()> {
    let binaries = Binaries::new();
    let all = if names.is_empty() { binaries.names()? } else { names.to_vec() };
    for name in all {
        say(format!("{name}: {}", binaries.path(&name)?.display()));
    }
    Ok(())
}

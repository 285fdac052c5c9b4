//! What is run, in which order: the cheap before the dear, so that a slip shows early.

use anyhow::{Result, bail};
use testbed::Binaries;
use testbed::say::say;

use crate::steps::{Step, cargo, command, inside};
use crate::{components, demo, generate, packages};

/// What needs nothing but the toolchain.
pub(crate) fn lint() -> Vec<Step> {
    vec![
        cargo("format", &["fmt", "--all", "--check"]),
        cargo("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        cargo("documentation", &["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
        inside("generated files", verify),
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
        inside("components", components::verify),
        command("workload clusters", "go", &["test", "./..."])
            .at("tools/workload-cluster")
            .env("CGO_ENABLED", "0"),
        cargo("tests with servers", &["test", "--workspace", "--no-fail-fast", "--test", "*"]),
        inside("demo", || demo::run(false)),
    ]);
    steps
}

/// The soak alone, for so long. The tests with servers run it for ninety seconds.
pub(crate) fn soak(minutes: u64, seed: Option<u64>) -> Step {
    let soak = cargo("soak", &["test", "--test", "life", "soak::", "--", "--nocapture"])
        .env("CAPMOX_SOAK_SECONDS", &(minutes * 60).to_string());
    match seed {
        Some(seed) => soak.env("CAPMOX_SOAK_SEED", &seed.to_string()),
        None => soak,
    }
}

/// Whether the generated files are up to date.
pub(crate) fn verify() -> Result<()> {
    match generate::drift(&testbed::root())?.as_slice() {
        [] => Ok(()),
        stale => bail!("not up to date: {stale:?}; run `cargo xtask generate`"),
    }
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

//! `make test-boot`: the seed on real guests, looked at from inside.

mod agent;
mod cases;
mod checks;
mod guest;
mod inside;
mod report;
mod root;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use testbed::say::{self, say};

use crate::packages;
use cases::Case;
use checks::{Check, check};
use guest::{Accelerator, Guest};
use report::Outcome;
use root::{Release, Root};

/// The releases whose guests are booted.
const RELEASES: [Release; 2] = [Release::Bookworm, Release::Trixie];

/// What is to be done.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Boots only the guests whose name has this word
    word: Option<String>,
    /// Boots none, and writes docs/test-boot.md from the outcomes that are kept
    #[arg(long)]
    report: bool,
}

/// Boots the guests that are asked for. After all, docs/test-boot.md says how each went last.
///
/// # Errors
/// If a guest differs from what its seed asks for, or none can be booted.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let word = arguments.word.as_deref();
    packages::install_for_boot()?;
    let repository = testbed::root();
    let cache = repository.join(".cache/boot");
    let log = cache.join("log");
    fs::create_dir_all(&log)?;
    let all: Vec<Case> = RELEASES.into_iter().flat_map(cases::cases).collect();
    if arguments.report {
        return record(&repository, &cache, &all);
    }
    let is_wanted = |case: &&Case| word.is_none_or(|word| case.label().contains(word));
    let cases: Vec<&Case> = all.iter().filter(is_wanted).collect();
    let mut roots: Vec<(Release, Root)> = Vec::new();
    for release in RELEASES {
        if cases.iter().any(|case| case.release == release) {
            roots.push((release, Root::of(release, &cache)?));
        }
    }
    let Some((_, first)) = roots.first() else { bail!("no guest is called so") };
    let accelerator = Accelerator::choose(first, &log)?;
    let by = format!(
        "{}, {}",
        first_line("qemu-system-x86_64", &["--version"]).replace("emulator version ", ""),
        accelerator.name()
    );
    say(format!("{} guests by {by}", cases.len()));
    let mut outcomes = Vec::new();
    for case in &cases {
        let root = roots.iter().find(|(release, _)| *release == case.release);
        let (_, root) = root.context("a case without a root")?;
        let outcome = boot(case, root, accelerator, (&by, &folder(case, &log)));
        outcome.keep(&folder(case, &log))?;
        outcomes.push(outcome);
    }
    if word.is_none() {
        record(&repository, &cache, &all)?;
    }
    let (passed, failed) = report::sum(&outcomes);
    // The last line on purpose, as in `make test`.
    let line = format!("{passed} passed, {failed} failed");
    writeln!(std::io::stdout().lock(), "{line}")?;
    if failed == 0 { Ok(()) } else { bail!(line) }
}

/// Where a guest's console, answers and outcome are.
fn folder(case: &Case, log: &Path) -> PathBuf {
    log.join(case.label().replace([' ', ','], "-"))
}

/// Writes the report of what is known of each guest.
fn record(repository: &Path, cache: &Path, all: &[Case]) -> Result<()> {
    let (mut outcomes, mut missing) = (Vec::new(), Vec::new());
    for case in all {
        match Outcome::last(&folder(case, &cache.join("log"))) {
            Some(outcome) => outcomes.push(outcome),
            None => missing.push(case.label()),
        }
    }
    let roots = RELEASES.map(|release| Ok((release, Root::of(release, cache)?)));
    let roots: Vec<(Release, Root)> = roots.into_iter().collect::<Result<_>>()?;
    let text = report::document(&roots, &outcomes, &missing);
    fs::write(repository.join("docs/test-boot.md"), text).context("cannot write the report")
}

/// One guest from start to end. Whatever goes wrong is a check that failed.
fn boot(
    case: &Case,
    root: &Root,
    accelerator: Accelerator,
    (by, folder): (&str, &Path),
) -> Outcome {
    say(format!("\n=== {}", case.label()));
    let start = Instant::now();
    let checks = look(case, root, accelerator, folder)
        .unwrap_or_else(|error| vec![check("the guest", false, format!("{error:#}"))]);
    for Check { what, instead } in &checks {
        match instead {
            None => say(format!("      ok  {what}")),
            Some(found) => say(format!("  FAILED  {what}: found {found}")),
        }
    }
    let took = say::duration(start.elapsed());
    say(format!("took {took}"));
    Outcome {
        suite: case.release.suite().to_owned(),
        name: case.name.to_owned(),
        date: first_line("date", &["--utc", "+%Y-%m-%d"]),
        by: by.to_owned(),
        took,
        checks,
    }
}

fn look(case: &Case, root: &Root, accelerator: Accelerator, folder: &Path) -> Result<Vec<Check>> {
    let iso = case.iso()?;
    let macs = case.plan.ethernets.iter().map(|ethernet| ethernet.mac.as_str());
    let devices: Vec<_> = macs.zip(case.wires.iter().copied()).collect();
    let image = root.image(case.end != cases::End::Silent);
    let seed = (cases::UUID, iso.as_slice());
    let mut guest = Guest::start(accelerator, (root, &image), seed, &devices, folder)?;
    inside::checks(case, &mut guest, folder)
}

/// The first line that a program prints, without the mark of its package.
fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.unwrap_or_default();
    text.lines().next().unwrap_or("?").split(" (").next().unwrap_or("?").to_owned()
}

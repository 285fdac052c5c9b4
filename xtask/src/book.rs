//! `make book`: the pages of `docs/` as HTML, by mdBook.
//!
//! Its pages are checked by `tests/architecture` without it, so that only who wants the HTML builds
//! mdBook.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use testbed::say::say;

/// The version that is built, as cargo pins it with its own lock file.
const VERSION: &str = "0.5.4";

/// Writes the book to `dist/book`.
pub(crate) fn write(root: &Path) -> Result<()> {
    let program = mdbook(root)?;
    run(Command::new(program).arg("build").arg("docs").current_dir(root))?;
    say(format!("the book is in {}", root.join("dist/book/index.html").display()));
    Ok(())
}

/// mdBook, built into `.cache` unless it is there already.
fn mdbook(root: &Path) -> Result<PathBuf> {
    let folder = root.join(".cache").join(format!("mdbook-{VERSION}"));
    let program = folder.join("bin/mdbook");
    if !program.is_file() {
        say(format!("building mdBook {VERSION} into {}", folder.display()));
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["install", "mdbook", "--version", VERSION, "--locked", "--debug"])
            // Neither its server nor its watcher is needed.
            .args(["--no-default-features", "--features", "search", "--root"])
            .arg(&folder)
            .arg("--target-dir")
            .arg(root.join("target/mdbook"))
            .current_dir(root);
        run(&mut cargo).context("mdBook cannot be built; the pages can be read as they are")?;
    }
    Ok(program)
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    Ok(())
}

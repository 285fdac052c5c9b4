//! `make book`: the pages of `docs/` as HTML, by mdBook.
//!
//! Its pages are checked by `tests/architecture` without it, so that only who wants the HTML builds
//! mdBook.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use testbed::say::say;

use crate::installed::{Program, run};

/// Neither its server nor its watcher is needed.
const MDBOOK: Program = Program {
    package: "mdbook",
    version: "0.5.4",
    options: &["--debug", "--no-default-features", "--features", "search"],
};

/// Writes the book to `dist/book`.
pub(crate) fn write(root: &Path) -> Result<()> {
    let program = MDBOOK.path(root).context("the pages can be read as they are")?;
    run(Command::new(program).arg("build").arg("docs").current_dir(root))?;
    say(format!("the book is in {}", root.join("dist/book/index.html").display()));
    Ok(())
}

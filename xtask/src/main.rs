//! Tasks of this repository that a shell script would do badly.

mod generate;

use std::path::Path;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match std::env::args().nth(1).as_deref() {
        Some("generate") => generate::write(&root).map(drop),
        Some("verify") => match generate::drift(&root)?.as_slice() {
            [] => Ok(()),
            stale => bail!("not up to date: {stale:?}; run `cargo xtask generate`"),
        },
        _ => bail!("tasks: generate (write generated files), verify (check that they are current)"),
    }
}

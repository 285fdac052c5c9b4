//! `components/`: made by the crate `release`, kept in the repository, checked for being up to date.

use std::path::PathBuf;

use anyhow::{Result, bail};
use release::components::Recipe;
use testbed::Binaries;
use testbed::say::say;

/// The folder, from the root.
const FOLDER: &str = "components";

/// What `cargo xtask components` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The image that the manifests name: name:tag or name@digest [default: localhost/capmox:VERSION]
    #[arg(long)]
    image: Option<String>,
    /// The version of it all, with the leading v [default: the workspace's]
    #[arg(long)]
    version: Option<String>,
    /// Where to [default: components]
    #[arg(long)]
    output: Option<PathBuf>,
    /// The repository to make them of [default: this one]
    #[arg(long)]
    source: Option<PathBuf>,
}

/// Writes them.
pub(crate) fn write(arguments: &Arguments) -> Result<()> {
    let root = testbed::root();
    let mut recipe = recipe()?;
    if let Some(version) = &arguments.version {
        recipe = recipe.as_version(version);
    }
    if let Some(source) = &arguments.source {
        recipe.root.clone_from(source);
    }
    if let Some(image) = &arguments.image {
        recipe.image.clone_from(image);
    }
    let folder = arguments.output.clone().unwrap_or_else(|| root.join(FOLDER));
    for path in recipe.build()?.replace(&folder)? {
        say(format!("wrote {}", folder.join(path).display()));
    }
    Ok(())
}

/// Whether those of the repository are what would be written now.
pub(crate) fn verify() -> Result<()> {
    match recipe()?.build()?.drift(&testbed::root().join(FOLDER))?.as_slice() {
        [] => Ok(()),
        stale => bail!("not up to date in {FOLDER}: {stale:?}; run `make components`"),
    }
}

fn recipe() -> Result<Recipe> {
    Ok(Recipe::new(&testbed::root(), &Binaries::new().path("kustomize")?))
}

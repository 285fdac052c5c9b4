//! `make image` and `make release`: the static programs, the image, and the folder of a release.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use release::components::{COMPONENTS, METADATA, Recipe};
use release::image::{ARCHITECTURES, Image};
use release::{Files, sbom};
use testbed::Binaries;
use testbed::say::say;

use crate::program;

/// Where everything goes, from the root.
pub(crate) const FOLDER: &str = "dist";

/// What `cargo xtask image` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct ImageArguments {
    /// Architectures by commas: amd64, arm64
    #[arg(long, env = "ARCH", default_value = "amd64", value_delimiter = ',')]
    pub(crate) architectures: Vec<String>,
}

/// What `cargo xtask release` is told.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ReleaseArguments {
    /// The image that the manifests name: name:tag or name@digest [default: localhost/capmox:VERSION]
    #[arg(long)]
    image: Option<String>,
}

/// Builds the programs and lays out the image in `dist/image`.
pub(crate) fn image(arguments: &ImageArguments) -> Result<()> {
    let root = testbed::root();
    let mut programs = Vec::new();
    for name in &arguments.architectures {
        let known = ARCHITECTURES.iter().find(|known| known.name == name);
        let architecture = *known.with_context(|| format!("no architecture {name}"))?;
        programs.push((architecture, program::compile(&root, architecture)?));
    }
    let version = version();
    let named = ARCHITECTURES.iter().find(|one| one.target.starts_with(std::env::consts::ARCH));
    for (_, program) in programs.iter().filter(|(one, _)| Some(one) == named) {
        run(program, &version)?;
    }
    let image = Image {
        version: version.clone(),
        revision: revision(&root),
        programs,
        authorities: authorities(),
    };
    let folder = root.join(FOLDER).join("image");
    image.layout()?.replace(&folder)?;
    say(format!("image {version} is in {}", folder.display()));
    Ok(())
}

/// Lays out a release: clusterctl's repository, chart, bill of materials, sums; the image if made.
pub(crate) fn release(arguments: &ReleaseArguments) -> Result<()> {
    let root = testbed::root();
    let mut recipe = Recipe::new(&root, &Binaries::new().path("kustomize")?);
    if let Some(image) = &arguments.image {
        recipe.image.clone_from(image);
    }
    let version = &recipe.version;
    let components = recipe.build()?;
    ensure!(components.get(COMPONENTS).is_some() && components.get(METADATA).is_some());
    let mut files = Files::default();
    let chart = components.below("chart");
    let number = version.trim_start_matches('v');
    files.add(format!("capmox-{number}.tgz"), release::chart("capmox", &chart)?);
    for architecture in ARCHITECTURES {
        let bill = sbom::spdx(&root, env!("CARGO"), architecture.target, version)?;
        files.add(format!("capmox-{version}-{}.spdx.json", architecture.name), bill);
    }
    files.add_all(&format!("infrastructure-proxmox/{version}"), components);
    let folder = root.join(FOLDER);
    let image = folder.join("image");
    if image.is_dir() {
        files.add_all("image", Files::read(&image)?);
    }
    files.add_sums();
    files.write(&folder)?;
    say(format!("release {version} is in {}", folder.display()));
    Ok(())
}

fn version() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

/// Whether the program starts, with nothing in its environment, and is of this version.
fn run(program: &[u8], version: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("capmox-image-{}", std::process::id()));
    fs::create_dir_all(&folder).context("cannot make a folder")?;
    let file = folder.join("capmox");
    fs::write(&file, program).context("cannot write the program")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).context("cannot set a mode")?;
    let output = Command::new(&file).arg("version").env_clear().output();
    let _ = fs::remove_dir_all(&folder);
    let output = output.context("the static program does not start")?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(said == format!("capmox {}", version.trim_start_matches('v')), "it says {said:?}");
    Ok(())
}

/// The commit, where there is one, and where the tree is that commit: a label that names a commit of
/// which the program was not made would send whoever rebuilds it to the wrong sources.
pub(crate) fn revision(root: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            // Git answers nobody but the clone's owner, unless told that the folder is meant; and
            // who builds, in a container say, is often somebody else.
            .args(["-c", &format!("safe.directory={}", root.display())])
            .args(["-c", "core.fsmonitor=false"])
            .args(args)
            .current_dir(root)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        output.status.success().then_some(text)
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    if !changed.is_empty() {
        say("files differ from the commit, so the image does not name it");
        return None;
    }
    git(&["rev-parse", "HEAD"]).filter(|commit| !commit.is_empty())
}

/// Mozilla's authorities as PEM.
fn authorities() -> String {
    let pem = |authority: &[u8]| {
        let text = STANDARD.encode(authority);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        let body = lines.join("\n");
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    };
    webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|authority| pem(authority)).collect()
}

//! The static program of an image, compiled so that it is the same wherever it is compiled.
//!
//! What of a machine would get into it: paths in the messages of panics, and whatever the
//! environment says about flags and profiles. What is left is the C compiler, which compiles the
//! little C of ring: equal compilers, equal programs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use release::image::Architecture;
use testbed::say::say;

/// Beginnings of the names of variables that would make it another program.
const FOREIGN: &[&str] = &[
    "CARGO_BUILD_INCREMENTAL",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_INCREMENTAL",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "CFLAGS",
    "CPATH",
    "CPPFLAGS",
    "CRATE_CC_",
    "C_INCLUDE_PATH",
    "HOST_CFLAGS",
    "RUSTC",
    "RUSTFLAGS",
    "TARGET_CFLAGS",
];

/// Compiles it, below `target/image`.
pub(crate) fn compile(root: &Path, architecture: Architecture) -> Result<Vec<u8>> {
    let target = architecture.target;
    say(format!("compiling capmox for {target}"));
    let added = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(root)
        .stdin(Stdio::null())
        .status();
    if !added.is_ok_and(|status| status.success()) {
        say(format!("rustup did not add {target}; it may be there already"));
    }
    // First, because the folders of registries are there only then, and their names are to be told.
    let fetched = cargo(root)
        .args(["fetch", "--locked", "--target", target])
        .status()
        .context("cannot run cargo")?;
    ensure!(fetched.success(), "cargo fetch ended with {fetched}");
    let underscored = target.replace('-', "_");
    // ring has a little C and assembly. The compiler of the same architecture makes objects for
    // either libc; for the other one it is Debian's gcc-aarch64-linux-gnu or gcc-x86-64-linux-gnu.
    let compiler = if target.starts_with(std::env::consts::ARCH) {
        "cc".to_owned()
    } else {
        format!("{}-linux-gnu-gcc", target.split('-').next().unwrap_or_default())
    };
    let output = root.join("target/image");
    let status = cargo(root)
        .args(["build", "--release", "--locked", "--bin", "capmox", "--target", target])
        .arg("--target-dir")
        .arg(&output)
        .env(format!("CC_{underscored}"), compiler)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(root)?)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo build for {target} ended with {status}");
    }
    let program = output.join(target).join("release/capmox");
    fs::read(&program).with_context(|| format!("cannot read {}", program.display()))
}

/// Cargo, without what the environment says about the program.
fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| FOREIGN.iter().any(|one| name.starts_with(one))) {
            command.env_remove(name);
        }
    }
    command
}

/// The compiler's flags, as cargo wants them in one variable.
fn flags(root: &Path) -> Result<OsString> {
    let home = cargo_home()?;
    let mut places = vec![(root.to_path_buf(), "/capmox"), (home.clone(), "/cargo")];
    // Named by the address of the registry, which is another one for whoever uses a mirror.
    let registries = fs::read_dir(home.join("registry/src")).into_iter().flatten();
    for registry in registries {
        places.push((registry.context("cannot read CARGO_HOME")?.path(), "/cargo/crates"));
    }
    let mut flags: OsString = "-Ctarget-feature=+crt-static\x1f-Clink-self-contained=yes\x1f\
                               -Clinker=rust-lld"
        .into();
    for (place, name) in ordered(places) {
        flags.push("\x1f--remap-path-prefix=");
        flags.push(place);
        flags.push("=");
        flags.push(name);
    }
    Ok(flags)
}

/// Where cargo keeps what it downloads.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        return Ok(PathBuf::from(home));
    }
    Ok(std::env::home_dir().context("no home folder")?.join(".cargo"))
}

/// Each place with where its links lead to, and the ones inside others behind those: of several
/// that match, rustc takes the last.
fn ordered(places: Vec<(PathBuf, &str)>) -> Vec<(PathBuf, &str)> {
    let mut all: Vec<_> = places
        .into_iter()
        .flat_map(|(place, name)| {
            let real = fs::canonicalize(&place).ok();
            [Some((place, name)), real.map(|real| (real, name))]
        })
        .flatten()
        .collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_inside_another_comes_behind_it_and_links_are_followed() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let real = fs::canonicalize(folder.path())?.join("real");
        fs::create_dir_all(real.join("home"))?;
        let link = real.with_file_name("link");
        std::os::unix::fs::symlink(&real, &link)?;
        let places = vec![(link.join("home"), "/cargo"), (link.clone(), "/capmox")];
        let expected = [
            (link.clone(), "/capmox"),
            (link.join("home"), "/cargo"),
            (real.clone(), "/capmox"),
            (real.join("home"), "/cargo"),
        ];
        assert_eq!(ordered(places), expected);
        Ok(())
    }

    #[test]
    fn variables_that_would_change_the_program_are_known_by_their_beginnings() {
        let is_foreign = |name: &str| FOREIGN.iter().any(|one| name.starts_with(one));
        for name in [
            "CFLAGS_x86_64_unknown_linux_musl",
            "CARGO_PROFILE_RELEASE_LTO",
            "RUSTFLAGS",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "CARGO_BUILD_RUSTC_WRAPPER",
        ] {
            assert!(is_foreign(name), "{name}");
        }
        for name in ["CARGO_HOME", "PATH", "HOME", "RUSTUP_TOOLCHAIN", "CC"] {
            assert!(!is_foreign(name), "{name}");
        }
    }
}

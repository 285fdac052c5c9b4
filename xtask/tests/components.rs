//! `make components` gives the same bytes wherever and by whomever it is run.

#![allow(clippy::expect_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use release::Files;
use testbed::{Binaries, root};

/// What the components are made of, as a clone elsewhere has it.
fn clone(to: &Path) -> Result<()> {
    for folder in ["config", "templates"] {
        Files::read(&root().join(folder))?.write(&to.join(folder))?;
    }
    fs::copy(root().join("metadata.yaml"), to.join("metadata.yaml"))?;
    Ok(())
}

/// Runs the task in the shell, after what `before` does to it.
fn make(source: &Path, output: &Path, before: &str, env: &[(&str, &str)]) -> Result<Files> {
    // Built before, and found again by the task without asking the environment.
    let kustomize = Binaries::new().path("kustomize")?;
    let prebuilt = kustomize.parent().context("a folder")?;
    let run = Command::new("sh")
        .args(["-c", &format!("{before}; exec \"$@\""), "sh"])
        .arg(env!("CARGO_BIN_EXE_xtask"))
        .arg("components")
        .arg("--source")
        .arg(source)
        .arg("--output")
        .arg(output)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("CAPMOX_PREBUILT", prebuilt)
        .envs(env.iter().copied())
        .output()?;
    ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Files::read(output)
}

#[test]
fn two_builds_in_other_folders_umasks_locales_and_time_zones_are_equal() -> Result<()> {
    let places: Vec<PathBuf> =
        ["a", "a longer name with ümlaut"].iter().map(PathBuf::from).collect();
    let folder = tempfile::tempdir()?;
    for place in &places {
        clone(&folder.path().join(place))?;
    }
    // The same content, written at other times and by another order of the folder.
    let old = folder.path().join("a/config/default/kustomization.yaml");
    let text = fs::read(&old)?;
    fs::remove_file(&old)?;
    fs::write(&old, text)?;
    fs::File::options().write(true).open(&old)?.set_modified(std::time::UNIX_EPOCH)?;

    let [first, second] = [&places[0], &places[1]].map(|place| folder.path().join(place));
    let home = folder.path().display().to_string();
    let left = make(
        &first,
        &folder.path().join("out1"),
        "umask 000",
        &[("LANG", "C"), ("TZ", "UTC"), ("HOME", &home)],
    )?;
    let right = make(
        &second,
        &folder.path().join("out2"),
        "umask 077; cd /",
        &[
            ("LANG", "tr_TR.UTF-8"),
            ("LC_ALL", "tr_TR.UTF-8"),
            ("TZ", "Pacific/Kiritimati"),
            ("USER", "somebody"),
            ("SOURCE_DATE_EPOCH", "1"),
        ],
    )?;
    let names = |files: &Files| files.iter().map(|(path, _)| path.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right));
    assert!(left == right, "{:?}", right.drift(&folder.path().join("out1"))?);
    for (path, _) in right.iter() {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(folder.path().join("out2").join(path))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{}", path.display());
    }
    Ok(())
}

#[test]
fn the_sums_are_those_that_sha256sum_checks() -> Result<()> {
    let check = Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet", release::SUMS])
        .current_dir(root().join("components"))
        .output()?;
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    Ok(())
}

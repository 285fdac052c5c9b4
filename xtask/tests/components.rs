//! `make components` gives the same bytes wherever and by whomever it is run.

#![allow(clippy::expect_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
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
    make_by(Path::new(env!("CARGO_BIN_EXE_xtask")), prebuilt, source, output, before, env)
}

/// The same with a copy of the task, and of kustomize in the folder `prebuilt`.
fn make_by(
    task: &Path,
    prebuilt: &Path,
    source: &Path,
    output: &Path,
    before: &str,
    env: &[(&str, &str)],
) -> Result<Files> {
    let run = Command::new("sh")
        .args(["-c", &format!("{before} \"$@\""), "sh"])
        .arg(task)
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
        "umask 000; exec",
        &[("LANG", "C"), ("TZ", "UTC"), ("HOME", &home)],
    )?;
    let right = make(
        &second,
        &folder.path().join("out2"),
        "umask 077; cd /; exec",
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
        let mode = fs::metadata(folder.path().join("out2").join(path))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{}", path.display());
    }
    Ok(())
}

/// Only root can become somebody else; whoever is not is another user than root already, and makes
/// what is in the repository.
#[test]
fn another_user_makes_the_same() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let source = folder.path().join("source");
    clone(&source)?;
    let tools = folder.path().join("tools");
    fs::create_dir(&tools)?;
    fs::copy(Binaries::new().path("kustomize")?, tools.join("kustomize"))?;
    let task = tools.join("xtask");
    fs::copy(env!("CARGO_BIN_EXE_xtask"), &task)?;
    let is_root = fs::metadata(folder.path())?.uid() == 0;
    let who =
        if is_root { "exec setpriv --reuid 65534 --regid 65534 --clear-groups" } else { "exec" };
    // Its own folder, so that it can write there.
    let output = std::env::temp_dir().join(format!("components-{}", std::process::id()));
    fs::create_dir(&output)?;
    fs::set_permissions(&output, fs::Permissions::from_mode(0o777))?;
    let made =
        make_by(&task, &tools, &source, &output.join("out"), who, &[("HOME", "/nonexistent")]);
    let owner = fs::metadata(output.join("out"));
    let made = made.and_then(|made| Ok((made, owner?.uid())));
    fs::remove_dir_all(&output)?;
    let (made, owner) = made?;
    assert_eq!(owner == 65534, is_root);
    let committed = root().join("components");
    assert!(made.drift(&committed)?.is_empty(), "{:?}", made.drift(&committed)?);
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

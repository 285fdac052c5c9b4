//! Debian packages whose programs judge what we write, and the Python environment of the
//! simulator's third parties. Only what is missing is installed.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use testbed::say::say;

/// The package, and what of it is used.
const PACKAGES: &[(&str, &str)] = &[
    ("xorriso", "reads the seed ISO"),
    ("genisoimage", "isoinfo reads the seed ISO"),
    ("libarchive-tools", "bsdtar reads the seed ISO"),
    ("util-linux", "blkid finds the seed ISO's label"),
    ("cloud-init", "its schema and its NoCloud source read the seed"),
    ("netplan.io", "reads the network configuration"),
    ("skopeo", "reads the image and copies it"),
    ("curl", "fetches what is packaged of other releases"),
    ("python3-venv", "the environment of the simulator's third parties"),
];

/// The same for `test-boot`, which is not part of `test`.
const BOOT: &[(&str, &str)] = &[
    ("mmdebstrap", "makes the guests' root"),
    ("e2fsprogs", "makes an image of it"),
    ("qemu-system-x86", "boots it"),
    ("seabios", "the guests' firmware"),
];

/// The same for `bench-hot`.
const BENCH: &[(&str, &str)] = &[("valgrind", "counts instructions")];

/// Installs what is missing of what `test` needs.
pub(crate) fn install() -> Result<()> {
    install_of(PACKAGES)?;
    let python = pve_fake::peer::python().context("the Python environment cannot be made")?;
    say(format!("Python environment: {}", python.display()));
    Ok(())
}

/// Installs what is missing of what `test-boot` needs.
pub(crate) fn install_for_boot() -> Result<()> {
    install_of(BOOT)
}

/// Installs what is missing of what `bench-hot` needs.
pub(crate) fn install_for_bench() -> Result<()> {
    install_of(BENCH)
}

fn install_of(packages: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> =
        packages.iter().map(|(name, _)| *name).filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        say("all Debian packages are there");
    } else {
        say(format!("installing Debian packages: {}", missing.join(" ")));
        apt(&["update"])?;
        let mut args = vec!["install", "--yes", "--no-install-recommends"];
        args.extend(&missing);
        apt(&args)?;
    }
    Ok(())
}

fn is_installed(package: &str) -> bool {
    let query = Command::new("dpkg-query")
        .args(["--show", "--showformat=${Status}", package])
        .stderr(Stdio::null())
        .output();
    query.is_ok_and(|output| output.stdout == b"install ok installed")
}

fn apt(args: &[&str]) -> Result<()> {
    let mut words = vec!["apt-get", "--quiet=2", "-o", "DPkg::Lock::Timeout=120"];
    words.extend(args);
    as_root(&words).context("install the packages by hand")
}

/// Runs a program, by sudo for those who are not root and may without a password.
pub(crate) fn as_root(command: &[&str]) -> Result<()> {
    let mut words = if is_root() {
        vec![]
    } else {
        vec!["sudo", "--non-interactive", "--preserve-env=DEBIAN_FRONTEND"]
    };
    words.extend(command);
    let Some((program, rest)) = words.split_first() else { return Ok(()) };
    // Debian keeps some of them where only root's PATH looks.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let status = Command::new(program)
        .args(rest)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("PATH", path)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {program}; the packages are Debian's"))?;
    if !status.success() {
        bail!("{} ended with {status}", words.join(" "));
    }
    Ok(())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

//! Debian roots as disk images, made by mmdebstrap from the ordinary mirror and kept in
//! `.cache/boot`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use testbed::say::say;

use crate::packages::as_root;

/// What a template for guests has: a kernel with all drivers (the `cloud` one has none for the IDE
/// drive that holds the seed), netplan with networkd and resolved as in Debian's own cloud images,
/// cloud-init, the agent, and the programs that answer the questions of this test.
const PACKAGES: &str = "linux-image-amd64,systemd-sysv,udev,dbus,netbase,iproute2,iputils-ping,\
                        e2fsprogs,netplan.io,systemd-resolved,cloud-init,qemu-guest-agent";

/// Packages whose versions the report names.
const REPORTED: [&str; 4] = ["cloud-init", "qemu-guest-agent", "netplan.io", "systemd"];

/// Room for the root, sparse.
const IMAGE_SIZE: &str = "2G";

/// The root has no locales, and cloud-init of Debian 12 reports `error` where it cannot set one.
const SETTINGS: &str = "locale: false\n";

/// Increase it when something below changes that the recipe's text does not show.
const RECIPE: u32 = 1;

/// A release of Debian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Release {
    Bookworm,
    Trixie,
}

impl Release {
    /// The suite's name on the mirror.
    pub(crate) const fn suite(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }
}

/// A root that can be booted.
#[derive(Debug)]
pub(crate) struct Root {
    folder: PathBuf,
    /// Packages with their versions, and Debian's own.
    pub(crate) versions: Vec<(String, String)>,
}

impl Root {
    /// The root of `release`: from the cache, or made now, which takes minutes.
    pub(crate) fn of(release: Release, cache: &Path) -> Result<Self> {
        let folder = cache.join(format!("{}-{RECIPE}", release.suite()));
        if !folder.is_dir() {
            make(release, &folder)?;
        }
        let versions = fs::read_to_string(folder.join("versions"))
            .with_context(|| format!("{} is incomplete; remove it", folder.display()))?;
        let versions = versions.lines().filter_map(|line| line.split_once('\t'));
        let versions = versions.map(|(name, version)| (name.to_owned(), version.to_owned()));
        Ok(Self { versions: versions.collect(), folder })
    }

    /// The disk image, with the agent installed or without.
    pub(crate) fn image(&self, has_agent: bool) -> PathBuf {
        self.folder.join(if has_agent { "root.img" } else { "without-agent.img" })
    }

    pub(crate) fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    pub(crate) fn initrd(&self) -> PathBuf {
        self.folder.join("initrd.img")
    }
}

/// Makes both images in a folder beside, and renames it: an interrupted run leaves no half root.
fn make(release: Release, folder: &Path) -> Result<()> {
    let partial = folder.with_extension("partial");
    let tree = partial.join("tree");
    let path = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
    as_root(&["rm", "-rf", &path(&partial)?])?;
    fs::create_dir_all(&partial)?;
    say(format!("making a Debian root of {}; this takes some minutes", release.suite()));
    let include = format!("--include={PACKAGES}");
    let tree_path = path(&tree)?;
    as_root(&[
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--aptopt=APT::Install-Recommends \"false\"",
        &include,
        release.suite(),
        &tree_path,
    ])?;
    fs::write(tree.join("etc/cloud/cloud.cfg.d/99-no-locales.cfg"), SETTINGS)
        .context("cannot write into the root")?;
    for name in ["vmlinuz", "initrd.img"] {
        let boot =
            fs::canonicalize(tree.join(name)).with_context(|| format!("the root has no {name}"))?;
        fs::copy(boot, partial.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    fs::write(partial.join("versions"), versions(&tree)?)?;
    format_image(&path(&partial.join("root.img"))?, &tree_path)?;
    as_root(&["chroot", &tree_path, "dpkg", "--purge", "qemu-guest-agent"])?;
    format_image(&path(&partial.join("without-agent.img"))?, &tree_path)?;
    as_root(&["rm", "-rf", &tree_path])?;
    fs::rename(&partial, folder).context("cannot keep the new root")
}

fn format_image(image: &str, tree: &str) -> Result<()> {
    as_root(&["mkfs.ext4", "-q", "-d", tree, image, IMAGE_SIZE])?;
    as_root(&["chmod", "a+rw", image])
}

/// `name<tab>version` of what the report names, from dpkg's own list.
fn versions(tree: &Path) -> Result<String> {
    let read = |file: &str| {
        fs::read_to_string(tree.join(file)).with_context(|| format!("the root has no {file}"))
    };
    let mut text = format!("Debian\t{}\n", read("etc/debian_version")?.trim());
    let status = read("var/lib/dpkg/status")?;
    for package in REPORTED {
        let Some(version) = version_in(&status, package) else {
            bail!("{package} is not in the root");
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{package}\t{version}");
    }
    Ok(text)
}

fn version_in<'a>(status: &'a str, package: &str) -> Option<&'a str> {
    let field = |paragraph: &'a str, name: &str| {
        paragraph.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let its = status.split("\n\n").find(|one| field(one, "Package") == Some(package))?;
    field(its, "Version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_list_of_packages() {
        let status = "Package: a-b\nVersion: 1\n\nPackage: a\nStatus: ok\nVersion: 2:3-4\n";
        assert_eq!(version_in(status, "a"), Some("2:3-4"));
        assert_eq!(version_in(status, "b"), None);
    }
}

//! `make image-check`: the release of this commit made a second time, as on another machine, and
//! compared with the first by its sums.
//!
//! The second is made from nothing in a clone elsewhere, by another user where this one is root, with
//! another home, toolchain folder, umask, locale and time zone. What stays is the C compiler.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use testbed::Binaries;
use testbed::say::say;

use crate::image::{self, FOLDER, ImageArguments, ReleaseArguments};

/// Nobody, in Debian.
const OTHER_USER: u32 = 65534;

/// Beginnings of what clients of package registries are told in the environment, in either letter case:
/// the way out of this network, whom to trust on it, and mirrors. The rest of the environment stays
/// behind, `CARGO_HOME` and `RUSTUP_HOME` too: the other place has its own.
const WAYS_OUT: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_DEFAULT",
    "CARGO_SOURCE_",
    "GOFLAGS",
    "GOINSECURE",
    "GONOPROXY",
    "GONOSUMDB",
    "GOPRIVATE",
    "GOPROXY",
    "GOSUMDB",
    "RUSTUP_DIST_SERVER",
    "RUSTUP_UPDATE_ROOT",
];

/// Whether a variable is one of them. Tokens of registries are needed to publish only.
fn is_way_out(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    WAYS_OUT.iter().any(|one| name.starts_with(one)) && !name.ends_with("_TOKEN")
}

/// Makes both and compares.
pub(crate) fn compare(arguments: &ImageArguments) -> Result<()> {
    let root = testbed::root();
    ensure!(
        image::revision(&root).is_some(),
        "commit first: the second build is made of a clone, which has only what is committed"
    );
    image::image(arguments)?;
    image::release(&ReleaseArguments::default())?;
    let ours = sums(&root)?;
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let elsewhere = Elsewhere::make(folder.path(), &root)?;
    elsewhere.build(arguments)?;
    let theirs = sums(&elsewhere.clone)?;
    let different: BTreeSet<_> = ours.symmetric_difference(&theirs).collect();
    if !different.is_empty() {
        let lines: Vec<_> = different.into_iter().map(String::as_str).collect();
        bail!("the second build differs:\n{}", lines.join("\n"));
    }
    let digest = release::sha256(&fs::read(root.join(FOLDER).join("image/index.json"))?);
    say(format!("{} files are equal; index.json of the image is {digest}", ours.len()));
    Ok(())
}

/// The lines of a release's sums.
fn sums(root: &Path) -> Result<BTreeSet<String>> {
    let path = root.join(FOLDER).join(release::SUMS);
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Another place to build in.
struct Elsewhere {
    clone: PathBuf,
    home: PathBuf,
    toolchain: PathBuf,
    tools: PathBuf,
    is_root: bool,
}

impl Elsewhere {
    fn make(folder: &Path, root: &Path) -> Result<Self> {
        let elsewhere = Self {
            clone: folder.join("a clone of a longer name/sources"),
            home: folder.join("home"),
            toolchain: folder.join("toolchain"),
            tools: folder.join("tools"),
            is_root: fs::metadata(folder)?.uid() == 0,
        };
        run(Command::new("git").arg("clone").arg("--quiet").arg(root).arg(&elsewhere.clone))?;
        // Links cost nothing; they work on one file system only.
        let sysroot = sysroot(root)?;
        let copy =
            |how: &str| run(Command::new("cp").arg(how).arg(&sysroot).arg(&elsewhere.toolchain));
        if copy("-al").is_err() {
            let _ = fs::remove_dir_all(&elsewhere.toolchain);
            copy("-a")?;
        }
        // What was downloaded is not downloaded again; sources are unpacked anew.
        let registry = elsewhere.home.join(".cargo/registry");
        fs::create_dir_all(&registry)?;
        for part in ["index", "cache"] {
            let source = crate::program::cargo_home()?.join("registry").join(part);
            if source.is_dir() {
                run(Command::new("cp").arg("-a").arg(source).arg(&registry))?;
            }
        }
        // Mirrors, perhaps, without which nothing can be fetched.
        let settings = crate::program::cargo_home()?.join("config.toml");
        if settings.is_file() {
            fs::copy(settings, elsewhere.home.join(".cargo/config.toml"))?;
        }
        fs::create_dir(&elsewhere.tools)?;
        fs::copy(Binaries::new().path("kustomize")?, elsewhere.tools.join("kustomize"))?;
        if elsewhere.is_root {
            let clone = folder.join("a clone of a longer name");
            for owned in [&clone, &elsewhere.home] {
                run(Command::new("chown").arg("-R").arg(OTHER_USER.to_string()).arg(owned))?;
            }
        }
        Ok(elsewhere)
    }

    /// As a newcomer does there.
    fn build(&self, arguments: &ImageArguments) -> Result<()> {
        let mut command = if self.is_root {
            let mut command = Command::new("setpriv");
            let id = OTHER_USER.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        let mut path = self.toolchain.join("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let kept = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_way_out));
        command
            .args(["-c", "umask 077; cargo xtask image && cargo xtask release"])
            .current_dir(&self.clone)
            .env_clear()
            .envs(kept)
            .env("PATH", path)
            .env("HOME", &self.home)
            .env("CAPMOX_PREBUILT", &self.tools)
            .env("ARCH", arguments.architectures.join(","))
            .env("LC_ALL", "tr_TR.UTF-8")
            .env("TZ", "Pacific/Kiritimati")
            .env("CFLAGS", "-O0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off");
        say(format!("a second time, in {}", self.clone.display()));
        run(&mut command)
    }
}

/// The folder of the toolchain that this clone's file asks for.
fn sysroot(root: &Path) -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root).output()?;
    ensure!(output.status.success(), "rustc --print sysroot");
    let path = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    // rustup makes links, which would be copied as such.
    Ok(fs::canonicalize(path)?)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_is_taken_over_and_nothing_that_makes_another_program() {
        for name in ["https_proxy", "NO_PROXY", "GOPROXY", "CARGO_NET_OFFLINE", "SSL_CERT_FILE"] {
            assert!(is_way_out(name), "{name}");
        }
        for name in [
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
            "CARGO_HOME",
            "RUSTUP_HOME",
            "RUSTUP_TOOLCHAIN",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_REGISTRIES_OURS_TOKEN",
            "HOME",
        ] {
            assert!(!is_way_out(name), "{name}");
        }
    }
}

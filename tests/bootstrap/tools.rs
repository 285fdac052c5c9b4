//! Runs the programs that judge the seed.

use std::path::Path;
use std::process::{Command, Output};

/// A program of a Debian package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    /// Name of the program.
    pub(crate) program: &'static str,
    /// The package that has it.
    pub(crate) package: &'static str,
}

pub(crate) const XORRISO: Tool = Tool { program: "xorriso", package: "xorriso" };
pub(crate) const ISOINFO: Tool = Tool { program: "isoinfo", package: "genisoimage" };
pub(crate) const BSDTAR: Tool = Tool { program: "bsdtar", package: "libarchive-tools" };
pub(crate) const BLKID: Tool = Tool { program: "blkid", package: "util-linux" };
pub(crate) const CLOUD_INIT: Tool = Tool { program: "cloud-init", package: "cloud-init" };
pub(crate) const NETPLAN: Tool = Tool { program: "netplan", package: "netplan.io" };

/// Debian's own Python, which has cloud-init's modules.
pub(crate) const PYTHON: Tool = Tool { program: "/usr/bin/python3", package: "cloud-init" };

impl Tool {
    /// Runs the program and gives its result, whatever it is.
    pub(crate) fn run(self, args: &[&str]) -> Output {
        let Self { program, package } = self;
        // Debian keeps some of them where only root's PATH looks.
        #[expect(clippy::disallowed_methods, reason = "a test runs programs from PATH")]
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        Command::new(program)
            .args(args)
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap_or_else(|error| {
                panic!("cannot run {program} ({error}); install Debian's package {package}")
            })
    }

    /// Runs the program, which must succeed, and gives what it printed.
    pub(crate) fn stdout(self, args: &[&str]) -> Vec<u8> {
        let output = self.run(args);
        assert!(
            output.status.success(),
            "{} {args:?} ended with {}\n{}{}",
            self.program,
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        output.stdout
    }

    /// As [`Self::stdout`], as text.
    pub(crate) fn text(self, args: &[&str]) -> String {
        String::from_utf8(self.stdout(args)).expect("the output is UTF-8")
    }
}

/// The path as an argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

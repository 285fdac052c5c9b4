//! The image's layout, by a client of registries that knows nothing of how it was made.

use std::path::Path;
use std::process::Command;

use release::image::{ARCHITECTURES, Image};
use serde_json::Value;
use testbed::root;

use crate::clusterctl::VERSION;

/// What skopeo prints; it must succeed.
fn skopeo(args: &[&str]) -> Vec<u8> {
    let output = Command::new("skopeo").args(args).output();
    let output = output.expect("cannot run skopeo; install Debian's package skopeo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "skopeo {args:?}: {said}");
    output.stdout
}

/// An ELF file for a machine, with one segment and nothing in it.
fn elf(machine: u8) -> Vec<u8> {
    let mut program = vec![0; 64 + 56];
    program[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (program[18], program[32], program[54], program[56], program[64]) = (machine, 64, 56, 1, 1);
    program
}

#[test]
fn skopeo_reads_both_architectures_and_finds_every_digest_right() {
    let image = Image {
        version: "v1.2.3".to_owned(),
        revision: Some("0123456789abcdef".to_owned()),
        programs: ARCHITECTURES.iter().copied().zip([elf(62), elf(183)]).collect(),
        authorities: "none\n".to_owned(),
    };
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    image.layout().unwrap().write(&layout).unwrap();
    let source = format!("oci:{}:v1.2.3", layout.display());
    for architecture in ARCHITECTURES {
        let choice = format!("--override-arch={}", architecture.name);
        let found = skopeo(&[&choice, "inspect", &source]);
        let found: Value = serde_json::from_slice(&found).unwrap();
        assert_eq!(found["Architecture"], architecture.name);
        assert_eq!(found["Labels"]["org.opencontainers.image.version"], "v1.2.3");
        assert_eq!(found["Labels"]["org.opencontainers.image.revision"], "0123456789abcdef");
        let config = skopeo(&[&choice, "inspect", "--config", &source]);
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/capmox");
    }
    // A copy checks what it reads against the digests.
    let target = format!("dir:{}", folder.path().join("copy").display());
    skopeo(&["copy", "--all", "--insecure-policy", &source, &target]);
    assert!(Path::new(&folder.path().join("copy/manifest.json")).is_file());
}

/// No Docker is here to build it with; this holds it to what `make image` makes.
#[test]
fn the_containerfile_describes_the_same_image() {
    let file = std::fs::read_to_string(root().join("Containerfile")).unwrap();
    let image = Image {
        version: VERSION.to_owned(),
        revision: None,
        programs: vec![(ARCHITECTURES[0], elf(62))],
        authorities: String::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    image.layout().unwrap().write(folder.path()).unwrap();
    let source = format!("oci:{}:{VERSION}", folder.path().display());
    let config = skopeo(&["--override-arch=amd64", "inspect", "--config", &source]);
    let config: Value = serde_json::from_slice(&config).unwrap();
    let config = &config["config"];
    let entrypoint = config["Entrypoint"].to_string();
    assert!(file.contains(&format!("ENTRYPOINT {entrypoint}\n")), "{entrypoint}");
    let user = config["User"].as_str().unwrap();
    assert!(file.contains(&format!("USER {user}\n")), "{user}");
    for (label, value) in config["Labels"].as_object().unwrap() {
        assert!(file.contains(&format!("{label}={value}")), "{label}={value}");
    }
    for path in ["usr/local/bin/capmox", "etc/ssl/certs/ca-certificates.crt", "manager", "tmp"] {
        assert!(file.contains(&format!("/image/{path}")), "{path}");
    }
    // The compiler that the repository asks for is the one that is there.
    let toolchain = std::fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let version = file.split_once("library/rust:").unwrap().1.split('-').next().unwrap();
    assert!(toolchain.contains(&format!("channel = \"{version}.")), "{version}");
}

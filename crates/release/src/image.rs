//! The image, as an OCI image layout: one static program on nothing, for one or more architectures.
//!
//! By the OCI image specification v1.1. No daemon and no registry takes part, and no time, user or
//! path of the machine gets into it.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::archive::{Entry, tar};
use crate::files::{Files, sha256};
use crate::package::gzip;

/// The user that the program runs as: neither root nor anybody with a name.
const USER: u32 = 65532;

/// When it was made, for those who must have a time.
const CREATED: &str = "1970-01-01T00:00:00Z";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An architecture, by Go's name and by Rust's, and its number in an ELF header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture {
    /// As images name it.
    pub name: &'static str,
    /// The target that the program is compiled for.
    pub target: &'static str,
    machine: u16,
}

/// Those that images are made for.
pub const ARCHITECTURES: &[Architecture] = &[
    Architecture { name: "amd64", target: "x86_64-unknown-linux-musl", machine: 62 },
    Architecture { name: "arm64", target: "aarch64-unknown-linux-musl", machine: 183 },
];

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct Image {
    /// With the leading `v`; the image's tag.
    pub version: String,
    /// The commit, if it is known.
    pub revision: Option<String>,
    /// The static programs.
    pub programs: Vec<(Architecture, Vec<u8>)>,
    /// Authorities of certificates, as PEM.
    pub authorities: String,
}

impl Image {
    /// The layout's files.
    ///
    /// # Errors
    /// If a program is not a static one of its architecture.
    pub fn layout(&self) -> Result<Files> {
        ensure!(!self.programs.is_empty(), "an image without a program");
        let mut blobs = Blobs::default();
        let mut manifests = Vec::new();
        for (architecture, program) in &self.programs {
            check(program, *architecture)?;
            let layer = tar(&self.entries(program))?;
            let config = self.config(*architecture, &sha256(&layer));
            let manifest = json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": blobs.add(CONFIG, json_bytes(&config)?),
                "layers": [blobs.add(LAYER, gzip(&layer)?)],
                "annotations": self.labels(),
            });
            let mut descriptor = blobs.add(MANIFEST, json_bytes(&manifest)?);
            descriptor["platform"] = json!({ "architecture": architecture.name, "os": "linux" });
            manifests.push(descriptor);
        }
        let index = json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": manifests,
            "annotations": self.labels(),
        });
        let mut descriptor = blobs.add(INDEX, json_bytes(&index)?);
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": self.version });
        let entry = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] });
        let mut files = blobs.0;
        files.add("index.json", json_bytes(&entry)?);
        files.add("oci-layout", json_bytes(&json!({ "imageLayoutVersion": "1.0.0" }))?);
        Ok(files)
    }

    fn entries<'a>(&'a self, program: &'a [u8]) -> Vec<Entry<'a>> {
        const PASSWD: &str = "root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n";
        const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";
        vec![
            Entry::folder("etc/", 0o755),
            Entry::file("etc/group", 0o644, GROUP.as_bytes()),
            Entry::file("etc/passwd", 0o644, PASSWD.as_bytes()),
            Entry::folder("etc/ssl/", 0o755),
            Entry::folder("etc/ssl/certs/", 0o755),
            Entry::file("etc/ssl/certs/ca-certificates.crt", 0o644, self.authorities.as_bytes()),
            // The program's place in capmox's image, which the Deployment there starts by its path.
            Entry::link("manager", "usr/local/bin/capmox"),
            // Where the webhook's certificate is mounted.
            Entry::folder("tmp/", 0o1777),
            Entry::folder("usr/", 0o755),
            Entry::folder("usr/local/", 0o755),
            Entry::folder("usr/local/bin/", 0o755),
            Entry::file("usr/local/bin/capmox", 0o755, program),
        ]
    }

    fn config(&self, architecture: Architecture, layer: &str) -> Value {
        json!({
            "created": CREATED,
            "architecture": architecture.name,
            "os": "linux",
            "config": {
                "User": format!("{USER}:{USER}"),
                "Entrypoint": ["/usr/local/bin/capmox"],
                "Env": ["PATH=/usr/local/bin"],
                "WorkingDir": "/",
                "Labels": self.labels(),
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
            "history": [{ "created": CREATED, "created_by": "capmox" }],
        })
    }

    fn labels(&self) -> Value {
        let mut labels = json!({
            "org.opencontainers.image.title": "capmox-rs",
            "org.opencontainers.image.description": "Cluster API provider for Proxmox VE",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.version": self.version,
        });
        if let Some(revision) = &self.revision {
            labels["org.opencontainers.image.revision"] = json!(revision);
        }
        labels
    }
}

/// Blobs below `blobs/sha256`.
#[derive(Default)]
struct Blobs(Files);

impl Blobs {
    /// Adds one and gives its descriptor.
    fn add(&mut self, media_type: &str, content: Vec<u8>) -> Value {
        let digest = sha256(&content);
        let size = content.len();
        self.0.add(format!("blobs/sha256/{digest}"), content);
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size })
    }
}

fn json_bytes(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).context("cannot write JSON")
}

/// Refuses a program that would ask for a loader or a library, or for another machine.
fn check(program: &[u8], architecture: Architecture) -> Result<()> {
    /// PT_INTERP and PT_DYNAMIC would name the loader and the libraries. A static program that can
    /// be placed anywhere has the second one too, so the first one tells.
    const INTERPRETER: u32 = 3;
    let name = architecture.name;
    let number = |at: usize, size: usize| -> Result<u64> {
        let bytes = program.get(at..at + size).context("the program is cut short")?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    ensure!(
        program.starts_with(b"\x7fELF\x02\x01"),
        "the program for {name} is no 64-bit ELF file"
    );
    let machine = number(18, 2)?;
    ensure!(machine == u64::from(architecture.machine), "the program is not for {name}");
    let table = usize::try_from(number(32, 8)?)?;
    let (size, count) = (usize::try_from(number(54, 2)?)?, usize::try_from(number(56, 2)?)?);
    for index in 0..count {
        if number(table + index * size, 4)? == u64::from(INTERPRETER) {
            bail!("the program for {name} is not static; compile it for {}", architecture.target);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;
    use std::path::PathBuf;

    use super::*;

    /// The start of an ELF file, with one program header of a type.
    fn elf(machine: u8, kind: u8) -> Vec<u8> {
        let mut program = vec![0; 64 + 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[18] = machine;
        program[32] = 64;
        program[54] = 56;
        program[56] = 1;
        program[64] = kind;
        program
    }

    fn image() -> Image {
        let [amd64, arm64] = ARCHITECTURES else { panic!("two architectures") };
        Image {
            version: "v1.2.3".to_owned(),
            revision: Some("0123".to_owned()),
            programs: vec![(*amd64, elf(62, 1)), (*arm64, elf(183, 1))],
            authorities: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        }
    }

    fn json(files: &Files, path: &str) -> Value {
        serde_json::from_slice(files.get(path).expect(path)).expect("JSON")
    }

    fn follow(files: &Files, descriptor: &Value) -> Value {
        let digest = descriptor["digest"].as_str().expect("a digest").replace(':', "/");
        let path = format!("blobs/{digest}");
        let content = files.get(&path).expect("the blob");
        assert_eq!(descriptor["size"], content.len());
        json(files, &path)
    }

    #[test]
    fn every_descriptor_leads_to_a_blob_of_its_digest_and_size() -> Result<()> {
        let files = image().layout()?;
        for (path, content) in files.iter().filter(|(path, _)| path.starts_with("blobs")) {
            assert_eq!(path, PathBuf::from(format!("blobs/sha256/{}", sha256(content))));
        }
        let entry = json(&files, "index.json");
        assert_eq!(
            entry["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"],
            "v1.2.3"
        );
        let index = follow(&files, &entry["manifests"][0]);
        for (manifest, name) in
            index["manifests"].as_array().expect("two").iter().zip(["amd64", "arm64"])
        {
            assert_eq!(manifest["platform"]["architecture"], name);
            let manifest = follow(&files, manifest);
            let config = follow(&files, &manifest["config"]);
            assert_eq!(config["config"]["User"], "65532:65532");
            assert_eq!(config["architecture"], name);
            let layer =
                manifest["layers"][0]["digest"].as_str().expect("a layer").replace(':', "/");
            let layer = files.get(&format!("blobs/{layer}")).expect("the layer");
            let mut tar = Vec::new();
            flate2::read::GzDecoder::new(layer).read_to_end(&mut tar)?;
            assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sha256(&tar)));
            let (mut found, mut links) = (BTreeMap::new(), BTreeMap::new());
            for entry in ::tar::Archive::new(tar.as_slice()).entries()? {
                let entry = entry?;
                let header = entry.header();
                assert_eq!((header.uid()?, header.gid()?, header.mtime()?), (0, 0, 0));
                found.insert(entry.path()?.into_owned(), header.mode()?);
                if let Some(target) = entry.link_name()? {
                    links.insert(entry.path()?.into_owned(), target.into_owned());
                }
            }
            assert_eq!(found.get(&PathBuf::from("usr/local/bin/capmox")), Some(&0o755));
            // capmox's path leads to the program.
            let link = (PathBuf::from("manager"), PathBuf::from("usr/local/bin/capmox"));
            assert_eq!(links, BTreeMap::from([link]));
            assert_eq!(found.get(&PathBuf::from("tmp/")), Some(&0o1777));
        }
        Ok(())
    }

    #[test]
    fn equal_programs_give_equal_images() -> Result<()> {
        assert!(image().layout()? == image().layout()?);
        Ok(())
    }

    #[test]
    fn programs_that_need_a_loader_or_another_machine_are_refused() {
        let [amd64, arm64] = ARCHITECTURES else { panic!("two architectures") };
        let refusal = |program: &[u8], architecture| {
            check(program, architecture).expect_err("refused").to_string()
        };
        assert!(refusal(&elf(62, 3), *amd64).contains("not static"));
        assert!(refusal(&elf(62, 1), *arm64).contains("not for arm64"));
        assert!(refusal(b"#!/bin/sh", *amd64).contains("no 64-bit ELF"));
        assert!(check(&elf(62, 2), *amd64).is_ok());
    }
}

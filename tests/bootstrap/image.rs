//! The image: names, content, label and attributes by readers that share no code with the writer.

use std::path::{Path, PathBuf};

use capmox::bootstrap::SeedFiles;
use capmox::bootstrap::iso9660::{self, File};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::tools::{BLKID, BSDTAR, ISOINFO, XORRISO, arg};

const META_DATA: &str = "instance-id: x\nlocal-hostname: lab-cp-0\nhostname: lab-cp-0\n";

/// A seed whose user-data ends neither at a sector's end nor with a line feed.
fn seed() -> SeedFiles {
    let mut user_data = b"#cloud-config\n# \xc3\xa9 \x00\xff\n".to_vec();
    user_data.extend((0..100_000u32).flat_map(u32::to_le_bytes));
    user_data.push(b'x');
    SeedFiles {
        user_data,
        meta_data: META_DATA.into(),
        network_config: "network: {version: 2}\n".into(),
    }
}

fn written(seed: &SeedFiles) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("seed.iso");
    std::fs::write(&path, seed.image().expect("renders")).expect("written");
    (folder, path)
}

fn files(seed: &SeedFiles) -> [(&'static str, &[u8]); 3] {
    [
        ("meta-data", seed.meta_data.as_bytes()),
        ("network-config", seed.network_config.as_bytes()),
        ("user-data", &seed.user_data),
    ]
}

#[test]
fn isoinfo_reads_every_file_by_rock_ridge_and_by_joliet() {
    let seed = seed();
    let (_folder, path) = written(&seed);
    for extension in ["-R", "-J"] {
        let listing = ISOINFO.text(&[extension, "-f", "-i", arg(&path)]);
        let mut names: Vec<&str> = listing.lines().collect();
        names.sort_unstable();
        assert_eq!(names, ["/meta-data", "/network-config", "/user-data"], "{extension}");
        for (name, content) in files(&seed) {
            let file = format!("/{name}");
            let read = ISOINFO.stdout(&[extension, "-x", &file, "-i", arg(&path)]);
            assert!(read == content, "{extension} {name} differs");
        }
    }
}

#[test]
fn isoinfo_knows_the_label_and_both_extensions() {
    let (_folder, path) = written(&seed());
    let facts = ISOINFO.text(&["-d", "-i", arg(&path)]);
    for fact in [
        "Volume id: cidata\n",
        "Logical block size is: 2048\n",
        "Joliet with UCS level 3 found",
        "Rock Ridge signatures version 1 found",
    ] {
        assert!(facts.contains(fact), "{fact:?} is missing:\n{facts}");
    }
}

#[test]
fn plain_iso_names_are_there_for_readers_that_know_neither() {
    let (_folder, path) = written(&seed());
    let listing = ISOINFO.text(&["-f", "-i", arg(&path)]);
    let mut names: Vec<&str> = listing.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["/META_DAT.;1", "/NETWORK_.;1", "/USER_DAT.;1"]);
}

#[test]
fn xorriso_extracts_every_file_and_complains_of_nothing() {
    let seed = seed();
    let (folder, path) = written(&seed);
    for way in ["nojoliet", "norock"] {
        let out = folder.path().join(way);
        let output =
            ["-osirrox", "on", "-read_fs", way, "-indev", arg(&path), "-extract", "/", arg(&out)];
        let output = XORRISO.run(&output);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{way}: {said}");
        for complaint in ["WARNING", "SORRY", "FAILURE", "FATAL"] {
            assert!(!said.contains(complaint), "{way}: {said}");
        }
        for (name, content) in files(&seed) {
            let read = std::fs::read(out.join(name)).expect(name);
            assert!(read == content, "{way} {name} differs");
        }
    }
}

#[test]
fn xorriso_sees_files_that_only_root_may_read() {
    let (_folder, path) = written(&seed());
    let listing = XORRISO.text(&["-indev", arg(&path), "-find", "/", "-exec", "lsdl"]);
    assert!(listing.contains("dr-xr-xr-x"), "{listing}");
    let files = listing.lines().filter(|line| line.starts_with("-r--------"));
    assert_eq!(files.count(), 3, "{listing}");
    assert!(listing.contains("Jan  1  2000"), "{listing}");
}

#[test]
fn bsdtar_reads_it_as_a_third_opinion() {
    let seed = seed();
    let (_folder, path) = written(&seed);
    for options in ["iso9660:rockridge,!joliet", "iso9660:!rockridge,joliet"] {
        for (name, content) in files(&seed) {
            let read = BSDTAR.stdout(&["-xOf", arg(&path), "--options", options, name]);
            assert!(read == content, "{options} {name} differs");
        }
    }
}

#[test]
fn blkid_finds_the_label_as_a_guest_does() {
    let (_folder, path) = written(&seed());
    let facts = BLKID.text(&["-p", "-o", "export", arg(&path)]);
    assert!(facts.contains("LABEL=cidata\n") && facts.contains("TYPE=iso9660\n"), "{facts}");
}

#[test]
fn equal_files_give_equal_bytes() {
    assert!(seed().image() == seed().image());
    let mut other = seed();
    other.meta_data.push('#');
    assert!(seed().image() != other.image());
}

#[test]
fn a_seed_without_network_config_has_two_files() {
    let seed = SeedFiles { network_config: String::new(), ..seed() };
    let (_folder, path) = written(&seed);
    let listing = ISOINFO.text(&["-R", "-f", "-i", arg(&path)]);
    assert!(!listing.contains("network-config"), "{listing}");
}

/// More files than a sector of the root folder holds, with the longest names there are.
#[test]
fn a_folder_of_several_sectors_is_read_back() {
    let names: Vec<String> = (0..60).map(|n| format!("{n:02}-{}", "x".repeat(61))).collect();
    let files: Vec<File<'_>> =
        names.iter().map(|name| File { name, data: name.as_bytes() }).collect();
    let image = iso9660::image("cidata", &files).expect("fits");
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("many.iso");
    std::fs::write(&path, image).expect("written");
    assert_eq!(listed("-R", &path), names);
    assert_eq!(listed("-J", &path), names);
    for name in [&names[0], &names[59]] {
        let read = ISOINFO.stdout(&["-R", "-x", &format!("/{name}"), "-i", arg(&path)]);
        assert_eq!(read, name.as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever names and contents it holds, both name spaces give all of them back.
    #[test]
    fn every_file_comes_back_whatever_it_is(
        files in btree_map("[a-z0-9_-][a-z0-9._-]{0,63}", vec(any::<u8>(), 0..5000), 0..12),
    ) {
        let list: Vec<File<'_>> = files.iter().map(|(name, data)| File { name, data }).collect();
        let folder = TempDir::new()?;
        let path = folder.path().join("some.iso");
        std::fs::write(&path, iso9660::image("cidata", &list).expect("fits"))?;
        for options in ["iso9660:rockridge,!joliet", "iso9660:!rockridge,joliet"] {
            let out = TempDir::new()?;
            BSDTAR.stdout(&["-xf", arg(&path), "--options", options, "-C", arg(out.path())]);
            for (name, data) in &files {
                prop_assert!(std::fs::read(out.path().join(name))? == *data, "{options}: {name}");
            }
            prop_assert_eq!(std::fs::read_dir(out.path())?.count(), files.len());
        }
    }
}

fn listed(extension: &str, path: &Path) -> Vec<String> {
    let listing = ISOINFO.text(&[extension, "-f", "-i", arg(path)]);
    let mut names: Vec<String> =
        listing.lines().map(|line| line.trim_start_matches('/').to_owned()).collect();
    names.sort_unstable();
    names
}

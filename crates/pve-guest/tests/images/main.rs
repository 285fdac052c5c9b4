//! The reader against images of other makers: Debian's genisoimage and xorriso. Both have to be
//! installed (`apt-get install genisoimage xorriso`); without them these tests fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use pve_guest::iso9660::{Image, Names};

const LONG: &str =
    "a-name-that-needs-more-room-than-a-directory-record-has-for-it-and-so-goes-on-elsewhere";

/// Files of every size around a sector, and names that plain ISO 9660 does not know.
fn files() -> BTreeMap<String, Vec<u8>> {
    let bytes = |length: usize| (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let files = [
        ("user-data", bytes(70_000)),
        ("meta-data", b"instance-id: 9a8b\n".to_vec()),
        ("network-config", bytes(2048)),
        ("vendor-data", vec![]),
        ("Capital.Name", bytes(2049)),
    ];
    files.map(|(name, data)| (name.to_owned(), data)).into()
}

fn made(maker: &[&str], files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("files");
    std::fs::create_dir(&source).unwrap();
    for (name, data) in files {
        std::fs::write(source.join(name), data).unwrap();
    }
    // A directory beside the files must not disturb.
    std::fs::create_dir(source.join("folder")).unwrap();
    std::fs::write(source.join("folder/user-data"), b"another").unwrap();
    let image = folder.path().join("image.iso");
    run(maker, &image, &source);
    std::fs::read(image).unwrap()
}

fn run(maker: &[&str], image: &Path, source: &Path) {
    let (program, options) = maker.split_first().unwrap();
    let mut command = Command::new(program);
    command.args(options).arg("-o").arg(image).arg(source);
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn read(maker: &[&str]) -> Image {
    Image::read(&made(maker, &files())).unwrap()
}

#[test]
fn rock_ridge_and_joliet_together() {
    let image = read(&["genisoimage", "-quiet", "-V", "cidata", "-J", "-R"]);
    assert_eq!((image.label.as_str(), image.names), ("cidata", Names::RockRidge));
    assert_eq!(image.files, files());
}

#[test]
fn joliet_alone() {
    let image = read(&["genisoimage", "-quiet", "-V", "CIDATA", "-J"]);
    assert_eq!((image.label.as_str(), image.names), ("CIDATA", Names::Joliet));
    assert_eq!(image.files, files());
}

#[test]
fn rock_ridge_alone() {
    let image = read(&["genisoimage", "-quiet", "-V", "cidata", "-R"]);
    assert_eq!(image.names, Names::RockRidge);
    assert_eq!(image.files, files());
}

#[test]
fn plain_names_are_not_those_that_cloud_init_looks_for() {
    let image = read(&["genisoimage", "-quiet", "-V", "cidata"]);
    assert_eq!(image.names, Names::Plain);
    assert!(!image.files.contains_key("user-data"));
    assert!(image.files.contains_key("meta_dat"), "{image:?}");
}

#[test]
fn xorriso_in_both_ways() {
    for options in [["-J", "-R"], ["-R", "-quiet"]] {
        let mut maker = vec!["xorriso", "-as", "mkisofs", "-quiet", "-V", "cidata"];
        maker.extend(options);
        let image = read(&maker);
        assert_eq!(image.names, Names::RockRidge);
        assert_eq!(image.files, files());
    }
}

#[test]
fn long_names_go_on_in_continuation_areas() {
    let name = format!("{LONG}-{LONG}");
    let long = BTreeMap::from([(name.clone(), b"found".to_vec())]);
    for maker in
        [&["genisoimage", "-quiet", "-R"][..], &["xorriso", "-as", "mkisofs", "-quiet", "-R"]]
    {
        let image = Image::read(&made(maker, &long)).unwrap();
        assert_eq!(image.files.get(&name).map(Vec::as_slice), Some(&b"found"[..]), "{image:?}");
    }
}

#[test]
fn directories_of_many_sectors() {
    let many = (0..200).map(|n| (format!("file-number-{n:03}"), n.to_string().into_bytes()));
    let many: BTreeMap<String, Vec<u8>> = many.collect();
    for options in ["-J", "-R"] {
        let image = Image::read(&made(&["genisoimage", "-quiet", options], &many)).unwrap();
        assert_eq!(image.files, many);
    }
}

/// Whatever a damaged image holds, reading it ends, and never with bytes from elsewhere.
#[test]
fn damage_is_never_fatal() {
    let data = made(&["genisoimage", "-quiet", "-J", "-R", "-V", "cidata"], &files());
    for end in (0..data.len()).step_by(1021) {
        let _ = Image::read(&data[..end]);
    }
    let mut refused = 0;
    for at in (16 * 2048..30 * 2048).step_by(7) {
        let mut damaged = data.clone();
        damaged[at] ^= 0xff;
        refused += usize::from(Image::read(&damaged).is_err());
    }
    assert!(refused > 10, "only {refused} damages were seen");
}

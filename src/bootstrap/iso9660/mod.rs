//! An ISO 9660 image of a few files in one folder, with Rock Ridge and Joliet names.
//!
//! A guest needs one of the two name extensions, because plain ISO 9660 would turn `user-data`
//! into `USER_DAT.;1`; with both, every reader finds the names. The image is deterministic:
//! equal input gives equal bytes, and every date is 2000-01-01. It must not grow folders, links or
//! boot records; a seed needs none.
//!
//! Facts from ECMA-119 (volume descriptors, records), the Joliet specification, SUSP 1.10 and RRIP
//! 1.09. Layout in sectors of 2048 bytes:
//!
//! | sector | content |
//! |---|---|
//! | 0–15 | unused by ISO 9660, zero |
//! | 16, 17, 18 | primary descriptor, Joliet descriptor, terminator |
//! | 19, 20 | path table of the primary tree, little- and big-endian |
//! | 21, 22 | path table of the Joliet tree, little- and big-endian |
//! | from 23 | root folder of the primary tree, then of the Joliet tree |
//! | then | the files in the order given, each from the start of a sector |

mod descriptor;
mod directory;
mod names;

use std::fmt;

use self::descriptor::Volume;
use self::directory::{Extent, Tree};
use self::names::Named;

/// Bytes in a logical sector and block.
pub const SECTOR: usize = 2048;

const PATH_TABLES: u32 = 19;
const ROOTS: u32 = 23;

/// A file in the root folder of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct File<'a> {
    /// 1 to 64 of `A–Z a–z 0–9 . _ -`, not starting with a dot.
    pub name: &'a str,
    /// The content, less than 4 GiB.
    pub data: &'a [u8],
}

impl fmt::Debug for File<'_> {
    /// Leaves the content out: a seed holds join tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name).field("len", &self.data.len()).finish()
    }
}

/// Why an image cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The volume label does not fit.
    #[error("volume label {0:?} is not valid: expected 1 to 16 letters, digits, '_' or '-'")]
    VolumeId(String),
    /// A name that not every reader would give back.
    #[error(
        "file name {0:?} is not valid: expected 1 to 64 letters, digits, '.', '_' or '-', not \
         starting with a dot"
    )]
    Name(String),
    /// Two files of one name.
    #[error("file name {0:?} is given twice; some readers ignore case")]
    Duplicate(String),
    /// A file whose length does not fit into 32 bits.
    #[error("file {0:?} is too large: an ISO 9660 file holds less than 4 GiB")]
    TooLarge(String),
}

/// Writes an image labelled `volume_id` that holds `files`.
///
/// # Errors
/// [`ImageError`] for a label or name that readers would not give back unchanged, and for files
/// that ISO 9660 cannot hold.
pub fn image(volume_id: &str, files: &[File<'_>]) -> Result<Vec<u8>, ImageError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !(1..=16).contains(&volume_id.len()) || !volume_id.bytes().all(fits) {
        return Err(ImageError::VolumeId(volume_id.to_owned()));
    }
    let named = names::named(files)?;
    let primary_sectors = directory::sectors(Tree::Primary, &named);
    let joliet_sectors = directory::sectors(Tree::Joliet, &named);
    let first_file = ROOTS + primary_sectors + joliet_sectors;
    let (extents, sectors) = place(&named, first_file)?;

    let primary_root = Extent { sector: ROOTS, len: bytes_in(primary_sectors) };
    let joliet_root = Extent { sector: ROOTS + primary_sectors, len: bytes_in(joliet_sectors) };
    let volume =
        |tree, root, path_table| Volume { tree, label: volume_id, sectors, root, path_table };
    let primary = volume(Tree::Primary, primary_root, PATH_TABLES);
    let joliet = volume(Tree::Joliet, joliet_root, PATH_TABLES + 2);

    let mut image = vec![0; 16 * SECTOR];
    image.extend(primary.descriptor());
    image.extend(joliet.descriptor());
    image.extend(descriptor::terminator());
    for volume in [&primary, &joliet] {
        image.extend(volume.path_tables());
    }
    image.extend(directory::folder(Tree::Primary, &named, &extents, primary_root));
    image.extend(directory::folder(Tree::Joliet, &named, &extents, joliet_root));
    for file in &named {
        image.extend_from_slice(file.data);
        pad_to_sector(&mut image);
    }
    Ok(image)
}

/// Gives each file its extent, from `first` on, and the sector after the last.
fn place(files: &[Named<'_>], first: u32) -> Result<(Vec<Extent>, u32), ImageError> {
    let mut next = first;
    let mut extents = Vec::with_capacity(files.len());
    for file in files {
        let too_large = || ImageError::TooLarge(file.name.to_owned());
        let len = u32::try_from(file.data.len()).map_err(|_| too_large())?;
        extents.push(Extent { sector: next, len });
        next = next.checked_add(sectors_for(len)).ok_or_else(too_large)?;
    }
    Ok((extents, next))
}

/// Sectors that `len` bytes take up.
const fn sectors_for(len: u32) -> u32 {
    len.div_ceil(bytes_in(1))
}

const fn bytes_in(sectors: u32) -> u32 {
    sectors * 2048
}

fn pad_to_sector(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(SECTOR), 0);
}

/// A 16-bit number in both byte orders, as ECMA-119 7.2.3 has it.
fn both16(value: u16) -> [u8; 4] {
    let mut out = [0; 4];
    out[..2].copy_from_slice(&value.to_le_bytes());
    out[2..].copy_from_slice(&value.to_be_bytes());
    out
}

/// A 32-bit number in both byte orders, as ECMA-119 7.3.3 has it.
fn both32(value: u32) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&value.to_le_bytes());
    out[4..].copy_from_slice(&value.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(name: &'a str, data: &'a [u8]) -> File<'a> {
        File { name, data }
    }

    #[test]
    fn the_label_is_where_a_guest_probes_for_it() {
        let image = image("cidata", &[file("user-data", b"#cloud-config\n")]).expect("fits");
        // blkid and udev read 32 bytes at offset 40 of sector 16.
        assert_eq!(&image[16 * SECTOR + 1..16 * SECTOR + 6], b"CD001");
        assert_eq!(
            &image[16 * SECTOR + 40..16 * SECTOR + 72],
            format!("{:32}", "cidata").as_bytes()
        );
        assert_eq!(image.len() % SECTOR, 0);
    }

    #[test]
    fn an_empty_file_takes_no_sector() {
        let with = image("cidata", &[file("user-data", b"")]).expect("fits");
        let more = image("cidata", &[file("user-data", &[1])]).expect("fits");
        assert_eq!(with.len() + SECTOR, more.len());
    }

    #[test]
    fn names_that_some_reader_would_change_are_refused() {
        let long = "n".repeat(65);
        for name in ["", ".", "..", ".hidden", "a/b", "a b", "a;1", "ü", "a\0", long.as_str()] {
            let refusal = image("cidata", &[file(name, b"")]);
            assert_eq!(refusal, Err(ImageError::Name(name.to_owned())));
        }
        let twice = image("cidata", &[file("a", b""), file("A", b"")]);
        assert_eq!(twice, Err(ImageError::Duplicate("A".to_owned())));
    }

    #[test]
    fn labels_that_do_not_fit_are_refused() {
        for label in ["", "seventeen-letters", "a b", "é"] {
            assert_eq!(image(label, &[]), Err(ImageError::VolumeId(label.to_owned())));
        }
    }

    #[test]
    fn the_content_of_a_file_is_not_shown() {
        let shown = format!("{:?}", file("user-data", b"token: abcdef"));
        assert_eq!(shown, "File { name: \"user-data\", len: 13 }");
    }
}
